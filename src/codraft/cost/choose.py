"""From AL(D) and step times to a decision: every (drafter, D), the best, and the guidelines' word on it."""

from collections.abc import Callable, Mapping, Sequence

from codraft.core.constants import LEAST_GAIN
from codraft.core.errors import SpecError
from codraft.core.schema import Candidate, DecisionPoint, Ragged, ScheduleEntry, TimingPoint
from codraft.cost.curves import CurveAt, DrafterCurve, full_drafts
from codraft.cost.guidelines import guidelines
from codraft.cost.step import StepTimes, break_even_AL, speedup, times_at
from codraft.cost.verdict import verdict, warnings
from codraft.models.shape import Shape

# Device bytes of a drafter by name, at B sequences of S tokens; None where it is not known.
DrafterBytes = Callable[[str, int, int], int | None]


# Seconds of a drafter's average real step by (B, S, D, name), where somebody measured it whole.
WholeSteps = Mapping[tuple[int, int, int, str], float]
NO_STEPS: WholeSteps = {}


def unknown_bytes(_name: str, _B: int, _S: int) -> int | None:
    """Nothing is known of any drafter's memory."""
    return None


def decide(
    curves: Sequence[DrafterCurve],
    points: Sequence[TimingPoint],
    shape: Shape | None,
    ragged: Ragged = "padded",
    bytes_of: DrafterBytes = unknown_bytes,
    whole_steps: WholeSteps = NO_STEPS,
) -> tuple[list[DecisionPoint], list[ScheduleEntry]]:
    """A decision at every timed (B, S), and the schedule over B at the smallest S."""
    loads = sorted({(point.B, point.S) for point in points})
    decisions = [
        decide_at([p for p in points if load == (p.B, p.S)], curves, shape, ragged, bytes_of, whole_steps)
        for load in loads
    ]
    known = sorted({point.D for curve in curves for point in curve.points})
    if known and not any(d.candidates for d in decisions):
        raise SpecError(
            f"nothing to compare: AL is known at D = {', '.join(map(str, known))}, step times at D = "
            f"{', '.join(map(str, sorted({p.D for p in points})))}; they need a D above 0 in common"
        )
    smallest_S = {B: min(S for b, S in loads if b == B) for B, _ in loads}
    return decisions, schedule([d for d in decisions if smallest_S[d.B] == d.S])


def decide_at(
    points: Sequence[TimingPoint],
    curves: Sequence[DrafterCurve],
    shape: Shape | None,
    ragged: Ragged = "padded",
    bytes_of: DrafterBytes = unknown_bytes,
    whole_steps: WholeSteps = NO_STEPS,
) -> DecisionPoint:
    """All candidates at one load, best first."""
    by_depth = {point.D: point for point in points}
    B, S = points[0].B, points[0].S
    plain = times_at(by_depth, None, 0, [1.0], ragged)
    whole = {(name, D): t for (b, c, D, name), t in whole_steps.items() if (b, c) == (B, S)}
    candidates = [
        candidate(
            curve.name, point, by_depth, plain, ragged, bytes_of(curve.name, B, S), whole.get((curve.name, point.D))
        )
        for curve in curves
        for point in curve.points
        if priced(by_depth, whole, curve.name, point.D)
    ]
    candidates.sort(key=lambda c: (-c.speedup, c.D))
    best = candidates[0] if candidates and candidates[0].speedup >= LEAST_GAIN else None
    return DecisionPoint(
        B=B,
        S=S,
        plain={"t_step_s": plain.t_step_s, "tokens_per_s": B / plain.t_step_s},
        best=best,
        verdict=verdict(best, candidates),
        warnings=[*warnings(candidates), *cautions(curves, by_depth, candidates, best, whole)],
        candidates=candidates,
        guidelines=guidelines(B, S, by_depth, candidates, shape),
    )


def priced(by_depth: Mapping[int, TimingPoint], whole: Mapping[tuple[str, int], float], drafter: str, D: int) -> bool:
    """Whether this (drafter, D) has times: of its own where it was timed at any D, else those of the pass alone."""
    elsewhere = any(drafter in p.t_draft_s for p in by_depth.values()) or any(name == drafter for name, _ in whole)
    own = (drafter, D) in whole or (D in by_depth and drafter in by_depth[D].t_draft_s)
    return D > 0 and D in by_depth and (own or not elsewhere)


def cautions(
    curves: Sequence[DrafterCurve],
    by_depth: Mapping[int, TimingPoint],
    candidates: Sequence[Candidate],
    best: Candidate | None,
    whole: Mapping[tuple[str, int], float],
) -> list[str]:
    """D that could not be priced, and a choice that holds only where short drafts cost less than full ones."""
    lines = []
    for curve in curves:
        had = {c.D for c in candidates if c.drafter == curve.name}
        missing = [str(point.D) for point in curve.points if point.D > 0 and point.D not in had]
        if missing:
            lines.append(f"{curve.name} was not priced at D = {', '.join(missing)}: no step time there")
    if best is not None and (best.drafter, best.D) not in whole:
        plain = times_at(by_depth, None, 0, [1.0])
        full = times_at(by_depth, best.drafter, best.D, full_drafts(best.D))
        padded = speedup(best.AL, plain, full)
        if padded < LEAST_GAIN:
            lines.append(
                f"{best.drafter} at D = {best.D} gains because many of its drafts are shorter; an engine that fills "
                f"every draft up to D would give {padded:.2f} times"
            )
    return lines


def candidate(
    name: str,
    point: CurveAt,
    by_depth: Mapping[int, TimingPoint],
    plain: StepTimes,
    ragged: Ragged,
    num_bytes: int | None,
    whole_step_s: float | None = None,
) -> Candidate:
    """One (drafter, D): its gain with the interval that AL's interval implies."""
    if whole_step_s is None:
        drafted = times_at(by_depth, name, point.D, point.lengths, ragged)
    else:
        drafted = StepTimes(t_verif_s=whole_step_s, t_draft_s=0.0, t_sys_s=0.0)
    # Without drafting times the figures are whole steps, and their parts are not known.
    parts = whole_step_s is None and any(p.t_draft_s for p in by_depth.values())
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
        t_sys_s=drafted.t_sys_s if parts and any(p.t_sys_s for p in by_depth.values()) else None,
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
