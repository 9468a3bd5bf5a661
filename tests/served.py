"""A file server on this machine, for downloads: what it gives, and what it was asked for."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


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
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(FileHandler, served))
    served.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
