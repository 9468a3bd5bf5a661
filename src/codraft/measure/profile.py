"""The job behind `codraft profile`: step times at every load, and what the machine itself can do."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from codraft.core.errors import SpecError
from codraft.core.provenance import machine_words, provenance
from codraft.core.schema import HardwareRecord, TimingPoint, TimingRecord
from codraft.core.spec import DrafterSpec, Sampling, check_positive, windowed_models
from codraft.decode.hf.load import Card, device_label, engine_versions, load_card, load_model, shortest_window
from codraft.decode.hf.text import TextCodec
from codraft.drafters.beside import Beside
from codraft.drafters.registry import build, check
from codraft.measure.kernels import CONTEXTS, time_kernels
from codraft.measure.steps import time_steps
from codraft.replay.job import Ui, tell
from codraft.replay.prompts import load_prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileJob:
    """What to time. Contexts are cut from the prompts' own text."""

    target: str
    drafters: list[DrafterSpec]
    prompts: list[str]
    batches: list[int]
    contexts: list[int]
    depths: list[int]
    rounds: int
    sampling: Sampling
    dtype: str = "auto"
    kernels: bool = False

    def __post_init__(self) -> None:
        check_positive(self.rounds, "--rounds")
        if not self.batches or not self.contexts:
            raise SpecError("give at least one --batch and one --context")


def run_profile(job: ProfileJob, ui: Ui) -> TimingRecord:
    """Load, time, record; D = 0 is always timed, since it is the measure of all others."""
    card = load_card(job.target)
    window = shortest_window(card, windowed_models(job.drafters))
    texts = prompt_texts(card, job.prompts)
    load = functools.cache(lambda: load_model(job.target, job.dtype))
    beside = Beside.of(card, job.sampling, job.dtype, load)
    check(job.drafters, beside)
    with ui.stage(f"load {job.target}"):
        model = load()
    drafters = []
    for spec in job.drafters:
        with ui.stage(f"load drafter {spec.name}"):
            drafters.append(build(spec, beside))
    tell(beside, ui)
    depths = sorted({0, *job.depths})
    points: list[TimingPoint] = []
    for S in job.contexts:
        for B in job.batches:
            with ui.stage(f"time steps at B = {B}, S = {S}") as progress:
                points += time_steps(
                    model,
                    drafters,
                    texts,
                    job.sampling,
                    B=B,
                    S=S,
                    depths=depths,
                    rounds=job.rounds,
                    window=window,
                    progress=progress,
                )
    gemm, attention = None, None
    if job.kernels:
        with ui.stage("time GEMMs and attention") as progress:
            gemm, attention = time_kernels(model, contexts=sorted({*CONTEXTS, *job.contexts}), progress=progress)
    return TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions(),
            input_hashes={"prompts": load_prompts(job.prompts).sha256},
            dtype=model.dtype,
            device=device_label(),
            seeds=(job.sampling.seed,),
        ),
        target=job.target,
        ragged=model.ragged,
        points=points,
        gemm=gemm,
        attention=attention,
    )


def prompt_texts(card: Card, sources: Sequence[str]) -> list[list[int]]:
    """Token ids of the first turn of every prompt."""
    codec = TextCodec(card.tokenizer)
    return [codec.prompt_ids(list(c.opening), c.where) for c in load_prompts(list(sources)).conversations]


def hardware_of(record: TimingRecord) -> HardwareRecord:
    """The best rates that the microbenchmarks of a timing record reached."""
    assert record.gemm is not None
    assert record.attention is not None
    size = {"float32": 4, "float64": 8}.get(str(record.provenance.dtype), 2)
    streamed = [point.n * point.k * size / point.t_s for point in record.gemm if point.M == 1]
    return HardwareRecord(
        schema=HardwareRecord.SCHEMA,
        provenance=record.provenance,
        name=machine_words(record.provenance.machine),
        bytes_per_s=max([*streamed, *(point.bytes_per_s for point in record.attention)]),
        flops_per_s=max(point.flops_per_s for point in record.gemm),
        gemm=record.gemm,
        attention=record.attention,
    )
