"""What sequences keep in memory: keys and values that grow with the context, windows that fill up, fixed states.

KV of grouped-query attention: K (d_key + d_value) numbers per token and layer [Ainslie23]; of latent attention one
latent and one rotated key, kv_rank + rope_dim, whatever the number of heads [DeepSeekV2]. A gated delta net keeps one
matrix of d_key x d_value per value head [Yang24], Mamba d_state numbers per channel [Dao24], and both the last inputs
of their convolution but one.
"""

from dataclasses import dataclass

from codraft.models.architecture import Architecture, Layer

# Bytes of a number. Engines keep recurrent states in f32 (vLLM and SGLang by default) and convolutions in bf16.
DTYPE_BYTES = {"f32": 4, "bf16": 2, "fp8": 1}
STATE_BYTES, CONV_BYTES = 4, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class KvBytes:
    """Bytes of one sequence's keys and values.

    `per_token` is what every further token takes, whatever the context; `windowed` pairs the bytes per token of
    windowed layers with their window in tokens, beyond which they take no more.
    """

    per_token: int
    windowed: tuple[tuple[int, int], ...]

    @property
    def short(self) -> int:
        """Bytes per token while the context fits every window: the figure usually quoted."""
        return self.per_token + sum(size for size, _ in self.windowed)

    @property
    def bound(self) -> int:
        """What windowed layers take at most."""
        return sum(size * window for size, window in self.windowed)

    def at(self, S: int) -> int:
        """Bytes at S tokens of context."""
        return self.per_token * S + sum(size * min(S, window) for size, window in self.windowed)


def kv_bytes(arch: Architecture, dtype_bytes: int = 2) -> KvBytes:
    """Keys and values of one sequence, at `dtype_bytes` a number; MTP modules and drafters not counted."""
    windows: dict[int, int] = {}
    elements = 0.0
    for layer in arch.layers:
        size, own = token_elements(layer)
        elements += own
        if size and layer.window is not None:
            windows[layer.window] = windows.get(layer.window, 0) + size * dtype_bytes
        else:
            elements += size
    # Compressed entries stand for several tokens; their share of one is rounded up.
    return KvBytes(
        per_token=-int(-elements * dtype_bytes // 1), windowed=tuple((b, w) for w, b in sorted(windows.items()))
    )


def token_elements(layer: Layer) -> tuple[int, float]:
    """(numbers that one layer keeps of each token, those that grow beyond its window all the same)."""
    if layer.mla is not None:
        return layer.mla.kv_rank + layer.mla.rope_dim + layer.mla.index_dim, 0
    heads = layer.attention
    if heads is None or not heads.cached:
        return 0, 0
    if (low := layer.compressed) is not None:
        # One vector is key and value; beyond the window one for `rate` tokens, and one for the indexer.
        return heads.head_dim, 0 if low.rate is None else (heads.head_dim + low.index_dim) / low.rate
    return heads.num_kv_heads * (heads.head_dim + heads.value_dim), 0


def kv_bytes_per_token(arch: Architecture, dtype_bytes: int = 2) -> int:
    """Bytes that one more token takes beyond every window; 0 where all layers are windowed or recurrent."""
    return kv_bytes(arch, dtype_bytes).per_token


def cache_bytes(arch: Architecture, S: int, dtype_bytes: int = 2) -> int:
    """Keys, values and states of one sequence of S tokens, in bytes."""
    return kv_bytes(arch, dtype_bytes).at(S) + state_bytes_per_sequence(arch)


def state_bytes_per_sequence(arch: Architecture, state_bytes: int = STATE_BYTES, conv_bytes: int = CONV_BYTES) -> int:
    """States of one sequence that stay the same size, at these bytes a number of a state and of a convolution."""
    return sum(layer_state(layer, arch.hidden, state_bytes, conv_bytes) for layer in arch.layers)


def layer_state(layer: Layer, hidden: int, state_bytes: int, conv_bytes: int) -> int:
    """State of one layer, in bytes."""
    total = 0
    if (linear := layer.linear) is not None:
        keys, values = linear.num_key_heads * linear.key_dim, linear.num_value_heads * linear.value_dim
        lru = linear.rule == "lru"
        total += (values if lru else values * linear.key_dim) * state_bytes
        mixed = values if lru else 2 * keys + values
        total += mixed * (linear.conv_kernel - 1) * conv_bytes
    if (mamba := layer.mamba) is not None:
        total += mamba.inner * mamba.state * state_bytes
        mixed = mamba.inner + (2 * mamba.groups * mamba.state if mamba.version == 2 else 0)
        total += mixed * (mamba.conv_kernel - 1) * conv_bytes
    if layer.conv_kernel is not None:
        total += hidden * (layer.conv_kernel - 1) * conv_bytes
    return total
