"""Drafters that fail silently: the text is right, and hardly a draft is accepted."""

from collections.abc import Sequence

from codraft.core.schema import AcceptanceResult

# A drafter that fits has its first draft accepted in half of the steps or more, and those that look up copies in some;
# with fewer steps that draft than these, none accepted may be chance.
LEAST, FEWEST = 0.02, 50


def silent_failures(results: Sequence[AcceptanceResult], target: str) -> list[str]:
    """One sentence for each drafter whose first drafts are accepted in less than 2 % of 50 steps or more."""
    found = []
    for result in results:
        point = min((p for p in result.curve if p.D > 0), key=lambda p: p.D, default=None)
        first = None if point is None or not point.conditional else point.conditional[0]
        if point is None or first is None or first >= LEAST or point.drafted_steps < FEWEST:
            continue
        drafter = result.drafter
        where = "" if drafter.id is None else f" {drafter.id}"
        found.append(
            f"{drafter.name} had {point.accepted:.0f} of {point.drafted:.0f} drafted tokens accepted at D = {point.D}: "
            f"it does not fit this target or text, or is broken; look with codraft inspect {target}{where}, "
            "and whether it was said to look untrained when it was loaded"
        )
    return found
