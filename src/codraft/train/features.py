"""What a drafter reads of the target: hidden states of the rows it learns from, computed beside it or written before.

Offline features lie in shards, one safetensors file for so many rows, each written whole; what is there already is not
written again. A shard holds `layer.I` [T, H] for every tapped layer, rows one after the other. `final` is never stored:
it is the last norm over the last layer's output.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write
from codraft.decode.hf.load import resolve_folder
from codraft.decode.hf.model import HFModel
from codraft.decode.target import Tap
from codraft.drafters.eagle3 import usual_taps
from codraft.train.identity import weights_id
from codraft.train.readout import wide
from codraft.train.saving import appearing
from codraft.train.tokens import TokenFile

# Tokens of a shard: at a hidden size of 4096, four layers of bfloat16 make half a gigabyte.
SHARD_TOKENS = 16384
# Rows of the target's pass are padded to the longest of so many tokens.
PASS_TOKENS = 4096
SCHEMA = "codraft.features/1"
KEYS = {"data", "taps", "dtype"}


class FeatureSource(Protocol):
    """Features of rows, by the tap that a drafter names."""

    def features(self, rows: Sequence[int], lengths: Sequence[int]) -> dict[Tap, Tensor]:
        """[T, H] for each tap, in float32 at least; rows one after the other, of each the first `lengths`."""
        ...


class Online:
    """The target beside the drafter."""

    def __init__(self, target: HFModel, data: TokenFile, taps: Sequence[Tap]) -> None:
        self.target, self.data, self.taps = target, data, tuple(taps)

    def features(self, rows: Sequence[int], lengths: Sequence[int]) -> dict[Tap, Tensor]:
        """See `FeatureSource.features`."""
        ids = [self.data.row(row).ids[:length].tolist() for row, length in zip(rows, lengths, strict=True)]
        return {tap: wide(torch.cat(parts)) for tap, parts in read(self.target, ids, self.taps).items()}


def source_of(folder: Path | None, data: TokenFile, target: HFModel, taps: Sequence[Tap]) -> FeatureSource:
    """Features written before, or the target beside the drafter."""
    return Online(target, data, taps) if folder is None else Offline(folder, data, taps, target)


def default_layers(num_layers: int) -> list[int]:
    """Those that EAGLE-3 and block heads read, and the last one, which gives `final`."""
    return sorted({*(tap for tap in usual_taps(num_layers) if tap >= 0), num_layers - 1})


@torch.no_grad()
def read(target: HFModel, ids: Sequence[Sequence[int]], taps: Sequence[Tap]) -> dict[Tap, list[Tensor]]:
    """Features of whole sequences, those of similar length in one pass."""
    found: dict[int, dict[Tap, Tensor]] = {}
    for group in passes([len(row) for row in ids]):
        states = target.whole_rows([ids[index] for index in group], taps)
        for place, index in enumerate(group):
            found[index] = {tap: parts[place] for tap, parts in states.items()}
    return {tap: [found[index][tap] for index in range(len(ids))] for tap in taps}


def passes(lengths: Sequence[int]) -> list[list[int]]:
    """Sequences by number, those that are padded to the longest of one pass together: at most PASS_TOKENS, padding
    counted, but one at least."""
    groups: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i], reverse=True):
        # The first of a group is its longest.
        if not groups or lengths[groups[-1][0]] * (len(groups[-1]) + 1) > PASS_TOKENS:
            groups.append([])
        groups[-1].append(index)
    return groups


@dataclass(frozen=True, slots=True)
class Shard:
    """Rows `first` .. `last` - 1 in one file; `starts` where each begins in it."""

    name: str
    first: int
    last: int
    starts: NDArray[np.int64]


def shards_of(lengths: NDArray[np.int64]) -> list[Shard]:
    """How rows of these lengths are divided; of the lengths alone, so that writer and reader agree."""
    shards: list[Shard] = []
    first = held = 0
    for row, length in enumerate(lengths.tolist()):
        if held and held + length > SHARD_TOKENS:
            shards.append(shard(len(shards), first, row, lengths))
            first, held = row, 0
        held += length
    return [*shards, shard(len(shards), first, len(lengths), lengths)] if held else shards


def filled(lengths: NDArray[np.int64], rows: int) -> int:
    """The rows of all shards that hold the first `rows`, so that all that is written stays right."""
    return next((one.last for one in shards_of(lengths) if one.last >= rows), len(lengths))


def shard(number: int, first: int, last: int, lengths: NDArray[np.int64]) -> Shard:
    """One shard."""
    starts = np.concatenate(([0], np.cumsum(lengths[first:last])))
    return Shard(f"features-{number:05d}.safetensors", first, last, starts)


def write_features(
    target: HFModel, data: TokenFile, taps: Sequence[int], folder: Path, dtype: torch.dtype, progress: Any = None
) -> int:
    """All shards that are not there yet; how many were written."""
    told = description(data, taps, dtype, weights_id(resolve_folder(target.id)))
    check_folder(folder, told)
    shards = shards_of(data.lengths)
    written = 0
    for done, one in enumerate(shards, start=1):
        if not (folder / one.name).exists():
            ids = [data.row(row).ids.tolist() for row in range(one.first, one.last)]
            found = read(target, ids, taps)
            tensors = {f"layer.{tap}": torch.cat(parts).to(dtype).cpu() for tap, parts in found.items()}
            save_shard(folder / one.name, tensors)
            written += 1
        if progress:
            progress(done, len(shards))
    return written


def save_shard(path: Path, tensors: dict[str, Tensor]) -> None:
    """One file, whole or absent."""
    with appearing(path) as part:
        save_file(tensors, part)


def description(data: TokenFile, taps: Sequence[int], dtype: torch.dtype, weights: str) -> dict[str, Any]:
    """What a folder of features is of; `weights` are the target's."""
    return {
        "schema": SCHEMA,
        "target": data.origin.target,
        "target_weights": weights,
        "data": data.sha256,
        "taps": sorted(taps),
        "dtype": str(dtype).removeprefix("torch."),
    }


