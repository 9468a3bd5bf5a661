"""What a transformer is made of, layer by layer, as one shape for every family's config.json."""

from dataclasses import dataclass, field
from typing import Any, Literal

# How a layer mixes positions. `mla` compresses keys and values, `linear` (gated delta net, KDA, lightning) and `mamba`
# keep a state of fixed size, `conv` the last few inputs, `none` mixes nothing (an FFN block of its own).
Mixer = Literal["full", "sliding", "chunked", "mla", "linear", "mamba", "conv", "none"]
Ffn = Literal["dense", "moe", "none"]
Basis = Literal["given", "headers", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Heads of one attention layer; a head of values may have a width of its own.

    A `cached` layer keeps keys and values; the others read those of an earlier layer (Gemma 3n and 4). With
    `shared_projection` one matrix makes both.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_dim: int
    cached: bool = True
    shared_projection: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """DeepSeek-V4's attention: one vector per token as key and value, low-rank queries and outputs, a window, and
    beyond it one vector for `rate` tokens (None: the window alone). With an indexer, `index_heads` of `index_dim`."""

    q_rank: int
    groups: int
    out_rank: int
    rate: int | None
    index_heads: int
    index_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mla:
    """Multi-head latent attention [DeepSeekV2]: ranks of the latents, widths of a head. `q_rank` None: queries are not
    compressed. `index_heads` and `index_dim` are those of the indexer of sparse attention (DeepSeek-V3.2), else 0."""

    num_heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    index_heads: int = 0
    index_dim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """Linear attention with a matrix of `key_dim` x `value_dim` as the state of each value head.

    `rule`: `delta` (gated delta net), `kda` (Kimi), `lightning` (MiniMax), `lru` (Griffin, a vector as the state).
    """

    rule: Literal["delta", "kda", "lightning", "lru"]
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba:
    """A selective state space: `version` 1 has one head per channel, 2 heads of `head_dim` channels.

    `inner` is the width between the projections; `dt_rank` is version 1's.
    """

    version: Literal[1, 2]
    inner: int
    num_heads: int
    state: int
    groups: int
    conv_kernel: int
    dt_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Moe:
    """A mixture of experts: `top_k` of `num_experts` are read for a token, the shared ones always.

    `width` is one expert's, `shared_width` all shared experts' together, `latent` the width that routed experts work
    in where it is not the hidden size (Nemotron-3 Super).
    """

    num_experts: int
    top_k: int
    width: int
    shared_width: int = 0
    latent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One decoder layer; `window` in tokens where its attention has one. Sizes are None for what it does not have.

    Falcon-H1 has attention and Mamba side by side: `mixer` is then the attention. `width` is the dense FFN's, which
    stands beside the experts in Gemma 4.
    """

    mixer: Mixer
    ffn: Ffn
    window: int | None = None
    attention: Attention | None = None
    mla: Mla | None = None
    compressed: Compressed | None = None
    linear: Linear | None = None
    mamba: Mamba | None = None
    conv_kernel: int | None = None
    width: int | None = None
    moe: Moe | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What a family's layers have beside their matrices; only the count of parameters needs it.

    `norms` are those around the parts of a layer, each of `norm_vectors` vectors (2 with a bias, 0 without weights);
    `sub_norms` stand before the output projections too (BitNet). `qk_norm` is one vector per head width, or over all
    heads. `query_gate` is a gate on the attention's output, as wide as the queries or one number per head. `positions`
    are rows of a learned table, `streams` the residual streams of hyper-connections (DeepSeek-V4), `scalars` single
    weights of a layer. `per_layer_width`: embeddings of their own for every layer, of a vocabulary of
    `per_layer_vocab` (Gemma 3n and 4). `table_width`: that of an embedding table that is not as wide as the model,
    with a matrix into it and one out of it (OPT-350M); else 0.
    """

    gated: bool = True
    norms: int = 2
    norm_vectors: int = 1
    final_norm: bool = True
    embedding_norm: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    qkv_bias: bool = False
    out_bias: bool = False
    ffn_bias: bool = False
    head_bias: bool = False
    router_bias: bool = False
    conv_bias: bool = False
    mixer_bias: bool = False
    mixer_norm: bool = True
    query_gate: Literal["none", "wide", "head"] = "none"
    shared_gate: bool = False
    sinks: Literal["none", "all", "sliding"] = "none"
    positions: int = 0
    scalars: int = 0
    sub_norms: bool = False
    streams: int = 0
    per_layer_width: int = 0
    per_layer_vocab: int = 0
    table_width: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """Rotary positions.

    `kind`: `default`, `linear`, `dynamic`, `yarn`, `llama3`, `longrope`, `mrope`, ... `partial` is the share of the
    head that is rotated. `theta_key` is where theta stands in the config, dotted; None where it is a
    default.
    """

    theta: float | None
    kind: str
    factor: float | None
    original_max_positions: int | None
    partial: float
    theta_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """What quantization_config says.

    `bits` are those of a weight, None where they are not stated. `ignored` are modules left in full precision, as
    written (names or patterns); of a very long list `left_out` are not kept. `rotated`: hidden states live in a rotated
    basis (QuaRot, SpinQuant transforms).
    """

    method: str
    bits: int | None
    ignored: list[str]
    rotated: bool
    raw: dict[str, Any]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """Config and headers say different things: `key` of the config, and the tensor that proves otherwise."""

    key: str
    config: Any
    headers: Any
    tensor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A causal language model's shape. `text` is the part of the config that describes the decoder; `path` its key.

    `num_heads`, `num_kv_heads` and `head_dim` are those of the first layer that attends to everything, or of the first
    that attends at all. MLA keeps one latent for all heads, so that `num_kv_heads` is 1 and G the number of heads; its
    `head_dim` is a query's. `rope` is that of the full layers, `local_rope` that of windowed layers where it is
    another. `assumed` holds what the config does not say and was taken for granted, a sentence each. A model that is
    not `countable` has parts that no field here has, so that only its headers tell its number of weights.
    """

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
    head_dim_basis: Basis | None
    max_positions: int | None
    rope: Rope | None
    tied: bool
    mtp_layers: int
    quantization: Quantization | None
    assumed: list[str] = field(default_factory=list)
    disagreements: list[Disagreement] = field(default_factory=list)
    local_rope: Rope | None = None
    mtp: tuple[Layer, ...] = ()
    style: Style = field(default_factory=Style)
    countable: bool = True

    @property
    def G(self) -> int | None:
        """Query heads per KV head; None without heads, or where that is no whole number."""
        if not self.num_heads or not self.num_kv_heads or self.num_heads % self.num_kv_heads:
            return None
        return self.num_heads // self.num_kv_heads

    @property
    def latent(self) -> bool:
        """Whether some layer keeps one latent for all heads (MLA)."""
        return any(layer.mixer == "mla" for layer in self.layers)

    @property
    def window(self) -> int | None:
        """The widest window of a layer, in tokens; None where no layer has one."""
        return max((layer.window for layer in self.layers if layer.window), default=None)
