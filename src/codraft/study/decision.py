"""From curves and step times to the decision, with the frontier and the proof by generating."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codraft.core.acceptance import Acceptance
from codraft.core.constants import ARTICLE_TILE
from codraft.core.provenance import provenance
from codraft.core.schema import (
    Candidate,
    Confirmation,
    DecisionRecord,
    DrafterInfo,
    FrontierRecord,
    TimingPoint,
)
from codraft.core.stats import evenly
from codraft.cost.bring import Timing
from codraft.cost.choose import decide, unknown_bytes
from codraft.cost.curves import DrafterCurve
from codraft.cost.frontier import frontier
from codraft.cost.step import StepTimes, speedup, times_at
from codraft.decode.drafter import Drafter
from codraft.decode.hf.load import device_label, engine_versions
from codraft.models.mechanisms import mechanisms
from codraft.models.shape import read_shape
from codraft.replay.job import Workbench
from codraft.replay.measure import reads_target, replay
from codraft.replay.streams import TokenStream
from codraft.study.confirm import confirm


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a decision rests on; `bench` is there where both halves were measured here, so that it can be confirmed."""

    target: str
    folder: Path
    curves: Sequence[DrafterCurve]
    infos: Sequence[DrafterInfo]
    timing: Timing
    dtype: str | None
    bench: Workbench | None
    hashes: Mapping[str, str]


def make_decision(evidence: Evidence, confirm_prompts: int) -> DecisionRecord:
    """Choose at every load, then confirm the front-runner at B = 1 by generating with it and without."""
    timing, bench = evidence.timing, evidence.bench
    tile = None if timing.device is None else ARTICLE_TILE if timing.device.startswith("cuda") else 0
    drafters = {d.info.name: d for d in bench.drafters} if bench else {}
    points, schedule = decide(
        evidence.curves,
        timing.points,
        read_shape(evidence.folder, tile),
        timing.ragged,
        (lambda name, B, S: drafters[name].device_bytes(B, S)) if drafters else unknown_bytes,
        timing.whole_steps,
    )
    alone = next((point for point in points if point.B == 1), None)
    front = alone.candidates[0] if alone and alone.candidates else None
    return DecisionRecord(
        schema=DecisionRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions() if bench else {"name": timing.basis["engine"]},
            input_hashes=evidence.hashes,
            dtype=evidence.dtype,
            device=device_label(),
            seeds=(bench.sampling.seed,) if bench else (),
        ),
        target=evidence.target,
        basis=timing.basis,
        points=points,
        schedule=schedule,
        confirmation=confirmed(bench, timing, alone.S, front, confirm_prompts) if bench and alone and front else None,
        mechanisms=mechanisms(
            evidence.folder, evidence.infos, {name: drafter.device_bytes(0, 0) for name, drafter in drafters.items()}
        ),
    )


def make_frontier(decision: DecisionRecord, hashes: Mapping[str, str]) -> FrontierRecord:
    """Throughput against interactivity at every load of a decision."""
    return FrontierRecord(
        schema=FrontierRecord.SCHEMA,
        provenance=provenance(
            engine=decision.provenance.engine,
            input_hashes=hashes,
            dtype=decision.provenance.dtype,
            device=str(decision.provenance.machine["device"]),
        ),
        target=decision.target,
        basis=decision.basis,
        points=frontier(decision.points),
    )


def confirmed(bench: Workbench, timing: Timing, S: int, front: Candidate, num_prompts: int) -> Confirmation:
    """Speed-up of `generate` on some of the prompts beside the prediction for those very prompts."""
    drafter = next(d for d in bench.drafters if d.info.name == front.drafter)
    chosen = evenly(bench.streams.measurable, num_prompts)
    here = {point.D: point for point in timing.points if (point.B, point.S) == (1, S)}
    plain, drafted, AL = prediction(bench, here, drafter, front.D, chosen)
    with bench.ui.stage(f"confirm {front.drafter} at D = {front.D} against plain decoding") as progress:
        return confirm(
            bench.target,
            drafter,
            bench.codec,
            chosen,
            bench.sampling,
            D=front.D,
            predicted=speedup(AL, plain, drafted),
            progress=progress,
        )


def prediction(
    bench: Workbench, by_depth: Mapping[int, TimingPoint], drafter: Drafter, D: int, chosen: Sequence[TokenStream]
) -> tuple[StepTimes, StepTimes, float]:
    """Step times, plain and drafted, and AL by replay, of one drafter at D on the chosen prompts alone."""
    target = bench.target if reads_target(drafter) else None
    logs = replay(target, drafter, chosen, bench.sampling, bench.card.eos_ids, [D])
    pooled = Acceptance.pool([Acceptance.from_log(log, D) for log in logs.by_depth[D]])
    drafted = times_at(by_depth, drafter.info.name, D, pooled.proposal_lengths().tolist())
    return times_at(by_depth, None, 0, [1.0]), drafted, pooled.AL
