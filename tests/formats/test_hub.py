"""Fetching a model, against a real HTTP server on this machine that speaks the hub's few endpoints.

huggingface_hub reads its address when it is imported, so every fetch runs in a process of its own.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from codraft.core.files import sha256_text
from codraft.formats.hub import cache_root

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WEIGHTS = "weights " * 1000
FILES = {
    "config.json": "{}",
    "model.safetensors": WEIGHTS,
    "README.md": "read me",
    "pytorch_model.bin": "pickled",
}
# Runs the calls given on stdin one after the other; huggingface_hub waits before it tries again, the tests do not.
FETCH = """
import json, sys, time
time.sleep = lambda seconds: None
from codraft.core.errors import SpecError
from codraft.formats.hub import fetch_model
answers = []
for model_id, sha256, *pickled in json.load(sys.stdin):
    try:
        answers.append(["folder", str(fetch_model(model_id, sha256=sha256, pickled=bool(pickled)))])
    except SpecError as error:
        answers.append(["SpecError", str(error)])
print(json.dumps(answers))
"""


class Hub(BaseHTTPRequestHandler):
    """Repository listings and files; `o/cut` breaks the connection in the middle of its weights."""

    protocol_version = "HTTP/1.1"

    def __init__(self, repos: dict[str, dict[str, str]], *args: Any) -> None:
        self.repos = repos
        super().__init__(*args)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        """Route one request."""
        parts = self.path.partition("?")[0].strip("/").split("/")
        listing = parts[:2] == ["api", "models"]
        repo = "/".join(parts[2:4] if listing else parts[:2])
        if repo not in self.repos:
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif listing and parts[5] not in ("main", COMMIT):
            self.send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        elif listing and parts[4] == "revision":
            self.send(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": []}).encode())
        elif listing:
            files = [
                {
                    "type": "file",
                    "path": name,
                    "size": len(text),
                    "oid": hashlib.sha1(text.encode()).hexdigest(),
                }
                for name, text in self.repos[repo].items()
            ]
            self.send(200, json.dumps(files).encode())
        else:
            body = self.repos[repo][parts[-1]].encode()
            tag = f'"{hashlib.sha1(body).hexdigest()}"'
            cut = repo == "o/cut" and parts[-1] == "model.safetensors"
            self.send(200, body, {"ETag": tag, "X-Repo-Commit": COMMIT}, cut=cut)

    def send(self, code: int, body: bytes, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        """One response; a cut one promises more than it sends."""
        self.send_response(code)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection = cut


@dataclass
class LocalHub:
    """A running hub, its files, and the cache that fetches into."""

    address: str
    cache: Path
    repos: dict[str, dict[str, str]] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)

    def fetch(self, *calls: tuple[Any, ...], address: str | None = None) -> list[tuple[str, str]]:
        """(kind, folder or sentence) of each fetch, all in one fresh process."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
        env = {
            **inherited,
            "HF_ENDPOINT": address or self.address,
            "HF_HOME": str(self.cache),
            "NO_PROXY": "127.0.0.1",
            **self.more,
        }
        done = subprocess.run(
            [sys.executable, "-c", FETCH],
            input=json.dumps(calls),
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [(kind, text) for kind, text in json.loads(done.stdout)]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[LocalHub]:
    """A hub with one good repository, one without a config and one that breaks off."""
    repos = {
        "o/good": dict(FILES),
        "o/bare": {"README.md": "x", "tokenizer.json": "{}"},
        "o/cut": dict(FILES),
        "o/early": {"config.json": "{}", "pytorch_model.bin": "pickled", "optimizer.bin": "x"},
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, repos))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield LocalHub(f"http://127.0.0.1:{server.server_port}", tmp_path / "hf", repos)
    server.shutdown()
    server.server_close()
    thread.join()


# A port that nothing listens on.
NOWHERE = "http://127.0.0.1:9"


