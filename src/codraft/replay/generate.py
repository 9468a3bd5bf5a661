"""The generation job behind `codraft generate`: answers by the lossless loop, with or without a drafter."""

import functools
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass

from codraft.core.errors import SpecError
from codraft.core.files import sha256_text
from codraft.core.provenance import provenance
from codraft.core.schema import Generated, GenerationRecord
from codraft.core.spec import DrafterSpec, Sampling, check_positive, windowed_models
from codraft.decode.drafter import Drafter, Request
from codraft.decode.hf.load import (
    check_dtype,
    device_label,
    engine_versions,
    load_card,
    load_model,
    shortest_window,
)
from codraft.decode.hf.text import TextCodec
from codraft.decode.loop import Phase, decode
from codraft.decode.target import Target
from codraft.drafters.beside import Beside
from codraft.drafters.registry import build, check
from codraft.replay.job import Ui, tell
from codraft.replay.prompts import Conversation, first_turns
from codraft.replay.streams import Progress, check_prompts, fits


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateJob:
    """What `codraft generate` was asked; no drafter and D = 0 is plain decoding."""

    target: str
    conversations: list[Conversation]
    drafter: DrafterSpec | None
    D: int
    max_new_tokens: int
    sampling: Sampling
    dtype: str = "auto"
    skip_long: bool = False
    raw: bool = False

    def __post_init__(self) -> None:
        check_positive(self.max_new_tokens, "--max-new-tokens")
        check_dtype(self.dtype)

    @property
    def room(self) -> int:
        """Tokens that must fit the window after a prompt."""
        return self.max_new_tokens + self.D


def run_generation(job: GenerateJob, ui: Ui) -> GenerationRecord:
    """Load, generate, record."""
    card = load_card(job.target)
    codec = TextCodec(card.tokenizer, raw=job.raw)
    conversations = first_turns(job.conversations) if codec.raw else job.conversations
    window = shortest_window(card, windowed_models([job.drafter] if job.drafter else []))
    # Refuse before the work, not in the middle of it; later turns can only be checked once they are reached.
    openings = [(c.where, codec.prompt_ids(c.opening, c.where)) for c in conversations]
    check_prompts(openings, job.room, window, job.skip_long)
    if not any(fits(ids, job.room, window) for _, ids in openings):
        raise SpecError(f"every prompt is too long for the window of {window}; shorten them or --max-new-tokens")
    load = functools.cache(lambda: load_model(job.target, job.dtype))
    beside, spec = Beside.of(card, job.sampling, job.dtype, load), job.drafter
    check([spec] if spec else [], beside)
    with ui.stage(f"load {job.target}"):
        drafter = build(spec, beside) if spec else None
        target = load()
    tell(beside, ui)
    with ui.stage("generate") as progress:
        outputs = generate(target, drafter, codec, conversations, job, window, progress)
    return GenerationRecord(
        schema=GenerationRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions(),
            input_hashes={"prompts": sha256_text(repr([output.prompt_ids for output in outputs]))},
            dtype=target.dtype,
            device=device_label(),
            seeds=(job.sampling.seed,),
        ),
        target=job.target,
        drafter=drafter.info if drafter else None,
        D=job.D,
        sampling=asdict(job.sampling),
        skipped_long=sum(c.num_turns for c in conversations) - len(outputs) or None,
        outputs=outputs,
    )


def generate(
    target: Target,
    drafter: Drafter | None,
    codec: TextCodec,
    conversations: Sequence[Conversation],
    job: GenerateJob,
    window: int | None,
    progress: Progress,
) -> list[Generated]:
    """One conversation after the other, turn by turn; a turn sees the target's own earlier answers."""
    outputs: list[Generated] = []
    index = 0
    total = sum(c.num_turns for c in conversations)
    for c in conversations:
        history = list(c.opening)
        for turn in range(c.num_turns):
            prompt_ids = codec.prompt_ids(history, c.where)
            check_prompts([(c.where, prompt_ids)], job.room, window, job.skip_long)
            if not fits(prompt_ids, job.room, window):
                index += c.num_turns - turn
                break
            request = Request(index, prompt_ids, job.max_new_tokens)
            output = generate_one(target, drafter, codec, request, job.sampling, job.D, turn)
            outputs.append(output)
            index += 1
            progress(index, total)
            if turn < len(c.followups):
                history += [
                    {"role": "assistant", "content": output.text},
                    {"role": "user", "content": c.followups[turn]},
                ]
    return outputs


class PrefillClock(AbstractContextManager[None]):
    """A probe that only tells prefill from the rest."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def phase(self, name: Phase) -> AbstractContextManager[object]:
        """Times prefill alone."""
        return self if name == "prefill" else nullcontext()

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start


def generate_one(
    target: Target,
    drafter: Drafter | None,
    codec: TextCodec,
    request: Request,
    sampling: Sampling,
    D: int,
    turn: int = 0,
) -> Generated:
    """One answer, timed; `seconds` includes prefill, which stands apart too."""
    clock = PrefillClock()
    start = time.perf_counter()
    stream = decode(target, drafter, [request], sampling, D, clock)[0]
    seconds = time.perf_counter() - start
    return Generated(
        index=request.index,
        turn=turn,
        prompt_ids=list(request.prompt_ids),
        output_ids=stream.text_ids,
        text=codec.text(stream.text_ids),
        stop_reason=stream.stop_reason(target.eos_ids),
        steps=len(stream.steps),
        drafted_steps=sum(drafted > 0 for _, drafted, _, _ in stream.steps),
        drafted=sum(drafted for _, drafted, _, _ in stream.steps),
        accepted=sum(accepted for _, _, accepted, _ in stream.steps),
        seconds=seconds,
        prefill_s=clock.seconds,
    )