def check_folder(folder: Path, told: Mapping[str, Any]) -> None:
    """Begin a folder of features, or go on with one of the same rows and layers."""
    file = folder / "features.json"
    if not file.exists():
        with atomic_write(file) as handle:
            handle.write(json.dumps(told, indent=1) + "\n")
    held = read_description(folder)
    differing = [key for key in told if held.get(key) != told[key]]
    if differing:
        key = differing[0]
        raise SpecError(
            f"{folder} holds features whose {key} were {held.get(key)}, and {told[key]} are asked for; name a new one"
        )


def read_description(folder: Path) -> dict[str, Any]:
    """features.json of a folder."""
    file = folder / "features.json"
    try:
        held = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{folder} holds no features ({error}); write some with: codraft train features") from error
    if not isinstance(held, dict) or held.get("schema") != SCHEMA or not held.keys() >= KEYS:
        raise SpecError(f"{file} is no description of features ({SCHEMA}); write some with: codraft train features")
    return held


class Offline:
    """Features written before. SpecError where a shard is missing, cut, or of other rows or layers."""

    def __init__(self, folder: Path, data: TokenFile, taps: Sequence[Tap], target: HFModel | None) -> None:
        held = read_description(folder)
        if held["data"] != data.sha256:
            raise SpecError(f"{folder} holds features of other rows than {data.path}; write them for these")
        # What was written before weights were noted down is taken at its word.
        if target is not None and "target_weights" in held:
            ours = weights_id(resolve_folder(target.id))
            if held["target_weights"] != ours:
                raise SpecError(
                    f"{folder} holds features of other weights than {target.id} has; write them with this target"
                )
        self.target, self.taps = target, tuple(taps)
        self._last = None if target is None else target.num_layers - 1
        wanted = sorted({self._stored(tap) for tap in taps})
        missing = [tap for tap in wanted if tap not in held["taps"]]
        if missing:
            raise SpecError(f"{folder} has no features of layer {missing[0]}; it has those of {held['taps']}")
        self._wanted = wanted
        self._shards = shards_of(data.lengths)
        absent = [one.name for one in self._shards if not (folder / one.name).exists()]
        if absent:
            raise SpecError(
                f"{folder} lacks {len(absent)} of {len(self._shards)} shards ({absent[0]}); go on writing them with: "
                "codraft train features"
            )
        self._firsts = [one.first for one in self._shards]
        self._open, self._handles = ExitStack(), {}
        for one in self._shards:
            try:
                handle = self._open.enter_context(safe_open(folder / one.name, framework="pt"))
                self._handles[one.name] = {tap: handle.get_slice(f"layer.{tap}") for tap in wanted}
            except (OSError, SafetensorError) as error:
                raise SpecError(f"cannot read {folder / one.name}: {error}; delete it, and write it again") from error

    def _stored(self, tap: Tap) -> int:
        """The layer that a tap is made of."""
        if tap != "final":
            return tap
        if self._last is None:
            raise ValueError("the last norm is the target's")
        return self._last

    def features(self, rows: Sequence[int], lengths: Sequence[int]) -> dict[Tap, Tensor]:
        """See `FeatureSource.features`; in float32, on the target's device."""
        parts: dict[int, list[Tensor]] = {tap: [] for tap in self._wanted}
        for row, length in zip(rows, lengths, strict=True):
            one = self._shards[int(np.searchsorted(self._firsts, row, side="right")) - 1]
            start, end = (int(at) for at in one.starts[row - one.first : row - one.first + 2])
            for tap, slices in self._handles[one.name].items():
                parts[tap].append(slices[start : min(end, start + length)])
        device = "cpu" if self.target is None else self.target.device
        stored = {tap: torch.cat(found).to(device).float() for tap, found in parts.items()}
        found: dict[Tap, Tensor] = {tap: stored[self._stored(tap)] for tap in self.taps if tap != "final"}
        if "final" in self.taps and self.target is not None:
            with torch.no_grad():
                found["final"] = self.target.last_norm(stored[self._stored("final")])
        return found
