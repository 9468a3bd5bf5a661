"""Streams: which tokens were asked for, which are tail, and which rows are no streams."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import conversation
from codraft.replay.streams import (
    Progress,
    StreamSet,
    TokenStream,
    Writing,
    check_prompts,
    fits,
    hash_streams,
    load_streams,
    save_streams,
    select_fitting,
    shape_stream,
    write_streams,
)

from tests.toy import EOS, ToyTarget, greedy_text

ENDS = frozenset([0])
VOCAB = 300
ROLES = {"user": 256, "assistant": 257, "system": 258}


class Letters:
    """A tokenizer with one id per letter, one per role, and id 0 behind each message."""

    chat_template: str | None = "letters"

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) for c in text]}

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, **_: Any
    ) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [ROLES[message["role"]], *map(ord, message["content"]), 0]
        return [*ids, ROLES["assistant"]] if add_generation_prompt else ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(chr(i) for i in ids if 0 < i < 256)


class Forgetful(Letters):
    """Renders an answered prompt without its first message, as some templates do with thoughts."""

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, **_: Any
    ) -> list[int]:
        kept = messages if add_generation_prompt else messages[1:]
        return super().apply_chat_template(kept, add_generation_prompt=add_generation_prompt)


CODEC = TextCodec(Letters())


def shape(output: list[int], *, tail: int = 3, asked: Any = None, limit: int | None = None, **row: Any) -> TokenStream:
    """A row with these output ids, shaped; id 0 is EOS."""
    given_row = row if asked is None else {**row, "asked": asked}
    return shape_stream(given_row, [9], list(output), ENDS, tail, "f, line 5", 5, limit)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    """A stream file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read(path: Path, *, tail: int = 2, limit: int | None = None, codec: TextCodec = CODEC) -> StreamSet:
    """The stream file, for D up to `tail`."""
    return load_streams(path, codec, ENDS, VOCAB, tail, limit)


def ids(output: list[int], prompt: Sequence[int] = (9,), **more: Any) -> dict[str, Any]:
    """A row of token ids."""
    return {"prompt_ids": list(prompt), "output_ids": output, **more}


def test_a_stream_is_cut_behind_its_first_EOS() -> None:
    assert shape([4, 5, 0, 6, 0]).output_ids == [4, 5, 0]


def test_a_stream_that_ended_is_asked_to_its_end() -> None:
    stream = shape([4, 5, 6, 7, 0], tail=3)
    assert (stream.asked, stream.num_anchors()) == (5, 4)


def test_the_last_tokens_of_a_log_that_did_not_end_are_tail_only() -> None:
    stream = shape([4, 5, 6, 7, 8], tail=3)
    assert (stream.output_ids, stream.asked, stream.num_anchors()) == ([4, 5, 6, 7, 8], 2, 1)


def test_a_stream_asks_for_what_was_asked_where_the_tail_is_long_enough() -> None:
    assert shape([4, 5, 6, 7, 8, 9], tail=3, asked=2).asked == 2
    assert shape([4, 5, 6, 7, 8, 9], tail=3, asked=3).asked == 3


def test_a_stream_written_with_a_shorter_tail_gives_up_asked_tokens() -> None:
    assert shape([4, 5, 6, 7, 8, 9], tail=4, asked=5).asked == 2


def test_an_EOS_in_the_tail_leaves_what_was_asked() -> None:
    stream = shape([4, 5, 6, 7, 0], tail=3, asked=2)
    assert (stream.output_ids, stream.asked) == ([4, 5, 6, 7, 0], 2)


def test_more_asked_than_an_ended_stream_holds_is_kept_but_adds_no_anchor() -> None:
    stream = shape([4, 5, 0], asked=10)
    assert (stream.asked, stream.num_anchors()) == (10, 2)
    assert shape([4, 5, 0], limit=10).num_anchors() == 2


def test_an_answer_that_the_limit_cut_has_no_EOS_of_its_own() -> None:
    stream = shape([4, 5, 6, 7, 8, 0, 9], tail=3, finish_reason="length")
    assert (stream.output_ids, stream.asked) == ([4, 5, 6, 7, 8], 2)
    assert shape([4, 5, 6, 7, 8], tail=3, finish_reason="length").asked == 2
    assert shape([4, 5, 6, 0], finish_reason="stop").output_ids == [4, 5, 6, 0]


