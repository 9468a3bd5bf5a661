"""Small valid pieces of records, for tests that need one and do not care which."""

from collections.abc import Sequence

from codraft.core.acceptance import Acceptance, StepLog, curve_point
from codraft.core.curve import CurvePoint
from codraft.core.provenance import Provenance
from codraft.core.schema import (
    AcceptanceRecord,
    AcceptanceResult,
    Candidate,
    DrafterInfo,
    PromptsInfo,
    TimingPoint,
    TimingRecord,
)

Step = tuple[int, int]


def acceptance(steps: Sequence[Step], D: int) -> Acceptance:
    """From (drafted, accepted) of every step."""
    return Acceptance.from_log(StepLog.of([(i, k, a, False) for i, (k, a) in enumerate(steps)]), D)


def point(D: int, *conversations: Sequence[Step]) -> CurvePoint:
    """A point of AL(D) from the steps of one-prompt conversations."""
    made = curve_point([[acceptance(steps, D)] for steps in conversations])
    assert made is not None
    return made


def result(name: str, *curve: CurvePoint) -> AcceptanceResult:
    """AL(D) of an n-gram drafter called `name`."""
    return AcceptanceResult(
        drafter=DrafterInfo(name=name, mechanism="ngram", options={"n_min": 2}),
        basis="steps",
        curve=list(curve),
    )


def timing(D: int, verify: float, *, sys: float = 0.0, B: int = 1, S: int = 256, **draft: float) -> TimingPoint:
    """A timing point; T_draft by drafter name."""
    return TimingPoint(
        B=B,
        S=S,
        D=D,
        x=B * (1 + D),
        t_verif_s=verify,
        t_sys_s=sys,
        t_draft_s=draft,
        num_samples=5,
        p10=verify,
        p90=verify,
    )


def candidate(drafter: str, D: int, AL: float, speedup: float) -> Candidate:
    """One (drafter, D) with these two figures, where a plain step takes 10 ms."""
    break_even_AL = AL / speedup
    return Candidate(
        drafter=drafter,
        D=D,
        AL=AL,
        x=1.0 + D,
        t_verif_s=0.01 * break_even_AL,
        t_draft_s=0.0,
        t_sys_s=0.0,
        t_step_s=0.01 * break_even_AL,
        speedup=speedup,
        break_even_AL=break_even_AL,
    )


def provenance() -> Provenance:
    """Of a measurement that never was."""
    return Provenance(
        version="0.1.0",
        machine={"cpu": "none", "cores": 2},
        engine={"name": "torch"},
        seeds=[0],
        input_hashes={"streams": "ab"},
        time="2026-11-29T12:00:00+00:00",
        command=["codraft", "accept"],
    )


def acceptance_record(*results: AcceptanceResult) -> AcceptanceRecord:
    """A record of these results."""
    return AcceptanceRecord(
        schema=AcceptanceRecord.SCHEMA,
        provenance=provenance(),
        target="demo",
        prompts=PromptsInfo(name="demo:2", sha256="ab", num_prompts=2, num_conversations=2, template="chat"),
        sampling={"temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 0},
        mode="replay",
        max_new_tokens=8,
        stream_tokens=16,
        timings_s={"load": 0.5},
        wall_s=1.5,
        results=list(results),
    )


def timing_record(*points: TimingPoint) -> TimingRecord:
    """A record of these points."""
    return TimingRecord(
        schema=TimingRecord.SCHEMA, provenance=provenance(), target="demo", ragged="padded", points=list(points)
    )
