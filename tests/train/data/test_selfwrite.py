"""User turns by the target: found behind the chat template, kept where the target ended them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.decode.hf.text import TextCodec
from codraft.train.data import selfwrite
from codraft.train.data.answers import Written
from codraft.train.data.rows import DROPS, Finding, count

from tests.train.data.letters import END, ROLES, Brackets, Letters

CODEC = TextCodec(Letters())
EOS = frozenset([END])
FRAME = selfwrite.frame_of(CODEC, EOS, "toy")
OPENERS = {"question": ["What is "], "summary": ["Sum up:\n"]}


def ids(text: str) -> list[int]:
    """Letters as ids."""
    return list(map(ord, text))


def kept(*texts: tuple[str, bool], openers: dict[str, list[str]] | None = None) -> list[Finding]:
    """What becomes of turns that went on so; True: ended by the end-of-turn token."""
    turns = selfwrite.turns(CODEC, FRAME, openers or {"question": ["What is "]}, len(texts), seed=0)
    written = {
        turn.wanted.key: Written([*ids(text), END] if ended else ids(text), "eos" if ended else "length")
        for turn, (text, ended) in zip(turns, texts, strict=True)
    }
    return selfwrite.harvest(turns, written, CODEC, FRAME, set())


def asked(finding: Finding) -> str:
    """The user's text of a kept turn."""
    assert finding.conversation is not None
    return str(finding.conversation.opening[0]["content"])


def test_what_stands_before_a_user_and_what_ends_it_is_read_off_the_template() -> None:
    assert (FRAME.head, FRAME.stop_ids, FRAME.marker) == ("<user>", EOS, None)


def test_a_template_without_a_closing_token_gives_its_closing_text() -> None:
    frame = selfwrite.frame_of(TextCodec(Brackets()), EOS, "toy")
    assert (frame.head, frame.stop_ids, frame.marker) == ("[U]", EOS, "[/U]")


def test_a_text_is_cut_at_the_closing_text() -> None:
    codec = TextCodec(Brackets())
    frame = selfwrite.frame_of(codec, EOS, "toy")
    turns = selfwrite.turns(codec, frame, {"question": ["What is "]}, 1, seed=0)
    written = {turns[0].wanted.key: Written(ids(" a river? [/U] An answer."), "length")}
    found = selfwrite.harvest(turns, written, codec, frame, set())
    assert (asked(found[0]), found[0].repairs) == ("What is a river?", ())


def test_without_a_chat_template_the_user_is_told_what_to_do() -> None:
    with pytest.raises(SpecError, match=r"no chat template.*--prompts"):
        selfwrite.frame_of(TextCodec(Letters(), raw=True), EOS, "base-model")


def test_every_beginning_is_used_as_often_as_the_others_and_in_another_order_by_seed() -> None:
    openers = {"a": ["x", "y"], "b": ["z"]}
    turns = selfwrite.turns(CODEC, FRAME, openers, 30, seed=0)
    begun = Counter(CODEC.text(turn.wanted.prompt_ids) for turn in turns)
    assert begun == {"x": 10, "y": 10, "z": 10}
    other = selfwrite.turns(CODEC, FRAME, openers, 30, seed=1)
    assert [t.wanted.prompt_ids for t in turns] != [t.wanted.prompt_ids for t in other]
    assert len({turn.wanted.index for turn in turns}) == 30


def test_a_beginning_stands_behind_the_template_without_a_space_at_its_end() -> None:
    turn = selfwrite.turns(CODEC, FRAME, {"question": ["What is "]}, 1, seed=0)[0]
    assert turn.wanted.prompt_ids == [ROLES["user"], *ids("What is")]
    assert turn.wanted.max_tokens == selfwrite.SHORT_TOKENS


def test_a_turn_is_its_beginning_and_what_the_target_wrote() -> None:
    assert asked(kept((" a river?", True))[0]) == "What is a river?"


def test_turns_of_no_use_are_dropped_and_counted() -> None:
    found = kept((" a river?", True), (" A RIVER?", True), (" a lake and", False), ("", True), ("  ", True))
    assert [f.reason for f in found] == [None, "duplicate", "not_ended", "nothing_written", "nothing_written"]
    info = count(found)
    assert (info.rows, info.kept, sum(info.dropped.values())) == (5, 1, 4)
    assert set(info.dropped) <= set(DROPS)
    assert kept((" ?", True), openers={"open": [""]})[0].reason == "too_short"


def test_a_text_to_be_asked_about_may_be_cut_at_the_limit() -> None:
    found = kept(("A long text", False), openers={"summary": ["Sum up:\n"]})[0]
    assert (asked(found), found.repairs) == ("Sum up:\nA long text", ("cut",))


def test_the_built_in_beginnings_are_a_valid_file() -> None:
    openers = selfwrite.read_openers(None)
    assert set(openers) >= selfwrite.LONG
    assert sum(map(len, openers.values())) > 50


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"a": []}', '{"a": "x"}', '{"a": [1]}'])
def test_openers_of_another_shape_are_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "openers.json"
    path.write_text(content)
    with pytest.raises(SpecError, match="--openers"):
        selfwrite.read_openers(path)


def test_openers_of_a_file_replace_the_built_in_ones(tmp_path: Path) -> None:
    path = tmp_path / "openers.json"
    path.write_text(json.dumps(OPENERS))
    assert selfwrite.read_openers(path) == OPENERS


def test_a_window_too_small_for_a_turn_is_refused() -> None:
    turns = selfwrite.turns(CODEC, FRAME, OPENERS, 2, seed=0)
    with pytest.raises(SpecError, match="window of toy is 200"):
        selfwrite.check_room(turns, 200, "toy")
    selfwrite.check_room(turns, 300, "toy")
