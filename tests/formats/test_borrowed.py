"""Drafters stored without what is their target's: whole again, byte for byte, once."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.inspection import ModelSummary
from codraft.core.schema import DrafterInfo
from codraft.decode.hf.load import load_model, resolve_folder
from codraft.formats.borrowed import FILE, Borrows, open_whole, read_borrows, without
from codraft.formats.checkpoint import open_checkpoint
from codraft.models.inspect.job import inspect
from codraft.study.run import served

EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def partial(tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny model without its embedding, which it has of itself."""
    monkeypatch.setenv("CODRAFT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "partial"
    folder.mkdir()
    without(open_checkpoint(str(tiny_model_dir)), Borrows(str(tiny_model_dir), {EMBEDDING: EMBEDDING}), folder)
    (folder / "config.json").write_bytes((tiny_model_dir / "config.json").read_bytes())
    return folder


def test_a_drafter_is_put_together_with_its_targets_tensors(partial: Path, tiny_model_dir: Path) -> None:
    assert EMBEDDING not in load_file(partial / "model.safetensors")
    whole = resolve_folder(str(partial))
    assert whole != partial
    ours, theirs = load_file(whole / "model.safetensors"), load_file(tiny_model_dir / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert (whole / "tokenizer.json").read_bytes() == (tiny_model_dir / "tokenizer.json").read_bytes()
    assert load_model(str(partial), "float32").vocab_size == 260


def test_it_is_made_once_and_anew_where_what_it_is_made_of_changes(partial: Path) -> None:
    first = resolve_folder(str(partial))
    stamp = (first / "model.safetensors").stat().st_mtime_ns
    assert resolve_folder(str(partial)) == first
    assert (first / "model.safetensors").stat().st_mtime_ns == stamp
    (partial / "config.json").write_text((partial / "config.json").read_text() + " ")
    assert resolve_folder(str(partial)) != first


@pytest.mark.parametrize(
    "text", ["", "[]", '{"target": 1, "tensors": {}}', '{"target": "x", "tensors": {"a": 1}}', '{"tensors": {}}']
)
def test_a_file_that_says_nothing_of_use_is_refused(partial: Path, text: str) -> None:
    (partial / FILE).write_text(text)
    with pytest.raises(SpecError, match=r"borrows\.json must be"):
        resolve_folder(str(partial))


def test_a_target_without_the_tensor_or_that_borrows_itself_is_refused(partial: Path) -> None:
    told = json.loads((partial / FILE).read_text())
    (partial / FILE).write_text(json.dumps({**told, "tensors": {EMBEDDING: "other.weight"}}))
    with pytest.raises(SpecError, match=r"borrows other\.weight, which .* has not"):
        resolve_folder(str(partial))
    (partial / FILE).write_text(json.dumps({**told, "target": str(partial)}))
    with pytest.raises(SpecError, match="not whole itself"):
        resolve_folder(str(partial))


def test_a_whole_checkpoint_borrows_nothing(tiny_model_dir: Path) -> None:
    assert read_borrows(tiny_model_dir) is None
    assert resolve_folder(str(tiny_model_dir)) == tiny_model_dir


def test_it_is_inspected_whole_under_its_own_name_and_without_torch(partial: Path, tiny_model_dir: Path) -> None:
    record = inspect(str(tiny_model_dir), str(partial))
    drafter = record.drafter
    assert isinstance(drafter, ModelSummary)
    assert drafter.id == str(partial)
    assert drafter.parameters == record.target.parameters
    assert not [finding for finding in record.findings if finding.code.startswith(("weights.", "keys.", "embedding."))]


def test_what_is_not_on_this_machine_is_named(partial: Path) -> None:
    told = json.loads((partial / FILE).read_text())
    (partial / FILE).write_text(json.dumps({**told, "target": "demo"}))
    with pytest.raises(CapabilityError, match="'demo' has not been prepared"):
        open_whole(str(partial))


def test_launch_files_name_the_whole_one(partial: Path, tiny_model_dir: Path) -> None:
    info = DrafterInfo(name="external", mechanism="external", id=str(partial), options={})
    whole = served(info).id
    assert whole is not None
    assert EMBEDDING in load_file(Path(whole) / "model.safetensors")
    for id_ in (str(tiny_model_dir), "owner/name", None):
        other = replace(info, id=id_)
        assert served(other) == other
