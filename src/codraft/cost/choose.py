"""From AL(D) and step times to a decision: every (drafter, D), the best, and the guidelines' word on it."""

from collections.abc import Mapping, Sequence

from codraft.core.acceptance import CurvePoint
from codraft.core.schema import AcceptanceResult, Candidate, DecisionPoint, ScheduleEntry, TimingPoint
from codraft.cost.guidelines import guidelines
from codraft.cost.step import StepTimes, break_even_AL, speedup, times_at
from codraft.models.shape import Shape

# Below this predicted gain the choice is "off": it would drown in run-to-run noise, and drafting is never free.
LEAST_GAIN = 1.02


def decide(
    results: Sequence[AcceptanceResult], points: Sequence[TimingPoint], shape: Shape | None
) -> tuple[list[DecisionPoint], list[ScheduleEntry]]:
    """A decision at every timed (B, S), and the schedule over B at the smallest S."""
    loads = sorted({(point.B, point.S) for point in points})
    decisions = [decide_at([p for p in points if load == (p.B, p.S)], results, shape) for load in loads]
    smallest_S = min(S for _, S in loads)
    return decisions, schedule([d for d in decisions if smallest_S == d.S])


def decide_at(points: Sequence[TimingPoint], results: Sequence[AcceptanceResult], shape: Shape | None) -> DecisionPoint:
    """All candidates at one load, best first."""
    by_depth = {point.D: point for point in points}
    plain = times_at(by_depth, None, 0, [1.0])
    candidates = [
        candidate(result.drafter.name, point, by_depth, plain)
        for result in results
        for point in result.curve
        if point.D in by_depth
    ]
    candidates.sort(key=lambda c: -c.speedup)
    best = candidates[0] if candidates and candidates[0].speedup >= LEAST_GAIN else None
    B, S = points[0].B, points[0].S
    return DecisionPoint(
        B=B,
        S=S,
        plain={"t_step_s": plain.t_step_s, "tokens_per_s": B / plain.t_step_s},
        best=best,
        candidates=candidates,
        guidelines=guidelines(B, S, by_depth, candidates, shape),
    )


def candidate(name: str, point: CurvePoint, by_depth: Mapping[int, TimingPoint], plain: StepTimes) -> Candidate:
    """One (drafter, D): its gain with the interval that AL's interval implies."""
    lengths = [sum(row) / point.steps for row in point.counts]
    drafted = times_at(by_depth, name, point.D, lengths)
    interval = None
    if point.AL_ci95 is not None:
        low, high = (speedup(AL, plain, drafted) for AL in point.AL_ci95)
        interval = (low, high)
    return Candidate(
        drafter=name,
        D=point.D,
        AL=point.AL,
        AL_ci95=point.AL_ci95,
        t_step_s=drafted.t_step_s,
        speedup=speedup(point.AL, plain, drafted),
        speedup_ci95=interval,
        break_even_AL=break_even_AL(plain, drafted),
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
