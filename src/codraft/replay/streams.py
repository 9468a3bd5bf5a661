"""Streams: a prompt and the target's own continuation, as token ids. Written by us, or taken from logs of real traffic.

A stream that the token limit stopped is written D_max tokens past it: steps count only where their anchor lies in the
asked length, but may look into that tail. Of logs, the last D_max tokens are the tail, unless the log ends with EOS.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, read_jsonl, sha256_text
from codraft.core.spec import Sampling, load
from codraft.decode.drafter import Request
from codraft.decode.hf.text import Message, TextCodec
from codraft.decode.loop import Stream, decode
from codraft.decode.target import Target
from codraft.replay.prompts import Conversation, check_messages, first_turns

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStream:
    """`output_ids` holds the asked tokens and, where the limit stopped the stream, a tail beyond them."""

    index: int
    conversation: str
    turn: int
    category: str | None
    prompt_ids: list[int]
    output_ids: list[int]
    asked: int

    def num_anchors(self) -> int:
        """Anchors that live decoding would start a step from: all but the last asked token."""
        return min(self.asked, len(self.output_ids)) - 1

    def request(self, max_new_tokens: int) -> Request:
        """The request that writes this stream."""
        return Request(self.index, self.prompt_ids, max_new_tokens)


@dataclass(frozen=True, slots=True)
class StreamSet:
    """Streams with a hash of their tokens and what they were made with; counts of rows left out."""

    name: str
    sha256: str
    streams: list[TokenStream]
    template: str
    sampling: Sampling | None
    target: str | None = None
    num_too_short: int = 0
    num_too_long: int = 0

    @property
    def num_tokens(self) -> int:
        """Asked output tokens of all streams."""
        return sum(stream.num_anchors() + 1 for stream in self.streams)

    @property
    def measurable(self) -> list[TokenStream]:
        """Streams that hold a step."""
        return [stream for stream in self.streams if stream.num_anchors() > 0]

    @property
    def num_conversations(self) -> int:
        """Independent units for the bootstrap."""
        return len({stream.conversation for stream in self.streams})


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """How streams are written: `tail` tokens beyond the asked ones, `batch` streams at once, within `window`."""

    sampling: Sampling
    max_new_tokens: int
    tail: int
    batch: int
    window: int | None
    skip_long: bool = False

    @property
    def room(self) -> int:
        """Tokens that must fit the window after a prompt."""
        return self.max_new_tokens + self.tail


@dataclass(slots=True, eq=False)
class Dialogue:
    """A conversation in the making; `first_index` numbers its first stream, which keys the noise."""

    source: Conversation
    first_index: int
    history: list[Message]
    prompt_ids: list[int]

    def answer(self, text: str, turn: int) -> None:
        """Take in the target's answer and the user's next message."""
        self.history += [
            {"role": "assistant", "content": text},
            {"role": "user", "content": self.source.followups[turn]},
        ]


def write_streams(
    target: Target,
    codec: TextCodec,
    conversations: Sequence[Conversation],
    how: Writing,
    *,
    name: str = "written",
    progress: Progress | None = None,
) -> StreamSet:
    """Let the target write every turn by plain decoding; a turn sees the target's own earlier answers.

    Without a chat template only first turns are written.
    """
    if codec.raw:
        conversations = first_turns(conversations)
    starts = np.cumsum([0, *(c.num_turns for c in conversations)]).tolist()
    open_now = [Dialogue(c, i, list(c.opening), []) for c, i in zip(conversations, starts[:-1], strict=True)]
    written: list[TokenStream] = []
    skipped = turn = 0
    while open_now:
        for d in open_now:
            d.prompt_ids = codec.prompt_ids(d.history, d.source.where)
        check_prompts([(d.source.where, d.prompt_ids) for d in open_now], how.room, how.window, how.skip_long)
        fitting = [d for d in open_now if fits(d.prompt_ids, how.room, how.window)]
        skipped += sum(d.source.num_turns - turn for d in set(open_now).difference(fitting))
        # Similar lengths together: a batch takes as long as its longest stream.
        fitting.sort(key=lambda d: len(d.prompt_ids))
        for start in range(0, len(fitting), how.batch):
            written += write_turn(target, codec, fitting[start : start + how.batch], turn, how)
            if progress:
                progress(len(written), starts[-1] - skipped)
        turn += 1
        open_now = [d for d in fitting if turn < d.source.num_turns]
    if not written:
        raise SpecError(
            f"{name}: every prompt is too long for the window of {how.window}; shorten them or --max-new-tokens"
        )
    written.sort(key=lambda stream: stream.index)
    return StreamSet(name, hash_streams(written), written, codec.template, how.sampling, num_too_long=skipped)


def write_turn(
    target: Target, codec: TextCodec, group: Sequence[Dialogue], turn: int, how: Writing
) -> list[TokenStream]:
    """One turn of some conversations, in one batch."""
    requests = [Request(d.first_index + turn, d.prompt_ids, how.room) for d in group]
    streams = decode(target, None, requests, how.sampling, 0)
    for d, stream in zip(group, streams, strict=True):
        if turn < len(d.source.followups):
            d.answer(codec.text(stream.output_ids[: how.max_new_tokens]), turn)
    return [token_stream(s, d.source, turn, how.max_new_tokens) for d, s in zip(group, streams, strict=True)]


def fits(prompt_ids: Sequence[int], room: int, window: int | None) -> bool:
    """Whether prompt, answer and the longest draft fit the model's window."""
    return window is None or len(prompt_ids) + room <= window


