"""How much of a draft is worth verifying, from confidences: by a threshold, or by what one token more costs [DSpark].

A confidence c_j is the chance that draft j is accepted if all before it are. Whether draft j is verified may depend on
c_1 .. c_j only, which are there before x_j is drawn: c_(j + 1) depends on x_j, and a rule that looked at it would
choose among values of x_j and bias the output.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from statistics import median
from typing import Protocol

from codraft.core.errors import SpecError
from codraft.core.schema import TimingPoint


class Cut(Protocol):
    """Where drafts end."""

    def lengths(self, confidence: Sequence[Sequence[float]]) -> list[int]:
        """Drafts of each sequence that are verified, from their confidences."""
        ...


@dataclass(frozen=True, slots=True)
class Threshold:
    """The prefix before the first confidence below `least`."""

    least: float

    def lengths(self, confidence: Sequence[Sequence[float]]) -> list[int]:
        """See `Cut.lengths`."""
        return [next((j for j, c in enumerate(row) if c < self.least), len(row)) for row in confidence]


@dataclass(frozen=True, slots=True)
class CostTable:
    """T_step in seconds by the tokens x of a verification pass, between timed ones in proportion.

    Beyond the last timed x the last slope goes on, though never downwards; below the first the first time stands.
    """

    tokens: tuple[int, ...]
    seconds: tuple[float, ...]

    @classmethod
    def from_record(cls, points: Sequence[TimingPoint], drafter: str | None = None) -> "CostTable":
        """The median over the points of a timing record at each x.

        Drafting is paid for before its length is chosen: the median T_draft of `drafter` stands in every time, 0 where
        the record has not timed it.
        """
        wrong = next((p for p in points if p.t_verif_s <= 0 or p.t_sys_s < 0), None)
        if wrong is not None:
            raise SpecError(
                f"the timing record says that a pass of x = {wrong.x} takes {wrong.t_verif_s:g} s, and "
                f"{wrong.t_sys_s:g} s around it; times are above 0, so profile again"
            )
        drafting = [p.t_draft_s[drafter] for p in points if p.D > 0 and drafter is not None and drafter in p.t_draft_s]
        paid = median(drafting) if drafting else 0.0
        by_x: dict[int, list[float]] = {}
        for point in points:
            by_x.setdefault(point.x, []).append(point.t_verif_s + point.t_sys_s + paid)
        if len(by_x) < 2:
            found = "1 length" if by_x else "no length"
            raise SpecError(
                f"the timing record holds passes of {found}, and a schedule needs two or more; profile several D"
            )
        tokens = tuple(sorted(by_x))
        return cls(tokens, tuple(median(by_x[x]) for x in tokens))

    def __call__(self, x: int) -> float:
        """Seconds of a step whose pass has x tokens."""
        first, last = self.tokens[0], self.tokens[-1]
        if x <= first:
            return self.seconds[0]
        upper = next((i for i, timed in enumerate(self.tokens) if timed >= x), len(self.tokens) - 1)
        low, high = self.tokens[upper - 1], self.tokens[upper]
        slope = (self.seconds[upper] - self.seconds[upper - 1]) / (high - low)
        if x > last:
            return self.seconds[-1] + max(0.0, slope) * (x - last)
        return self.seconds[upper - 1] + slope * (x - low)


@dataclass(frozen=True, slots=True)
class Schedule:
    """As many drafts as make tokens per second grow, over all sequences of the batch together."""

    cost: Callable[[int], float]

    def lengths(self, confidence: Sequence[Sequence[float]]) -> list[int]:
        """See `Cut.lengths`."""
        return admit([list(accumulate(row, mul)) for row in confidence], self.cost)


def admit(survival: Sequence[Sequence[float]], cost: Callable[[int], float]) -> list[int]:
    """Drafts of each sequence to verify: the DSpark paper's Algorithm 1.

    `survival[r][j]` is the chance that drafts 0..j of sequence r all stand; it never grows with j. `cost(x)` are the
    seconds of a step whose pass has x tokens. Drafts are taken in falling order of survival, ties by position and then
    by sequence, while the rate (sequences + expected accepted) / cost grows. The FIRST that does not raise it ends the
    search: a better rate further on would be found by survivals that drafts not yet decided on have a part in.
    """
    taken = [0] * len(survival)
    tokens, x = float(len(survival)), len(survival)
    rate = tokens / cost(x) if x else 0.0
    for minus_a, _, r in sorted((-a, j, r) for r, row in enumerate(survival) for j, a in enumerate(row)):
        tokens, x = tokens - minus_a, x + 1
        if tokens / cost(x) <= rate:
            break
        rate = tokens / cost(x)
        taken[r] += 1
    return taken
