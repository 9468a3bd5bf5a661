"""The decision in sentences: what to run, and what would slow the user down."""

from collections.abc import Sequence

from codraft.core.constants import LEAST_GAIN
from codraft.core.schema import Candidate

# From here on a drafter is one that people would expect to gain by its AL.
GOOD_AL = 1.2


def verdict(best: Candidate | None, candidates: Sequence[Candidate]) -> str:
    """The choice at one load in one sentence."""
    if not candidates:
        return "off: no drafter has a D with both an AL and a step time at this load, so there is nothing to compare"
    if best is None:
        return f"off: no candidate gains {LEAST_GAIN - 1:.0%} or more over plain decoding{nearest(candidates)}"
    doubt = ""
    if best.speedup_ci95 and best.speedup_ci95[0] < 1:
        doubt = "; its interval reaches below 1, so measure more prompts before you rely on it"
    return (
        f"{best.drafter} with D = {best.D}, predicted {best.speedup:.2f} times plain decoding (AL {best.AL:.2f}, "
        f"break-even {best.break_even_AL:.2f}){doubt}"
    )


def nearest(candidates: Sequence[Candidate]) -> str:
    """The nearest miss."""
    c = candidates[0]
    return f" (closest: {c.drafter} at D = {c.D}, {c.speedup:.2f} times)"


def warnings(candidates: Sequence[Candidate]) -> list[str]:
    """Drafters that would slow the user down, at every D or from some D on."""
    lines = []
    for name in dict.fromkeys(c.drafter for c in candidates):
        own = sorted((c for c in candidates if c.drafter == name), key=lambda c: c.D)
        top = max(own, key=lambda c: c.speedup)
        reached = max(c.AL for c in own)
        if top.speedup < 1:
            lines.append(
                f"{name} makes decoding slower at every D here: at best {top.speedup:.2f} times (D = {top.D}), "
                + (f"although its AL reaches {reached:.2f}" if reached >= GOOD_AL else f"its AL stays at {reached:.2f}")
            )
            continue
        worst = min(own, key=lambda c: c.speedup)
        if worst.speedup < 1:
            losing = ", ".join(str(c.D) for c in own if c.speedup < 1)
            lines.append(
                f"{name} makes decoding slower at D = {losing}: down to {worst.speedup:.2f} times at D = {worst.D}"
            )
    return lines
