"""From a drafter's config and tensor headers to a `Head`."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from codraft.core.errors import SpecError
from codraft.formats.fields import Fields
from codraft.formats.heads.head import (
    BLOCK_MECHANISMS,
    COUNTS,
    MASK_NAMES,
    Alignment,
    Block,
    Geometry,
    Head,
    Kind,
    Markov,
    Taps,
    layer_part,
)
from codraft.formats.heads.layout import canonical_names
from codraft.formats.mtp import count_modules, modules
from codraft.formats.safetensors import TensorInfo

# Keys that list layer ids, with their convention; the first that is present counts. Sources: the loaders of each
# family, and vLLM's and SGLang's readers of them (docs/mechanisms/eagle3.md, dflash.md).
EAGLE_TAPS: tuple[tuple[str, Literal["output", "input"]], ...] = (
    ("eagle_aux_hidden_state_layer_ids", "input"),
    ("eagle_config.eagle_aux_hidden_state_layer_ids", "output"),
    ("eagle3_layers_to_capture", "output"),
    ("target_layer_ids", "output"),
)
BLOCK_TAPS: tuple[tuple[str, Literal["output", "input"]], ...] = (
    ("aux_hidden_state_layer_ids", "input"),
    ("dflash_config.target_layer_ids", "output"),
    ("target_layer_ids", "output"),
    ("dspark_target_layer_ids", "output"),
)
BLOCK_SIZES = ("block_size", "dflash_config.block_size", "dspark_block_size", "dspark_config.block_size")
MASK_IDS = ("mask_token_id", "dflash_config.mask_token_id", "dspark_noise_token_id")
# No layers with attention; their configs say neither width nor heads.
NO_LAYERS = ("medusa", "mlp_speculator")
# Loops go over these.
MOST_LAYERS = 1000
MOST_TAPS = 1000
# Features that a head fuses where neither ids nor fc tell: EAGLE-3 was defined with three.
EAGLE3_TAPS = 3


def read_head(kind: Kind, config: Mapping[str, Any], tensors: Mapping[str, TensorInfo], file: str) -> Head:
    """The head that these describe; `file` names the config in errors."""
    text, path = layer_part(config)
    whole, inner = Fields(config, file=file), Fields(text, path, file)
    shapes = {name: info.shape for name, info in canonical_names(kind, tensors).items()}
    single = any("midlayer." in name for name in tensors) and not any(name.startswith("layers.1.") for name in shapes)
    plain = kind.mechanism in NO_LAYERS
    geometry = plain_geometry(inner, shapes) if plain else read_geometry(inner, whole, shapes, single=single)
    num_modules = whole.size(*COUNTS, lowest=0) or inner.size(*COUNTS, lowest=0) or 1
    if kind.mechanism == "mtp":
        # The config is the target's, whose layers are none of the drafter's: a module has one.
        geometry = replace(geometry, num_layers=count_modules(modules(list(tensors))) or num_modules)
    given = whole.size("target_hidden_size")
    target_hidden = given or target_width(kind, shapes) or geometry.hidden
    taps = read_taps(kind, whole)
    markov = read_markov(kind, whole, shapes, geometry.hidden) if kind.mechanism == "dspark" else None
    return Head(
        kind=kind,
        file=file,
        config=config,
        text=text,
        text_path=path,
        geometry=geometry,
        target_hidden=target_hidden,
        target_hidden_given=given is not None,
        vocab_size=inner.size("vocab_size") or whole.size("vocab_size"),
        draft_vocab_size=whole.size("draft_vocab_size") or rows(shapes, "d2t"),
        taps=taps,
        num_taps=len(taps[0].written) if taps else fused(kind, shapes, target_hidden),
        alignment=alignment_of(kind, whole),
        block=read_block(whole) if kind.mechanism in BLOCK_MECHANISMS else None,
        markov=markov,
        num_modules=num_modules,
        own_mask=any(name in shapes for name in MASK_NAMES),
    )


def read_geometry(
    text: Fields, whole: Fields, shapes: Mapping[str, tuple[int, ...]], *, single: bool = False
) -> Geometry:
    """Widths of the layers; hidden size and heads must be in the config. `single`: the tensors are of one layer."""
    hidden = required(text, "hidden_size")
    heads = required(text, "num_attention_heads")
    # Drafters for Gemma 4 have its global layers only, which have a width and perhaps KV heads of their own.
    own = text.size("num_global_key_value_heads") if text.flag("attention_k_eq_v") else None
    kv_heads = own or text.size("num_key_value_heads") or heads
    head_dim, basis = text.size("global_head_dim") or text.size("head_dim"), "given"
    if head_dim is None:
        head_dim, basis = implied_head_dim(shapes, heads, kv_heads), "headers"
    if head_dim is None:
        head_dim, basis = max(1, hidden // heads), "assumed"
    key = "num_hidden_layers"
    num_layers = text.size(key) or whole.size(key) or 1
    if num_layers > MOST_LAYERS:
        raise text.wrong(key, f"at most {MOST_LAYERS} layers")
    # The layout with a `midlayer` has one layer, whatever the config says: some give the target's number there.
    if single:
        num_layers = 1
    return Geometry(
        num_layers=num_layers,
        hidden=hidden,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        head_dim_basis=basis,  # type: ignore[arg-type]
        ffn=text.size("intermediate_size") or rows(shapes, "layers.0.mlp.gate_proj.weight") or 4 * hidden,
    )


def plain_geometry(text: Fields, shapes: Mapping[str, tuple[int, ...]]) -> Geometry:
    """Medusa and MLP speculators: one width and no attention."""
    square = next((shape[0] for shape in shapes.values() if len(shape) == 2 and shape[0] == shape[1]), None)
    hidden = text.size("hidden_size") or text.size("emb_dim") or square or required(text, "hidden_size")
    return Geometry(
        num_layers=0, hidden=hidden, num_heads=1, num_kv_heads=1, head_dim=hidden, head_dim_basis="assumed", ffn=hidden
    )


def required(fields: Fields, key: str) -> int:
    """A size that no head can do without."""
    value = fields.size(key)
    if value is None:
        raise SpecError(f"{fields.file}: {key} is missing, so the drafter's layers have no width; mend the config")
    return value


def implied_head_dim(shapes: Mapping[str, tuple[int, ...]], heads: int, kv_heads: int) -> int | None:
    """Head width that query and key matrices agree on."""
    q, k = rows(shapes, "layers.0.self_attn.q_proj.weight"), rows(shapes, "layers.0.self_attn.k_proj.weight")
    if q is None or k is None or q % heads or k % kv_heads or q // heads != k // kv_heads:
        return None
    return q // heads


def proven_head_dim(head: Head, tensors: Mapping[str, TensorInfo]) -> int | None:
    """The head width that queries and keys of layer 0 agree on; `tensors` are under their canonical names."""
    shapes = {name: info.shape for name, info in tensors.items() if len(info.shape) == 2}
    return implied_head_dim(shapes, head.geometry.num_heads, head.geometry.num_kv_heads)


def rows(shapes: Mapping[str, tuple[int, ...]], name: str) -> int | None:
    """First dimension of a tensor, None where it is absent."""
    shape = shapes.get(name)
    return shape[0] if shape else None


def target_width(kind: Kind, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Width of one fused feature, where a norm of its own shows it."""
    shape = shapes.get("fc_norm.0.weight")
    return shape[0] if kind.mechanism == "eagle3" and shape else None


