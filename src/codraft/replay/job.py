"""The acceptance job behind `codraft accept` and the first half of `codraft tune`.

Weights are loaded only where something needs them: with streams at hand, n-gram drafting needs no model at all, and a
greedy external drafter needs only its own.
"""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol

from codraft.core.errors import SpecError
from codraft.core.provenance import provenance
from codraft.core.schema import AcceptanceRecord, AcceptanceResult, PromptsInfo
from codraft.core.spec import DrafterSpec, Sampling, check_positive, windowed_models
from codraft.decode.drafter import Drafter, Remembering
from codraft.decode.hf.load import Card, device_label, engine_versions, load_card, load_model, shortest_window
from codraft.decode.hf.model import HFModel
from codraft.decode.hf.text import TextCodec
from codraft.drafters.beside import Beside
from codraft.drafters.registry import build, check
from codraft.replay.measure import Logs, live, reads_target, replay, replay_together, result
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import (
    Progress,
    StreamSet,
    TokenStream,
    Writing,
    load_streams,
    select_fitting,
    write_streams,
)

Mode = Literal["replay", "live", "engine"]
DEFAULT_NEW_TOKENS = 128


class Ui(Protocol):
    """How long work shows itself."""

    def stage(self, title: str) -> AbstractContextManager[Progress]:
        """A named stage with a progress callback."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptJob:
    """One acceptance measurement. `sampling` None: as the streams were made, else greedy."""

    target: str
    drafters: list[DrafterSpec]
    depths: list[int]
    prompts: list[str] = field(default_factory=list)
    streams: Path | None = None
    max_new_tokens: int | None = None
    sampling: Sampling | None = None
    mode: Mode = "replay"
    dtype: str = "auto"
    domains: bool = False
    skip_long: bool = False
    raw: bool = False
    batch: int = 8

    def __post_init__(self) -> None:
        if not self.drafters:
            raise SpecError(
                "no drafter given; use --drafter MECHANISM[:PATH][,key=value...], for example --drafter ngram"
            )
        if bool(self.prompts) == (self.streams is not None):
            raise SpecError("give either --prompts or --streams, one of the two")
        if self.mode == "engine":
            raise SpecError("--mode engine is not in this version of codraft; use replay or live")
        check_positive(self.max_new_tokens, "--max-new-tokens")
        check_positive(self.batch, "--batch")


def tell(beside: Beside, ui: Ui) -> None:
    """Show what was noted while drafters were built, a line each."""
    for note in beside.notes:
        with ui.stage(note):
            pass


class Workbench:
    """Target, drafters and streams of a job, each made once, when first asked for; `timings_s` says what it took."""

    def __init__(self, job: AcceptJob, ui: Ui) -> None:
        self.job, self.ui = job, ui
        self.timings_s: dict[str, float] = {"load": 0.0}

    @cached_property
    def card(self) -> Card:
        """Config and tokenizer of the target."""
        start = time.perf_counter()
        card = load_card(self.job.target)
        self.timings_s["load"] += time.perf_counter() - start
        return card

    @cached_property
    def codec(self) -> TextCodec:
        """The target's tokenizer and chat template."""
        return TextCodec(self.card.tokenizer, raw=self.job.raw)

    @cached_property
    def target(self) -> HFModel:
        """The target's weights."""
        with self.ui.stage(f"load {self.job.target}"):
            start = time.perf_counter()
            model = load_model(self.job.target, self.job.dtype)
            self.timings_s["load"] += time.perf_counter() - start
        return model

    @cached_property
    def sampling(self) -> Sampling:
        """As asked, or as the streams were made."""
        asked = self.job.sampling
        if self.job.streams is None:
            return asked or Sampling()
        made = self.streams.sampling
        if asked is not None and made is not None and asked != made:
            raise SpecError(
                f"{self.job.streams} was written with {asdict(made)}, not {asdict(asked)}; drop the sampling flags"
            )
        return asked or made or Sampling()

    @cached_property
    def beside(self) -> Beside:
        """The target as drafters see it; those that cannot work beside it are refused."""
        beside = Beside.of(self.card, self.sampling, self.job.dtype, lambda: self.target)
        check(self.job.drafters, beside)
        return beside

    @cached_property
    def drafters(self) -> list[Drafter]:
        """Every drafter, in command order."""
        beside, built = self.beside, []
        before, start = self.timings_s["load"], time.perf_counter()
        for spec in self.job.drafters:
            with self.ui.stage(f"load drafter {spec.name}"):
                built.append(build(spec, beside))
        # A head may have had the target loaded meanwhile, which counts itself.
        self.timings_s["load"] = before + time.perf_counter() - start
        tell(beside, self.ui)
        return built

    @cached_property
    def window(self) -> int | None:
        """The shortest context window of target and drafters."""
        return shortest_window(self.card, windowed_models(self.job.drafters))

    @property
    def tail(self) -> int:
        """Tokens a stream goes on past what was asked."""
        return max(self.job.depths)

    @cached_property
    def streams(self) -> StreamSet:
        """Read from a file, or written by the target now."""
        if self.job.streams is not None:
            loaded = load_streams(
                self.job.streams,
                self.codec,
                self.card.eos_ids,
                self.card.vocab_size,
                self.tail,
                self.job.max_new_tokens,
            )
            return select_fitting(loaded, self.window, self.job.skip_long)
        prompts = load_prompts(self.job.prompts)
        self.beside  # noqa: B018 (what cannot work is refused before the target writes a word)
        codec, target = self.codec, self.target
        how = Writing(
            sampling=self.job.sampling or Sampling(),
            max_new_tokens=self.job.max_new_tokens or DEFAULT_NEW_TOKENS,
            tail=self.tail,
            batch=self.job.batch,
            window=self.window,
            skip_long=self.job.skip_long,
        )
        with self.ui.stage("write streams") as progress:
            start = time.perf_counter()
            written = write_streams(target, codec, prompts.conversations, how, name=prompts.name, progress=progress)
            self.timings_s["write_streams"] = time.perf_counter() - start
        return written


