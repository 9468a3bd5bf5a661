"""Files of a data set from the hub, against a real HTTP server on this machine; each fetch in a process of its own."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.formats.test_hub import COMMIT, NOWHERE, Hub

# Runs the calls given on stdin one after the other; huggingface_hub waits before it tries again, the tests do not.
FETCH = """
import json, sys, time
time.sleep = lambda seconds: None
from codraft.core.errors import SpecError
from codraft.formats.hub import fetch_dataset
answers = []
for repo, pattern in json.load(sys.stdin):
    try:
        answers.append([str(path) for path in fetch_dataset(repo, pattern, instead="give the folder")])
    except SpecError as error:
        answers.append(str(error))
print(json.dumps(answers))
"""


class DatasetHub(Hub):
    """As `Hub`, below /datasets, with files in folders."""

    def answer(self) -> None:
        """Route one request."""
        parts = self.path.partition("?")[0].strip("/").split("/")
        listing = parts[:2] == ["api", "datasets"]
        repo = "/".join(parts[2:4] if listing else parts[1:3])
        if repo not in self.repos:
            self.send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
        elif listing and parts[4] == "revision":
            self.send(200, json.dumps({"id": repo, "sha": COMMIT, "siblings": []}).encode())
        elif listing:
            named = self.repos[repo].items()
            files = [{"type": "file", "path": name, "size": len(text), "oid": name} for name, text in named]
            self.send(200, json.dumps(files).encode())
        else:
            body = self.repos[repo]["/".join(parts[5:])].encode()
            tag = f'"{hashlib.sha1(body).hexdigest()}"'
            self.send(200, body, {"ETag": tag, "X-Repo-Commit": COMMIT}, cut=repo == "o/cut")


FILES = {
    "README.md": "read me",
    "qualitative/test-00000-of-00001.parquet": "q",
    "throughput_1k/test-00000-of-00002.parquet": "1",
    "throughput_1k/test-00001-of-00002.parquet": "2",
}


@pytest.fixture
def address() -> Iterator[str]:
    """A hub with one good data set and one that breaks off."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(DatasetHub, {"o/good": FILES, "o/cut": FILES}))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def fetch(address: str, cache: Path, *calls: tuple[str, str]) -> list[list[str] | str]:
    """Paths or the sentence of each fetch."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
    env = {**inherited, "HF_ENDPOINT": address, "HF_HOME": str(cache), "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-c", FETCH]
    done = subprocess.run(
        command, input=json.dumps(calls), env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[str] | str] = json.loads(done.stdout)
    return answers


def test_files_of_a_pattern_come_in_order_and_stay_usable_offline(address: str, tmp_path: Path) -> None:
    shards, one = fetch(
        address, tmp_path, ("o/good", "throughput_1k/test*.parquet"), ("o/good", "qualitative/test*.parquet")
    )
    assert [Path(path).name for path in shards] == ["test-00000-of-00002.parquet", "test-00001-of-00002.parquet"]
    assert [Path(path).read_text() for path in (*shards, *one)] == ["1", "2", "q"]
    assert not list(tmp_path.rglob("README.md"))
    assert fetch(NOWHERE, tmp_path, ("o/good", "throughput_1k/test*.parquet")) == [shards]


def test_what_cannot_be_fetched_is_one_sentence_with_what_to_do(address: str, tmp_path: Path) -> None:
    answers = fetch(address, tmp_path, ("o/none", "*"), ("o/good", "other/*.parquet"), ("o/cut", "qualitative/*"))
    starts = [
        "hub data set 'o/none' is not on the hub, or asks for a token (hf auth login)",
        "hub data set 'o/good' gave no file other/*.parquet",
        "hub data set 'o/cut' cannot be fetched (",
    ]
    for answer, start in zip(answers, starts, strict=True):
        assert isinstance(answer, str)
        assert answer.startswith(start)
        assert answer.endswith("; give the folder")
        assert "\n" not in answer


def test_a_configuration_that_was_never_fetched_is_refused_offline(address: str, tmp_path: Path) -> None:
    fetch(address, tmp_path, ("o/good", "qualitative/test*.parquet"))
    for cache, sentence in (
        (tmp_path, fetch(NOWHERE, tmp_path, ("o/good", "throughput_1k/test*.parquet"))[0]),
        (tmp_path / "new", fetch(NOWHERE, tmp_path / "new", ("o/good", "qualitative/test*.parquet"))[0]),
    ):
        assert isinstance(sentence, str), cache
        assert sentence.startswith("hub data set 'o/good' ")
        assert sentence.endswith("; give the folder")
