"""What is held out to measure on: by prompt and conversation, never learnt from."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.train.held import HeldOut, hold_out, learning_rows
from codraft.train.tokens import Origin, Row, TokenFile, write_tokens

EOS = 0


def file_of(path: Path, conversations: list[list[tuple[list[int], list[int]]]]) -> TokenFile:
    """Conversations of (user's turn, answer): a row for each turn, with all that stood before it as context."""
    rows = []
    for turns in conversations:
        ids: list[int] = []
        for user, answer in turns:
            ids = [*ids, *user]
            mask = np.zeros(len(ids) + len(answer), dtype=bool)
            mask[len(ids) :] = True
            ids = [*ids, *answer]
            rows.append(Row(np.array(ids), mask))
    write_tokens(path, rows, Origin(target="t", vocab_size=50, template="raw"))
    return TokenFile(path)


def held(data: TokenFile, count: int) -> tuple[HeldOut, set[int]]:
    found = hold_out(data, count, frozenset({EOS}), 1, data.lengths)
    return found, {int(row) for row in learning_rows(data, found, data.lengths)}


def test_other_answers_to_a_prompt_that_is_held_out_are_not_learnt_and_its_first_is_measured(tmp_path: Path) -> None:
    twins = [[([1, 10 + i, 2], answer)] for i in range(6) for answer in ([3, 4, EOS], [5, 6, 7, EOS])]
    data = file_of(tmp_path / "t.safetensors", twins)
    found, learnt = held(data, 2)
    assert len(found.streams) == 2
    assert len(found.rows) == 4
    assert learnt == set(range(12)) - set(found.rows)
    for stream in found.streams:
        # The greedy answer is written first.
        assert stream.index % 2 == 0
        assert {stream.index, stream.index + 1} <= set(found.rows)


def test_later_and_earlier_turns_of_a_conversation_that_is_held_out_are_not_learnt(tmp_path: Path) -> None:
    talks = [[([1, 10 + i], [3, 4, EOS]), ([2, 20 + i], [5, 6, EOS]), ([2], [7, 8, EOS])] for i in range(5)]
    data = file_of(tmp_path / "t.safetensors", talks)
    found, learnt = held(data, 4)
    talk_of = {row: row // 3 for row in range(15)}
    assert {talk_of[row] for row in learnt}.isdisjoint({talk_of[row] for row in found.rows})


TURNS = st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.just([4, 5, EOS]))
TALKS = st.lists(st.lists(TURNS, min_size=1, max_size=3), min_size=3, max_size=8)


@given(TALKS, st.integers(1, 3))
def test_no_row_that_is_learnt_goes_on_from_a_prompt_that_is_measured(
    tmp_path_factory: pytest.TempPathFactory,
    talks: list[list[tuple[list[int], list[int]]]],
    count: int,
) -> None:
    data = file_of(tmp_path_factory.mktemp("held") / "t.safetensors", talks)
    try:
        found, learnt = held(data, count)
    except SpecError:
        return
    assert learnt.isdisjoint(found.rows)
    for stream in found.streams:
        for row in learnt:
            ids = data.row(row).ids.tolist()
            assert ids[: len(stream.prompt_ids)] != list(stream.prompt_ids)


def test_a_row_without_two_tokens_side_by_side_is_none_to_learn_from(tmp_path: Path) -> None:
    data = file_of(tmp_path / "t.safetensors", [[([1, i], [3])] for i in range(4)] + [[([1, 9], [3, EOS])]] * 1)
    rows = learning_rows(data, HeldOut([0], []), data.lengths)
    assert rows.tolist() == [4]
    with pytest.raises(SpecError, match="nothing is left to learn from"):
        learning_rows(data, HeldOut([4], []), data.lengths)
    # Cut off, what is left is none either.
    with pytest.raises(SpecError, match="nothing is left to learn from"):
        learning_rows(data, HeldOut([0], []), data.lengths.clip(max=3))


def test_no_supervised_token_is_said_before_anything_else(tmp_path: Path) -> None:
    rows = [Row(np.arange(5), np.zeros(5, dtype=bool)) for _ in range(4)]
    write_tokens(tmp_path / "t.safetensors", rows, Origin(target="t", vocab_size=50, template="raw"))
    with pytest.raises(SpecError, match="no row holds a token that the target wrote"):
        hold_out(TokenFile(tmp_path / "t.safetensors"), None, frozenset({EOS}), 1, np.full(4, 5))


@pytest.mark.parametrize("count", [0, -1, 4, 5])
def test_a_count_that_leaves_nothing_is_refused(count: int, tmp_path: Path) -> None:
    data = file_of(tmp_path / "t.safetensors", [[([1, i], [3, 4, EOS])] for i in range(4)])
    with pytest.raises(SpecError, match="--held-out must leave prompts"):
        hold_out(data, count, frozenset({EOS}), 1, data.lengths)
