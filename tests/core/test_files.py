"""Files are whole or absent, whatever happens while they are written, and broken ones are named by line."""

import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.files import (
    atomic_folder,
    atomic_write,
    check_writable,
    missing_ancestor,
    read_jsonl,
    sha256_file,
    sha256_text,
)


def names(folder: Path) -> list[str]:
    """Everything in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


def failing(code: int) -> Any:
    """A system call that fails with this error."""

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return fail


def test_a_written_file_holds_the_text_under_its_name_and_nothing_else_is_left(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "new" / "a.json") as handle:
        handle.write("ü\n")
    assert (tmp_path / "new" / "a.json").read_bytes() == "ü\n".encode()
    assert (tmp_path / "new" / "a.json").stat().st_mode & 0o777 == 0o644
    assert names(tmp_path / "new") == ["a.json"]


def test_a_file_does_not_appear_before_the_block_ends(tmp_path: Path) -> None:
    with atomic_write(tmp_path / "a.json") as handle:
        handle.write("x")
        handle.flush()
        assert not (tmp_path / "a.json").exists()
    assert (tmp_path / "a.json").exists()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, SpecError])
def test_an_exception_while_writing_leaves_the_old_file(error: type[BaseException], tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("old")
    with pytest.raises(error), atomic_write(tmp_path / "a.json") as handle:
        handle.write("new")
        raise error("stop")
    assert (tmp_path / "a.json").read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_a_full_disk_is_one_sentence_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.json").write_text("old")
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with (
        pytest.raises(SpecError, match=r"cannot write .*a\.json: the disk is full"),
        atomic_write(tmp_path / "a.json") as handle,
    ):
        handle.write("new")
    assert (tmp_path / "a.json").read_text() == "old"
    assert names(tmp_path) == ["a.json"]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_a_folder_without_permission_is_one_sentence(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", failing(code))
    with (
        pytest.raises(SpecError, match=r"cannot write .*a\.json: no write permission there"),
        atomic_write(tmp_path / "a.json"),
    ):
        raise AssertionError("the block must not run")
    assert names(tmp_path) == []


def test_another_failure_to_write_keeps_the_systems_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "replace", failing(errno.EIO))
    with pytest.raises(SpecError, match=os.strerror(errno.EIO)), atomic_write(tmp_path / "a.json") as handle:
        handle.write("x")
    assert names(tmp_path) == []


def test_a_file_below_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(SpecError, match="cannot write"), atomic_write(tmp_path / "a" / "b.json"):
        pass


def test_checking_a_destination_creates_nothing(tmp_path: Path) -> None:
    check_writable(tmp_path / "a.json")
    check_writable(tmp_path / "new" / "deep" / "a.json")
    assert names(tmp_path) == []


def test_checking_leaves_a_folder_that_somebody_has_begun_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tempfile.TemporaryFile

    def meanwhile(*args: Any, **more: Any) -> Any:
        (tmp_path / "new" / "theirs").write_text("x")
        return real(*args, **more)

    monkeypatch.setattr(tempfile, "TemporaryFile", meanwhile)
    check_writable(tmp_path / "new" / "deep" / "a.json")
    assert names(tmp_path / "new") == ["theirs"]


def test_checking_leaves_folders_and_files_that_were_there(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "a.json").write_text("old")
    check_writable(tmp_path / "kept" / "a.json")
    check_writable(tmp_path / "kept" / "new" / "a.json")
    assert names(tmp_path / "kept") == ["a.json"]
    assert (tmp_path / "kept" / "a.json").read_text() == "old"


def test_a_folder_is_no_destination(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="it is a folder; name a file"):
        check_writable(tmp_path)


def test_a_destination_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    with pytest.raises(SpecError, match="cannot write"):
        check_writable(tmp_path / "a" / "b.json")
    assert (tmp_path / "a").read_text() == "x"


def test_a_name_too_long_for_a_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=os.strerror(errno.ENAMETOOLONG)):
        check_writable(tmp_path / ("x" * 300))


def test_a_destination_without_permission_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", failing(errno.EACCES))
    with pytest.raises(SpecError, match="no write permission there"):
        check_writable(tmp_path / "new" / "a.json")
    assert names(tmp_path) == []


def test_the_missing_ancestor_is_the_topmost_folder_that_does_not_exist(tmp_path: Path) -> None:
    assert missing_ancestor(tmp_path / "a" / "b" / "c") == tmp_path / "a"
    assert missing_ancestor(tmp_path) is None


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "m") as part:
        (part / "w").write_text("x")
        assert not (tmp_path / "m").exists()
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["w"]
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_folder_leaves_nothing(error: type[BaseException], tmp_path: Path) -> None:
    with pytest.raises(error), atomic_folder(tmp_path / "m") as part:
        (part / "w").write_text("x")
        raise error
    assert names(tmp_path) == []


def test_a_folder_on_a_full_disk_is_one_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with (
        pytest.raises(SpecError, match=r"cannot write .*m: the disk is full"),
        atomic_folder(tmp_path / "m") as part,
    ):
        (part / "w").write_text("x")
        failing(errno.ENOSPC)()
    assert names(tmp_path) == []


def test_a_folder_that_another_process_finished_first_is_kept(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "m") as part:
        (part / "ours").write_text("x")
        (tmp_path / "m").mkdir()
        (tmp_path / "m" / "theirs").write_text("x")
    assert names(tmp_path) == ["m"]
    assert names(tmp_path / "m") == ["theirs"]


def test_a_file_in_the_folders_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m").write_text("x")
    with pytest.raises(SpecError, match="cannot write"), atomic_folder(tmp_path / "m"):
        pass
    assert (tmp_path / "m").read_text() == "x"
    assert names(tmp_path) == ["m"]


@given(st.binary(max_size=200))
def test_a_file_and_its_text_have_the_same_digest(data: bytes) -> None:
    text = data.decode("latin-1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        path.write_bytes(text.encode())
        assert sha256_file(path) == sha256_text(text)


def test_the_digest_is_sha256() -> None:
    assert sha256_text("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_rows_come_with_their_line_number_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n  \n{"b": "ü\\ud83d\\ude00"}', encoding="utf-8")
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (4, {"b": "ü😀"})]


BROKEN = {
    "not JSON": ("{", "not valid JSON"),
    "cut off": ('{"a": ', "not valid JSON"),
    "no object": ("[1]", "expected a JSON object, found list"),
    "a number": ("3", "expected a JSON object, found int"),
    "too deep": ("[" * 100_000, "nested too deeply"),
    "too long a number": ('{"a": ' + "1" * 5000 + "}", "a number with too many digits"),
    "half a character": ('{"a": "x\\ud83d"}', "half of a surrogate pair"),
    "half a character as key": ('{"\\uDE00": 1}', "half of a surrogate pair"),
}


@pytest.mark.parametrize(("line", "words"), BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_line_is_refused_by_its_number(line: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n' + line + '\n{"a": 2}\n', encoding="utf-8")
    rows = read_jsonl(path)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(SpecError, match=rf"a\.jsonl, line 3: .*{words}"):
        next(rows)


def test_text_that_is_not_UTF_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": "\xe9"}\n')
    with pytest.raises(SpecError, match="it is not UTF-8 text"):
        list(read_jsonl(tmp_path / "a.jsonl"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*none\.jsonl: No such file"):
        list(read_jsonl(tmp_path / "none.jsonl"))
    with pytest.raises(SpecError, match=r"cannot read .*: Is a directory"):
        list(read_jsonl(tmp_path))


@given(
    st.lists(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=3), max_size=4),
    st.booleans(),
)
def test_rows_written_as_JSON_lines_are_read_as_they_were(rows: list[dict[str, Any]], ascii_only: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        text = "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows)
        path.write_text(text, encoding="utf-8")
        assert list(read_jsonl(path)) == list(enumerate(rows, start=1))
