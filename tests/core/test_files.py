"""Files are whole or absent, whatever happens while they are written, and broken ones are named by line."""

import errno
import json
import os
import socket
import stat
import tempfile
import threading
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
    open_file,
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


def written(path: Path, text: str = "x") -> None:
    """Write a text."""
    with atomic_write(path) as handle:
        handle.write(text)


@pytest.fixture
def only_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing outside the test's folder can be replaced, whatever is wrong."""
    real = os.replace

    def guarded(source: Any, goal: Any) -> None:
        assert Path(goal).resolve().is_relative_to(tmp_path), f"{goal} would be replaced"
        real(source, goal)

    monkeypatch.setattr(os, "replace", guarded)


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
    real = tempfile.NamedTemporaryFile

    def meanwhile(*args: Any, **more: Any) -> Any:
        (tmp_path / "new" / "theirs").write_text("x")
        return real(*args, **more)

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", meanwhile)
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
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", failing(errno.EACCES))
    with pytest.raises(SpecError, match="no write permission there"):
        check_writable(tmp_path / "new" / "a.json")
    assert names(tmp_path) == []


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    """The temporary file beside it must not need a longer one."""
    longest = tmp_path / ("\U0001f600" * 63 + "abc")
    check_writable(longest)
    with atomic_write(longest) as handle:
        handle.write("x")
    assert names(tmp_path) == [longest.name]


def test_a_link_is_followed_and_stays(tmp_path: Path, only_inside: None) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "old.json").write_text("old")
    (tmp_path / "near").symlink_to("old.json")
    (tmp_path / "far").symlink_to("near")
    (tmp_path / "there" / "fresh").symlink_to("../new/a.json")
    for link, goal in (("far", "old.json"), ("there/fresh", "new/a.json")):
        check_writable(tmp_path / link)
        with atomic_write(tmp_path / link) as handle:
            handle.write(link)
        assert (tmp_path / goal).read_text() == link
    assert [name for name in names(tmp_path) if (tmp_path / name).is_symlink()] == ["far", "near"]
    assert (tmp_path / "there" / "fresh").is_symlink()
    assert not (tmp_path / "old.json").is_symlink()


def test_links_in_a_circle_are_refused(tmp_path: Path, only_inside: None) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    for write in (check_writable, written):
        with pytest.raises(SpecError, match=os.strerror(errno.ELOOP)):
            write(tmp_path / "a")
    assert names(tmp_path) == ["a", "b"]


@pytest.mark.parametrize("link", [False, True])
def test_the_reader_of_a_pipe_gets_the_text_and_the_pipe_stays(tmp_path: Path, only_inside: None, link: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to("pipe")
    path = tmp_path / "link" if link else pipe
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    check_writable(path)
    written(path, "\u00fc" * 100_000)
    reader.join(10)
    assert found == ["\u00fc".encode() * 100_000]
    assert pipe.is_fifo()
    assert names(tmp_path) == ["link", "pipe"]


def test_checking_a_pipe_does_not_end_it_for_its_reader(tmp_path: Path, only_inside: None) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    check_writable(tmp_path / "pipe")
    written(tmp_path / "pipe")
    assert os.read(reader, 10) == b"x"
    os.close(reader)


def test_a_pipe_gets_nothing_of_a_text_that_failed(tmp_path: Path, only_inside: None) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(RuntimeError), atomic_write(tmp_path / "pipe") as handle:
        handle.write("x")
        raise RuntimeError("stop")
    assert os.read(reader, 10) == b""
    os.close(reader)


def test_a_device_is_written_into_and_stays(only_inside: None) -> None:
    """A terminal of our own stands for all character devices."""
    ours, theirs = os.openpty()
    path = Path(os.ttyname(theirs))
    check_writable(path)
    written(path)
    assert os.read(ours, 10) == b"x"
    assert stat.S_ISCHR(path.stat().st_mode)
    os.close(theirs)
    os.close(ours)


@pytest.mark.parametrize("name", ["/dev/fd/{}", "/proc/self/fd/{}", "link"])
def test_an_open_file_is_written_from_where_it_stands(tmp_path: Path, only_inside: None, name: str) -> None:
    """`{ echo before; codraft ... --json /dev/fd/N; echo after; } > log` keeps all three."""
    with (tmp_path / "log").open("wb", buffering=0) as log:
        log.write(b"before ")
        (tmp_path / "link").symlink_to(f"/dev/fd/{log.fileno()}")
        path = tmp_path / "link" if name == "link" else Path(name.format(log.fileno()))
        check_writable(path)
        written(path)
        log.write(b" after")
    assert (tmp_path / "log").read_bytes() == b"before x after"


def test_an_open_file_that_cannot_be_written_is_refused_before_the_work(tmp_path: Path, only_inside: None) -> None:
    (tmp_path / "a").write_text("old")
    with (tmp_path / "a").open("rb") as handle:
        path = Path(f"/dev/fd/{handle.fileno()}")
        with pytest.raises(SpecError, match=os.strerror(errno.EBADF)):
            check_writable(path)
    with pytest.raises(SpecError, match=os.strerror(errno.EBADF)):
        check_writable(path)
    assert (tmp_path / "a").read_text() == "old"


def test_a_reader_that_has_gone_is_a_broken_pipe_as_on_stdout(only_inside: None) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        written(Path(f"/dev/fd/{writer}"))
    os.close(writer)


def test_standard_output_is_one_of_the_open_files() -> None:
    assert [open_file(Path(f"/dev/{name}")) for name in ("stdout", "stderr", "null", "fd/7", "fd/x")] == [
        1, 2, None, 7, None,
    ]  # fmt: skip


def test_a_folder_or_a_socket_is_refused_whichever_way_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only_inside: None
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        Path("folder").mkdir()
        for kind in ("socket", "folder"):
            Path(f"to-{kind}").symlink_to(kind)
            for path in (Path(kind), Path(f"to-{kind}")):
                for write in (check_writable, written):
                    with pytest.raises(SpecError, match=rf"^cannot write {path}: it is a {kind}; name a file$"):
                        write(path)
    assert stat.S_ISSOCK(Path("socket").stat().st_mode)


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
