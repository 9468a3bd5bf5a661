"""The few numbers of a config.json that the guidelines need."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the guidelines need of target and device. `tile` is the attention kernel's, None where it has none."""

    G: int
    linear_params: int
    kv_elements_per_token: int
    num_layers: int
    tile: int | None

    def attention_share(self, B: int, S: int) -> float:
        """Share of the bytes of a decode pass that attention reads: its cache, against all weights once."""
        cache = B * S * self.kv_elements_per_token
        return cache / (cache + self.linear_params)


def read_shape(folder: Path, tile: int | None) -> Shape | None:
    """Shape of a dense transformer from its config.json, None where the config does not say enough."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config") or config
        heads, layers, width = (
            config["num_attention_heads"],
            config["num_hidden_layers"],
            config["hidden_size"],
        )
        kv_heads = config.get("num_key_value_heads") or heads
        head_dim = config.get("head_dim") or width // heads
        attention = width * head_dim * (2 * heads + 2 * kv_heads)
        ffn = 3 * width * config["intermediate_size"]
        head = width * config["vocab_size"]
        G = heads // kv_heads
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ZeroDivisionError, RecursionError):
        return None
    return Shape(
        G=G,
        linear_params=layers * (attention + ffn) + head,
        kv_elements_per_token=2 * layers * kv_heads * head_dim,
        num_layers=layers,
        tile=tile,
    )


def checkpoint_dtype(folder: Path) -> str | None:
    """The dtype that a config.json names for its weights, None where it names none."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    name = config.get("dtype") or config.get("torch_dtype")
    return name if isinstance(name, str) else None