def fused(kind: Kind, shapes: Mapping[str, tuple[int, ...]], target_hidden: int) -> int:
    """Number of features that fc takes, from its width."""
    shape = shapes.get("fc.weight", ())
    if kind.mechanism in ("mtp", "eagle"):
        return 1
    if len(shape) == 2 and shape[1] and shape[1] % target_hidden == 0 and shape[1] // target_hidden <= MOST_TAPS:
        return shape[1] // target_hidden
    return EAGLE3_TAPS if kind.mechanism == "eagle3" else 1


def read_taps(kind: Kind, fields: Fields) -> tuple[Taps, ...]:
    """Every list of layer ids that stands in the config."""
    keys = {"eagle3": EAGLE_TAPS, "peagle": EAGLE_TAPS, "mtp": (), "eagle": ()}.get(kind.mechanism, BLOCK_TAPS)
    found = ((key, convention, fields.ids(key)) for key, convention in keys)
    return tuple(Taps(written=ids, key=key, convention=convention) for key, convention, ids in found if ids)


def read_block(fields: Fields) -> Block:
    """Block sizes, mask token and causality."""
    sizes = {key: size for key in BLOCK_SIZES if (size := fields.size(key)) is not None}
    key = next((key for key in MASK_IDS if fields.get(key) is not None), None)
    causal = next(
        (flag for name in ("dflash_config.causal", "is_causal") if (flag := fields.switch(name)) is not None), None
    )
    if causal is None and (non_causal := fields.switch("sliding_window_non_causal")) is not None:
        causal = not non_causal
    return Block(sizes=sizes, mask_token_id=fields.size(key, lowest=0) if key else None, mask_key=key, causal=causal)


def read_markov(kind: Kind, fields: Fields, shapes: Mapping[str, tuple[int, ...]], hidden: int) -> Markov | None:
    """The Markov and confidence heads, None without a rank. What the config leaves unsaid is as the tensors show it, or
    else as the family's own class takes it."""
    rank = fields.size(*prefixed("markov_rank"), lowest=0)
    if rank is None:
        return None
    proj = shapes.get("confidence_head.proj.weight")
    enabled = fields.switch(*prefixed("enable_confidence_head"), *prefixed("use_confidence_head"))
    if enabled is None:
        # SpecForge goes by the weight of its loss; the speculators library has it on.
        unsaid = kind.family == "speculators" or bool(fields.get("dflash_config.confidence_head_alpha"))
        enabled = proj is not None or unsaid
    with_markov = fields.switch(*prefixed("confidence_head_with_markov"))
    if with_markov is None:
        with_markov = kind.family != "specforge" if proj is None else proj[-1:] != (hidden,)
    return Markov(
        rank=rank,
        kind=(fields.text(*prefixed("markov_head_type")) or "vanilla").lower(),
        confidence=enabled,
        confidence_with_markov=with_markov,
    )


def prefixed(key: str) -> tuple[str, ...]:
    """A key of DSpark where families have it: at the top (also SpecForge's exports for SGLang), nested, DeepSeek-V4."""
    return (key, f"dflash_config.{key}", f"dspark_{key}")


def alignment_of(kind: Kind, fields: Fields) -> Alignment:
    """Which token a slot predicts."""
    if kind.mechanism not in BLOCK_MECHANISMS:
        return "shifted"
    for key in ("sample_from_anchor", "dflash_config.shift_label", "shift_label"):
        flag = fields.switch(key)
        if flag is not None:
            return "next_slot" if flag else "same_slot"
    return "next_slot" if kind.mechanism in ("dspark", "domino") else "same_slot"
