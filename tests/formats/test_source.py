"""Files of a checkpoint in a folder, and on a hub that is a real HTTP server on this machine.

huggingface_hub reads its address when it is imported, so everything asked of a hub runs in a process of its own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.hub import embedded_path
from codraft.formats.source import FolderSource, open_source

from tests.checkpoints import llama_tensors, write_checkpoint, write_tokenizer
from tests.served import ServedHub, serving_hub

CONFIG = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8,
    "num_attention_heads": 8, "vocab_size": 1000,
}  # fmt: skip
# A port that nothing listens on.
NOWHERE = "http://127.0.0.1:9"
# What the models on stdin hold; huggingface_hub waits before it tries again, the tests do not.
OPEN = """
import json, sys, time
time.sleep = lambda seconds: None
from codraft.core.errors import SpecError
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.jsonfile import read_json
from codraft.formats.safetensors import read_values
answers = []
for model in json.load(sys.stdin):
    try:
        found = open_checkpoint(model)
        norm = found.tensors.get("model.norm.weight")
        answers.append({
            "kind": type(found.source).__name__, "label": found.label, "config": found.config,
            "tensors": {name: [info.dtype, list(info.shape)] for name, info in found.tensors.items()},
            "values": read_values(found.source, norm).tolist()[:3] if norm else None,
            "tokens": len(read_json(found.source, "tokenizer.json")["model"]["vocab"]),
            "bytes": found.source.bytes_read, "torch": "torch" in sys.modules})
    except SpecError as error:
        answers.append({"error": str(error)})
print(json.dumps(answers))
"""


def ask(hub: ServedHub, cache: Path, *models: str, **more: str) -> list[dict[str, Any]]:
    """What `OPEN` finds of each model, all in one fresh process; `more` is environment."""
    done = subprocess.run(
        [sys.executable, "-c", OPEN],
        input=json.dumps(models),
        env={**hub.environment(cache), **more},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


@pytest.fixture(scope="module")
def repo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sharded checkpoint with a header above 128 KiB and weights that nobody wants to fetch."""
    tensors = llama_tensors(CONFIG)
    tensors |= {f"model.layers.{k}.mlp.experts.weight_{'x' * 60}": ("F32", (32, 1024)) for k in range(1700)}
    folder = write_checkpoint(tmp_path_factory.mktemp("hub") / "m", CONFIG, tensors, shards=2, fill="zeros")
    write_tokenizer(folder, 500)
    return folder


@pytest.fixture
def hub(repo: Path) -> Iterator[ServedHub]:
    with serving_hub({"o/good": repo}) as served:
        yield served


def test_of_a_hub_repository_only_headers_are_fetched(hub: ServedHub, repo: Path, tmp_path: Path) -> None:
    found, pinned = ask(hub, tmp_path, "o/good", f"o/good@{ServedHub.COMMIT}")
    (local,) = ask(hub, tmp_path, str(repo))
    assert (found["kind"], found["label"], local["kind"]) == ("HubSource", "o/good", "FolderSource")
    for key in ("config", "tensors", "values", "tokens", "torch"):
        assert found[key] == pinned[key] == local[key]
    assert found["torch"] is False
    weights = sum(file.stat().st_size for file in repo.glob("*.safetensors"))
    headers = sum(8 + int.from_bytes(file.open("rb").read(8), "little") for file in repo.glob("*.safetensors"))
    small = sum(file.stat().st_size for file in repo.glob("*.json"))
    assert weights > 200e6
    assert headers > 2 * (128 << 10), "two requests for a header"
    assert found["bytes"] < headers + small + 300_000
    assert hub.bytes_sent < 2 * headers + small + 600_000, "two openings, small files once"
    assert sum("GET o/good/resolve" in asked and ".json" in asked for asked in hub.asked) == 3


def test_what_a_hub_cannot_give_is_one_sentence_that_says_why(hub: ServedHub, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "README.md").write_text("read me")
    hub.repos["o/bare"] = bare
    hub.repos["o/gated"] = hub.repos["o/good"]
    hub.gated.add("o/gated")
    answers = ask(hub, tmp_path / "cache", "o/none", "o/good@v9", "o/bare", "a b c", "o/gated")
    expected = [
        "model 'o/none' is neither a folder here nor on the hub; check the name",
        "hub model 'o/good' has no revision 'v9'; check what follows the @",
        "model o/bare has no config.json; name the folder or hub id",
        "model 'a b c' is neither a folder here nor a hub id (owner/name)",
        "hub model 'o/gated' is gated; accept its terms on its page and log in (hf auth login)",
    ]
    for answer, start in zip(answers, expected, strict=True):
        assert answer["error"].startswith(start)
        assert "\n" not in answer["error"]


def test_a_server_without_byte_ranges_is_not_read_to_the_end(hub: ServedHub, tmp_path: Path) -> None:
    hub.ranges = False
    (answer,) = ask(hub, tmp_path, "o/good")
    assert "only as a whole (no byte ranges); fetch the model and name its folder" in answer["error"]
    assert hub.bytes_sent < 50e6


def test_a_copy_in_the_hubs_cache_serves_offline_if_it_is_whole(hub: ServedHub, repo: Path, tmp_path: Path) -> None:
    """A copy of the small files alone must not pass for a checkpoint without weights."""
    snapshot = tmp_path / "hub" / "models--o--good" / "snapshots" / ServedHub.COMMIT
    (online,) = ask(hub, tmp_path, "o/good")
    assert (snapshot / "config.json").is_file()
    (answer,) = ask(hub, tmp_path, "o/good", HF_ENDPOINT=NOWHERE)
    assert "the hub cannot be reached" in answer["error"]
    for file in repo.glob("*.safetensors"):
        (snapshot / file.name).symlink_to(file)
    refs = snapshot.parents[1] / "refs"
    refs.mkdir(exist_ok=True)
    (refs / "main").write_text(ServedHub.COMMIT)
    for more in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": NOWHERE}):
        (offline,) = ask(hub, tmp_path, "o/good", **more)
        assert (offline["kind"], offline["label"]) == ("FolderSource", "o/good")
        assert offline["tensors"] == online["tensors"]


