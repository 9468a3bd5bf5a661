"""Vocabularies from tokenizer files, and where two of them differ."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.formats.vocab import difference, read_vocab


def tokenizer(folder: Path, data: Any) -> Path:
    """A folder with this tokenizer.json."""
    (folder / "tokenizer.json").write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return folder


def test_a_folder_without_a_tokenizer_file_has_no_vocabulary(tmp_path: Path) -> None:
    assert read_vocab(tmp_path) is None


def test_a_token_table_is_read_by_id_with_added_tokens_on_top(tmp_path: Path) -> None:
    data = {
        "model": {"vocab": {"a": 0, "ü": 1, "old": 2}},
        "added_tokens": [{"id": 2, "content": "<|end|>"}, {"id": 5, "content": "<|pad|>"}],
    }
    assert read_vocab(tokenizer(tmp_path, data)) == {0: "a", 1: "ü", 2: "<|end|>", 5: "<|pad|>"}


def test_a_unigram_list_is_read_in_its_order(tmp_path: Path) -> None:
    data = {"model": {"vocab": [["<unk>", 0.0], ["a", -1.5]]}, "added_tokens": None}
    assert read_vocab(tokenizer(tmp_path, data)) == {0: "<unk>", 1: "a"}


@pytest.mark.parametrize(
    "data",
    [
        "{",
        "[" * 100_000,
        "[]",
        {},
        {"model": {}},
        {"model": {"vocab": 3}},
        {"model": {"vocab": [[]]}},
        {"model": {"vocab": {"a": "x"}}},
        '{"model": {"vocab": {"a": Infinity}}}',
        {"model": {"vocab": {}}, "added_tokens": [{"id": 1}]},
    ],
)
def test_a_tokenizer_file_that_cannot_be_read_is_named(data: Any, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"tokenizer\.json is not a tokenizer file that can be read"):
        read_vocab(tokenizer(tmp_path, data))


def test_a_tokenizer_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match="is not a tokenizer file"):
        read_vocab(tmp_path)


def test_ids_with_other_strings_or_in_one_vocabulary_only_differ() -> None:
    assert difference({0: "a", 1: "b", 2: "c"}, {0: "a", 1: "x", 3: "d"}) == [1, 2, 3]


VOCABS = st.dictionaries(st.integers(0, 20), st.sampled_from("abc"))


@given(VOCABS, VOCABS)
def test_the_difference_is_empty_exactly_for_equal_vocabularies(ours: dict[int, str], theirs: dict[int, str]) -> None:
    assert (difference(ours, theirs) == []) == (ours == theirs)
    assert difference(ours, theirs) == difference(theirs, ours)
