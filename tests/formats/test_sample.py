"""A text in tokens."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.sample import coverage, muted, sample_ids
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


def change(folder: Path, part: str, **more: Any) -> None:
    """Set keys of a tokenizer.json, or of its model."""
    path = write_tokenizer(folder, 260)
    data = json.loads(path.read_text(encoding="utf-8"))
    (data["model"] if part == "model" else data).update(more)
    path.write_text(json.dumps(data), encoding="utf-8")


@pytest.mark.parametrize(
    "saved",
    [
        {"truncation": {"max_length": 4, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}},
        {"truncation": {"max_length": 4, "stride": 9, "strategy": "LongestFirst", "direction": "Right"}},
        {"padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "a"}},
        {"padding": {"strategy": {"Fixed": 64}, "direction": "Left", "pad_to_multiple_of": 8, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "a"}},
    ],
)  # fmt: skip
def test_every_token_counts_and_no_other_whatever_length_the_file_was_saved_with(
    tmp_path: Path, saved: dict[str, Any]
) -> None:
    change(tmp_path, "top", **saved)
    assert [len(ids) for ids in sample_ids(open_source(str(tmp_path)), ["abc" * 9, "", "ab"])] == [27, 0, 2]


@pytest.mark.parametrize(
    ("part", "broken"),
    [
        ("top", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}}),
        ("model", {"continuing_subword_prefix": "x" * 50, "merges": [["a", "b"]]}),
    ],
)
def test_where_the_tokenizers_package_panics_one_sentence_is_all_that_is_seen(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], part: str, broken: dict[str, Any]
) -> None:
    change(tmp_path, part, **broken)
    with pytest.raises(SpecError, match=r"^\S+/tokenizer.json is refused by the tokenizers package \(.+\); check"):
        sample_ids(open_source(str(tmp_path)), ["ab" * 20])
    os.write(2, b"heard again")
    assert capfd.readouterr().err == "heard again"


def test_an_interrupt_passes_and_is_no_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    write_tokenizer(tmp_path, 260)
    monkeypatch.setattr("codraft.formats.sample.token_ids", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sample_ids(open_source(str(tmp_path)), ["a"])


def test_muted_code_runs_where_stderr_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codraft.formats.sample.STDERR", 10**6)
    with muted():
        pass


def test_a_git_lfs_pointer_is_named_as_one(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(SpecError, match="is a Git LFS pointer"):
        sample_ids(open_source(str(tmp_path)), ["a"])


@given(st.lists(st.integers(0, 30)), st.sets(st.integers(0, 30)))
def test_coverage_is_the_share_of_tokens_that_are_among_the_ids(tokens: list[int], ids: set[int]) -> None:
    found = coverage(tokens, ids)
    assert found == (sum(token in ids for token in tokens) / len(tokens) if tokens else None)
    assert coverage(np.array(tokens, np.int64), np.array(sorted(ids), np.int64)) == found