def check_prompts(prompts: Sequence[tuple[str, Sequence[int]]], room: int, window: int | None, skip_long: bool) -> None:
    """Refuse over-long prompts, naming the first and the count, unless they are to be skipped."""
    long = [(where, len(ids)) for where, ids in prompts if not fits(ids, room, window)]
    if long and not skip_long:
        where, length = long[0]
        raise SpecError(
            f"{where}: a prompt of {length} tokens and {room} more for answer and drafts do not fit the "
            f"model's window of {window} ({len(long)} of {len(prompts)} prompts are too long); shorten it, or use "
            f"--skip-long"
        )


def token_stream(stream: Stream, source: Conversation, turn: int, asked: int) -> TokenStream:
    """A decoded stream as it is stored."""
    return TokenStream(
        index=stream.request.index,
        conversation=source.id,
        turn=turn,
        category=source.category,
        prompt_ids=list(stream.request.prompt_ids),
        output_ids=stream.text_ids,
        asked=asked,
    )


def hash_streams(streams: Iterable[TokenStream]) -> str:
    """Hash of all token ids and asked lengths."""
    return sha256_text(repr([(s.prompt_ids, s.output_ids, s.asked) for s in streams]))


def save_streams(path: Path, streams: StreamSet, target_id: str) -> None:
    """JSONL, one stream a line, readable by `load_streams` and by people."""
    with atomic_write(path) as handle:
        for stream in streams.streams:
            row: dict[str, Any] = {
                "index": stream.index,
                "conversation": stream.conversation,
                "turn": stream.turn,
                "category": stream.category,
                "target": target_id,
                "template": streams.template,
                "asked": stream.asked,
                "sampling": None if streams.sampling is None else asdict(streams.sampling),
                "prompt_ids": stream.prompt_ids,
                "output_ids": stream.output_ids,
            }
            handle.write(json.dumps({k: v for k, v in row.items() if v is not None}, ensure_ascii=False) + "\n")


def load_streams(
    path: Path,
    codec: TextCodec,
    eos_ids: frozenset[int],
    vocab_size: int,
    tail: int,
    max_new_tokens: int | None = None,
) -> StreamSet:
    """Streams from our own file or from logs; streams too short to hold a step are left out and counted."""
    rows = list(read_jsonl(path))
    if not rows:
        raise SpecError(f"stream file {path} has no rows; give at least one stream")
    streams: list[TokenStream] = []
    for number, row in rows:
        where = f"{path}, line {number}"
        prompt_ids, output_ids = stream_ids(row, codec, vocab_size, where)
        stream = shape_stream(row, prompt_ids, output_ids, eos_ids, tail, where, number, max_new_tokens)
        if stream.num_anchors() > 0:
            streams.append(stream)
    if not streams:
        raise SpecError(
            f"stream file {path} has no stream long enough to measure ({len(rows)} too short: an answer needs two "
            f"tokens before its end, and one cut by the limit more than D + 1 = {tail + 1} tokens); lower -D or give "
            "longer answers"
        )
    return StreamSet(
        name=str(path),
        sha256=hash_streams(streams),
        streams=streams,
        template=str(
            common(rows, "template") or ("ids" if all("prompt_ids" in row for _, row in rows) else codec.template)
        ),
        sampling=common_sampling(path, rows),
        target=common(rows, "target"),
        num_too_short=len(rows) - len(streams),
    )


def common(rows: Sequence[tuple[int, Mapping[str, Any]]], key: str) -> str | None:
    """What all rows say under `key`, None where they do not agree or do not say."""
    values = {str(row.get(key)) for _, row in rows}
    return values.pop() if len(values) == 1 and all(isinstance(row.get(key), str) for _, row in rows) else None


