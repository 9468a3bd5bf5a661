"""What a transformer is made of, layer by layer, as one shape for every family's config.json."""

from dataclasses import dataclass, field
from typing import Any, Literal

# How a layer mixes positions. `mla` compresses keys and values, `linear` (gated delta net, lightning, KDA) and `mamba`
# keep a state of fixed size, `conv` the last few inputs, `none` mixes nothing (an FFN block of its own).
Mixer = Literal["full", "sliding", "chunked", "mla", "linear", "mamba", "conv", "none"]
Ffn = Literal["dense", "moe", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; `window` in tokens where its attention has one."""

    mixer: Mixer
    ffn: Ffn
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions, None where the model has none."""

    theta: float | None
    kind: str
    """`default`, `linear`, `dynamic`, `yarn`, `llama3`, `longrope`, `mrope`, ..."""
    factor: float | None
    original_max_positions: int | None
    partial: float
    """Share of the head that is rotated."""
    theta_key: str | None
    """Where theta stands in the config, dotted; None where it is the default of the family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What quantization_config says."""

    method: str
    bits: int | None
    ignored: list[str]
    """Modules left in full precision, as written (names or patterns)."""
    rotated: bool
    """Hidden states live in a rotated basis (QuaRot, SpinQuant transforms)."""
    raw: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A causal language model's shape. `text` is the part of the config that describes the decoder; `path` its key."""

    model_type: str
    architectures: list[str]
    text: dict[str, Any]
    path: str
    layers: tuple[Layer, ...]
    hidden: int
    vocab_size: int
    num_heads: int | None
    num_kv_heads: int | None
    head_dim: int | None
    head_dim_basis: Literal["given", "headers", "assumed"] | None
    max_positions: int | None
    rope: Rope | None
    tied: bool
    mtp_layers: int
    quantization: Quantization | None
    assumed: list[str] = field(default_factory=list)
    """What the config does not say and was taken for granted, a sentence each."""

    @property
    def G(self) -> int | None:
        """Query heads per KV head; None without ordinary heads."""
        if not self.num_heads or not self.num_kv_heads:
            return None
        return self.num_heads // self.num_kv_heads