def test_a_limit_lowers_what_is_asked_and_never_raises_it() -> None:
    assert shape([4, 5, 6, 7, 0], limit=2).asked == 2
    assert shape([4, 5, 6, 7, 0], asked=2, limit=4).asked == 2
    assert shape([4, 5, 6, 7, 8, 9], tail=3, limit=2).asked == 2
    assert shape([4, 5, 6, 7, 8, 9], tail=3, limit=6).asked == 3


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=12),
    st.integers(1, 8),
    st.none() | st.integers(1, 15),
    st.none() | st.integers(1, 15),
)
def test_every_asked_anchor_of_an_unended_stream_sees_its_whole_tail(
    output: list[int], tail: int, asked: int | None, limit: int | None
) -> None:
    stream = shape(output, tail=tail, asked=asked, limit=limit)
    assert stream.output_ids == output[: len(stream.output_ids)]
    assert 0 not in stream.output_ids[:-1]
    assert stream.asked <= min(asked or 99, limit or 99)
    assert stream.num_anchors() < len(stream.output_ids)
    if stream.output_ids[-1] != 0:
        assert stream.output_ids == output
        assert stream.asked + tail <= len(output) or stream.asked == 0


@pytest.mark.parametrize("asked", [0, -1, "4", 2.0, True, []])
def test_asking_for_anything_but_a_number_of_tokens_is_refused(asked: Any) -> None:
    with pytest.raises(SpecError, match="f, line 5: 'asked' must be a whole number"):
        shape([4, 5, 0], asked=asked)


def test_a_row_is_numbered_and_its_own_conversation_where_it_says_nothing() -> None:
    stream = shape([4, 0])
    assert (stream.index, stream.conversation, stream.turn, stream.category) == (4, "5", 0, None)


def test_a_row_says_its_index_conversation_turn_and_category() -> None:
    stream = shape([4, 0], index=17, conversation="c", id="i", turn=2, category="maths")
    assert (stream.index, stream.conversation, stream.turn, stream.category) == (17, "c", 2, "maths")
    assert shape([4, 0], id="i").conversation == "i"
    assert shape([4, 0], index=0).index == 0


def test_a_stream_is_asked_for_again_by_its_index_and_prompt() -> None:
    assert shape([4, 0], index=17).request(6) == Request(17, [9], 6)


@pytest.mark.parametrize("row", [{"conversation": None}, {"id": None}, {"conversation": None, "id": None}])
def test_a_conversation_of_null_is_no_conversation(row: dict[str, Any]) -> None:
    assert shape([4, 0], **row).conversation == "5"


@pytest.mark.parametrize("index", [-1, 2**63, "3", None, True, 1.0])
def test_an_index_that_cannot_key_noise_is_passed_over(index: Any) -> None:
    assert shape([4, 0], index=index).index == 4


def test_token_ids_are_read_as_they_are(tmp_path: Path) -> None:
    loaded = read(write(tmp_path / "s.jsonl", ids([4, 5, 0], [7, 8]), ids([6, 0])))
    assert [(s.prompt_ids, s.output_ids) for s in loaded.streams] == [([7, 8], [4, 5, 0]), ([9], [6, 0])]
    assert (loaded.template, loaded.sampling, loaded.num_tokens) == ("ids", None, 5)
    assert loaded.name == str(tmp_path / "s.jsonl")


def test_a_chat_log_is_replayed_from_where_the_template_starts_the_answer(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "abc"}]
    loaded = read(write(tmp_path / "s.jsonl", {"messages": messages}))
    assert loaded.streams[0].prompt_ids == [256, ord("h"), ord("i"), 0, 257]
    assert loaded.streams[0].output_ids == [ord("a"), ord("b"), ord("c"), 0]
    assert loaded.template == "chat"


def test_without_a_template_a_lone_message_is_plain_text(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "abcd"}]
    loaded = read(write(tmp_path / "s.jsonl", {"messages": messages}), codec=TextCodec(Letters(), raw=True))
    assert loaded.streams[0].prompt_ids == [ord("h"), ord("i")]
    assert loaded.streams[0].output_ids == [ord(c) for c in "abcd"]
    assert (loaded.streams[0].asked, loaded.template) == (2, "raw")