def measure(bench: Workbench) -> AcceptanceRecord:
    """AL(D) of every drafter of the job, by replay or live."""
    job = bench.job
    streams = bench.streams
    usable = streams.measurable
    if not usable:
        raise SpecError("no stream is longer than one token, so there is no step to measure; raise --max-new-tokens")
    drafters = bench.drafters
    if job.mode == "live" or any(reads_target(drafter) for drafter in drafters):
        bench.target  # noqa: B018 (load now, so that wall_s is measuring alone)
    start = time.perf_counter()
    logs = live_logs(bench, drafters, usable) if job.mode == "live" else replay_logs(bench, drafters, usable)
    results = [result(drafter, logs[drafter.info.name], usable, domains=job.domains) for drafter in drafters]
    wall = time.perf_counter() - start
    return AcceptanceRecord(
        schema=AcceptanceRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions(),
            input_hashes={"streams": streams.sha256},
            dtype=dtype_of(bench, drafters),
            device=device_label(),
            seeds=(bench.sampling.seed,),
        ),
        target=job.target,
        prompts=prompts_info(streams),
        sampling=asdict(bench.sampling),
        mode=job.mode,
        max_new_tokens=max(stream.asked for stream in streams.streams),
        stream_tokens=streams.num_tokens,
        timings_s={**bench.timings_s, **total_timings(results)},
        wall_s=wall,
        results=results,
    )


def live_logs(bench: Workbench, drafters: Sequence[Drafter], streams: Sequence[TokenStream]) -> dict[str, Logs]:
    """By drafter, every stream decoded again."""
    job, logs = bench.job, {}
    for drafter in drafters:
        with bench.ui.stage(f"live {drafter.info.name}") as progress:
            logs[drafter.info.name] = live(
                bench.target, drafter, streams, bench.sampling, job.depths, job.batch, progress
            )
    return logs


def replay_logs(bench: Workbench, drafters: Sequence[Drafter], streams: Sequence[TokenStream]) -> dict[str, Logs]:
    """By drafter, without decoding. Those that read the target share its pass over each stream."""
    sharing = [drafter for drafter in drafters if reads_target(drafter) and not isinstance(drafter, Remembering)]
    sampling, eos_ids, depths = bench.sampling, bench.card.eos_ids, bench.job.depths
    logs: dict[str, Logs] = {}
    for drafter in drafters:
        if drafter.info.name in logs:
            continue
        group = sharing if drafter in sharing else [drafter]
        names = [member.info.name for member in group]
        with bench.ui.stage(f"replay {', '.join(names)}") as progress:
            if group is sharing:
                found = replay_together(bench.target, group, streams, sampling, eos_ids, depths, progress)
            else:
                target = bench.target if reads_target(drafter) else None
                found = [replay(target, drafter, streams, sampling, eos_ids, depths, progress)]
        logs |= dict(zip(names, found, strict=True))
    return logs


def dtype_of(bench: Workbench, drafters: Sequence[Drafter]) -> str | None:
    """Arithmetic of the passes that ran, None where no model ran."""
    if "target" in bench.__dict__:
        return bench.target.dtype
    models = [getattr(drafter, "model", None) for drafter in drafters]
    return next((str(model.dtype) for model in models if model is not None), None)


def prompts_info(streams: StreamSet) -> PromptsInfo:
    """The workload as records name it; counts of left-out rows only where there were any."""
    return PromptsInfo(
        name=streams.name,
        sha256=streams.sha256,
        num_prompts=len(streams.streams),
        num_conversations=streams.num_conversations,
        template=streams.template,
        skipped_long=streams.num_too_long or None,
        skipped_short=streams.num_too_short or None,
        written_by=streams.target,
    )


def total_timings(results: Sequence[AcceptanceResult]) -> dict[str, float]:
    """Seconds by stage, summed over drafters."""
    totals: dict[str, float] = {}
    for item in results:
        for name, seconds in item.timings_s.items():
            totals[name] = totals.get(name, 0.0) + seconds
    return totals