def test_pieces_of_a_folders_files_are_those_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(range(100)))
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "sub" / "b.bin").write_bytes(b"b")
    (tmp_path / "sub" / "deep" / "c.bin").write_bytes(b"c")
    (tmp_path / ".hidden").mkdir()
    (tmp_path / ".hidden" / "d.bin").write_bytes(b"d")
    (tmp_path / "dead").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    source = open_source(str(tmp_path))
    assert source.sizes() == {"a.bin": 100, "sub/b.bin": 1}
    assert source.read("a.bin", 10, 13) == bytes([10, 11, 12])
    assert (source.read("a.bin"), source.read("sub/b.bin"), source.bytes_read) == (bytes(range(100)), b"b", 104)
    for name, start, stop in (
        ("a.bin", 90, 101),
        ("a.bin", 5, 4),
        ("a.bin", 0, 2**62),
        ("c.bin", 0, 1),
        ("../x", 0, 1),
    ):
        with pytest.raises(SpecError):
            source.read(name, start, stop)
    assert source.bytes_read == 104


def test_a_file_that_shrank_or_went_away_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"12345678")
    source = FolderSource(tmp_path, "m")
    (tmp_path / "a.bin").write_bytes(b"1234")
    with pytest.raises(SpecError, match=r"a.bin ends at byte 4, 8 were expected; fetch it again$"):
        source.read("a.bin")
    (tmp_path / "a.bin").unlink()
    with pytest.raises(SpecError, match=r"^cannot read .*a.bin: No such file or directory; check the file$"):
        source.read("a.bin")


def test_links_that_lead_nowhere_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for folder in (tmp_path, tmp_path / "sub"):
        (folder / "a.bin").write_bytes(b"a")
        (folder / "dead").symlink_to("nothing")
        (folder / "loop").symlink_to("loop")
        (folder / "through").symlink_to("a.bin/x")
        (folder / "long").symlink_to("x" * 300)
        (folder / "alive").symlink_to("a.bin")
    assert open_source(str(tmp_path)).sizes() == {"a.bin": 1, "alive": 1, "sub/a.bin": 1, "sub/alive": 1}


@pytest.mark.parametrize("end", ["safetensors", "bin", "pt", "tiktoken", "safetensors.index.json"])
def test_a_file_that_counts_and_whose_name_fits_no_record_is_refused(tmp_path: Path, end: str) -> None:
    (tmp_path / os.fsdecode(b"\xff." + end.encode())).write_bytes(b"")
    with pytest.raises(SpecError) as caught:
        FolderSource(tmp_path, "m")
    assert str(caught.value) == (
        f"model m has a file '\\udcff.{end}', whose name is not UTF-8 text and fits no record; rename it"
    )


def test_other_files_whose_names_fit_no_record_are_left_out(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    for name in (b"\xff.txt", b"\xff.json", b"\xff/a.safetensors", b"a.bin"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"")
    assert FolderSource(tmp_path, "m").sizes() == {"a.bin": 0}
    (tmp_path / os.fsdecode(b"\xff.safetensors")).write_bytes(b"")
    (tmp_path / "b.safetensors").write_bytes(b"")
    assert open_source(str(tmp_path / "b.safetensors")).sizes() == {"a.bin": 0, "b.safetensors": 0}, "asked alone"


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "a\n.bin").write_bytes(b"12345678")
    source = FolderSource(tmp_path, "m")
    (tmp_path / "a\n.bin").unlink()
    os.mkfifo(tmp_path / "a\n.bin")
    with pytest.raises(SpecError, match=r"a\\n.bin' is no longer a regular file; check the file$"):
        source.read("a\n.bin")


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(SpecError, match=r"^the model's name is empty; name a folder"):
        open_source("")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "HF_HUB_ETAG_TIMEOUT",
            "abc",
            "with base 10: 'abc'); mend or unset the environment variable HF_HUB_ETAG_TIMEOUT",
        ),
        (
            "HF_HUB_DOWNLOAD_TIMEOUT",
            "",
            "with base 10: ''); mend or unset the environment variable HF_HUB_DOWNLOAD_TIM",
        ),
        ("HF_ENDPOINT", "http://[", "mend or unset the environment variable"),
    ],
)
def test_a_setting_that_keeps_the_hubs_client_from_starting_is_named(
    hub: ServedHub, tmp_path: Path, name: str, value: str, words: str
) -> None:
    (answer,) = ask(hub, tmp_path, "o/good", **{name: value})
    assert words in answer["error"]
    assert "\n" not in answer["error"]


def test_a_file_of_another_kind_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(
        SpecError, match=r"is a file of another kind; name the folder that holds config.json and weights"
    ):
        open_source(str(tmp_path / "m.gguf"))
    with pytest.raises(SpecError, match=r"cannot read model .*File name too long; check the path"):
        open_source("x" * 5000)


def test_the_embedded_model_is_found_where_it_was_prepared_and_named_where_it_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODRAFT_CACHE", str(tmp_path))
    with pytest.raises(CapabilityError, match=r"'demo' has not been prepared in .*; run 'codraft tune demo' once"):
        open_source("demo")
    write_checkpoint(embedded_path("demo"), CONFIG, {})
    source = open_source("demo")
    assert source.label == "demo"
    assert "config.json" in source.sizes()
