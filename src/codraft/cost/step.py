"""Step time, speed-up and break-even: the formula that everything else feeds.

    speedup(B, S, D) = AL(D) * T_step(B, S, 0) / T_step(B, S, D),   T_step = T_verif + T_draft + T_sys

T_draft is 0 at D = 0. The co-design article's formula is the case T_sys = 0 [NVIDIA26].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codraft.core.errors import SpecError
from codraft.core.schema import Ragged, TimingPoint

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Seconds of one step's parts."""

    t_verif_s: float
    t_draft_s: float
    t_sys_s: float

    @property
    def t_step_s(self) -> float:
        """Their sum: nothing overlaps."""
        return self.t_verif_s + self.t_draft_s + self.t_sys_s


def speedup(AL: float, plain: StepTimes, drafted: StepTimes) -> float:
    """Tokens per second over plain decoding at the same B and S."""
    if AL < 1:
        raise ValueError(f"AL counts the bonus token, so it is at least 1; got {AL}")
    return AL * plain.t_step_s / drafted.t_step_s


def break_even_AL(plain: StepTimes, drafted: StepTimes) -> float:
    """The AL at which drafting neither gains nor loses."""
    return drafted.t_step_s / plain.t_step_s


def times_at(
    points: Mapping[int, TimingPoint],
    drafter: str | None,
    D: int,
    proposal_lengths: Sequence[float],
    ragged: Ragged = "padded",
) -> StepTimes:
    """Step times of a drafter at one (B, S), from points by D.

    `proposal_lengths[k]` is the share of steps in which a sequence really drafted k <= D tokens. A pass over B such
    sequences, taken as independent, is priced by the histogram of its width, not at its mean: the cost may be a
    staircase. Between timed D it is interpolated.
    """
    missing = [k for k in (0, D) if k not in points]
    if missing:
        raise SpecError(f"no timing at D = {missing[0]} (timed: {sorted(points)}); time it, or ask for less")
    widths, shares = pass_widths(proposal_lengths, points[D].B, ragged)
    timed = sorted(points)

    def average(values: Sequence[float]) -> float:
        return float(shares @ np.interp(widths, timed, values))

    return StepTimes(
        t_verif_s=average([points[k].t_verif_s for k in timed]),
        t_draft_s=drafting_time(points, drafter, D),
        t_sys_s=average([points[k].t_sys_s for k in timed]),
    )


def drafting_time(points: Mapping[int, TimingPoint], drafter: str | None, D: int) -> float:
    """T_draft at D; a timing without any drafter's times holds whole steps, drafting included."""
    if drafter is None or D == 0 or not any(point.t_draft_s for point in points.values()):
        return 0.0
    if drafter not in points[D].t_draft_s:
        raise SpecError(f"no drafting time of '{drafter}' at D = {D} (timed: {sorted(points[D].t_draft_s)})")
    return points[D].t_draft_s[drafter]


def pass_widths(proposal_lengths: Sequence[float], B: int, ragged: Ragged) -> tuple[Floats, Floats]:
    """Drafted tokens per sequence that a pass over B sequences is priced at, and how likely each is.

    `padded`: all rows are as wide as the longest. `packed`: the tokens add up, so the mean of B lengths counts.
    """
    share_K = np.asarray(proposal_lengths, dtype=float)
    if B == 1:
        return np.arange(len(share_K), dtype=float), share_K
    if ragged == "padded":
        return np.arange(len(share_K), dtype=float), np.diff(np.cumsum(share_K) ** B, prepend=0.0)
    # The sum of B independent lengths: its distribution is the B-fold convolution, taken as a power of the transform.
    size = B * (len(share_K) - 1) + 1
    sums_J = np.clip(np.fft.irfft(np.fft.rfft(share_K, size) ** B, size), 0, None)
    return np.arange(size) / B, sums_J / sums_J.sum()
