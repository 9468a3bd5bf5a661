"""Families that say the usual things in keys of their own, put in the usual ones; and those that cannot be read.

A key that has another name and nothing else is not here but in the lists of names of `reader`, `kinds` and `layers`.
"""

from collections.abc import Mapping
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.fields import MOST_LAYERS, Fields, shown
from codraft.models.fields import FamilyFields, unread

# Encoders, and encoders with decoders. Some can be set up as a decoder (`is_decoder`).
ENCODERS = (
    "albert", "altclip", "bart", "barthez", "beit", "bert", "bert-generation", "big_bird", "bigbird_pegasus",
    "blenderbot", "blenderbot-small", "blip_text_model", "camembert", "canine", "convbert", "data2vec-text", "deit",
    "distilbert", "dpr", "electra", "encoder-decoder", "ernie", "ernie_m", "esm", "eurobert", "flaubert", "flava",
    "fnet", "fsmt", "funnel", "gte", "ibert", "led", "lilt", "longformer", "longt5", "luke", "m2m_100", "marian",
    "markuplm", "mbart", "megatron-bert", "mobilebert", "modernbert", "moonshine", "mpnet", "mra", "mt5", "mvp",
    "nllb-moe", "nomic_bert", "nystromformer", "pegasus", "pegasus_x", "plbart", "prophetnet", "rembert", "roberta",
    "roberta-prelayernorm", "roc_bert", "roformer", "speech-encoder-decoder", "speech_to_text", "splinter",
    "squeezebert", "switch_transformers", "t5", "t5gemma", "t5gemma2", "tapas", "trocr", "udop", "umt5",
    "vision-encoder-decoder", "visual_bert", "vit", "whisper", "xlm", "xlm-prophetnet", "xlm-roberta",
    "xlm-roberta-xl", "xlnet", "xmod", "yoso",
)  # fmt: skip
ENCODER_KINDS = (
    "clip", "chinese_clip", "siglip", "deberta", "wav2vec2", "wavlm", "hubert", "unispeech", "seamless_m4t",
    "layoutlm", "dinov2",
)  # fmt: skip
# Causal, and built of layers that `Architecture` has no words for.
UNREAD = ("rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm", "retnet")


def is_encoder(name: Any) -> bool:
    """Whether models of this type read a whole text at once."""
    return isinstance(name, str) and (name.lower() in ENCODERS or name.lower().startswith(ENCODER_KINDS))


def check_type(*configs: Mapping[str, Any]) -> None:
    """A SpecError where one of these (the whole config, its text part) is of a type that is not read here."""
    for config in configs:
        name = config.get("model_type")
        if isinstance(name, str) and name.lower() in UNREAD:
            raise unread(name, "its layers are of a kind of their own")
        if is_encoder(name) and not any(one.get("is_decoder") is True for one in configs):
            raise SpecError(
                f"config.json: model_type {shown(str(name))!r} is no decoder-only language model; name another model"
            )


def usual_keys(fields: FamilyFields) -> Mapping[str, Any]:
    """The part with the usual keys beside its own; what that takes for granted is noted in `fields`."""
    more: dict[str, Any] = {}
    if fields.family.name == "openelm":
        more |= openelm(fields)
    if fields.key("block_configs"):
        more |= searched(fields)
    if is_encoder(fields.family.name):
        more |= decoder_of_two(fields)
    if fields.part.get("use_mla") is False:  # DeepSeek-OCR states the sizes of latent attention as 0
        latent = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        more |= dict.fromkeys(latent)
    if isinstance(fields.part.get("moe_layers_enum"), str):
        more["moe_layers"] = numbers(fields, "moe_layers_enum")
    more |= step(fields)
    if isinstance(fields.part.get("moe_layer_start_index"), list):
        raise unread(fields.family.name, "moe_layer_start_index is a list, of text experts and others")
    if fields.family.name == "plamo2" and fields.flag("mamba_enabled"):
        raise unread(fields.family.name, "mamba_enabled is true")
    return {**fields.part, **more} if more else fields.part


