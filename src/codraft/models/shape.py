"""The few numbers of a config.json that the guidelines need."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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


# Experts, compressed keys and recurrent layers read other bytes than the dense formula says.
NOT_DENSE = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "kv_lora_rank",
    "linear_num_key_heads",
    "conv_L_cache",
    "mamba_d_state",
)


def read_shape(folder: Path, tile: int | None) -> Shape | None:
    """Shape of a dense transformer from its config.json, None where the config does not say enough."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        config = config.get("text_config") or config
        if any(key in config for key in NOT_DENSE):
            return None
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
        ffn_params=layers * ffn,
        other_params=layers * attention + head,
        kv_elements_per_token=2 * layers * kv_heads * head_dim,
        tile=tile,
    )


def checkpoint_dtype(folder: Path) -> str | None:
    """The dtype that a config.json names for its weights, None where it names none."""
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        name = config.get("dtype") or config.get("torch_dtype")
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return name if isinstance(name, str) else None
