"""Which kind each layer is: how it mixes positions, what its window is, and whether its FFN has experts."""

from codraft.formats.fields import MOST_LAYERS
from codraft.models.architecture import Ffn, Mixer
from codraft.models.fields import FamilyFields

NUM_LAYERS = (
    "num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers",
    "num_transformer_layers",
)  # fmt: skip
EXPERTS = (
    "num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts", "moe_n_experts",
)  # fmt: skip
POSITIONS = (
    "max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "model_max_length", "seq_length",
    "n_ctx", "context_length", "max_context_length",
)  # fmt: skip
WINDOW = ("sliding_window", "attention_window_size", "sliding_window_size", "window_size")
LISTS = ("layer_types", "layers_block_type", "attention_layers")
MAMBA = ("mamba_n_heads", "mamba_num_heads", "mamba_d_state", "ssm_state_size", "state_size", "n_mamba_heads")

# Every word in use for a layer's mixer, and for blocks that have an FFN alone.
MIXERS: dict[str, Mixer] = {
    "full_attention": "full", "attention": "full", "global": "full", "full": "full", "indexed_attention": "full",
    "hybrid": "full", "compressed_attention": "full", "sliding_attention": "sliding", "local": "sliding",
    "hybrid_sliding": "sliding", "sliding": "sliding", "compressed_sparse_attention": "sliding",
    "heavily_compressed_attention": "sliding", "chunked_attention": "chunked", "linear_attention": "linear",
    "linear": "linear", "recurrent": "linear", "mamba": "mamba", "mamba2": "mamba", "conv": "conv",
    "moe": "none", "mlp": "none", "no_op": "none",
}  # fmt: skip
PATTERN: dict[str, tuple[Mixer, Ffn]] = {
    "M": ("mamba", "none"), "*": ("full", "none"), "E": ("none", "moe"), "-": ("none", "dense"),
}  # fmt: skip
FFNS: dict[str, Ffn] = {"sparse": "moe", "moe": "moe", "hash_moe": "moe", "dense": "dense", "mlp": "dense"}


def count_layers(fields: FamilyFields) -> int:
    """Number of decoder layers: stated, or the length of the list that names them."""
    if fields.key(*NUM_LAYERS) is None:
        if pattern := fields.text("hybrid_override_pattern"):
            return len(pattern)
        if names := fields.words("layers_block_type", "layer_types"):
            return len(names)
    return fields.needed(*NUM_LAYERS, highest=MOST_LAYERS)


def read_kinds(fields: FamilyFields, num_layers: int) -> list[tuple[Mixer, Ffn, int | None]]:
    """(mixer, FFN, window) of each layer."""
    blocks = read_blocks(fields, num_layers)
    if blocks is not None:
        return [(mixer, ffn, None) for mixer, ffn in blocks]
    window = binding_window(fields, read_window(fields))
    mixers = read_mixers(fields, num_layers, window)
    chunk = binding_window(fields, fields.size("attention_chunk_size")) if "chunked" in mixers else None
    latent = fields.key("kv_lora_rank") is not None
    rows: list[tuple[Mixer, Ffn, int | None]] = []
    for mixer, ffn in zip(mixers, read_ffns(fields, num_layers), strict=True):
        if mixer == "sliding" and window is None:
            mixer = "full"
        if mixer == "chunked" and chunk is None:
            mixer = "full"
        if mixer == "full" and latent:
            mixer = "mla"
        rows.append((mixer, ffn, {"sliding": window, "chunked": chunk}.get(mixer)))
    return rows


def read_blocks(fields: FamilyFields, num_layers: int) -> list[tuple[Mixer, Ffn]] | None:
    """Nemotron-H's blocks, of which each is a mixer or an FFN; None where layers are both."""
    if pattern := fields.text("hybrid_override_pattern"):
        name = "hybrid_override_pattern"
        if set(pattern) - set(PATTERN):
            raise fields.wrong(name, f"a text of {' '.join(PATTERN)}")
        blocks = [PATTERN[letter] for letter in pattern]
    else:
        name = fields.key("layers_block_type", "layer_types") or ""
        words = fields.words(name) if name else None
        if not words or not {"moe", "mlp"} & set(words):
            return None
        check_words(fields, name, words)
        letters = {"full": "*", "linear": "M", "mamba": "M"}
        blocks = [PATTERN[{"moe": "E", "mlp": "-"}.get(word) or letters.get(MIXERS[word], "*")] for word in words]
    fields.fit(name, len(blocks), num_layers)
    if len(blocks) > num_layers:
        raise fields.wrong(name, f"{num_layers} blocks, as {NUM_LAYERS[0]} says")
    return blocks


