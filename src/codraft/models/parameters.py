"""How many weights a model has, in all and for one token: counted from its shape, or from tensor headers.

* total: the language model. Vision and audio towers are not in it, nor are MTP modules (DeepSeek-V3 is 671B without its
  MTP module, 685B on the hub with it and its copies of embedding and head), nor buffers such as the router's bias.
* active: what one token reads: total less the routed experts that it does not use, and less an embedding table of its
  own, of which it reads one row (a tied table is read whole, as the head). Vendors differ: OpenAI's 5.13B of
  gpt-oss-120b and DeepSeek-V3's 37B are this figure [DeepSeekV3], Qwen3-30B-A3B's 3.3B has the table too [Qwen3].
* mtp: what the modules hold themselves, without the embedding and head that some checkpoints repeat in them.

Matrices follow the modeling files of transformers 5.19, which tests compare with, weight for weight.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from codraft.core.inspection import Parameters
from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import Architecture, Attention, Layer, Linear, Mamba, Mla, Moe, Style
from codraft.models.headers import HeaderCount, count_headers


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCount:
    """Weights of one layer by part. `attention` has the projections of softmax attention, MLA included; `recurrent`
    those of linear attention, Mamba and convolutions; `experts` all routed experts, `experts_active` those that one
    token reads; `other` what belongs to none (per-layer embeddings' projections)."""

    attention: int = 0
    recurrent: int = 0
    dense: int = 0
    experts: int = 0
    experts_active: int = 0
    shared: int = 0
    router: int = 0
    norms: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """All weights of the layer."""
        mixing = self.attention + self.recurrent
        return mixing + self.dense + self.experts + self.shared + self.router + self.norms + self.other

    @property
    def active(self) -> int:
        """The weights that one token reads."""
        return self.total - self.experts + self.experts_active


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """Weights by part; `layers` in the order of the model, `mtp` one module's layers. A tied `head` is 0."""

    embedding: int
    head: int
    norms: int
    other: int
    layers: tuple[LayerCount, ...]
    mtp: int

    @property
    def total(self) -> int:
        """All weights of the language model."""
        return self.embedding + self.head + self.norms + self.other + sum(layer.total for layer in self.layers)

    @property
    def active(self) -> int:
        """The weights that one token reads; a table that is not the head as well gives one row."""
        matrix = self.head or self.embedding
        return matrix + self.norms + self.other + sum(layer.active for layer in self.layers)


def count_parameters(arch: Architecture, tensors: Mapping[str, TensorInfo] | None = None) -> Parameters | None:
    """Weights of the language model; from headers where they hold one element for each, from the config otherwise.

    Headers of packed formats (4 bits in bytes or words) do not, and an incomplete set of files does not either. None
    where only headers could tell.
    """
    found = count_headers(tensors) if tensors else None
    if found is None or not complete(arch, found):
        if not arch.countable:
            return None
        shape = break_down(arch)
        return Parameters(
            total=shape.total,
            active=shape.active,
            embedding=shape.embedding,
            head=shape.head,
            mtp=shape.mtp * arch.mtp_layers,
            basis="config",
        )
    # A head that a tied model stores all the same is a copy; its bias is none.
    head = 0 if arch.tied else found.head + found.head_bias
    total = found.total - (found.head if arch.tied else 0)
    moe = next((layer.moe for layer in arch.layers if layer.moe), None)
    idle = 0 if moe is None else found.experts * (moe.num_experts - moe.top_k) // moe.num_experts
    looked_up = found.embedding if head else 0
    return Parameters(
        total=total,
        active=total - idle - looked_up,
        embedding=found.embedding,
        head=head,
        mtp=found.mtp,
        basis="headers",
    )


def complete(arch: Architecture, found: HeaderCount) -> bool:
    """Whether the headers have every layer, and weights one by one."""
    return not found.packed and found.num_layers == len(arch.layers) and found.embedding > 0


def break_down(arch: Architecture) -> Breakdown:
    """Weights by part and layer, from the shape alone."""
    style, hidden = arch.style, arch.hidden
    narrow = style.table_width if style.table_width != hidden else 0
    table = arch.vocab_size * (narrow or hidden)
    own = style.per_layer_width
    per_layer_table = style.per_layer_vocab * own * len(arch.layers)
    # Gemma 4: one projection from the hidden size to all layers' own embeddings, and its norm.
    other = own * len(arch.layers) * hidden + own if own else 0
    other += style.streams * (style.streams * hidden + 1) + 1 if style.streams else 0
    other += 2 * narrow * hidden
    head_bias = arch.vocab_size if style.head_bias else 0
    other += head_bias if arch.tied else 0
    norm = style.norm_vectors * hidden
    return Breakdown(
        embedding=table + per_layer_table + style.positions * hidden,
        head=0 if arch.tied else table + head_bias,
        norms=(norm if style.final_norm else 0) + (norm if style.embedding_norm else 0),
        other=other,
        layers=tuple(count_layer(arch, layer) for layer in arch.layers),
        mtp=count_mtp(arch),
    )


def count_mtp(arch: Architecture) -> int:
    """Weights of one MTP module: its decoder layer, two norms, a projection from two hidden sizes to one, a last norm
    [DeepSeekV3]."""
    if not arch.mtp_layers or not arch.mtp:
        return 0
    layers = sum(count_layer(arch, layer).total for layer in arch.mtp)
    return layers + 2 * arch.hidden**2 + 3 * arch.hidden * max(arch.style.norm_vectors, 1)


def count_layer(arch: Architecture, layer: Layer) -> LayerCount:
    """Weights of one layer by part."""
    style, hidden = arch.style, arch.hidden
    attention = 0
    if layer.attention is not None:
        plain = layer.compressed is None
        attention = attention_weights(layer, style, hidden) if plain else compressed_weights(layer, hidden)
    attention += 0 if layer.mla is None else mla_weights(layer.mla, style, hidden)
    streams = hyper_connections(style.streams, hidden)
    recurrent = 0 if layer.linear is None else linear_weights(layer.linear, style, hidden)
    recurrent += 0 if layer.mamba is None else mamba_weights(layer.mamba, style, hidden)
    recurrent += 0 if layer.conv_kernel is None else conv_weights(layer.conv_kernel, style, hidden)
    experts, active, shared, router = (0, 0, 0, 0) if layer.moe is None else moe_weights(layer.moe, style, hidden)
    own = style.per_layer_width
    beside = layer.moe is not None and layer.width is not None
    return LayerCount(
        attention=attention,
        recurrent=recurrent,
        dense=0 if layer.width is None else ffn_weights(hidden, layer.width, style),
        experts=experts,
        experts_active=active,
        shared=shared,
        router=router + (hidden + layer.moe.num_experts if beside and layer.moe else 0),
        # Gemma 4 has three more norms where experts stand beside the dense FFN.
        norms=(style.norms + (3 if beside else 0)) * style.norm_vectors * hidden,
        other=style.scalars + 2 * streams + (2 * own * hidden + hidden if own else 0),
    )


def attention_weights(layer: Layer, style: Style, hidden: int) -> int:
    """Projections of queries, keys, values and output, with what the family has beside them."""
    heads = layer.attention
    assert heads is not None
    queries, outputs = heads.num_heads * heads.head_dim, heads.num_heads * heads.value_dim
    keys = heads.num_kv_heads * heads.head_dim if heads.cached else 0
    values = heads.num_kv_heads * heads.value_dim if heads.cached and not heads.shared_projection else 0
    count = hidden * (queries + keys + values + outputs)
    count += queries + keys + values if style.qkv_bias else 0
    count += hidden if style.out_bias else 0
    count += {"none": 0, "wide": hidden * outputs, "head": hidden * heads.num_heads}[style.query_gate]
    count += heads.num_heads if style.sinks == "all" or style.sinks == layer.mixer else 0
    count += outputs if style.sub_norms else 0
    return count + qk_norm_weights(heads, style)


def compressed_weights(layer: Layer, hidden: int) -> int:
    """DeepSeek-V4's attention, as its modeling file: the window's part, the compressor's, the indexer's. An indexed
    layer's blocks overlap, so that its compressor is twice as wide."""
    heads, low = layer.attention, layer.compressed
    assert heads is not None
    assert low is not None
    dim, queries = heads.head_dim, heads.num_heads * heads.head_dim
    count = hidden * low.q_rank + low.q_rank + low.q_rank * queries + hidden * dim + dim
    count += low.out_rank * queries + hidden * low.groups * low.out_rank + heads.num_heads
    if low.rate is None:
        return count
    wide = 2 if low.index_heads else 1
    count += wide * dim * (low.rate + 2 * hidden) + dim
    if low.index_heads:
        count += wide * low.index_dim * (low.rate + 2 * hidden) + low.index_dim
        count += low.index_heads * (low.index_dim * low.q_rank + hidden)
    return count


def hyper_connections(streams: int, hidden: int) -> int:
    """One set of hyper-connections [Zhu24]: a map from all streams to their mixing weights, its bias, three scales."""
    return (2 + streams) * streams * (streams * hidden + 1) + 3 if streams else 0


def qk_norm_weights(heads: Attention, style: Style) -> int:
    """Norms of queries and of keys, where the layer makes keys."""
    if style.qk_norm == "none":
        return 0
    wide = style.qk_norm == "full"
    queries = heads.head_dim * (heads.num_heads if wide else 1)
    keys = heads.head_dim * (heads.num_kv_heads if wide else 1) if heads.cached else 0
    return (queries + keys) * max(style.norm_vectors, 1)


def mla_weights(mla: Mla, style: Style, hidden: int) -> int:
    """Latent attention [DeepSeekV2]: down to the ranks, up to the heads, and the indexer of DeepSeek-V3.2."""
    queries = mla.num_heads * (mla.nope_dim + mla.rope_dim)
    latent = mla.kv_rank + mla.rope_dim
    count = hidden * latent + mla.kv_rank + mla.kv_rank * mla.num_heads * (mla.nope_dim + mla.value_dim)
    count += mla.num_heads * mla.value_dim * hidden
    if mla.q_rank is None:
        count += hidden * queries
    else:
        count += hidden * mla.q_rank + mla.q_rank + mla.q_rank * queries
    count += (mla.q_rank or 0) + latent if style.qkv_bias else 0
    count += hidden if style.out_bias else 0
    if mla.index_heads:
        count += (mla.q_rank or hidden) * mla.index_heads * mla.index_dim + hidden * mla.index_dim
        count += 2 * mla.index_dim + hidden * mla.index_heads
    return count


def linear_weights(linear: Linear, style: Style, hidden: int) -> int:
    """Linear attention by its rule: gated delta net [Yang24], KDA [Kimi25], lightning [MiniMax25], RG-LRU [De24]."""
    keys, values = linear.num_key_heads * linear.key_dim, linear.num_value_heads * linear.value_dim
    heads = linear.num_value_heads
    if linear.rule == "delta":
        # Queries, keys, values, output gate, two gates per head, output; convolution; decay and time step; norm.
        projections = hidden * (2 * keys + 3 * values + 2 * heads)
        return projections + (2 * keys + values) * linear.conv_kernel + 2 * heads + linear.value_dim
    if linear.rule == "kda":
        projections = hidden * (2 * keys + 2 * values + heads + 2 * linear.value_dim)
        low_rank = linear.key_dim * keys + linear.value_dim * values
        return projections + low_rank + (2 * keys + values) * linear.conv_kernel + keys + heads + linear.value_dim
    if linear.rule == "lightning":
        return hidden * 5 * values + values
    # Two inputs and an output, with biases; convolution; two gates in blocks, their biases; one decay per channel.
    biases = 2 * values + hidden if style.mixer_bias else 0
    gates = 2 * (values * linear.value_dim + values) + values
    return 3 * hidden * values + biases + values * (linear.conv_kernel + 1) + gates


def mamba_weights(mamba: Mamba, style: Style, hidden: int) -> int:
    """A selective state space, version 1 [Gu23] or 2 [Dao24]."""
    inner = mamba.inner
    if mamba.version == 1:
        count = 3 * hidden * inner + inner * (mamba.conv_kernel + (1 if style.conv_bias else 0))
        count += inner * (mamba.dt_rank + 2 * mamba.state) + mamba.dt_rank * inner + inner + inner * mamba.state + inner
        count += mamba.dt_rank + 2 * mamba.state if style.mixer_norm else 0
        return count + (2 * inner + hidden if style.mixer_bias else 0)
    mixed = inner + 2 * mamba.groups * mamba.state
    projected = inner + mixed + mamba.num_heads
    count = hidden * projected + inner * hidden + mixed * (mamba.conv_kernel + (1 if style.conv_bias else 0))
    count += 3 * mamba.num_heads + (inner if style.mixer_norm else 0)
    return count + (projected + hidden if style.mixer_bias else 0)


def conv_weights(kernel: int, style: Style, hidden: int) -> int:
    """LFM2's short convolution: in to three, a filter for each channel, out."""
    return 4 * hidden**2 + hidden * kernel + (5 * hidden if style.conv_bias else 0)


def ffn_weights(inputs: int, width: int, style: Style) -> int:
    """One FFN: gate, up and down, or up and down alone."""
    matrices = 3 if style.gated else 2
    biases = (matrices - 1) * width + inputs if style.ffn_bias else 0
    return matrices * inputs * width + biases + (width if style.sub_norms else 0)


def moe_weights(moe: Moe, style: Style, hidden: int) -> tuple[int, int, int, int]:
    """(routed experts, those of one token, shared experts, router) of one layer; a latent's two matrices are the
    router's, for they are read whatever experts are."""
    expert = ffn_weights(moe.latent or hidden, moe.width, style)
    shared = ffn_weights(hidden, moe.shared_width, style) if moe.shared_width else 0
    shared += hidden if style.shared_gate and moe.shared_width else 0
    router = moe.num_experts * hidden + (moe.num_experts if style.router_bias else 0)
    router += 2 * hidden * moe.latent if moe.latent else 0
    return moe.num_experts * expert, moe.top_k * expert, shared, router