def test_a_fetched_model_has_its_files_but_no_pickled_weights_and_stays_usable_offline(hub: LocalHub) -> None:
    (first, folder), (pinned, same) = hub.fetch(
        ("o/good", {"model.safetensors": sha256_text(WEIGHTS)}), (f"o/good@{COMMIT}", None)
    )
    assert (first, pinned) == ("folder", "folder")
    assert folder == same
    assert sorted(path.name for path in Path(folder).iterdir()) == ["config.json", "model.safetensors"]
    assert (Path(folder) / "model.safetensors").read_text() == WEIGHTS
    assert hub.fetch(("o/good", None), address=NOWHERE) == [("folder", folder)]


def test_an_early_heads_pickled_weights_are_fetched_where_there_are_no_others(hub: LocalHub) -> None:
    """`pickled` asks for them; a repository with safetensors, and a caller that does not ask, go without."""
    for calls, names in (
        ((("o/early", None), ("o/good", None, True)), (["config.json"], ["config.json", "model.safetensors"])),
        ((("o/early", None, True),), (["config.json", "pytorch_model.bin"],)),
    ):
        folders = [Path(folder) for _, folder in hub.fetch(*calls)]
        assert [sorted(path.name for path in folder.iterdir()) for folder in folders] == list(names)
    assert hub.fetch(("o/early", None, True), address=NOWHERE) == [("folder", str(folders[0]))]


def test_what_cannot_be_fetched_is_one_sentence_that_says_why(hub: LocalHub) -> None:
    answers = hub.fetch(("o/none", None), ("o/good@v9", None), ("o/bare", None), ("o/cut", None), ("a b c", None))
    expected = [
        r"model 'o/none' is neither a folder here nor on the hub; check the name",
        r"hub model 'o/good' has no revision 'v9'; check what follows the @",
        r"hub model 'o/bare' has no config.json",
        r"model 'o/cut' is not a folder here and the hub cannot be reached (peer closed connection",
        r"model 'a b c' is neither a folder here nor a hub id (owner/name)",
    ]
    assert [kind for kind, _ in answers] == ["SpecError"] * 5
    for (_, sentence), start in zip(answers, expected, strict=True):
        assert sentence.startswith(start)
        assert "\n" not in sentence


def test_a_setting_that_keeps_the_hubs_client_from_starting_is_named(
    hub: LocalHub,
) -> None:
    hub.more["HF_HUB_ETAG_TIMEOUT"] = "1.5"
    ((kind, sentence),) = hub.fetch(("o/good", None))
    assert kind == "SpecError"
    assert sentence.endswith("'1.5'); mend or unset the environment variable HF_HUB_ETAG_TIMEOUT")


def test_a_hub_that_is_down_is_one_sentence_with_what_to_do(hub: LocalHub) -> None:
    ((kind, sentence),) = hub.fetch(("o/good", None), address=NOWHERE)
    assert kind == "SpecError"
    assert "the hub cannot be reached" in sentence
    assert sentence.endswith("give a local folder, or 'demo'")


def test_a_file_that_is_not_the_pinned_one_is_refused_until_the_named_folder_is_deleted(
    hub: LocalHub,
) -> None:
    hub.repos["o/good"]["model.safetensors"] = "tampered"
    pin = {"model.safetensors": sha256_text(WEIGHTS)}
    (kind, sentence), (again, _) = hub.fetch(("o/good", pin), ("o/good", pin))
    assert (kind, again) == ("SpecError", "SpecError")
    assert f"model.safetensors is not the pinned file (sha256 {sha256_text('tampered')[:12]}" in sentence
    named = Path(sentence.split("; delete ")[1].removesuffix(" and try again"))
    shutil.rmtree(named)
    hub.repos["o/good"]["model.safetensors"] = WEIGHTS
    assert [kind for kind, _ in hub.fetch(("o/good", pin))] == ["folder"]


def test_a_pinned_file_that_is_missing_is_refused(hub: LocalHub) -> None:
    ((kind, sentence),) = hub.fetch(("o/good", {"other.safetensors": "ab" * 32}))
    assert kind == "SpecError"
    assert "other.safetensors is not the pinned file (sha256 no such file, expected abababababab)" in sentence


def test_the_cache_folder_follows_its_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CODRAFT_CACHE", raising=False)
    assert cache_root() == tmp_path / "codraft"
    monkeypatch.setenv("CODRAFT_CACHE", str(tmp_path / "own"))
    assert cache_root() == tmp_path / "own"
