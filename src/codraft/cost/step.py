"""Step time, speed-up and break-even: the formula that everything else feeds.

    speedup(B, S, D) = AL(D) * T_step(B, S, 0) / T_step(B, S, D),   T_step = T_verif + T_draft + T_sys

T_draft is 0 at D = 0. The co-design article's formula is the case T_sys = 0 [NVIDIA26].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codraft.core.errors import SpecError
from codraft.core.schema import TimingPoint


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
    points: Mapping[int, TimingPoint], drafter: str | None, D: int, proposal_lengths: Sequence[float]
) -> StepTimes:
    """Step times of a drafter at one (B, S), from points by D.

    `proposal_lengths[k]` is the share of steps that really drafted k <= D tokens: a pass over 1 + k tokens is what the
    target is asked for, so T_verif and T_sys are averaged over them (B = 1; in a batch the shares mix).
    """
    needed = [k for k, share in enumerate(proposal_lengths) if share > 0] or [0]
    missing = [k for k in (*needed, D) if k not in points]
    if missing:
        raise SpecError(
            f"no timing at D = {missing[0]} (timed: {sorted(points)}); time every D up to the largest asked"
        )
    t_draft = 0.0
    if drafter is not None and D > 0:
        if drafter not in points[D].t_draft_s:
            raise SpecError(f"no drafting time of '{drafter}' at D = {D} (timed: {sorted(points[D].t_draft_s)})")
        t_draft = points[D].t_draft_s[drafter]
    return StepTimes(
        t_verif_s=sum(share * points[k].t_verif_s for k, share in enumerate(proposal_lengths) if share > 0),
        t_draft_s=t_draft,
        t_sys_s=sum(share * points[k].t_sys_s for k, share in enumerate(proposal_lengths) if share > 0),
    )