def check_words(fields: FamilyFields, name: str, words: list[str]) -> None:
    """A kind of layer that nothing is known of must not pass for attention."""
    if not set(words) <= MIXERS.keys():
        raise fields.wrong(name, f"words out of {', '.join(sorted(MIXERS))}")


def read_window(fields: FamilyFields) -> int | None:
    """Tokens that a windowed layer looks back, None where no layer is windowed."""
    if fields.key("use_sliding_window") and not fields.flag("use_sliding_window"):
        return None
    if "use_sliding_window" not in fields.part and fields.family.defaults.get("use_sliding_window") is False:
        return None
    stated = fields.size(*WINDOW, lowest=-1) or 0
    return stated if stated > 0 else None


def binding_window(fields: FamilyFields, window: int | None) -> int | None:
    """The window, but for one that no text outgrows (Phi-4-mini): None, unless windowed layers differ in more."""
    own = ("swa_num_key_value_heads", "swa_num_attention_heads", "swa_head_dim", "global_head_dim", "o_lora_rank")
    apart = fields.size(*own) or fields.trait("windowed_kv_factor") or fields.flag("attention_k_eq_v")
    longest = None if window is None or apart else longest_text(fields)
    return None if window is not None and longest is not None and window >= longest else window


def longest_text(fields: FamilyFields) -> int | None:
    """Positions of the model, its context extended as far as its config says."""
    positions = fields.size(*POSITIONS)
    scaling = fields.inner("rope_parameters", "rope_scaling")
    factor = scaling.ratio("factor") if scaling is not None else None
    if positions is None or scaling is None or factor is None:
        return positions
    original = scaling.size("original_max_position_embeddings") or positions
    return max(positions, int(min(factor, 1e6) * original))


def read_mixers(fields: FamilyFields, num_layers: int, window: int | None) -> list[Mixer]:
    """The mixer of each layer, by the first of the keys in use that says so; a window may still turn out absent."""
    name = fields.key(*LISTS)
    if name is not None and (words := fields.words(name)):
        check_words(fields, name, words)
        fields.fit(name, len(words), num_layers)
        return [state_kind(fields, MIXERS[word]) for word in words[:num_layers]]
    if (listed := listed_mixers(fields, num_layers)) is not None:
        return listed
    if (period := periodic_mixers(fields, num_layers)) is not None:
        return period
    if window is None:
        return ["full"] * num_layers
    return windowed_mixers(fields, num_layers)


def state_kind(fields: FamilyFields, mixer: Mixer) -> Mixer:
    """transformers 5 calls Mamba layers linear attention too; their sizes tell them apart."""
    return "mamba" if mixer == "linear" and fields.key(*MAMBA) and not fields.key("linear_num_key_heads") else mixer


def listed_mixers(fields: FamilyFields, num_layers: int) -> list[Mixer] | None:
    """Mixers from lists of layer numbers or of 0 and 1; None where the config has none."""
    if linear := fields.inner("linear_attn_config"):  # Kimi Linear, counted from 1
        full = {i - 1 for i in linear.sizes("full_attn_layers") or []}
        return ["full" if i in full else "linear" for i in range(num_layers)]
    for name, other in (("full_attn_idxs", "conv"), ("attn_layer_indices", "mamba")):
        if (full_list := fields.sizes(name)) is not None:
            return ["full" if i in full_list else MIXERS[other] for i in range(num_layers)]
    if (types := fields.sizes("attn_type_list")) is not None:  # MiniMax-Text-01: 1 full, 0 lightning
        fields.fit("attn_type_list", len(types), num_layers)
        return ["full" if kind else "linear" for kind in types[:num_layers]]
    if fields.key("o_lora_rank"):  # DeepSeek-V4: all windowed, whatever lies beyond
        return ["sliding"] * num_layers
    if (types := fields.sizes("hybrid_layer_pattern")) is not None:  # MiMo: 1 windowed, 0 full
        fields.fit("hybrid_layer_pattern", len(types), num_layers)
        return ["sliding" if kind else "full" for kind in types[:num_layers]]
    if (ropes := fields.sizes("no_rope_layers")) and fields.size("attention_chunk_size"):  # Llama 4: 1 rotates
        fields.fit("no_rope_layers", len(ropes), num_layers)
        return ["chunked" if rope else "full" for rope in ropes[:num_layers]]
    return None


