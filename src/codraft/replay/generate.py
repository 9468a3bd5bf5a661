"""The generation job behind `codraft generate`: answers by the lossless loop, with or without a drafter."""

import time
from collections.abc import Sequence

from codraft.core.record import Generated
from codraft.core.spec import Sampling
from codraft.decode.drafter import Drafter, Request
from codraft.decode.hf.text import TextCodec
from codraft.decode.loop import Phase, Stream, decode
from codraft.decode.target import Target
from codraft.replay.prompts import Conversation
from codraft.replay.streams import Progress, check_prompts, fits


class PrefillClock:
    """A probe that only tells prefill from the rest."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._start = 0.0

    def phase(self, name: Phase) -> "PrefillClock | Off":
        """Times prefill alone."""
        return self if name == "prefill" else OFF

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._start


class Off:
    """A phase that nobody times."""

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


OFF = Off()


def generate(
    target: Target,
    drafter: Drafter | None,
    codec: TextCodec,
    conversations: Sequence[Conversation],
    sampling: Sampling,
    *,
    D: int,
    max_new_tokens: int,
    skip_long: bool = False,
    progress: Progress | None = None,
) -> list[Generated]:
    """One conversation after the other, turn by turn; a turn sees the target's own earlier answers."""
    room = max_new_tokens + D
    # Refuse before the work, not in the middle of it; later turns can only be checked once they are reached.
    check_prompts(
        [(c.where, codec.prompt_ids(c.opening, c.where)) for c in conversations],
        room,
        target.window,
        skip_long,
    )
    outputs: list[Generated] = []
    index = 0
    total = sum(c.num_turns for c in conversations)
    for c in conversations:
        history = list(c.opening)
        for turn in range(c.num_turns):
            prompt_ids = codec.prompt_ids(history, c.where)
            check_prompts([(c.where, prompt_ids)], room, target.window, skip_long)
            if not fits(prompt_ids, room, target.window):
                index += c.num_turns - turn
                break
            output = generate_one(target, drafter, codec, Request(index, prompt_ids, max_new_tokens), sampling, D, turn)
            outputs.append(output)
            index += 1
            if progress:
                progress(index, total)
            if turn < len(c.followups):
                history += [
                    {"role": "assistant", "content": output.text},
                    {"role": "user", "content": c.followups[turn]},
                ]
    return outputs


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
    return generated(stream, target, codec, turn, time.perf_counter() - start, clock.seconds)


def generated(
    stream: Stream, target: Target, codec: TextCodec, turn: int, seconds: float, prefill_s: float
) -> Generated:
    """A decoded stream as it stands in a record."""
    return Generated(
        index=stream.request.index,
        turn=turn,
        prompt_ids=list(stream.request.prompt_ids),
        output_ids=stream.text_ids,
        text=codec.text(stream.text_ids),
        stop_reason=stream.stop_reason(target.eos_ids),
        steps=len(stream.steps),
        drafted_steps=sum(drafted > 0 for _, drafted, _, _ in stream.steps),
        drafted=sum(drafted for _, drafted, _, _ in stream.steps),
        accepted=sum(accepted for _, _, accepted, _ in stream.steps),
        seconds=seconds,
        prefill_s=prefill_s,
    )