def read_sampling(path: Path) -> Sampling | None:
    """How the streams of a file were made, None where it does not say."""
    return common_sampling(path, list(read_jsonl(path)))


def common_sampling(path: Path, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> Sampling | None:
    """The sampling settings all rows were made with, None where no row says."""
    said = [(n, row["sampling"]) for n, row in rows if row.get("sampling") is not None]
    told = [load(Sampling, data, f"{path}, line {n}: sampling") for n, data in said]
    if told and (len(told) != len(rows) or len({repr(sampling) for sampling in told}) > 1):
        raise SpecError(f"stream file {path} mixes sampling settings; split it into one file for each setting")
    return told[0] if told else None


def select_fitting(streams: StreamSet, window: int | None, skip_long: bool) -> StreamSet:
    """Refuse, or drop and count, streams longer than the model's window."""
    kept = [s for s in streams.streams if fits(s.prompt_ids, len(s.output_ids), window)]
    dropped = len(streams.streams) - len(kept)
    if dropped and not skip_long:
        first = next(s for s in streams.streams if not fits(s.prompt_ids, len(s.output_ids), window))
        length = len(first.prompt_ids) + len(first.output_ids)
        raise SpecError(
            f"{streams.name}: stream {first.index} has {length} tokens, more than the model's window of {window} "
            f"({dropped} of {len(streams.streams)} are too long); use --skip-long to leave them out"
        )
    if not kept:
        raise SpecError(f"{streams.name}: every stream is longer than the model's window of {window}")
    return replace(streams, streams=kept, sha256=hash_streams(kept), num_too_long=dropped)


def stream_ids(row: Mapping[str, Any], codec: TextCodec, vocab_size: int, where: str) -> tuple[list[int], list[int]]:
    """Prompt and output ids of a row: given, or from messages that end with the assistant's answer."""
    if "prompt_ids" in row or "output_ids" in row:
        pair = []
        for key in ("prompt_ids", "output_ids"):
            ids = row.get(key)
            if not isinstance(ids, list) or not ids or not all(type(i) is int for i in ids):
                raise SpecError(f"{where}: '{key}' must be a non-empty list of token ids")
            outside = next((i for i in ids if not 0 <= i < vocab_size), None)
            if outside is not None:
                raise SpecError(f"{where}: '{key}' holds id {outside}, outside the target's vocabulary of {vocab_size}")
            pair.append(list(ids))
        return pair[0], pair[1]
    if "messages" not in row:
        raise SpecError(f"{where}: no stream in this row; it needs 'prompt_ids' and 'output_ids', or 'messages'")
    messages = check_messages(row["messages"], where)
    if len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise SpecError(f"{where}: 'messages' must end with the assistant's answer to be replayed")
    prompt_ids = codec.prompt_ids(messages[:-1], where)
    return prompt_ids, codec.answer_ids(messages, prompt_ids, where)


def shape_stream(
    row: Mapping[str, Any],
    prompt_ids: list[int],
    output_ids: list[int],
    eos_ids: frozenset[int],
    tail: int,
    where: str,
    number: int,
    max_new_tokens: int | None,
) -> TokenStream:
    """Cut at the first EOS, and settle which tokens were asked for and which are tail."""
    end = next((i for i, token in enumerate(output_ids) if token in eos_ids), None)
    if row.get("finish_reason") == "length":
        # The answer was cut; an end-of-turn token behind it is the chat template's, not the model's.
        output_ids, end = output_ids[:end], None
    elif end is not None:
        output_ids = output_ids[: end + 1]
    asked = row.get("asked")
    if asked is not None and (type(asked) is not int or asked < 1):
        raise SpecError(f"{where}: 'asked' must be a whole number of output tokens, at least 1; got {asked!r}")
    limits = [limit for limit in (asked, max_new_tokens) if limit is not None]
    # An ended stream is known to its end, whatever was asked; else the last D_max tokens serve as tail only.
    wanted = min([*limits, max(len(output_ids) - tail, 0)]) if end is None else min(limits, default=len(output_ids))
    return TokenStream(
        index=row["index"] if type(row.get("index")) is int and 0 <= row["index"] < 2**63 else number - 1,
        conversation=next((str(row[key]) for key in ("conversation", "id") if row.get(key) is not None), str(number)),
        turn=int(row["turn"]) if type(row.get("turn")) is int else 0,
        category=str(row["category"]) if row.get("category") is not None else None,
        prompt_ids=prompt_ids,
        output_ids=output_ids,
        asked=wanted,
    )
