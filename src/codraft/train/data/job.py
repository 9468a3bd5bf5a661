"""The data job behind `codraft train data`: prompts, or none at all; the target's answers; a token file.

    rows of files -> lint -> fit -+
                                  +-> answers, round by round -> rows with masks -> token file
    the target's own user turns --+

Or from answers that the target has written already, without running it.
"""

import functools
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from codraft.core.errors import SpecError
from codraft.core.files import check_writable, sha256_file, sha256_text
from codraft.core.spec import Sampling, check_positive
from codraft.core.traindata import RowsInfo, TrainDataRecord
from codraft.decode.hf.load import (
    Card,
    check_dtype,
    device,
    engine_versions,
    load_card,
    load_model,
    resolved_dtype,
)
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import Conversation
from codraft.replay.streams import fits, load_streams
from codraft.train.data.outcome import Outcome, record_of, store
from codraft.train.data.prepare import Material, TurnsAsked, read_prompts, resumed, write_turns
from codraft.train.data.rounds import Answer, Plan, Ui, write_answers
from codraft.train.data.vllm_writer import VllmWriter, vllm_version
from codraft.train.data.work import work_folder
from codraft.train.data.writers import TorchWriter, Writer
from codraft.train.tokens import Origin

ANSWERS_FILE = "answers.jsonl"
DEFAULT_NEW_TOKENS = 512
# Texts at once: what a CPU's loop gains from, and what vLLM schedules by itself.
DEFAULT_BATCH = {"torch": 16, "vllm": 256}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataJob:
    """What `codraft train data` was asked. `also` of the conversations, a share, are answered once more, sampled."""

    target: str
    output: Path
    prompts: list[str] = field(default_factory=list)
    self_written: int | None = None
    openers: Path | None = None
    streams: Path | None = None
    max_new_tokens: int | None = None
    batch: int | None = None
    writer: Literal["torch", "vllm"] = "torch"
    vllm_python: Path | None = None
    vllm_options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Sampling = field(default_factory=Sampling)
    also_sampled: float = 0.0
    also_temperature: float = 1.0
    limit_tokens: int | None = None
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if self.streams is not None and (self.prompts or self.self_written is not None):
            raise SpecError("--streams holds answers already: give it without --prompts and --self-written")
        if self.streams is None and not self.prompts and self.self_written is None:
            raise SpecError(
                "nothing to answer: give --prompts FILE, --self-written N for user turns by the target itself, or "
                "--streams FILE of answers that it has written already"
            )
        if self.openers is not None and self.self_written is None:
            raise SpecError("--openers are for user turns by the target itself: give --self-written N too")
        if self.vllm_options and self.writer != "vllm":
            raise SpecError("--vllm-set is for --writer vllm")
        for value, name in (
            (self.self_written, "--self-written"),
            (self.max_new_tokens, "--max-new-tokens"),
            (self.batch, "--batch"),
            (self.limit_tokens, "--limit-tokens"),
        ):
            check_positive(value, name)
        if not 0 <= self.also_sampled <= 1:
            raise SpecError(f"--also-sampled must be in 0..1, a share of the conversations; got {self.also_sampled}")
        if self.also_sampled and not self.also_temperature > 0:
            raise SpecError(f"--also-temperature must be above 0; got {self.also_temperature}")
        check_dtype(self.dtype)

    @property
    def room(self) -> int:
        """Tokens that an answer may take."""
        return DEFAULT_NEW_TOKENS if self.max_new_tokens is None else self.max_new_tokens

    def plan(self, card: Card) -> Plan:
        """How answers are written."""
        also = None
        if self.also_sampled:
            also = Sampling(temperature=self.also_temperature, seed=self.sampling.seed)
        return Plan(
            sampling=self.sampling,
            max_new_tokens=self.room,
            window=card.window,
            eos_ids=card.eos_ids,
            also=also,
            also_share=self.also_sampled,
            limit=self.limit_tokens,
        )


def run_data(job: DataJob, ui: Ui) -> TrainDataRecord:
    """Read, write, store, record. The output appears whole; nothing is written where no token would be supervised."""
    start = time.perf_counter()
    if job.output.exists():
        raise SpecError(f"--output {job.output} exists already; name another file, or delete it first")
    check_writable(job.output)
    card = load_card(job.target)
    codec = TextCodec(card.tokenizer)
    if job.streams is not None:
        return finish(job, card, codec, from_streams(job.streams, job, card, codec), start)
    seen: set[str] = set()
    material = Material(rows=read_prompts(job.prompts, seen, codec, job.room, card.window))
    if job.self_written is None:
        refuse_none(material)
    writer_engine = engine_of(job)
    with work_folder(job.output, identity(job, material)) as work:
        outcome = write_all(job, card, codec, material, seen, work, ui)
        outcome.engine = writer_engine
        return finish(job, card, codec, outcome, start)


def identity(job: DataJob, material: Material) -> dict[str, Any]:
    """What decides the texts: a work folder that was begun goes on only where all of it is the same."""
    asked = [(c.category, c.opening, c.followups) for c in material.conversations]
    return {
        "target": job.target,
        "writer": job.writer,
        "prompts": sha256_text(repr(asked)),
        "self-written": job.self_written,
        "openers": None if job.openers is None else sha256_file(job.openers),
        "max-new-tokens": job.room,
        "sampling": asdict(job.sampling),
        "also-sampled": [job.also_sampled, job.also_temperature],
        "dtype": job.dtype,
    }


