"""Sample studies, made by hand: a full one with everything a page can show, and some with next to nothing."""

from dataclasses import replace
from typing import Any

from codraft.core.schema import (
    Candidate,
    Confirmation,
    DecisionPoint,
    DecisionRecord,
    FrontierPoint,
    FrontierRecord,
    Guideline,
    Mechanism,
    ScheduleEntry,
)
from codraft.report import Study

from tests.report.measured import (
    DEPTHS,
    KINDS,
    LOADS,
    acceptance,
    attention_points,
    curve_point,
    provenance,
    timing,
    timing_point,
)


def candidate(name: str, B: int, S: int, D: int, interval: bool = True) -> Candidate:
    """The formula, by hand."""
    point, timed, plain = curve_point(name, D, interval=interval), timing_point(B, S, D), timing_point(B, S, 0)
    coverage = point.coverage
    verif = coverage * timed.t_verif_s + (1 - coverage) * plain.t_verif_s
    step = verif + timed.t_draft_s[name] + timed.t_sys_s
    plain_step = plain.t_verif_s + plain.t_sys_s
    ci = point.AL_ci95
    return Candidate(
        drafter=name,
        D=D,
        AL=point.AL,
        AL_ci95=ci,
        x=B * (1 + coverage * D),
        t_verif_s=verif,
        t_draft_s=timed.t_draft_s[name],
        t_sys_s=timed.t_sys_s,
        t_step_s=step,
        speedup=point.AL * plain_step / step,
        speedup_ci95=(ci[0] * plain_step / step, ci[1] * plain_step / step) if ci else None,
        break_even_AL=step / plain_step,
        bytes=269_000_000 if name == "external" else None,
    )


def guidelines(B: int) -> list[Guideline]:
    """Five of them."""
    shares = "bytes read: FFN 60%, attention 2%, the rest 38%"
    return [
        Guideline(
            id=1,
            premise="linear layers take more of a pass than attention",
            applies=True,
            value=8,
            optimum=5,
            loss=0.03,
            reason=f"T_verif stays within 1.25 times up to D = 8; {shares}",
        ),
        Guideline(
            id=2, premise="attention dominates", applies=False, reason=f"this device has no query tile; {shares}"
        ),
        Guideline(
            id=3, premise="D goes past one tile", applies=False, reason=f"this device has no query tile; {shares}"
        ),
        Guideline(
            id=4,
            premise="B = 1, the low-latency end",
            applies=B == 1,
            value=5,
            optimum=5,
            loss=0.0,
            reason=f"raising D one by one pays up to D = 5; {shares}",
        ),
        Guideline(
            id=5,
            premise="more than one mechanism was measured",
            applies=True,
            value="suffix",
            optimum="suffix",
            loss=0.0,
            reason=f"the longest AL is external's, which loses; {shares}",
        ),
    ]


def decision_point(B: int, S: int) -> DecisionPoint:
    """On at B = 1, off at B = 4."""
    plain = timing_point(B, S, 0)
    step = plain.t_verif_s + plain.t_sys_s
    candidates = [candidate(name, B, S, D) for name in KINDS for D in DEPTHS if D]
    candidates.sort(key=lambda c: -c.speedup)
    best = candidates[0] if candidates[0].speedup >= 1.02 else None
    return DecisionPoint(
        B=B,
        S=S,
        plain={"t_step_s": step, "tokens_per_s": B / step},
        best=best,
        verdict=f"{best.drafter} with D = {best.D}" if best else "off: no candidate gains 2% or more",
        warnings=["external makes decoding slower at every D here, although its AL is the longest"],
        candidates=candidates,
        guidelines=guidelines(B),
    )


def mechanisms() -> list[Mechanism]:
    """Two of the seven, measured and not."""
    return [
        Mechanism(
            mechanism="suffix",
            inputs="token ids of this and earlier streams",
            generation="one look-up in a suffix tree",
            memory="the tree, some bytes a token",
            cost="microseconds, whatever D",
            training="none",
            fits="text that repeats itself",
            measured_as=["suffix"],
        ),
        Mechanism(
            mechanism="external",
            inputs="token ids",
            generation="D serial passes of a small model",
            memory_bytes=269_000_000,
            memory="weights and a whole cache",
            cost="a whole small pass a token",
            training="none where a small sibling exists",
            fits="large targets",
            measured_as=["external"],
        ),
    ]


