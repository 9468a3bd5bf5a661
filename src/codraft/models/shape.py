"""The few numbers of a config.json that the guidelines need."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.models.architecture import Architecture
from codraft.models.memory import kv_bytes
from codraft.models.parameters import break_down
from codraft.models.reader import parts, read_architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the guidelines need of target and device. `tile` of the attention kernel: 0 without one, None if unknown."""

    G: int
    ffn_params: int
    other_params: int
    kv_elements_per_token: int
    tile: int | None

    def shares(self, B: int, S: int) -> tuple[float, float]:
        """(FFN, attention) shares of the bytes a plain pass reads: every weight once, each sequence's cache once.

        Cache and weights count alike, as if of one dtype.
        """
        cache = B * S * self.kv_elements_per_token
        total = cache + self.ffn_params + self.other_params
        return self.ffn_params / total, cache / total


def read_shape(folder: Path, tile: int | None) -> Shape | None:
    """Shape of a dense transformer from its config.json, None where the config does not say enough.

    Experts, compressed keys and recurrent layers read other bytes than the dense formula says: None as well. A window
    is not taken off the cache.
    """
    arch = architecture_of(folder)
    if arch is None or arch.G is None or not dense(arch):
        return None
    weights = break_down(arch)
    return Shape(
        G=arch.G,
        ffn_params=sum(layer.dense for layer in weights.layers),
        other_params=sum(layer.attention for layer in weights.layers) + arch.hidden * arch.vocab_size,
        kv_elements_per_token=kv_bytes(arch, 1).short,
        tile=tile,
    )


def dense(arch: Architecture) -> bool:
    """Whether every layer is softmax attention with keys and values of its own, and one FFN."""
    return all(
        layer.attention is not None
        and layer.attention.cached
        and layer.mamba is None
        and layer.compressed is None
        and layer.ffn == "dense"
        for layer in arch.layers
    )


def architecture_of(folder: Path) -> Architecture | None:
    """The model of a folder's config.json, None where there is none that can be read."""
    config = config_of(folder)
    if config is None:
        return None
    try:
        return read_architecture(config)
    except SpecError:
        return None


def config_of(folder: Path) -> dict[str, Any] | None:
    """A folder's config.json, None where there is none or it is no object."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return config if isinstance(config, dict) else None


def checkpoint_dtype(folder: Path) -> str | None:
    """The dtype that a config.json names for its weights, as a whole or for its text part; None where it names none."""
    config = config_of(folder)
    if config is None:
        return None
    for part in (config, *(part for part, _ in parts(config))):
        name = part.get("dtype") or part.get("torch_dtype")
        if isinstance(name, str):
            return name
    return None