def engine_of(job: DataJob) -> dict[str, str]:
    """What runs the target, checked before any work."""
    if job.writer == "torch":
        return engine_versions()
    if job.vllm_python is None:
        raise SpecError("--writer vllm needs the Python of an environment with vLLM: --vllm-python PATH/bin/python")
    return {"name": "vllm", "vllm": vllm_version(job.vllm_python)}


def make_writer(job: DataJob, card: Card, work: Path, ui: Ui) -> Writer:
    """The writer that was asked for."""
    batch = job.batch or DEFAULT_BATCH[job.writer]
    if job.writer == "vllm":
        assert job.vllm_python is not None
        # Compiling takes minutes on a CPU, and gains little there.
        engine = {"enable_prefix_caching": True, "enforce_eager": device() == "cpu", **job.vllm_options}
        return VllmWriter(
            python=job.vllm_python,
            model=card.folder,
            dtype=resolved_dtype(card.folder, job.dtype),
            batch=batch,
            seed=job.sampling.seed,
            work=work,
            engine=engine,
        )
    return TorchWriter(functools.cache(lambda: load_model(job.target, job.dtype)), batch)


def write_all(
    job: DataJob, card: Card, codec: TextCodec, material: Material, seen: set[str], work: Path, ui: Ui
) -> Outcome:
    """User turns where they are asked for, then answers."""
    writer = make_writer(job, card, work, ui)
    seconds: dict[str, float] = {}
    began = time.perf_counter()
    if job.self_written is not None:
        asked = TurnsAsked(job.self_written, job.openers, job.sampling.seed, job.room)
        write_turns(material, asked, card, codec, writer, work, seen, ui)
        refuse_none(material)
        seconds["turns"] = time.perf_counter() - began
    conversations = material.conversations
    (found, found_tokens), began = resumed(work, ANSWERS_FILE), time.perf_counter()
    plan = job.plan(card)
    answered = write_answers(writer, codec, conversations, plan, work / ANSWERS_FILE, ui)
    seconds["answers"] = time.perf_counter() - began
    _, tokens = resumed(work, ANSWERS_FILE)
    with_answer = {answer.number for answer in answered.answers}
    without = [number for number in range(len(conversations)) if number not in with_answer]
    material.drop({n: "limit" if n in answered.unreached else "no_supervised_token" for n in without})
    return Outcome(
        writer=job.writer,
        max_new_tokens=job.room,
        seeds=(job.sampling.seed,),
        dtype=resolved_dtype(card.folder, job.dtype),
        answers=answered.answers,
        rows=material.rows_info(),
        template=codec.template,
        sampling=[asdict(sampling) for sampling in plan.samplings],
        asked=[asked_text(c) for c in material.conversations],
        material=material,
        answered=answered,
        resumed=found,
        seconds=seconds,
        new_tokens=tokens - found_tokens,
    )


def asked_text(conversation: Conversation) -> str:
    """What the user says in it."""
    asked = [message["content"] for message in conversation.opening if message["role"] == "user"]
    return "\n".join([*asked, *conversation.followups])


def finish(job: DataJob, card: Card, codec: TextCodec, made: Outcome, start: float) -> TrainDataRecord:
    """The token file and its record."""
    notes = {"writer": made.writer, "max_new_tokens": made.max_new_tokens}
    origin = Origin(
        target=job.target, vocab_size=card.vocab_size, template=made.template, sampling=made.sampling, notes=notes
    )
    store(job.output, made, origin)
    return record_of(made, origin, codec, job.output, job.limit_tokens, time.perf_counter() - start)


def refuse_none(material: Material) -> None:
    """SpecError where nothing is left to be answered, saying why."""
    if not material.conversations:
        reasons = [*(material.rows_info() or RowsInfo(rows=0, kept=0, dropped={})).dropped.items()]
        if (turns := material.turns_info()) is not None:
            reasons += turns.turns.dropped.items()
        told = ", ".join(f"{count} {reason}" for reason, count in reasons)
        raise SpecError(f"no prompt is left to be answered: {told}; see what the rules say with codraft train show")


def from_streams(path: Path, job: DataJob, card: Card, codec: TextCodec) -> Outcome:
    """Answers that the target has written already, cut at --max-new-tokens where it is given. Rows longer than the
    window, and answers too short to hold a prediction, are dropped and counted."""
    streams = load_streams(path, codec, card.eos_ids, card.vocab_size, tail=0, max_new_tokens=job.max_new_tokens)
    answers: list[Answer] = []
    long = 0
    for number, stream in enumerate(streams.streams):
        ids = stream.output_ids[: job.max_new_tokens]
        if not fits(stream.prompt_ids, len(ids), card.window):
            long += 1
            continue
        answers.append(Answer(number, stream.prompt_ids, ids, ids[-1] in card.eos_ids, stream.category))
    dropped = {"over_long": long, "no_supervised_token": streams.num_too_short}
    return Outcome(
        writer="streams",
        max_new_tokens=job.max_new_tokens,
        answers=answers,
        rows=RowsInfo(
            rows=len(streams.streams) + streams.num_too_short,
            kept=len(answers),
            dropped={reason: number for reason, number in dropped.items() if number},
        ),
        template=streams.template,
        sampling=[] if streams.sampling is None else [asdict(streams.sampling)],
        asked=[codec.text(answer.prompt_ids) for answer in answers],
        written_by=streams.target,
        engine=engine_versions(),
    )
