"""Tensors that a drafter checkpoint should hold, under one set of names, and how each family writes them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from codraft.formats.heads.detect import architectures, mapping
from codraft.formats.heads.head import Head, Kind
from codraft.formats.heads.options import doubled_layers, qk_normed
from codraft.formats.safetensors import TensorInfo

Shape = tuple[int, ...]
# Model-Optimizer writes the heads of DSpark at root level; early SpecForge files call the Markov head `logit_head`.
RENAMED = {
    "midlayer.": "layers.0.",
    "logit_head.": "markov_head.",
    "markov_w1.": "markov_head.markov_w1.",
    "markov_w2.": "markov_head.markov_w2.",
    "gate_proj.": "markov_head.gate_proj.",
    "joint_proj.": "markov_head.joint_proj.",
    "confidence_proj.": "confidence_head.proj.",
}
# Sizes of a projector that are taken from a config.
LARGEST_SETTING = 1 << 20
# Attention over one latent (Model-Optimizer's EAGLE-3 for DeepSeek): with or without a latent for queries.
MLA_PARTS = (
    "q_proj", "q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Expected:
    """A tensor that a head has (`required`) or may have. `shape` None: any, since the config does not tell."""

    name: str
    shape: Shape | None
    required: bool = True


def canonical(kind: Kind, name: str) -> str:
    """One name for a tensor, whatever its family calls it."""
    name = name.removeprefix("model.").removeprefix("draft_model.")
    for old, new in RENAMED.items():
        if name.startswith(old) and not (old == "gate_proj." and kind.mechanism != "dspark"):
            return new + name[len(old) :]
    return name


def canonical_names(kind: Kind, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """The tensors under their one name; of two that share it the first stands."""
    named: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        named.setdefault(canonical(kind, name), info)
    return named


def expected(head: Head) -> list[Expected] | None:
    """All tensors of this head by canonical name, None where codraft does not know the mechanism's layout."""
    layout = LAYOUTS.get(head.mechanism)
    return None if layout is None else list(layout(head))


def eagle3(head: Head) -> Iterator[Expected]:
    """Fusion, one layer of doubled attention input (more are plain), final norm, head, maps [EAGLE-3].

    Model-Optimizer's heads without features of other layers have neither fusion nor a norm of it.
    """
    g, n = head.geometry, head.num_taps * head.target_hidden
    fuses = flag(head, "use_aux_hidden_state")
    yield Expected("fc.weight", (g.hidden, n), required=fuses)
    yield Expected("fc.bias", (g.hidden,), required=False)
    mla = any("MLA" in name or "DeepseekV2" in name for name in architectures(head.config))
    doubled = doubled_layers(head)
    for i in range(g.num_layers):
        yield from decoder_layer(head, i, inputs=1 + doubled[i], free=mla)
        if doubled[i]:
            yield Expected(f"layers.{i}.hidden_norm.weight", (g.hidden,), required=fuses)
    yield Expected("norm.weight", (g.hidden,), required=flag(head, "use_last_layernorm"))
    if head.config.get("fc_norm") is True:
        for i in range(head.num_taps):
            yield Expected(f"fc_norm.{i}.weight", (head.target_hidden,))
    # NVIDIA's files have this switch among those of Model-Optimizer.
    nested = mapping(head.config, "eagle_config")
    if head.config.get("norm_before_fc") is True or nested.get("norm_before_fc") is True:
        yield Expected("input_norm.weight", (n,))
    yield from vocabulary(head, own_head=head.reduced)


def peagle(head: Head) -> Iterator[Expected]:
    """P-EAGLE: EAGLE-3 with plain layers after the first, and a feature for slots whose token is not known yet."""
    yield from eagle3(head)
    yield Expected("mask_hidden", (1, 1, head.num_taps * head.target_hidden))


def eagle(head: Head) -> Iterator[Expected]:
    """EAGLE-1 and 2: embedding and feature joined, layers of one hidden size, no norm before the first nor at the end.

    The speculators library's variants (HASS) have norms of their own.
    """
    g = head.geometry
    yield Expected("fc.weight", (g.hidden, 2 * g.hidden))
    yield Expected("fc.bias", (g.hidden,), required=False)
    for i in range(g.num_layers):
        yield from decoder_layer(head, i, inputs=1, free=False, first_norm=False)
    for name in ("norm", "embedding_layernorm", "pre_lm_head_layernorm"):
        yield Expected(f"{name}.weight", (g.hidden,), required=False)
    yield from vocabulary(head, own_head=head.reduced)