def openelm(fields: FamilyFields) -> dict[str, Any]:
    """Heads and FFNs of every layer in lists, as its configuration file."""
    hidden = fields.needed("model_dim")
    heads, kv_heads = fields.sizes("num_query_heads"), fields.sizes("num_kv_heads")
    multipliers = fields.ratios("ffn_multipliers")
    if not heads or not kv_heads or not multipliers:
        raise unread(fields.family.name, "num_query_heads, num_kv_heads or ffn_multipliers is no list")
    divisor = fields.size("ffn_dim_divisor") or 256
    return {
        "num_attention_heads": heads[0],
        "num_attention_heads_per_layer": heads,
        "num_key_value_heads": kv_heads[0],
        "num_key_value_heads_per_layer": kv_heads,
        "intermediate_size": [divisible(factor * hidden, divisor) for factor in multipliers],
        "tie_word_embeddings": fields.flag("share_input_output_layers"),
    }


def divisible(width: float, divisor: int) -> int:
    """OpenELM's rounding: to the nearest multiple, but down by no more than a tenth."""
    near = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return near if near >= 0.9 * width else near + divisor


def searched(fields: FamilyFields) -> dict[str, Any]:
    """Nemotron NAS: blocks found by a search, some without attention or FFN, as its modeling file."""
    blocks, heads = fields.get("block_configs"), fields.needed("num_attention_heads")
    hidden, num_layers = fields.needed("hidden_size"), fields.needed("num_hidden_layers", highest=MOST_LAYERS)
    if not isinstance(blocks, list) or not all(isinstance(block, Mapping) for block in blocks):
        raise fields.wrong("block_configs", "a list of objects")
    fields.fit("block_configs", len(blocks), num_layers)
    kinds, kv_heads, widths = [], [], []
    for i, block in enumerate(blocks[:num_layers]):
        own = Fields(block, fields.dotted(f"block_configs.{i}"))
        attention, ffn = own.inner("attention") or Fields({}, own.path), own.inner("ffn") or Fields({}, own.path)
        if attention.key("window_length"):
            raise unread(fields.family.name, f"{attention.dotted('window_length')} is set")
        if attention.flag("replace_with_linear") or ffn.flag("replace_with_linear"):
            fields.countable = False
        attends = not attention.flag("no_op") and not attention.flag("replace_with_linear")
        kinds.append("full_attention" if attends else "no_op")
        kv_heads.append(max(heads // attention.needed("n_heads_in_group"), 1) if attends else 0)
        plain = ffn.flag("no_op") or ffn.flag("replace_with_linear")
        widths.append(0 if plain else -(-int(2 * (ffn.ratio("ffn_mult") or 0) * hidden / 3) // 256) * 256)
    if not fields.countable:
        fields.assume("block_configs has layers that are one matrix, which are not counted; headers tell the weights")
    usual = next((count for count in kv_heads if count), None)
    return {
        "layer_types": kinds,
        "num_key_value_heads": usual,
        "num_key_value_heads_per_layer": kv_heads,
        "intermediate_size": widths,
    }


def decoder_of_two(fields: FamilyFields) -> dict[str, Any]:
    """The decoder's sizes in a config that has an encoder's as well."""
    pairs = (
        ("num_hidden_layers", "decoder_layers"),
        ("num_attention_heads", "decoder_attention_heads"),
        ("intermediate_size", "decoder_ffn_dim"),
    )
    return {usual: fields.get(own) for usual, own in pairs if fields.key(own)}


def step(fields: FamilyFields) -> dict[str, Any]:
    """Step-3.5: windowed layers with heads of their own, and shares of rotation by layer."""
    more: dict[str, Any] = {}
    if other := fields.inner("attention_other_setting"):
        if other.text("attention_type") != "sliding_attention":
            raise unread(fields.family.name, "attention_other_setting is not of sliding_attention")
        keys = {"num_attention_heads": "num_attention_heads", "num_attention_groups": "num_key_value_heads"}
        more |= {f"swa_{keys.get(name, name)}": other.get(name) for name in (*keys, "head_dim") if other.key(name)}
    elif heads := fields.size("num_sliding_attention_heads"):
        more |= {"swa_num_attention_heads": heads, "swa_head_dim": fields.get("head_dim")}
    if shares := fields.ratios("partial_rotary_factors"):
        more["partial_rotary_factor"] = shares[0]
    return more


def numbers(fields: FamilyFields, name: str) -> list[int]:
    """Numbers of layers in one text, with commas between."""
    found = [word.strip() for word in str(fields.get(name)).split(",") if word.strip()]
    if len(found) > MOST_LAYERS or not all(word.isascii() and word.isdecimal() and len(word) <= 6 for word in found):
        raise fields.wrong(name, "numbers of layers with commas between")
    return [int(word) for word in found]
