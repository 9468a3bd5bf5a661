"""Answers that go round in circles, and where they are cut."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codraft.train.cuts import FEWEST, LONGEST_ROUND, before_loop, kept_lengths
from codraft.train.tokens import Origin, Row, TokenFile, write_tokens

TOKENS = st.integers(0, 3)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("abcdefghijkl", 12),
        ("xyabcabcabcabc", 8),
        # Two rounds and a bit are no loop yet, nor are three short ones.
        ("xyabcdefabcdefabc", 17),
        ("xyababab", 8),
        ("x" + 12 * "a", 3),
        # It found its way out.
        ("xyabcabcabcabcz", 15),
        # A round that is cut by the limit is one.
        ("xyabcabcabcabcab", 8),
    ],
)
def test_the_third_round_of_a_loop_is_cut(text: str, kept: int) -> None:
    assert before_loop(np.array([ord(c) for c in text])) == kept


@given(st.lists(TOKENS, max_size=20), st.lists(TOKENS, min_size=1, max_size=LONGEST_ROUND), st.integers(3, 6))
def test_what_is_kept_of_a_loop_says_the_rest(begun: list[int], round_: list[int], rounds: int) -> None:
    assume(len(round_) * rounds >= FEWEST)
    ids = np.array([*begun, *round_ * rounds])
    kept = before_loop(ids)
    assert kept <= len(begun) + 2 * len(round_)
    # Some period carries what was kept on to the end.
    periods = range(1, LONGEST_ROUND + 1)
    assert any((ids[kept:] == ids[kept - p : len(ids) - p]).all() for p in periods if 2 * p <= kept)


@given(st.lists(TOKENS, min_size=1, max_size=60))
def test_nothing_else_is_cut(ids: list[int]) -> None:
    found = np.array(ids)
    kept = before_loop(found)
    if kept < len(ids):
        periods = [p for p in range(1, LONGEST_ROUND + 1) if kept - 2 * p >= 0]
        begins = [kept - 2 * p for p in periods if (found[kept - p :] == found[kept - 2 * p : len(ids) - p]).all()]
        assert any(len(ids) - begin >= FEWEST for begin in begins)


def test_rows_are_cut_in_their_last_answer_alone_and_where_they_must_fit(tmp_path: Path) -> None:
    loop = [5, 6, 7] * 5
    rows = [
        Row(np.array([1, *loop]), np.arange(16) > 0),
        # The prompt goes round, the answer does not.
        Row(np.array([*loop, 1, 2]), np.arange(17) > 14),
        # A user's word behind it: not the end.
        Row(np.array([1, *loop, 9, 3, 4]), np.array([False, *[True] * 15, False, True, True])),
    ]
    write_tokens(tmp_path / "t.safetensors", rows, Origin(target="t", vocab_size=50, template="raw"))
    data = TokenFile(tmp_path / "t.safetensors")
    assert kept_lengths(data, 100, loops=False).tolist() == [7, 17, 19]
    assert kept_lengths(data, 100, loops=True).tolist() == [16, 17, 19]
    assert kept_lengths(data, 5, loops=False).tolist() == [5, 5, 5]
