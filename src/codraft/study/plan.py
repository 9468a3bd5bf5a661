"""What a study would do and roughly for how long, before it does it.

Estimates rest on the size of the weights and one probe of this machine's memory, or on the study's own timing record
where there is one. They are rough.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from codraft.core.schema import AcceptanceRecord, DecisionRecord, TimingRecord
from codraft.core.spec import DrafterSpec
from codraft.decode.hf.load import resolve_folder
from codraft.models.shape import architecture_of
from codraft.replay.prompts import load_prompts
from codraft.study.run import Study
from codraft.study.spec import NEW_TOKENS

PROBE_BYTES = 256 * 2**20
# A pass over several tokens against a pass over one, on the machines of docs/log.md; a batch of eight, likewise.
WIDE_PASS = 1.8
SHARE_AND_WARM_UP_ROUNDS = 4
KERNELS_S = 40.0
DTYPE_BYTES = {"float64": 8, "float32": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """One part: whether it is done already, else its estimated seconds."""

    part: str
    what: str
    done: bool
    seconds: float


def make_plan(study: Study) -> list[PlanRow]:
    """Every part of a study in order."""
    spec = study.spec
    inputs = study.check()
    brought = (spec.acceptance is not None, spec.timing is not None)
    if all(brought):
        return [PlanRow(part="decision", what="from the figures you bring", done=False, seconds=0.1)]
    pass_s = plain_pass_s(study)
    rows: list[PlanRow] = []
    streams, tokens = workload(study)
    if not spec.streams:
        window = study.window
        written = study.streams_path(inputs, window).exists()
        seconds = tokens / 8 * WIDE_PASS * pass_s
        rows.append(PlanRow(part="streams", what=f"{streams} answers, {tokens} tokens", done=written, seconds=seconds))
    if not brought[0]:
        rows.append(
            PlanRow(
                part="acceptance",
                what=f"replay of {', '.join(d.name for d in study.drafter_specs)}, D up to {study.depths[-1]}",
                done=study.store.found("acceptance", AcceptanceRecord, inputs) is not None,
                seconds=sum(tokens * 0.004 * share(d, study) * 10 * pass_s for d in study.drafter_specs) + 1,
            )
        )
    if not brought[1]:
        rows += timing_rows(study, inputs, pass_s)
    front = not any(brought) and 1 in spec.batch
    decision = study.store.read("decision", DecisionRecord)
    pairs = decision.confirmation.num_pairs if decision and decision.confirmation else spec.confirm_prompts
    asked = min(spec.confirm_prompts, streams)
    decided = decision is not None and pairs == asked and all(row.done for row in rows)
    rows.append(
        PlanRow(
            part="decision",
            what=f"frontier, launch files, report{f'; confirmed on {asked} answers' if front else ''}",
            done=decided,
            seconds=(asked * (spec.max_new_tokens or NEW_TOKENS) * WIDE_PASS * pass_s if front else 0) + 2,
        )
    )
    return rows


def timing_rows(study: Study, inputs: Mapping[str, Any], pass_s: float) -> list[PlanRow]:
    """One row for each load, and one for the kernels."""
    spec, depths = study.spec, study.timings.depths
    rows = []
    for S in spec.context or [0]:
        for B in spec.batch:
            rounds = spec.rounds + 1
            passes = (rounds * (1 + len(study.drafter_specs)) + SHARE_AND_WARM_UP_ROUNDS) * len(depths)
            drafting = rounds * sum(depths) * sum(share(d, study) for d in study.drafter_specs)
            done = is_timed(study, inputs, B, S)
            seconds = (passes * WIDE_PASS + drafting) * pass_s * B**0.3
            what = f"B = {B}, S = {S or 'the typical context'}, D = 0..{depths[-1]}, {spec.rounds} rounds"
            rows.append(PlanRow(part="timing", what=what, done=done, seconds=seconds))
    if spec.kernels:
        done = study.store.found("kernels", TimingRecord, study.timings.kernels_key(inputs)) is not None
        rows.append(
            PlanRow(part="kernels", what="GEMMs over M, attention over G (1 + D)", done=done, seconds=KERNELS_S)
        )
    return rows


def is_timed(study: Study, inputs: Mapping[str, Any], B: int, S: int) -> bool:
    """Whether this load was timed before; S is 0 where only the streams will tell it."""
    files = study.store.folder.glob(f"timing-b{B}-s{S or '*'}.json")
    known = [int(path.stem.rpartition("-s")[2]) for path in files]
    keys = {f"timing-b{B}-s{at}": study.timings.load_key(inputs, B, at) for at in known}
    return any(study.store.found(name, TimingRecord, key) for name, key in keys.items())


def workload(study: Study) -> tuple[int, int]:
    """Number of answers and of their tokens, tails included; of streams, a guess from the file's size."""
    spec = study.spec
    if spec.streams:
        size = Path(spec.streams).stat().st_size
        return 0, max(1, size // 12)
    turns = sum(c.num_turns for c in load_prompts(spec.prompts).conversations)
    return turns, turns * ((spec.max_new_tokens or NEW_TOKENS) + study.depths[-1])


def share(drafter: DrafterSpec, study: Study) -> float:
    """A drafter's pass against the target's, by the size of its weights."""
    size = sum(weight_bytes(resolve_folder(path)) for path in drafter.model_paths())
    if not size and drafter.PATH != "none":
        # Inside the target's own checkpoint: about a layer of it.
        arch = architecture_of(study.resolved)
        return 1 / len(arch.layers) if arch is not None and arch.layers else 0.0
    ratio = size / max(1, weight_bytes(study.resolved))
    return ratio if getattr(drafter, "layers", None) is None else min(1.0, ratio * 0.5)


def plain_pass_s(study: Study) -> float:
    """Seconds of a pass of one token: as timed in this study before, else every weight read once."""
    timed = study.store.read("timing", TimingRecord)
    known = [point.t_verif_s for point in timed.points if point.D == 0 and point.B == 1] if timed else []
    if known:
        return known[0]
    dtype = str(study.inputs()["dtype"])
    return weight_bytes(study.resolved) / 2 * DTYPE_BYTES.get(dtype, 2) / memory_rate() + 0.005


def weight_bytes(folder: Path) -> int:
    """Bytes of a checkpoint's weights, two bytes a weight as most are stored."""
    files = list(folder.glob("*.safetensors")) or list(folder.glob("*.bin"))
    return sum(path.stat().st_size for path in files) or 1


def memory_rate() -> float:
    """Bytes per second that one core reads."""
    block = np.ones(PROBE_BYTES // 8)
    start = time.perf_counter()
    block.sum()
    return PROBE_BYTES / (time.perf_counter() - start)
