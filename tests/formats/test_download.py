"""One pinned file over HTTP, from a real server on this machine: whole or absent, and asked for once."""

import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.formats.download import fetch_file

from tests.served import Served, serving

CONTENT = bytes(range(256)) * 40 + b"\r\n"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A running server with one file."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with serving({"/a/b.jsonl": CONTENT}) as served:
        yield served


def fetch(address: str, path: Path, content: bytes = CONTENT, timeout_s: float = 5.0) -> Path:
    """`fetch_file` of a file whose pinned content is known."""
    pin = hashlib.sha256(content).hexdigest()
    return fetch_file("set 'x'", address, path, sha256=pin, instead="give the file", timeout_s=timeout_s)


def left(folder: Path) -> list[str]:
    """All that lies in a folder, hidden files too."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_file_is_downloaded_byte_for_byte_and_asked_for_once(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "cache" / "x" / "b.jsonl"
    assert fetch(f"{served.address}/a/b.jsonl", path) == path
    assert fetch(f"{served.address}/a/b.jsonl", path) == path
    assert path.read_bytes() == CONTENT
    assert served.asked == ["/a/b.jsonl"]
    assert left(tmp_path) == ["b.jsonl"]


def test_a_file_that_is_there_needs_no_server(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(CONTENT)
    assert fetch("http://127.0.0.1:9/a/b.jsonl", path).read_bytes() == CONTENT


def test_a_file_that_was_changed_is_fetched_again(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"edited")
    assert fetch(f"{served.address}/a/b.jsonl", path).read_bytes() == CONTENT


def test_a_redirection_is_followed(served: Served, tmp_path: Path) -> None:
    assert fetch(f"{served.address}/moved/a/b.jsonl", tmp_path / "b.jsonl").read_bytes() == CONTENT


def test_another_file_than_the_pinned_one_is_refused_and_not_kept(served: Served, tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        fetch(f"{served.address}/a/b.jsonl", tmp_path / "x" / "b.jsonl", b"pinned")
    found, pinned = hashlib.sha256(CONTENT).hexdigest()[:12], hashlib.sha256(b"pinned").hexdigest()[:12]
    assert str(caught.value) == (
        f"set 'x' is not kept: {served.address}/a/b.jsonl gave another file than the pinned one (sha256 {found}, "
        f"expected {pinned}); give the file"
    )
    assert left(tmp_path) == []


def test_a_download_that_breaks_off_leaves_nothing(served: Served, tmp_path: Path) -> None:
    served.cut = True
    with pytest.raises(SpecError, match=r"^set 'x' cannot be downloaded from http.*IncompleteRead.*; give the file$"):
        fetch(f"{served.address}/a/b.jsonl", tmp_path / "x" / "b.jsonl")
    assert left(tmp_path) == []
    served.cut = False
    assert fetch(f"{served.address}/a/b.jsonl", tmp_path / "x" / "b.jsonl").read_bytes() == CONTENT


def test_a_server_that_says_no_is_quoted(served: Served, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"\(HTTP Error 404: Not Found\); give the file$"):
        fetch(f"{served.address}/none", tmp_path / "b.jsonl")


def test_a_server_that_says_nothing_is_given_up(served: Served, tmp_path: Path) -> None:
    served.slow_s = 0.5
    with pytest.raises(SpecError, match=r"\(timed out\); give the file$"):
        fetch(f"{served.address}/a/b.jsonl", tmp_path / "b.jsonl", timeout_s=0.1)
    assert left(tmp_path) == []


def test_no_server_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}/b"
    with pytest.raises(SpecError, match=r"cannot be downloaded from http.*Connection refused\); give the file$"):
        fetch(address, tmp_path / "b")


def test_an_address_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot be downloaded from not an address \(unknown url type"):
        fetch("not an address", tmp_path / "b")


def test_a_place_that_cannot_be_written_is_named(served: Served, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(SpecError, match=r"^cannot write .*file/b\.jsonl"):
        fetch(f"{served.address}/a/b.jsonl", tmp_path / "file" / "b.jsonl")