def decision() -> DecisionRecord:
    """The choice at both loads, confirmed."""
    points = [decision_point(B, S) for B, S in LOADS]
    best = points[0].best
    assert best is not None
    return DecisionRecord(
        schema=DecisionRecord.SCHEMA,
        provenance=provenance(inputs="dddd", acceptance="eeee", timing="ffff"),
        target="demo",
        basis={"engine": "torch", "machine": "AMD EPYC, 2 cores, cpu"},
        points=points,
        schedule=[
            ScheduleEntry(max_batch=1, drafter=best.drafter, D=best.D),
            ScheduleEntry(max_batch=4, drafter=None, D=0),
        ],
        confirmation=Confirmation(
            drafter=best.drafter,
            D=best.D,
            predicted=1.58,
            measured=1.63,
            measured_ci95=(1.31, 1.98),
            signed_error=1.58 / 1.63 - 1,
            plain_tokens_per_s=10.6,
            drafted_tokens_per_s=17.3,
            num_pairs=6,
            identical_outputs=6,
            num_outputs=6,
        ),
        mechanisms=mechanisms(),
    )


def frontier(points: list[DecisionPoint]) -> FrontierRecord:
    """Every way to run at every load."""
    ways: list[tuple[int, str | None, int, float, float]] = []
    for point in points:
        ways.append((point.B, None, 0, 1.0, 1 / point.plain["t_step_s"]))
        ways += [(point.B, c.drafter, c.D, c.AL, c.AL / c.t_step_s) for c in point.candidates]

    def beaten(way: tuple[int, str | None, int, float, float], among: list[Any]) -> bool:
        return any(o[4] >= way[4] and o[0] * o[4] >= way[0] * way[4] and o != way for o in among)

    plain = [way for way in ways if way[1] is None]
    return FrontierRecord(
        schema=FrontierRecord.SCHEMA,
        provenance=provenance(inputs="gggg"),
        target="demo",
        basis={"engine": "torch", "machine": "AMD EPYC, 2 cores, cpu"},
        points=[
            FrontierPoint(
                B=way[0],
                S=200,
                drafter=way[1],
                D=way[2],
                AL=way[3],
                tokens_per_s_user=way[4],
                tokens_per_s=way[0] * way[4],
                frontier=not beaten(way, ways),
                plain_frontier=way[1] is None and not beaten(way, plain),
            )
            for way in ways
        ],
    )


def full() -> Study:
    """Everything a page can show."""
    made = decision()
    return Study(
        target="demo",
        asked={"target": "demo", "drafters": list(KINDS), "depth": list(DEPTHS), "batch": [1, 4], "dtype": "auto"},
        acceptance=acceptance(),
        timing=timing(),
        decision=made,
        frontier=frontier(made.points),
    )


def minimal() -> Study:
    """One load, one drafter, no interval, no timing, no frontier, no confirmation: and it does not pay."""
    made = decision_point(4, 200)
    lone = [candidate("ngram", 4, 200, D, interval=False) for D in (1, 2)]
    point = replace(made, candidates=lone, best=None, warnings=[])
    record = replace(
        decision(),
        points=[point],
        schedule=[ScheduleEntry(max_batch=4, drafter=None, D=0)],
        confirmation=None,
        mechanisms=[],
    )
    return Study(target="demo", asked={}, acceptance=None, timing=None, decision=record, frontier=None)


def bare() -> Study:
    """A decision about nothing: no load, no candidate, no schedule."""
    record = replace(decision(), points=[], schedule=[], confirmation=None, mechanisms=[], basis={})
    return Study(target="demo", asked={}, acceptance=None, timing=None, decision=record, frontier=None)


def many_loads() -> Study:
    """Two contexts and three batches, so that every selector has something to select."""
    loads = [(B, S) for B in (1, 2, 4) for S in (200, 1024)]
    points = [decision_point(B, S) for B, S in loads]
    made = replace(decision(), points=points)
    front = frontier(points)
    moved = [replace(p, S=S) for p in front.points for S in (200, 1024)]
    record = replace(timing(), points=[timing_point(B, S, D) for B, S in loads for D in DEPTHS])
    attention = [replace(p, B=B) for p in attention_points() for B in (1, 4)]
    return Study(
        target="demo",
        asked={"target": "demo"},
        acceptance=acceptance(),
        timing=replace(record, attention=attention),
        decision=made,
        frontier=replace(front, points=moved),
    )