def block_drafter(head: Head) -> Iterator[Expected]:
    """DFlash: fused features give keys and values of every layer; embedding and head are the target's [DFlash]."""
    g = head.geometry
    yield Expected("fc.weight", (g.hidden, head.num_taps * head.target_hidden))
    yield Expected("hidden_norm.weight", (g.hidden,))
    yield Expected("norm.weight", (g.hidden,))
    for i in range(g.num_layers):
        yield from decoder_layer(head, i, inputs=1, free=False)
        yield Expected(f"layers.{i}.self_attn.sinks", (g.num_heads,), required=False)
    yield Expected("mask_embedding", None, required=False)
    yield Expected("mask_embedding.weight", None, required=False)
    yield from vocabulary(head, own_head=head.reduced)


def dspark(head: Head) -> Iterator[Expected]:
    """A DFlash backbone with a low-rank Markov head and a confidence head [DSpark]."""
    yield from block_drafter(head)
    g, markov = head.geometry, head.markov
    if markov is None:
        return
    r, V = markov.rank, head.vocab_size
    if r:
        yield Expected("markov_head.markov_w1.weight", None if V is None else (V, r))
        Vd = head.draft_vocab_size or V
        yield Expected("markov_head.markov_w2.weight", None if Vd is None else (Vd, r))
    if r and markov.kind == "gated":
        yield Expected("markov_head.gate_proj.weight", (r, g.hidden + r))
        yield Expected("markov_head.gate_proj.bias", (r,), required=False)
    if r and markov.kind == "rnn":
        yield Expected("markov_head.joint_proj.weight", (3 * r, 2 * r + g.hidden))
        yield Expected("markov_head.joint_proj.bias", (3 * r,), required=False)
    width = g.hidden + (r if markov.confidence_with_markov else 0)
    yield Expected("confidence_head.proj.weight", (1, width), required=markov.confidence)
    yield Expected("confidence_head.proj.bias", (1,), required=markov.confidence)


