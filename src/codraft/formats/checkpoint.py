"""A checkpoint without its weights: config, index, tensor headers, tokenizer files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codraft.formats.safetensors import TensorInfo
from codraft.formats.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """What model.safetensors.index.json says beside what lies there."""

    file: str
    weight_map: Mapping[str, str]
    absent_files: list[str]
    """Shards that the index names and that are not there."""
    absent_tensors: list[str]
    """Tensors that the index names and that their shard does not hold."""
    unlisted_files: list[str]
    """Weight files that lie there and that the index does not name (mtp.safetensors is the usual one)."""
    unlisted_tensors: list[str]
    """Tensors in listed shards that the index does not name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that can be known without reading weights. `tensors` holds those an engine would find: of the indexed
    shards, or of all safetensors files where there is no index. `unlisted` holds the tensors of unlisted files."""

    source: Source
    config: dict[str, Any]
    tensors: Mapping[str, TensorInfo]
    index: Index | None = None
    unlisted: Mapping[str, TensorInfo] = field(default_factory=dict)
    pickled: list[str] = field(default_factory=list)
    """Weight files in pickle format (.bin, .pt), which are not opened."""

    @property
    def label(self) -> str:
        """The model as people name it."""
        return self.source.label


def open_checkpoint(model: str) -> Checkpoint:
    """Config and headers of `demo`, a folder, a file in one, or a hub id. Without weight files `tensors` is empty."""
    raise NotImplementedError