def test_a_template_that_renders_an_answered_prompt_otherwise_is_refused(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "abc"}]
    path = write(tmp_path / "s.jsonl", {"messages": messages})
    with pytest.raises(SpecError, match=r"line 1: the chat template renders the prompt differently once answered"):
        read(path, codec=TextCodec(Forgetful()))


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "hi"}, "no stream in this row; it needs 'prompt_ids' and 'output_ids', or 'messages'"),
        ({"prompt_ids": [1]}, "'output_ids' must be a non-empty list of token ids"),
        ({"output_ids": [1]}, "'prompt_ids' must be a non-empty list of token ids"),
        (ids([]), "'output_ids' must be a non-empty list of token ids"),
        (ids([1], []), "'prompt_ids' must be a non-empty list of token ids"),
        (ids([1, True]), "'output_ids' must be a non-empty list of token ids"),
        ({"prompt_ids": [1], "output_ids": [1, 2.0]}, "'output_ids' must be a non-empty list of token ids"),
        ({"prompt_ids": "1", "output_ids": [1]}, "'prompt_ids' must be a non-empty list of token ids"),
        (ids([1, VOCAB]), f"'output_ids' holds id {VOCAB}, outside the target's vocabulary of {VOCAB}"),
        (ids([1], [-1]), f"'prompt_ids' holds id -1, outside the target's vocabulary of {VOCAB}"),
        ({"messages": [USER]}, "'messages' must end with the assistant's answer"),
        (
            {"messages": [{"role": "assistant", "content": "x"}]},
            "'messages' must end with the assistant's answer",
        ),
        ({"messages": 3}, "'messages' must be a non-empty list"),
        (ids([1, 0], sampling={"temprature": 1}), "sampling: unknown option 'temprature'"),
        (ids([1, 0], sampling={"top_p": 2}), "sampling: top-p must be above 0"),
    ],
)
def test_a_row_that_is_no_stream_is_refused_where_it_stands(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", ids([1, 0]), row)
    with pytest.raises(SpecError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}, line 2: ")
    assert words in str(caught.value)


def test_the_last_id_of_the_vocabulary_is_inside(tmp_path: Path) -> None:
    assert read(write(tmp_path / "s.jsonl", ids([VOCAB - 1, 0]))).streams[0].output_ids == [VOCAB - 1, 0]


def test_streams_too_short_for_a_step_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", ids([0]), ids([4, 5, 6, 7]), ids([4, 5, 6]), ids([4, 0]))
    loaded = read(path, tail=2)
    assert [s.output_ids for s in loaded.streams] == [[4, 5, 6, 7], [4, 0]]
    assert loaded.num_too_short == 2


def test_a_file_of_nothing_but_short_streams_is_refused_with_the_length_needed(tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", ids([4, 5, 6]), ids([0]))
    with pytest.raises(
        SpecError, match=r"no stream long enough to measure \(2 too short: .* more than D \+ 1 = 3 tokens"
    ):
        read(path, tail=2)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has no rows"):
        read(write(tmp_path / "s.jsonl"))


WARM, COLD = {"temperature": 0.8, "seed": 3}, {"temperature": 0.0}


def test_sampling_that_all_rows_share_is_that_of_the_streams(tmp_path: Path) -> None:
    loaded = read(write(tmp_path / "s.jsonl", ids([4, 0], sampling=WARM), ids([5, 0], sampling=WARM)))
    assert loaded.sampling == Sampling(temperature=0.8, seed=3)
    assert read(write(tmp_path / "s.jsonl", ids([4, 0], sampling=COLD))).sampling == Sampling()


@pytest.mark.parametrize("other", [{"sampling": COLD}, {}])
def test_mixed_sampling_is_refused(other: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path / "s.jsonl", ids([4, 0], sampling=WARM), ids([5, 0], **other))
    with pytest.raises(SpecError, match="mixes sampling settings"):
        read(path)


def test_null_sampling_is_no_sampling(tmp_path: Path) -> None:
    assert read(write(tmp_path / "s.jsonl", ids([4, 0], sampling=None), ids([5, 0]))).sampling is None


@pytest.mark.parametrize("key", ["target", "template"])
def test_a_word_that_all_rows_share_is_that_of_the_streams(key: str, tmp_path: Path) -> None:
    def said(*words: dict[str, Any]) -> object:
        return getattr(read(write(tmp_path / "s.jsonl", *({**ids([4, 0]), **word} for word in words))), key)

    assert said({key: "x"}, {key: "x"}) == "x"
    others: list[dict[str, Any]] = [{key: "y"}, {key: None}, {}]
    for other in others:
        assert said({key: "x"}, other) == said({}, {}) != "x"


def stream_set(*lengths: int, sampling: Sampling | None = None) -> StreamSet:
    """Streams with one prompt token and outputs of these lengths, all asked to the end."""
    streams = [
        TokenStream(
            index=i,
            conversation=f"c{i // 2}",
            turn=i % 2,
            category="maths" if i else None,
            prompt_ids=[9],
            output_ids=[*range(1, n), 0],
            asked=n,
        )
        for i, n in enumerate(lengths)
    ]
    return StreamSet("made", hash_streams(streams), streams, "chat", sampling)


def test_streams_saved_and_loaded_are_the_same(tmp_path: Path) -> None:
    saved = stream_set(4, 3, 5, sampling=Sampling(temperature=0.5, seed=7))
    save_streams(tmp_path / "s.jsonl", saved, "demo")
    loaded = read(tmp_path / "s.jsonl")
    assert loaded.streams == saved.streams
    assert (loaded.sha256, loaded.sampling) == (saved.sha256, saved.sampling)
    assert (loaded.target, loaded.template) == ("demo", "chat")
    assert loaded.num_conversations == 2


def test_a_stream_set_counts_asked_tokens_and_conversations() -> None:
    made = stream_set(4, 3, 5)
    assert (made.num_tokens, made.num_conversations) == (12, 2)


def test_the_hash_moves_with_tokens_and_with_what_was_asked() -> None:
    def hashed(*, prompt: int = 9, output: int = 4, asked: int = 2) -> str:
        return hash_streams(
            [
                TokenStream(
                    index=0,
                    conversation="c",
                    turn=0,
                    category=None,
                    prompt_ids=[prompt],
                    output_ids=[output, 0],
                    asked=asked,
                )
            ]
        )

    assert hashed() == hashed()
    assert len({hashed(), hashed(prompt=8), hashed(output=5), hashed(asked=1)}) == 4


def test_streams_that_just_fit_the_window_are_kept() -> None:
    made = stream_set(4, 3)
    assert select_fitting(made, 5, False) == made
    assert select_fitting(made, None, False) == made


def test_streams_longer_than_the_window_are_refused_by_the_first_and_the_count() -> None:
    with pytest.raises(SpecError) as caught:
        select_fitting(stream_set(3, 6, 4, 7), 5, False)
    assert str(caught.value).startswith(
        "made: stream 1 has 7 tokens, more than the model's window of 5 (2 of 4 are too long); use --skip-long"
    )


def test_skipped_streams_are_counted_and_leave_the_hash() -> None:
    made = stream_set(3, 6, 4, 7)
    kept = select_fitting(made, 5, True)
    assert [s.index for s in kept.streams] == [0, 2]
    assert kept.num_too_long == 2
    assert kept.sha256 == hash_streams(kept.streams) != made.sha256


def test_skipping_every_stream_is_refused() -> None:
    with pytest.raises(SpecError, match="every stream is longer than the model's window of 3"):
        select_fitting(stream_set(3, 6), 3, True)


def test_a_prompt_fits_where_answer_and_drafts_still_do() -> None:
    assert fits([1, 2], 3, 5)
    assert not fits([1, 2], 4, 5)
    assert fits([1, 2], 10**6, None)


def test_over_long_prompts_are_refused_by_the_first_and_the_count_unless_skipped() -> None:
    prompts = [("f, line 1", [1]), ("f, line 2", [1, 2, 3]), ("f, line 3", [1, 2, 3, 4])]
    check_prompts(prompts, 3, 7, False)
    check_prompts(prompts, 3, 5, True)
    with pytest.raises(SpecError, match=r"^f, line 2: a prompt of 3 tokens and 3 more .* window of 5 \(2 of 3 prompts"):
        check_prompts(prompts, 3, 5, False)


def write_all(
    target: ToyTarget,
    *,
    turns: Sequence[Sequence[str]],
    progress: Progress | None = None,
    raw: bool = False,
    **more: Any,
) -> StreamSet:
    """Streams of conversations with these turns; letters are taken modulo the toy's vocabulary."""
    conversations = [conversation({"turns": list(t)}, f"row {i}", str(i)) for i, t in enumerate(turns)]
    options: dict[str, Any] = {"max_new_tokens": 5, "tail": 3, "batch": 2, "window": None, **more}
    how = Writing(sampling=Sampling(), **options)
    return write_streams(target, TextCodec(Small(target.vocab_size), raw=raw), conversations, how, progress=progress)


class Small(Letters):
    """Letters folded into a small vocabulary, never to EOS."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, add_generation_prompt: bool, **_: Any
    ) -> list[int]:
        whole = super().apply_chat_template(messages, add_generation_prompt=add_generation_prompt)
        return [1 + i % (self.vocab_size - 1) for i in whole]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(chr(i) for i in ids)


def test_a_written_stream_is_plain_decoding_with_a_tail_behind_the_asked_tokens() -> None:
    target = ToyTarget(11, eos=False)
    written = write_all(target, turns=[["one"], ["three"], ["seven"]])
    for stream in written.streams:
        assert (stream.asked, len(stream.output_ids)) == (5, 8)
        assert stream.output_ids == greedy_text(target, stream.prompt_ids, 8)
    assert [(s.index, s.conversation, s.turn) for s in written.streams] == [
        (0, "0", 0),
        (1, "1", 0),
        (2, "2", 0),
    ]
    assert (written.template, written.sampling, written.num_tokens) == ("chat", Sampling(), 15)
    assert (written.num_too_short, written.num_too_long) == (0, 0)


def test_a_later_turn_sees_the_asked_part_of_the_targets_own_answer() -> None:
    target = ToyTarget(11, eos=False)
    first, second, other = write_all(target, turns=[["one", "two"], ["three"]]).streams
    small = Small(11)
    history = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": small.decode(first.output_ids[:5], skip_special_tokens=True)},
        {"role": "user", "content": "two"},
    ]
    assert second.prompt_ids == small.apply_chat_template(history, add_generation_prompt=True)
    assert [(s.index, s.conversation, s.turn) for s in (first, second, other)] == [
        (0, "0", 0),
        (1, "0", 1),
        (2, "1", 0),
    ]


def test_streams_do_not_depend_on_how_many_are_written_together() -> None:
    target = ToyTarget(11, seed=3)
    turns = [["one", "two"], ["three"], ["four", "five", "six"]]
    written = [write_all(target, turns=turns, batch=batch) for batch in (1, 2, 8)]
    assert written[0] == written[1] == written[2]
    assert any(EOS in s.output_ids for s in written[0].streams)


def test_a_conversation_that_outgrows_the_window_is_refused_or_dropped_from_there_on() -> None:
    target = ToyTarget(11, eos=False)
    turns = [["one"], ["a very much longer one", "and on"], ["two", "three"]]
    with pytest.raises(SpecError, match=r"^row 1: a prompt of 25 tokens and 8 more .* \(1 of 3 prompts are too long\)"):
        write_all(target, turns=turns, window=28)
    kept = write_all(target, turns=turns, window=28, skip_long=True)
    assert [s.index for s in kept.streams] == [0, 3, 4]
    assert kept.num_too_long == 2
    kept = write_all(target, turns=turns, window=27, skip_long=True)
    assert [s.index for s in kept.streams] == [0, 3]
    assert kept.num_too_long == 3


def test_prompts_that_all_outgrow_the_window_are_refused_even_where_they_may_be_skipped() -> None:
    with pytest.raises(SpecError, match=r"^written: every prompt is too long for the window of 9"):
        write_all(ToyTarget(11, eos=False), turns=[["one"], ["three"]], window=9, skip_long=True)


def test_without_a_template_first_turns_alone_are_written() -> None:
    written = write_all(ToyTarget(300, eos=False), turns=[["one", "two"], ["three"]], raw=True)
    assert [(s.index, s.conversation, s.turn) for s in written.streams] == [(0, "0", 0), (1, "1", 0)]
    assert (written.streams[0].prompt_ids, written.template) == ([ord(c) for c in "one"], "raw")


def test_progress_counts_streams_written() -> None:
    seen: list[tuple[int, int]] = []
    write_all(ToyTarget(11, eos=False), turns=[["one", "two"], ["three"]], progress=lambda *pair: seen.append(pair))
    assert seen == [(2, 3), (3, 3)]


def test_progress_does_not_wait_for_streams_that_are_left_out() -> None:
    seen: list[tuple[int, int]] = []
    turns = [["a very much longer one", "two"], ["three"]]
    target = ToyTarget(11, eos=False)
    write_all(target, turns=turns, window=20, skip_long=True, progress=lambda *pair: seen.append(pair))
    assert seen == [(1, 1)]
