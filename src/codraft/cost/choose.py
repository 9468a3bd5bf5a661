"""From AL(D) and step times to a decision: every (drafter, D), the best, and the guidelines' word on it."""

from collections.abc import Callable, Mapping, Sequence

from codraft.core.constants import LEAST_GAIN
from codraft.core.schema import Candidate, DecisionPoint, Ragged, ScheduleEntry, TimingPoint
from codraft.cost.curves import CurveAt, DrafterCurve
from codraft.cost.guidelines import guidelines
from codraft.cost.step import StepTimes, break_even_AL, speedup, times_at
from codraft.cost.verdict import verdict, warnings
from codraft.models.shape import Shape

# Device bytes of a drafter by name, at B sequences of S tokens; None where it is not known.
DrafterBytes = Callable[[str, int, int], int | None]


def unknown_bytes(_name: str, _B: int, _S: int) -> int | None:
    """Nothing is known of any drafter's memory."""
    return None


def decide(
    curves: Sequence[DrafterCurve],
    points: Sequence[TimingPoint],
    shape: Shape | None,
    ragged: Ragged = "padded",
    bytes_of: DrafterBytes = unknown_bytes,
) -> tuple[list[DecisionPoint], list[ScheduleEntry]]:
    """A decision at every timed (B, S), and the schedule over B at the smallest S."""
    loads = sorted({(point.B, point.S) for point in points})
    decisions = [
        decide_at([p for p in points if load == (p.B, p.S)], curves, shape, ragged, bytes_of) for load in loads
    ]
    smallest_S = {B: min(S for b, S in loads if b == B) for B, _ in loads}
    return decisions, schedule([d for d in decisions if smallest_S[d.B] == d.S])


def decide_at(
    points: Sequence[TimingPoint],
    curves: Sequence[DrafterCurve],
    shape: Shape | None,
    ragged: Ragged = "padded",
    bytes_of: DrafterBytes = unknown_bytes,
) -> DecisionPoint:
    """All candidates at one load, best first."""
    by_depth = {point.D: point for point in points}
    B, S = points[0].B, points[0].S
    plain = times_at(by_depth, None, 0, [1.0], ragged)
    candidates = [
        candidate(curve.name, point, by_depth, plain, ragged, bytes_of(curve.name, B, S))
        for curve in curves
        for point in curve.points
        if point.D > 0 and timed(by_depth, curve.name, point.D)
    ]
    candidates.sort(key=lambda c: (-c.speedup, c.D))
    best = candidates[0] if candidates and candidates[0].speedup >= LEAST_GAIN else None
    return DecisionPoint(
        B=B,
        S=S,
        plain={"t_step_s": plain.t_step_s, "tokens_per_s": B / plain.t_step_s},
        best=best,
        verdict=verdict(best, candidates),
        warnings=warnings(candidates),
        candidates=candidates,
        guidelines=guidelines(B, S, by_depth, candidates, shape),
    )


def timed(by_depth: Mapping[int, TimingPoint], drafter: str, D: int) -> bool:
    """Whether there are times of this D; of a drafter that was timed at other D, whether it was timed at this one."""
    elsewhere = any(drafter in point.t_draft_s for point in by_depth.values())
    return D in by_depth and (drafter in by_depth[D].t_draft_s or not elsewhere)


def candidate(
    name: str,
    point: CurveAt,
    by_depth: Mapping[int, TimingPoint],
    plain: StepTimes,
    ragged: Ragged,
    num_bytes: int | None,
) -> Candidate:
    """One (drafter, D): its gain with the interval that AL's interval implies."""
    drafted = times_at(by_depth, name, point.D, point.lengths, ragged)
    # Without anybody's drafting times the figures are whole steps, and their parts are not known.
    parts = any(p.t_draft_s for p in by_depth.values())
    interval = None
    if point.AL_ci95 is not None:
        low, high = (speedup(AL, plain, drafted) for AL in point.AL_ci95)
        interval = (low, high)
    return Candidate(
        drafter=name,
        D=point.D,
        AL=point.AL,
        AL_ci95=point.AL_ci95,
        x=by_depth[point.D].B * (1 + sum(k * share for k, share in enumerate(point.lengths))),
        t_verif_s=drafted.t_verif_s if parts else None,
        t_draft_s=drafted.t_draft_s if parts else None,
        t_sys_s=drafted.t_sys_s if any(p.t_sys_s for p in by_depth.values()) else None,
        t_step_s=drafted.t_step_s,
        speedup=speedup(point.AL, plain, drafted),
        speedup_ci95=interval,
        break_even_AL=break_even_AL(plain, drafted),
        bytes=num_bytes,
    )


def schedule(decisions: Sequence[DecisionPoint]) -> list[ScheduleEntry]:
    """What to run up to each timed B; neighbours with the same choice are merged."""
    entries: list[ScheduleEntry] = []
    for decision in sorted(decisions, key=lambda d: d.B):
        name, D = (decision.best.drafter, decision.best.D) if decision.best else (None, 0)
        if entries and (entries[-1].drafter, entries[-1].D) == (name, D):
            entries.pop()
        entries.append(ScheduleEntry(max_batch=decision.B, drafter=name, D=D))
    return entries