def periodic_mixers(fields: FamilyFields, num_layers: int) -> list[Mixer] | None:
    """Mixers that alternate in a fixed rhythm; None where the config has none."""
    if every := fields.size("full_attention_interval"):
        return ["full" if (i + 1) % every == 0 else "linear" for i in range(num_layers)]
    if period := fields.size("attn_layer_period"):  # Jamba
        offset = fields.size("attn_layer_offset", lowest=0) or 0
        return ["full" if i % period == offset else "mamba" for i in range(num_layers)]
    if words := fields.words("block_types"):  # Griffin
        check_words(fields, "block_types", words)
        kinds = [MIXERS[word] for word in words]
        return ["sliding" if kinds[i % len(kinds)] == "full" else kinds[i % len(kinds)] for i in range(num_layers)]
    if rhythm := fields.trait("rhythm"):
        return [MIXERS[rhythm]] * num_layers
    if fields.size("attention_chunk_size"):
        every = fields.size("no_rope_layer_interval") or 4
        return ["full" if (i + 1) % every == 0 else "chunked" for i in range(num_layers)]
    return None


def windowed_mixers(fields: FamilyFields, num_layers: int) -> list[Mixer]:
    """Windowed layers among full ones: a pattern, the first layers full (Qwen2), or every layer windowed (Mistral)."""
    if isinstance(fields.part.get("sliding_window_pattern"), str):  # EXAONE 4: LLLG
        letters = fields.text("sliding_window_pattern") or "L"
        return ["full" if letters[i % len(letters)] == "G" else "sliding" for i in range(num_layers)]
    every = fields.size("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers", lowest=0)
    if every:
        return ["full" if (i + 1) % every == 0 else "sliding" for i in range(num_layers)]
    first = fields.size("max_window_layers", lowest=0) or 0
    return ["sliding" if i >= first else "full" for i in range(num_layers)]


def read_ffns(fields: FamilyFields, num_layers: int) -> list[Ffn]:
    """The FFN of each layer."""
    if not fields.common(*EXPERTS) or (fields.key("is_moe") and not fields.flag("is_moe")):
        return ["dense"] * num_layers
    if fields.key("enable_moe_block") and not fields.flag("enable_moe_block"):
        return ["dense"] * num_layers
    if words := fields.words("mlp_layer_types"):
        if not set(words) <= FFNS.keys():
            raise fields.wrong("mlp_layer_types", f"words out of {', '.join(FFNS)}")
        fields.fit("mlp_layer_types", len(words), num_layers)
        return [FFNS[word] for word in words[:num_layers]]
    return ["moe" if has_experts(fields, i) else "dense" for i in range(num_layers)]


def has_experts(fields: FamilyFields, i: int) -> bool:
    """Whether layer i has experts, by whichever keys the family has for it."""
    if (numbers := fields.sizes("moe_layers", "moe_layer_indices")) is not None:  # Llama 4
        return i in numbers
    if isinstance(fields.part.get("moe_layer_freq"), list):  # MiMo, DeepSeek forks: 1 sparse, 0 dense
        rhythm = fields.sizes("moe_layer_freq") or [1]
        return bool(rhythm[i % len(rhythm)])
    if i in (fields.sizes("mlp_only_layers") or []):
        return False
    if i < (fields.size("first_k_dense_replace", "num_dense_layers", "moe_layer_start_index", lowest=0) or 0):
        return False
    # -1 is the last layer.
    last = fields.part.get("moe_layer_end_index")
    if last not in (None, -1) and i > (fields.size("moe_layer_end_index", lowest=0) or 0):
        return False
    if period := fields.size("expert_layer_period"):  # Jamba
        return i % period == (fields.size("expert_layer_offset", lowest=0) or 0)
    if every := fields.size("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval"):
        return (i + 1) % every == 0
    return i % (fields.size("moe_layer_freq") or 1) == 0