def dflash2(head: Head) -> Iterator[Expected]:
    """A DFlash backbone with dynamic convolutions around attention and MLP, and a chain over the candidates of each
    slot (z-lab's dflash2 modeling; docs/references.md)."""
    yield from block_drafter(head)
    g, V = head.geometry, head.vocab_size
    taps, group, r = (setting(head, key) for key in ("conv_kernel_size", "conv_group_size", "selector_rank"))
    rows = None if taps is None or group is None else 2 * taps * (g.hidden // group)
    for i in range(g.num_layers):
        for part in ("attention_conv", "mlp_conv"):
            name = f"layers.{i}.{part}"
            yield Expected(f"{name}.base_kernel", None if taps is None else (2, taps, g.hidden))
            yield Expected(f"{name}.kernel_projection.weight", None if rows is None else (rows, g.hidden))
    for part in ("predecessor_codebook", "successor_codebook"):
        yield Expected(f"candidate_selector.{part}", None if V is None or r is None else (V, r))
    yield Expected("candidate_selector.hidden_projection.weight", None if r is None else (r, g.hidden))


def domino(head: Head) -> Iterator[Expected]:
    """A DFlash backbone with a recurrent correction of its logits (SpecForge's modeling/draft; docs/references.md)."""
    yield from block_drafter(head)
    g, V = head.geometry, head.vocab_size
    state, narrow = setting(head, "gru_hidden_dim"), setting(head, "emb_dim")
    yield Expected("prefix_gru.weight_ih_l0", None if state is None else (3 * state, g.hidden))
    yield Expected("prefix_gru.weight_hh_l0", None if state is None else (3 * state, state))
    wide = None if state is None or narrow is None else (narrow, g.hidden + state)
    yield Expected("embed_proj.0.weight", wide)
    yield Expected("embed_proj.2.weight", None if V is None or narrow is None else (V, narrow))
    for name, size in (("embed_proj.0.bias", narrow), ("embed_proj.2.bias", V)):
        yield Expected(name, None if size is None else (size,), required=False)


LAYOUTS: Mapping[str, Callable[[Head], Iterator[Expected]]] = {
    "eagle3": eagle3, "peagle": peagle, "eagle": eagle, "dflash": block_drafter, "dflash2": dflash2, "domino": domino,
    "dspark": dspark,
}  # fmt: skip


def setting(head: Head, key: str) -> int | None:
    """A size out of `dflash_config`, or of the config itself; None where it is no size."""
    value = mapping(head.config, "dflash_config").get(key, head.config.get(key))
    sized = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST_SETTING
    return value if sized else None


def decoder_layer(
    head: Head, index: int, *, inputs: int, free: bool, first_norm: bool | None = None
) -> Iterator[Expected]:
    """One Llama or Qwen3 layer whose attention reads `inputs` times the hidden size; `free` leaves attention out.

    `first_norm`: whether layer 0 must have a norm before its attention; None: as Model-Optimizer's switch says.
    """
    g, name = head.geometry, f"layers.{index}"
    q, kv = g.num_heads * g.head_dim, g.num_kv_heads * g.head_dim
    if not free:
        for part, width in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
            # Gemma 4's global layers take the keys for values.
            left_out = part == "v_proj" and head.text.get("attention_k_eq_v") is True
            yield Expected(f"{name}.self_attn.{part}.weight", (width, inputs * g.hidden), required=not left_out)
            yield Expected(f"{name}.self_attn.{part}.bias", (width,), required=bool(head.text.get("attention_bias")))
        yield Expected(f"{name}.self_attn.o_proj.weight", (g.hidden, q))
        yield Expected(f"{name}.self_attn.o_proj.bias", (g.hidden,), required=False)
        for part in ("q_norm", "k_norm"):
            yield Expected(f"{name}.self_attn.{part}.weight", (g.head_dim,), required=qk_normed(head))
    else:
        for part in MLA_PARTS:
            yield Expected(f"{name}.self_attn.{part}.weight", None, required=part in ("kv_b_proj", "o_proj"))
    for part in ("gate_proj", "up_proj"):
        yield Expected(f"{name}.mlp.{part}.weight", (g.ffn, g.hidden))
        yield Expected(f"{name}.mlp.{part}.bias", (g.ffn,), required=bool(head.text.get("mlp_bias")))
    yield Expected(f"{name}.mlp.down_proj.weight", (g.hidden, g.ffn))
    yield Expected(f"{name}.mlp.down_proj.bias", (g.hidden,), required=bool(head.text.get("mlp_bias")))
    first = flag(head, "use_input_layernorm_in_first_layer") if first_norm is None else first_norm
    yield Expected(f"{name}.input_layernorm.weight", (g.hidden,), required=index > 0 or first)
    yield Expected(f"{name}.post_attention_layernorm.weight", (g.hidden,))
    if any(kind.startswith("Gemma4") for kind in architectures(head.config)):
        yield Expected(f"{name}.pre_feedforward_layernorm.weight", (g.hidden,))
        yield Expected(f"{name}.post_feedforward_layernorm.weight", (g.hidden,))
        yield Expected(f"{name}.layer_scalar", (1,), required=False)


def flag(head: Head, key: str) -> bool:
    """A switch of Model-Optimizer's `eagle_config`, on where absent."""
    nested = head.config.get("eagle_config")
    return not (isinstance(nested, Mapping) and nested.get(key) is False)


def vocabulary(head: Head, *, own_head: bool) -> Iterator[Expected]:
    """Embedding, output head and the two maps of a reduced vocabulary."""
    g, V, Vd = head.geometry, head.vocab_size, head.draft_vocab_size or head.vocab_size
    yield Expected("embed_tokens.weight", None if V is None else (V, g.hidden), required=False)
    yield Expected("lm_head.weight", None if Vd is None else (Vd, g.hidden), required=own_head)
    yield Expected("d2t", None if Vd is None else (Vd,), required=head.reduced)
    yield Expected("t2d", None if V is None else (V,), required=False)
