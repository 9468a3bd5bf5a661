"""Any config.json, with tensor headers where there are some, to one `Architecture`. Start at `read_architecture`."""

from collections.abc import Iterator, Mapping
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.fields import MOST_LAYERS, shown
from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import (
    Architecture,
    Attention,
    Basis,
    Disagreement,
    Layer,
    Mixer,
    Quantization,
    Rope,
)
from codraft.models.dialects import check_type, is_encoder, usual_keys
from codraft.models.families import LIKE_LLAMA, ROWS, Family, find_family
from codraft.models.fields import FamilyFields
from codraft.models.headers import Headers, read_headers
from codraft.models.kinds import EXPERTS, NUM_LAYERS, POSITIONS, count_layers, read_blocks, read_kinds
from codraft.models.layers import HEAD_DIM, HEADS, KV_HEADS, build_layers
from codraft.models.quantization import read_quantization
from codraft.models.rope import THETA, read_rope
from codraft.models.style import read_style, table_width

HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim")
VOCAB = ("vocab_size", "n_vocab", "padded_vocab_size")
# Where a config of several models keeps the one that writes text.
NESTED = (
    "text_config", "llm_config", "language_config", "thinker_config", "language_model", "decoder", "text_model",
    "model_config", "lm_config",
)  # fmt: skip
MTP = (
    "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers", "num_mtp_layers",
    "n_mtp_layers", "mtp_layers", "num_nextn_layers",
)  # fmt: skip
DEEPEST = 4
# Rows by which an embedding table may outgrow the vocabulary: padding, and tokens that are never written.
MOST_PADDING = 1024
MOST_NAMES = 16


def read_architecture(config: Mapping[str, Any], tensors: Mapping[str, TensorInfo] | None = None) -> Architecture:
    """The decoder that `config` describes. A SpecError names what is wrong: no causal LM, or a value that cannot be.

    Headers win where they prove a number (head width, KV heads, experts, tied embeddings), and each difference is kept
    in `disagreements`; the number of layers stays the config's, which is what an engine would build.
    """
    text, path = find_text(config)
    family = find_family(text.get("model_type"), config.get("model_type"))
    fields = read_fields(text, path, family)
    hidden = fields.needed(*HIDDEN)
    vocab = vocabulary(fields, config)
    num_layers = count_layers(fields)
    # Encoders set up as decoders have names and tables of their own.
    headers = read_headers(tensors, hidden) if tensors and not is_encoder(family.name) else Headers()
    kinds = read_kinds(fields, num_layers)
    differs: list[Disagreement] = []
    attends = any(mixer in ("full", "sliding", "chunked") for mixer, _, _ in kinds)
    heads, basis = usual_heads(fields, hidden, headers, differs) if attends else (None, None)
    experts = proven(fields, EXPERTS, headers.num_experts, differs)
    layers = build_layers(fields, kinds, hidden, heads, experts)
    compare(fields, headers, differs, hidden, vocab, num_layers)
    note_unknown(fields)
    quantization = quantized(fields, config, text)
    first = leading(layers)
    num_heads, num_kv, head_dim = head_numbers(first)
    rope, local = ropes(fields, family, first, head_dim)
    return Architecture(
        model_type=shown(fields_text(config, "model_type") or fields_text(text, "model_type") or ""),
        architectures=[shown(name) for name in listed(config.get("architectures"))[:MOST_NAMES] if is_text(name)],
        text=dict(text),
        path=path,
        layers=layers,
        hidden=hidden,
        vocab_size=vocab,
        num_heads=num_heads,
        num_kv_heads=num_kv,
        head_dim=head_dim,
        head_dim_basis=basis if heads is not None else None if head_dim is None else "given",
        max_positions=fields.size(*POSITIONS),
        rope=rope,
        tied=tied(fields, config, headers, differs),
        mtp_layers=mtp_layers(fields, headers),
        quantization=quantization,
        assumed=fields.assumed,
        disagreements=differs,
        local_rope=local,
        mtp=mtp_block(fields, layers, hidden, heads, experts),
        style=read_style(fields, family),
        countable=fields.countable,
    )


