"""Rows of three file formats, and files that only claim to be one."""

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.rows import read_rows

NEEDED, WANTED = ("turns", "prompt"), ("id", "category")


def rows_of(path: Path) -> list[tuple[str, int, dict[str, Any]]]:
    """All rows, for prompts."""
    return list(read_rows(path, NEEDED, WANTED))


def write_parquet(path: Path, columns: dict[str, list[Any]], **options: Any) -> Path:
    """A parquet file of these columns."""
    table = importlib.import_module("pyarrow").table(columns)
    importlib.import_module("pyarrow.parquet").write_table(table, path, **options)
    return path


def write_gzip(path: Path, *rows: Any) -> Path:
    """Gzipped JSONL."""
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_jsonl_is_read_whatever_its_suffix(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.txt", "a"):
        (tmp_path / name).write_text('{"prompt": "x"}\n\n{"other": 2}\n', encoding="utf-8")
        assert rows_of(tmp_path / name) == [("line", 1, {"prompt": "x"}), ("line", 3, {"other": 2})]


def test_gzipped_jsonl_is_read_by_its_suffix(tmp_path: Path) -> None:
    path = write_gzip(tmp_path / "a.jsonl.GZ", {"prompt": "\u00e9"}, {"prompt": "y"})
    assert rows_of(path) == [("line", 1, {"prompt": "\u00e9"}), ("line", 2, {"prompt": "y"})]


def test_a_broken_line_in_a_gzip_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"prompt": "x"}\n{"prompt"\n'))
    with pytest.raises(SpecError, match=r"a\.jsonl\.gz, line 2: not valid JSON"):
        rows_of(path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(b'{"prompt": "x"}\n' * 500)[:-20], "it is not a whole gzip file (Compressed file ended"),
        (gzip.compress(b'{"prompt": "x"}\n')[:12], "it is not a whole gzip file (Compressed file ended"),
        (b'{"prompt": "x"}\n', "it is not a whole gzip file (Not a gzipped file"),
        (gzip.compress(b"x", mtime=0)[:10] + b"\xff" * 30, "it is not a whole gzip file ("),
        (gzip.compress(b"\xff\xfe{}\n"), "its content is not UTF-8 text"),
    ],
    ids=["cut", "cut at once", "plain text", "damaged", "no text"],
)
def test_a_gzip_file_that_cannot_be_read_is_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        rows_of(path)
    assert str(caught.value).startswith(f"cannot read {path}: {words}")
    assert "\n" not in str(caught.value)


def test_a_missing_gzip_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"none\.gz: No such file or directory; check the path$"):
        rows_of(tmp_path / "none.gz")


def test_parquet_gives_known_columns_without_nulls(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {"id": ["a", None], "turns": [["x", "y"], ["z"]], "source": ["s", "t"]}
    assert rows_of(write_parquet(tmp_path / "a.parquet", columns)) == [
        ("row", 1, {"id": "a", "turns": ["x", "y"]}),
        ("row", 2, {"turns": ["z"]}),
    ]


def test_parquet_rows_are_numbered_through_row_groups_and_batches(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.PARQUET", {"prompt": [str(i) for i in range(300)]}, row_group_size=70)
    assert rows_of(path) == [("row", i + 1, {"prompt": str(i)}) for i in range(300)]


def test_a_parquet_file_without_rows_has_none(tmp_path: Path) -> None:
    assert rows_of(write_parquet(tmp_path / "a.parquet", {"prompt": []})) == []


def test_a_path_that_looks_like_a_partition_adds_no_column(tmp_path: Path) -> None:
    (tmp_path / "category=x").mkdir()
    path = write_parquet(tmp_path / "category=x" / "a.parquet", {"prompt": ["p"]})
    assert rows_of(path) == [("row", 1, {"prompt": "p"})]


def test_a_parquet_file_without_a_needed_column_is_refused_by_its_columns(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"text": ["x"], "category": ["c"]})
    with pytest.raises(SpecError) as caught:
        rows_of(path)
    assert str(caught.value) == f"{path} has no column of turns, prompt, only text, category; name a file that has one"


def test_what_is_no_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    good = write_parquet(tmp_path / "good.parquet", {"prompt": ["x" * 50, "y" * 50]}).read_bytes()
    for content in (b"", b'{"prompt": "x"}\n', b"PAR1" * 3, good[:-1], good[: len(good) // 2], b"PAR1" + good[40:]):
        path = tmp_path / "bad.parquet"
        path.write_bytes(content)
        with pytest.raises(SpecError) as caught:
            rows_of(path)
        assert str(caught.value).startswith(f"cannot read {path}: not a parquet file of rows (")
        assert "\n" not in str(caught.value)


def test_text_in_a_parquet_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    pa = importlib.import_module("pyarrow")
    broken = pa.array([b"\xff\xfe"], pa.binary()).view(pa.string())
    with pytest.raises(SpecError, match="not a parquet file of rows"):
        rows_of(write_parquet(tmp_path / "a.parquet", {"prompt": broken}))


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_parquet(tmp_path / "a.parquet", {"prompt": ["x"]})
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CapabilityError) as caught:
        rows_of(path)
    assert str(caught.value) == (
        f"{path} is a parquet file, and reading it needs pyarrow, which is not installed: "
        "pip install 'codraft[parquet]'"
    )
