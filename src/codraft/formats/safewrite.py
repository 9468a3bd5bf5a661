"""Safetensors files written from pieces of other files: bytes are copied, never turned into numbers, and few of them
are held at a time."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codraft.formats.jsonfile import INDEX_FILE
from codraft.formats.safetensors import DTYPE_BITS, TensorInfo
from codraft.formats.source import Source

# Bytes read at a time, and those of a file before another begins (what the hub's own tools take).
PIECE_BYTES = 16 << 20
SHARD_BYTES = 5_000_000_000
ALIGNMENT = 8

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes [start, stop) of a file."""

    source: Source
    file: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Item:
    """A tensor to be written: its bytes are these parts, one after the other."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Span | bytes, ...]

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        return sum(len(part) if isinstance(part, bytes) else part.stop - part.start for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that was written."""

    name: str
    bytes: int
    sha256: str


def copied(source: Source, info: TensorInfo, name: str) -> Item:
    """A tensor under another name."""
    return Item(name, info.dtype, info.shape, (Span(source, info.file, info.start, info.stop),))


def pieces(item: Item) -> Iterator[bytes]:
    """An item's bytes, a few at a time."""
    for part in item.parts:
        if isinstance(part, bytes):
            yield part
            continue
        for start in range(part.start, part.stop, PIECE_BYTES):
            yield part.source.read(part.file, start, min(start + PIECE_BYTES, part.stop))


def digest(item: Item) -> str:
    """SHA-256 of an item's bytes."""
    found = hashlib.sha256()
    for piece in pieces(item):
        found.update(piece)
    return found.hexdigest()


def write_tensors(
    folder: Path,
    items: Sequence[Item],
    metadata: Mapping[str, str],
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
    stem: str = "model",
) -> list[WrittenFile]:
    """Files of a checkpoint in a folder: one, or several with an index where they would be larger than `shard_bytes`.

    Within a file wide elements come first, so that all are aligned; otherwise the order is kept.
    """
    shards = split(ordered(items), shard_bytes)
    total, done = sum(item.num_bytes for item in items), 0
    found: list[WrittenFile] = []
    weight_map: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        count = len(shards)
        name = f"{stem}.safetensors" if count == 1 else f"{stem}-{number:05d}-of-{count:05d}.safetensors"
        weight_map |= {item.name: name for item in shard}
        found.append(write_file(folder / name, shard, metadata, progress, (done, total)))
        done += sum(item.num_bytes for item in shard)
    if len(shards) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
        found.append(write_text(folder / INDEX_FILE.replace("model", stem, 1), json.dumps(index, indent=2) + "\n"))
    return found


def ordered(items: Sequence[Item]) -> list[Item]:
    """Those with wide elements first."""
    return sorted(items, key=lambda item: -DTYPE_BITS[item.dtype])


def split(items: Sequence[Item], most: int) -> list[list[Item]]:
    """Items in files of at most `most` bytes; one that is larger has a file of its own."""
    shards: list[list[Item]] = [[]]
    size = 0
    for item in items:
        if shards[-1] and size + item.num_bytes > most:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += item.num_bytes
    return shards


def header(items: Sequence[Item], metadata: Mapping[str, str]) -> bytes:
    """The first bytes of a file, length included, padded so that the data begins aligned."""
    table: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    at = 0
    for item in items:
        end = at + item.num_bytes
        table[item.name] = {"dtype": item.dtype, "shape": list(item.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def write_file(
    path: Path, items: Sequence[Item], metadata: Mapping[str, str], progress: Progress | None, base: tuple[int, int]
) -> WrittenFile:
    """One safetensors file; its digest is taken on the way."""
    found, size = hashlib.sha256(), 0
    done, total = base
    with path.open("xb") as handle:
        first = header(items, metadata)
        handle.write(first)
        found.update(first)
        size += len(first)
        for item in items:
            for piece in pieces(item):
                handle.write(piece)
                found.update(piece)
                size += len(piece)
                done += len(piece)
                if progress is not None:
                    progress(done, total)
        handle.flush()
        os.fsync(handle.fileno())
    return WrittenFile(name=path.name, bytes=size, sha256=found.hexdigest())


def write_text(path: Path, text: str) -> WrittenFile:
    """One small text file."""
    return write_raw(path, text.encode())


def write_raw(path: Path, data: bytes) -> WrittenFile:
    """One small file by its bytes."""
    with path.open("xb") as handle:
        handle.write(data)
        handle.flush()
        os.fsync(handle.fileno())
    return WrittenFile(name=path.name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