def quantized(fields: FamilyFields, *configs: Mapping[str, Any]) -> Quantization | None:
    """What the config says of quantised weights; a list that was cut is noted."""
    found = read_quantization(*configs)
    if found is not None and found.left_out:
        kept = len(found.ignored)
        fields.assume(f"of {kept + found.left_out:,} modules that are not quantised the first {kept:,} are kept")
    return found


def read_fields(text: Mapping[str, Any], path: str, family: Family) -> FamilyFields:
    """The text part in the usual keys."""
    own = FamilyFields(text, path, family)
    part = usual_keys(own)
    fields = FamilyFields(part, path, family)
    fields.assumed, fields.countable = own.assumed, own.countable and not is_encoder(family.name)
    return fields


def note_unknown(fields: FamilyFields) -> None:
    """Say so where nothing is known of the family beyond its config, or where it is known to be built otherwise."""
    name = fields.family.name
    if not fields.countable and name not in LIKE_LLAMA:
        fields.assume(f"{name} has parts that are not described here; what is not read from headers may be off")
    elif name not in ROWS and name not in LIKE_LLAMA:
        fields.assume(f"model_type {name!r} is not known here; its layers are taken to be built like Llama's")


def find_text(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The part that has layers and a hidden size, and its dotted key; the whole where no part below has them."""
    if not isinstance(config, Mapping):
        raise SpecError("config.json does not hold an object, so it describes no model; fetch it again")
    check_type(config)
    if config.get("is_encoder_decoder") is True:
        raise SpecError("config.json describes an encoder with a decoder, not a causal language model; name another")
    nested = [(part, path) for part, path in parts(config) if describes_layers(part)]
    if nested:
        check_type(nested[0][0], config)
        return flattened(nested[0][0]), nested[0][1]
    if describes_layers(config):
        return flattened(config), ""
    # LLaVA leaves out whatever is Llama's default; then a named family and one explicit size must do.
    for part, path in (*parts(config), (config, "")):
        if find_family(part.get("model_type")).defaults and any(part.get(name) is not None for name in VOCAB + HIDDEN):
            return part, path
    raise SpecError(
        "config.json describes no causal language model: no part of it has a number of layers and a hidden size; "
        "check that it is the config of the model itself"
    )


def flattened(text: Mapping[str, Any]) -> Mapping[str, Any]:
    """MPT and DBRX keep some sizes one level down; what the part says itself stands."""
    inner = [text[name] for name in ("attn_config", "ffn_config") if isinstance(text.get(name), Mapping)]
    return {**inner[0], **inner[-1], **text} if inner else text


def describes_layers(part: Mapping[str, Any]) -> bool:
    """Whether it names a number of layers (or lists them) and a hidden size."""
    counted = any(part.get(name) is not None for name in (*NUM_LAYERS, "hybrid_override_pattern", "layers_block_type"))
    return counted and any(part.get(name) is not None for name in HIDDEN)


def parts(config: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Nested configs under the keys in use, outer ones first."""
    if depth >= DEEPEST:
        return
    for name in NESTED:
        part = config.get(name)
        if isinstance(part, Mapping) and part:
            below = f"{path}.{name}" if path else name
            yield part, below
            yield from parts(part, below, depth + 1)


def vocabulary(fields: FamilyFields, config: Mapping[str, Any]) -> int:
    """Size of the vocabulary, which some nested configs leave to the whole."""
    if fields.key(*VOCAB) is None and (outer := FamilyFields(config)).key(*VOCAB):
        return outer.needed(*VOCAB)
    return fields.needed(*VOCAB)


def usual_heads(
    fields: FamilyFields, hidden: int, headers: Headers, differs: list[Disagreement]
) -> tuple[Attention | None, Basis | None]:
    """The heads that most layers have, and where their width comes from."""
    num_heads = fields.size(*HEADS)
    if num_heads is None:
        return None, None
    kv_heads = kv_count(fields, num_heads)
    given = fields.size(*HEAD_DIM) if fields.key(*HEAD_DIM) else None
    basis: Basis = "given"
    found, tensor = headers.head_width(kv_heads, given, num_heads)
    # Where a value is of another width than a key, o_proj says nothing about keys.
    if found is not None and found != given and fields.key("v_head_dim") is None:
        basis = "headers"
        if given is not None:
            differs.append(Disagreement(key=named(fields, HEAD_DIM), config=given, headers=found, tensor=tensor))
        given = found
    if given is None:
        given, basis = fallback_width(fields, hidden, num_heads), "assumed"
    proved = headers.kv_heads(given)
    if proved is not None and proved[0] != kv_heads:
        key = named(fields, KV_HEADS)
        differs.append(Disagreement(key=key, config=kv_heads, headers=proved[0], tensor=proved[1]))
        kv_heads = proved[0]
    value_dim = fields.size("v_head_dim", lowest=0) or given
    return Attention(num_heads=num_heads, num_kv_heads=kv_heads, head_dim=given, value_dim=value_dim), basis


def kv_count(fields: FamilyFields, num_heads: int) -> int:
    """KV heads by the config: stated, one for multi-query models, as many as query heads otherwise."""
    old_falcon = fields.family.name == "falcon" and not fields.flag("new_decoder_architecture")
    if fields.flag("multi_query") and (old_falcon or fields.family.name != "falcon"):
        return 1
    if old_falcon:
        return num_heads
    if fields.key(*KV_HEADS) is None and (by_layer := fields.sizes("num_key_value_heads_per_layer")):
        return max(by_layer[0], 1)
    if (attention := fields.inner("attn_config")) and (stated := attention.size("kv_n_heads")):
        return stated
    return fields.size(*KV_HEADS) or num_heads


def fallback_width(fields: FamilyFields, hidden: int, num_heads: int) -> int:
    """The width of a head that nothing states: the family's, or hidden size over heads, which may not come out even."""
    name = fields.dotted("head_dim")
    if not any(key in fields.part for key in HEAD_DIM) and (default := fields.family.defaults.get("head_dim")):
        fields.assume(f"{name} is not in the config; {default}, the default of {fields.family.name}, is taken")
        return int(default)
    width = max(hidden // num_heads, 1)
    if hidden % num_heads:
        fields.assume(
            f"{name} is not in the config, and {hidden}/{num_heads} is no whole number; {width} is a guess that only "
            "the tensor headers could settle"
        )
    else:
        fields.assume(f"{name} is not in the config; {hidden}/{num_heads} = {width} is taken")
    return width


def named(fields: FamilyFields, names: tuple[str, ...]) -> str:
    """The key as the config has it, or its usual name."""
    return fields.dotted(fields.key(*names) or names[0])


def proven(
    fields: FamilyFields, names: tuple[str, ...], found: tuple[int, str] | None, differs: list[Disagreement]
) -> int | None:
    """What headers prove of a number that the config states, the difference noted; None where they prove nothing."""
    if found is None or not (stated := fields.common(*names)):
        return None
    if stated != found[0]:
        differs.append(Disagreement(key=named(fields, names), config=stated, headers=found[0], tensor=found[1]))
    return found[0]


def compare(
    fields: FamilyFields, headers: Headers, differs: list[Disagreement], hidden: int, vocab: int, num_layers: int
) -> None:
    """Note where the headers have other sizes than the config. A few more rows than the vocabulary are padding, and
    models whose parts are not described here may keep their layers elsewhere or use them several times."""
    narrow = table_width(fields)
    for names, stated, found, allowed in (
        ((fields.trait("table_width"),) if narrow else HIDDEN, narrow or hidden, headers.hidden, 0),
        (VOCAB, vocab, headers.vocab, MOST_PADDING),
        (NUM_LAYERS, num_layers, headers.num_layers if fields.countable else None, 0),
    ):
        if found is not None and not stated <= found[0] <= stated + allowed:
            differs.append(Disagreement(key=named(fields, names), config=stated, headers=found[0], tensor=found[1]))


def tied(fields: FamilyFields, config: Mapping[str, Any], headers: Headers, differs: list[Disagreement]) -> bool:
    """Whether the head is the embedding table: by the headers, the outermost config that says so (as transformers
    does), the family."""
    names = ("tie_word_embeddings", "tie_embedding")
    levels = [*around(config, fields), fields]
    at = next((level for level in levels if level.key(*names)), fields)
    stated = at.flag(*names)
    if headers.tied is None:
        return stated
    proved, tensor = headers.tied
    # A head that a tied model stores beside its table is a copy, and no contradiction.
    if stated and not proved:
        return True
    if proved and at.key(*names) and not any(level.switch(*names) for level in levels):
        differs.append(
            Disagreement(key=at.dotted(at.key(*names) or names[0]), config=False, headers=True, tensor=tensor)
        )
    return proved


def around(config: Mapping[str, Any], fields: FamilyFields) -> Iterator[FamilyFields]:
    """The whole config and the parts that lie around the text part, outer ones first."""
    part: Mapping[str, Any] = config
    names = fields.path.split(".") if fields.path else []
    for i, name in enumerate(names):
        yield FamilyFields(part, ".".join(names[:i]), fields.family)
        part = part[name]


def mtp_layers(fields: FamilyFields, headers: Headers) -> int:
    """MTP modules: stated by the config; without a word from it, those that the headers have."""
    stated = fields.size(*MTP, lowest=0)
    return headers.mtp_layers if stated is None else stated


def mtp_block(
    fields: FamilyFields, layers: tuple[Layer, ...], hidden: int, heads: Attention | None, experts: int | None
) -> tuple[Layer, ...]:
    """The decoder layers of one MTP module: Nemotron-H names them, others repeat the last attention layer."""
    for key, text_key in (("mtp_hybrid_override_pattern", "hybrid_override_pattern"), ("mtp_layers_block_type", "")):
        held = fields.part.get(key)
        if not held:
            continue
        if not isinstance(held, list | str) or len(held) > MOST_LAYERS:
            raise fields.wrong(key, "a pattern of layers")
        part = {name: value for name, value in fields.part.items() if name not in ("layer_types", "layers_block_type")}
        part.pop("hybrid_override_pattern", None)
        own = FamilyFields({**part, text_key or "layers_block_type": held}, fields.path, fields.family)
        blocks = read_blocks(own, len(held))
        if blocks is not None:
            return build_layers(own, [(mixer, ffn, None) for mixer, ffn in blocks], hidden, heads, experts)
    keeps: tuple[Mixer, ...] = ("mla", "full", "sliding", "chunked")
    return next(((layer,) for layer in reversed(layers) if layer.mixer in keeps), ())


def leading(layers: tuple[Layer, ...]) -> Layer | None:
    """The layer whose heads stand for the model's: the first that attends to everything, or that attends at all."""
    attending = [layer for layer in layers if layer.attention or layer.mla]
    return next((layer for layer in attending if layer.mixer in ("full", "mla")), attending[0] if attending else None)


def head_numbers(layer: Layer | None) -> tuple[int | None, int | None, int | None]:
    """(query heads, KV heads, head width) of a layer."""
    if layer is not None and layer.mla is not None:
        return layer.mla.num_heads, 1, layer.mla.nope_dim + layer.mla.rope_dim
    if layer is not None and layer.attention is not None:
        return layer.attention.num_heads, layer.attention.num_kv_heads, layer.attention.head_dim
    return None, None, None


def ropes(
    fields: FamilyFields, family: Family, first: Layer | None, head_dim: int | None
) -> tuple[Rope | None, Rope | None]:
    """Rotary positions of full and windowed layers; none where the model has none."""
    never = family.traits.get("rope") is False or is_encoder(family.name) or first is None
    unrotated = never or fields.flag("alibi") or fields.flag("mla_use_nope")
    if unrotated or fields.part.get("position_embedding_type") in ("nope", "alibi", "learned", "absolute"):
        return None, None
    if (key := fields.key(*THETA)) is not None and isinstance(fields.get(key), list):
        fields.assume(f"{fields.dotted(key)} is a list by layer; the first is taken")
    mla = None if first is None else first.mla
    return read_rope(fields, head_dim, None if mla is None else mla.rope_dim)


def fields_text(part: Mapping[str, Any], name: str) -> str | None:
    """A word of the config, None where it is none."""
    value = part.get(name)
    return value if isinstance(value, str) else None


def is_text(value: Any) -> bool:
    """Whether it is a string."""
    return isinstance(value, str)


def listed(value: Any) -> list[Any]:
    """A list as it is, anything else as an empty one."""
    return value if isinstance(value, list) else []
