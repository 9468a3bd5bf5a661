"""A text in tokens."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.sample import coverage, sample_ids
from codraft.formats.source import open_source

from tests.checkpoints import write_tokenizer


def test_each_text_is_cut_into_the_tokens_of_the_model(tmp_path: Path) -> None:
    write_tokenizer(tmp_path, 260)
    table = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    assert sample_ids(open_source(str(tmp_path)), ["ab", "", "b"]) == [[table["a"], table["b"]], [], [table["b"]]]


def test_without_the_tokenizers_package_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tokenizer(tmp_path, 260)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(CapabilityError, match="pip install tokenizers"):
        sample_ids(open_source(str(tmp_path)), ["a"])


@pytest.mark.parametrize(("content", "words"), [(None, "has no tokenizer.json"), ("{}", "is refused by the")])
def test_a_tokenizer_that_cannot_be_used_is_one_sentence(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(SpecError, match=words) as caught:
        sample_ids(open_source(str(tmp_path)), ["a"])
    assert "\n" not in str(caught.value)


@given(st.lists(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_coverage_is_the_share_of_tokens_that_are_among_the_ids(tokens: list[int], ids: set[int]) -> None:
    found = coverage(tokens, ids)
    assert found == (sum(token in ids for token in tokens) / len(tokens) if tokens else None)
    assert coverage(np.array(tokens, np.int64), np.array(sorted(ids), np.int64)) == found
