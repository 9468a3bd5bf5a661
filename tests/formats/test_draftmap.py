"""Draft maps in both spellings, what is wrong with them, and how much of a text a draft vocabulary covers."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from codraft.formats.draftmap import DraftMap, plain_map, read_draft_map

V = 40
SUBSETS = st.sets(st.integers(0, V - 1), min_size=1).map(sorted)


def as_offsets(ids: list[int]) -> NDArray[np.int64]:
    """The offset form of a map."""
    return np.array(ids, np.int64) - np.arange(len(ids))


def mask(ids: list[int], size: int = V) -> NDArray[np.bool_]:
    """t2d of a set of ids."""
    marks = np.zeros(size, np.bool_)
    marks[ids] = True
    return marks


def kinds(found: DraftMap) -> list[str]:
    """Kinds of the problems, in order."""
    return [problem.kind for problem in found.problems]


@given(SUBSETS, st.sampled_from([np.int64, np.int32, np.int16]))
def test_every_ascending_subset_is_recognised_in_both_forms_with_t2d(ids: list[int], dtype: type) -> None:
    for form, d2t in (("offset", as_offsets(ids)), ("absolute", np.array(ids))):
        found = read_draft_map(d2t.astype(dtype), mask(ids), V, len(ids))
        assert list(found.target_ids) == ids
        assert found.problems == []
        assert found.form == form or (len(ids) == 1 and found.form == "offset")


@given(SUBSETS)
def test_an_absolute_map_is_recognised_without_t2d(ids: list[int]) -> None:
    found = read_draft_map(np.array(ids), None, V, len(ids))
    assert list(found.target_ids) == ids
    assert found.form == ("absolute" if len(ids) > 1 else "offset")
    assert set(kinds(found)) <= {"ambiguous"}


@given(SUBSETS)
def test_offsets_are_recognised_without_t2d_unless_no_two_ids_are_neighbours(ids: list[int]) -> None:
    found = read_draft_map(as_offsets(ids), None, V, len(ids))
    if len(ids) == 1 or any(b - a == 1 for a, b in pairwise(ids)):
        assert found.form == "offset"
        assert list(found.target_ids) == ids
        assert set(kinds(found)) <= {"zeros", "constant"}
    else:
        assert found.form == "absolute"
        assert kinds(found) == ["ambiguous"]


@given(st.integers(2, V))
def test_zeros_are_offsets_and_a_count_upwards_is_absolute_and_both_are_the_first_ids(size: int) -> None:
    ids = list(range(size))
    for t2d in (None, mask(ids)):
        zeros = read_draft_map(np.zeros(size, np.int64), t2d, V, size)
        counted = read_draft_map(np.arange(size), t2d, V, size)
        assert (zeros.form, list(zeros.target_ids)) == ("offset", ids)
        assert (counted.form, list(counted.target_ids)) == ("absolute", ids)
        assert kinds(zeros) == (["zeros"] if t2d is None and size < V else [])
        assert kinds(counted) == (["ambiguous"] if t2d is None and 2 * (size - 1) < V else [])


@given(st.permutations(range(V)), st.integers(2, V))
def test_a_map_that_is_not_sorted_is_read_and_said_to_be_out_of_order(ids: list[int], size: int) -> None:
    ids = ids[:size]
    found = read_draft_map(np.array(ids), mask(ids), V, size)
    if ids != sorted(ids) and found.form == "absolute":
        assert list(found.target_ids) == ids
        assert kinds(found) == ["order"]
    # Offsets of the very same set may be in better order; then they are what t2d agrees with too.
    assert sorted(found.target_ids) == sorted(ids)


@given(st.lists(st.integers(-5, V + 5), min_size=1, max_size=V), st.none() | st.sets(st.integers(0, V - 1)))
def test_a_map_that_is_not_inconsistent_can_be_indexed_with(values: list[int], marked: set[int] | None) -> None:
    found = read_draft_map(np.array(values), None if marked is None else mask(list(marked)), V, len(values))
    ids = list(found.target_ids)
    safe = all(0 <= i < V for i in ids) and len(set(ids)) == len(ids)
    assert (found.form != "inconsistent") == safe
    assert safe or {"range", "duplicates"} & set(kinds(found))
    if marked is not None:
        assert ("t2d" in kinds(found)) == (set(ids) != marked)


@pytest.mark.parametrize(
    ("d2t", "t2d", "sentence"),
    [
        ([1, 1, 100], None, "1 of 3 draft ids map outside 0..39 (to 102)"),
        ([-1, 0, 0], None, "1 of 3 draft ids map outside 0..39 (to -1)"),
        ([2**62, 0, 0], None, "1 of 3 draft ids map outside 0..39"),
        ([0, 0, -1], None, "1 draft ids map to a target id that another one has"),
        ([5, 5, 5], None, "every entry of d2t is 5"),
        ([0, 0, 0], None, "d2t is all zeros: the first 3 ids, or a buffer that was never filled"),
        ([0, 0, 0], [], "t2d marks 0 target ids and d2t maps to 3; 3 ids are in only one of them"),
        ([0, 0, 0], [0, 1], "t2d marks 2 target ids and d2t maps to 3; 1 ids are in only one of them"),
        ([0, 1], None, "read as absolute ids (last 1) and as offsets (last 2), and there is no t2d to tell"),
        ([0, 1], [9], "and t2d agrees with neither"),
    ],
)
def test_what_is_wrong_with_a_map_is_said_in_one_sentence(d2t: list[int], t2d: list[int] | None, sentence: str) -> None:
    found = read_draft_map(np.array(d2t), None if t2d is None else mask(t2d), V, len(d2t))
    assert any(sentence in problem.message for problem in found.problems), found.problems
    assert not any("\n" in problem.message for problem in found.problems)


def test_lengths_other_than_the_configs_are_told_and_the_rest_is_still_read() -> None:
    found = read_draft_map(np.array([0, 0, 4]), mask([0, 1, 6], V + 8), V, 5)
    assert kinds(found) == ["length", "length"]
    assert "d2t has 3 entries, draft_vocab_size is 5" in found.problems[0].message
    assert "t2d has 48 entries, the target's vocabulary 40" in found.problems[1].message
    assert list(found.target_ids) == [0, 1, 6]


@pytest.mark.parametrize("empty", [np.zeros(0, np.int64), np.zeros((2, 2), np.int64), np.array(3)])
def test_a_map_that_is_no_list_has_no_ids(empty: NDArray[Any]) -> None:
    found = read_draft_map(empty, None, V, 3)
    assert (found.form, list(found.target_ids), kinds(found)) == ("inconsistent", [], ["shape"])


@pytest.mark.parametrize("values", [[0.5, 1.0], [np.nan, 1.0], [np.inf, 0.0], [True, False], ["a", "b"]])
def test_entries_that_are_no_whole_numbers_are_refused(values: list[Any]) -> None:
    found = read_draft_map(np.array(values), None, V, 2)
    assert (found.form, list(found.target_ids), kinds(found)) == ("inconsistent", [], ["dtype"])


def test_whole_numbers_in_floats_are_read_and_doubted() -> None:
    found = read_draft_map(np.array([0, 0, 4], np.float16), None, V, 3)
    assert (found.form, list(found.target_ids), kinds(found)) == ("offset", [0, 1, 6], ["dtype"])


@pytest.mark.parametrize("number", [np.iinfo(np.uint64).max, np.iinfo(np.uint64).max - 5])
def test_huge_unsigned_numbers_do_not_wrap_round(number: int) -> None:
    found = read_draft_map(np.array([0, number], np.uint64), None, V, 2)
    assert found.form == "inconsistent"
    assert "range" in kinds(found)


@pytest.mark.parametrize(
    ("t2d", "kind"),
    [
        (np.zeros((2, 20)), "shape"),
        (np.arange(V), "dtype"),
        (np.full(V, np.nan), "dtype"),
        (np.array(["x"] * V), "dtype"),
    ],
)
def test_a_t2d_that_is_no_mask_is_told_and_not_used(t2d: NDArray[Any], kind: str) -> None:
    found = read_draft_map(np.array([0, 0, 4]), t2d, V, 3)
    assert (found.form, list(found.target_ids), kinds(found)) == ("offset", [0, 1, 6], [kind])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_a_t2d_of_zeros_and_ones_is_a_mask(dtype: type) -> None:
    assert read_draft_map(np.array([0, 0, 4]), mask([0, 1, 6]).astype(dtype), V, 3).problems == []


def test_a_map_of_real_size_is_recognised_in_both_forms() -> None:
    ids = np.sort(np.random.default_rng(0).choice(128_256, 32_000, replace=False))
    for form, d2t in (("offset", ids - np.arange(len(ids))), ("absolute", ids)):
        found = read_draft_map(d2t, None, 128_256, 32_000)
        assert (found.form, found.problems) == (form, [])
        assert np.array_equal(found.target_ids, ids)


@given(st.sets(st.integers(0, 199), min_size=1, max_size=60), st.integers(-2, 2), st.booleans())
def test_a_map_beyond_doubt_is_read_without_numpy_as_with_it(ids: set[int], spoil: int, marked: bool) -> None:
    """Where the short way answers, it answers the same; a spoilt map it leaves to the long one."""
    target = np.array(sorted(ids), np.int64)
    d2t = target - np.arange(len(target))
    d2t[len(d2t) // 2] += spoil
    t2d = np.zeros(200, bool)
    t2d[target] = True
    t2d[0] ^= not marked
    found = plain_map(d2t.tobytes(), t2d.tobytes(), 200, len(target))
    expected = read_draft_map(d2t, t2d, 200, len(target))
    if found is not None:
        assert (found.form, list(found.target_ids), found.problems) == (
            expected.form, list(expected.target_ids), expected.problems,
        )  # fmt: skip
    elif spoil == 0 and marked and 1 < len(set(d2t.tolist())) < len(d2t):
        raise AssertionError("a map beyond doubt was not read the short way")
