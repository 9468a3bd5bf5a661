"""A file server on this machine, for downloads: what it gives, and what it was asked for."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


@dataclass
class Served:
    """Files by path, and the paths asked for; `cut` ends every body half-way, `slow_s` waits before it."""

    files: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    address: str = ""
    cut: bool = False
    slow_s: float = 0.0


class FileHandler(BaseHTTPRequestHandler):
    """GET of the files in `Served`; /moved/X leads to /X."""

    def __init__(self, served: Served, *args: Any) -> None:
        self.served = served
        super().__init__(*args)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.served.asked.append(self.path)
        body = self.served.files.get(self.path)
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.end_headers()
        elif body is None:
            self.send_error(404)
        else:
            time.sleep(self.served.slow_s)
            with suppress(OSError):  # the client may have left
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if self.served.cut else body)


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Served]:
    """A running server."""
    served = Served(files)
    with running(partial(FileHandler, served)) as served.address:
        yield served


@contextmanager
def running(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine while the block runs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class ServedHub:
    """Repositories as folders by `owner/name`, and what was sent of their files; `ranges` off ignores byte ranges.

    Files of `gated` repositories are withheld.
    """

    repos: dict[str, Path]
    asked: list[str] = field(default_factory=list)
    address: str = ""
    bytes_sent: int = 0
    ranges: bool = True
    gated: set[str] = field(default_factory=set)

    COMMIT: ClassVar[str] = "0123456789abcdef0123456789abcdef01234567"

    def environment(self, cache: Path) -> dict[str, str]:
        """What a process of its own needs to take this server for the hub: the library reads it when imported."""
        ours = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
        return {**ours, "HF_ENDPOINT": self.address, "HF_HOME": str(cache), "NO_PROXY": "127.0.0.1"}


class HubHandler(BaseHTTPRequestHandler):
    """The hub's answers on a model: its files with their sizes, and each file, by byte ranges too."""

    protocol_version = "HTTP/1.1"

    def __init__(self, hub: ServedHub, *args: Any) -> None:
        self.hub = hub
        super().__init__(*args)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        """Route one request."""
        path = self.path.partition("?")[0].strip("/")
        self.hub.asked.append(f"{self.command} {path}")
        parts = path.split("/")
        listing = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if listing else parts[:2])
        revision = parts[5:6] if listing else parts[3:4]
        if repo not in self.hub.repos:
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif revision and revision[0] not in ("main", self.hub.COMMIT):
            self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif listing:
            files = [file for file in self.hub.repos[repo].rglob("*") if file.is_file()]
            siblings = [
                {"rfilename": str(file.relative_to(self.hub.repos[repo])), "size": file.stat().st_size}
                for file in files
            ]
            self.send(200, json.dumps({"id": repo, "sha": self.hub.COMMIT, "siblings": siblings}).encode())
        elif repo in self.hub.gated:
            self.send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        else:
            self.send_file(self.hub.repos[repo] / "/".join(parts[4:]))

    def send_file(self, file: Path) -> None:
        """A file, or the range asked for."""
        size = file.stat().st_size
        headers = {"ETag": f'"{sha1(str(file).encode()).hexdigest()}"', "X-Repo-Commit": self.hub.COMMIT}
        asked = self.headers["Range"]
        if not asked or not self.hub.ranges:
            self.send(200, file, headers, 0, size)
            return
        first, last = asked.removeprefix("bytes=").split("-")
        start, stop = int(first), min(int(last) + 1, size)
        self.send(206, file, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{size}"}, start, stop)

    def send(
        self, code: int, body: bytes | Path, headers: dict[str, str] | None = None, start: int = 0, stop: int = -1
    ) -> None:
        """One response: bytes, or a piece of a file."""
        stop = len(body) if isinstance(body, bytes) else stop
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(stop - start)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and isinstance(body, bytes):
            self.wfile.write(body)
        elif self.command == "GET" and isinstance(body, Path):
            with body.open("rb") as handle, suppress(OSError):  # the client may have left
                handle.seek(start)
                for at in range(start, stop, 1 << 16):
                    self.hub.bytes_sent += self.wfile.write(handle.read(min(1 << 16, stop - at)))


@contextmanager
def serving_hub(repos: dict[str, Path]) -> Iterator[ServedHub]:
    """A running hub that serves folders."""
    hub = ServedHub(repos)
    with running(partial(HubHandler, hub)) as hub.address:
        yield hub
