"""Safetensors files from pieces: whatever was copied is read again bit for bit, by ours and by the library's reader."""

import hashlib
from pathlib import Path

import pytest
from safetensors import safe_open

from codraft.formats import safewrite
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.safewrite import Item, Span, copied, digest, write_tensors

from tests.checkpoints import Tensor, write_checkpoint
from tests.formats.heads.made import filled, stored

TYPES = ("BF16", "F32", "F16", "F64", "F8_E4M3", "F8_E5M2", "I64", "I32", "U8", "BOOL")
TENSORS: dict[str, Tensor] = {f"{dtype}.{i}": filled(dtype, dtype, 3, i + 1) for dtype in TYPES for i in range(2)}


def items(folder: Path) -> list[Item]:
    """All tensors of a checkpoint."""
    point = open_checkpoint(str(folder))
    return [copied(point.source, info, name) for name, info in point.tensors.items()]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
@pytest.mark.parametrize("shard", [1, 40, 1 << 30])
def test_every_type_is_copied_bit_for_bit_whatever_the_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, shard: int
) -> None:
    monkeypatch.setattr(safewrite, "PIECE_BYTES", piece)
    source = write_checkpoint(tmp_path / "a", {}, TENSORS)
    out = write_checkpoint(tmp_path / "b", {}, {})
    (out / "model.safetensors").unlink()
    seen: list[tuple[int, int]] = []
    files = write_tensors(out, items(source), {"format": "pt"}, lambda *at: seen.append(at), shard)

    assert stored(out) == stored(source)
    total = sum(len(data) for _, _, data in stored(source).values())
    assert seen[-1] == (total, total)
    assert [at for at, _ in seen] == sorted(at for at, _ in seen)
    for file in files:
        raw = (out / file.name).read_bytes()
        assert (len(raw), hashlib.sha256(raw).hexdigest()) == (file.bytes, file.sha256)
    names = [file.name for file in files]
    if shard == 1 << 30:
        assert names == ["model.safetensors"]
        with safe_open(out / "model.safetensors", framework="numpy") as handle:
            assert set(handle.keys()) == set(TENSORS)
            assert handle.metadata() == {"format": "pt"}
    else:
        assert names[-1] == "model.safetensors.index.json"
        assert names[0] == f"model-00001-of-{len(names) - 1:05d}.safetensors"


def test_wide_elements_come_first_so_that_all_are_aligned(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "a", {}, TENSORS)
    out = tmp_path / "b"
    out.mkdir()
    write_tensors(out, items(source), {})
    write_checkpoint(out / "other", {}, {})
    (out / "config.json").write_text("{}")
    for info in open_checkpoint(str(out)).tensors.values():
        assert info.start % (info.num_bytes // max(1, info.num_elements)) == 0


def test_a_tensor_may_be_made_of_several_parts_and_of_bytes(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "a", {}, TENSORS)
    point = open_checkpoint(str(source))
    info = point.tensors["I32.0"]
    span = Span(point.source, info.file, info.start + 4, info.stop)
    item = Item("made", "I32", (3,), (b"\1\0\0\0", span))
    raw = b"\1\0\0\0" + stored(source)["I32.0"][2][4:]

    assert item.num_bytes == 12
    assert digest(item) == hashlib.sha256(raw).hexdigest()
    out = tmp_path / "b"
    out.mkdir()
    (out / "config.json").write_text("{}")
    write_tensors(out, [item], {}, stem="mtp")
    assert stored(out) == {"made": ("I32", (3,), raw)}
    assert (out / "mtp.safetensors").exists()


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("mine")
    with pytest.raises(FileExistsError):
        write_tensors(tmp_path, [Item("a", "U8", (1,), (b"x",))], {})
    assert (tmp_path / "model.safetensors").read_text() == "mine"
