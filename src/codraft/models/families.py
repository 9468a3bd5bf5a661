"""What a config leaves unsaid because its family's code says it: biases, norms, defaults. Data only.

Read from the modeling and configuration files of transformers 5.19; tests build every family there is and compare.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from codraft.formats.fields import shown

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One family. `style` holds fields of `Style`: a value, a config key that decides, or "value:key".

    `defaults` are those of its config class, `traits` facts that no config key has:

    rhythm: the mixer of layers that nothing else names. rope: False where positions are not rotated. ffn_factor: width
    of an FFN in hidden sizes. ffn_divisor: what the stated width is divided by. shared_experts: a shared expert of the
    experts' width. windowed_kv_factor: KV heads of windowed layers over those of full ones. position_offset: rows of
    the position table beyond the longest text. parallel_mamba: Mamba beside attention in one layer. pure: no FFN.
    table_width: the key of the embedding table's width.
    """

    name: str = ""
    style: Values = field(default_factory=dict)
    defaults: Values = field(default_factory=dict)
    traits: Values = field(default_factory=dict)


# A name without a row of its own that is built like another.
ALIASES = {
    "kimi_k2": "deepseek_v3", "kimi_k25": "deepseek_v3", "deepseek_vl_v2": "deepseek_v2", "axk1": "deepseek_v3",
    "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen2_5_omni_text": "qwen2", "qwen2_audio": "qwen2", "qwen3_vl": "qwen3", "qwen3_vl_text": "qwen3",
    "qwen3_vl_moe": "qwen3_moe", "qwen3_vl_moe_text": "qwen3_moe", "qwen3_omni_moe_text": "qwen3_moe",
    "qwen3_omni_moe_thinker": "qwen3_moe", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen4_exp": "qwen4_exp_text",
    "gemma3": "gemma3_text", "gemma4": "gemma4_text", "gemma3n": "gemma3n_text",
    "gemma4_unified": "gemma4_unified_text",
    "llama4": "llama4_text", "glm4v_text": "glm4", "glm4v_moe_text": "glm4_moe",
    "glm4v_moe": "glm4_moe", "glm46v": "glm4_moe", "minimax_text_01": "minimax", "minimax_m1": "minimax",
    "gpt-sw3": "gpt2", "falcon_mamba": "mamba", "minimax_m3": "minimax_m3_vl_text", "step3p7": "step3p5",
    "granitemoe_swa": "granite_swa",
    "olmo3": "olmo2", "olmoe": "olmo2", "flex_olmo": "olmo2", "exaone_moe": "exaone4", "lfm2_moe": "lfm2",
    "mellum": "hy_v3", "dots1": "hunyuan_v1_dense", "cohere2_moe": "cohere2",
    "refinedweb": "falcon", "refinedwebmodel": "falcon", "ministral3": "mistral3_text",
}  # fmt: skip

BIASED = {"qkv_bias": True, "out_bias": True, "ffn_bias": True}
LAYERNORM = {"gated": False, "norm_vectors": 2}
MAMBA = {"conv_bias": "use_conv_bias", "mixer_bias": "use_bias"}
HYBRID = {"conv_bias": "mamba_conv_bias", "mixer_bias": "mamba_proj_bias"}
GDN_DEFAULTS = {
    "head_dim": 256, "full_attention_interval": 4, "attn_output_gate": True, "partial_rotary_factor": 0.25,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32,
}  # fmt: skip
GDN_STYLE = {"qk_norm": "head", "query_gate": "wide:attn_output_gate", "shared_gate": True}
MLA_DEFAULTS = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
LLAMA_7B = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008}
MISTRAL_7B = {**LLAMA_7B, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 32000}

# name: (style, defaults, traits)
ROWS: dict[str, tuple[Values, Values, Values]] = {
    "llama": ({}, {**LLAMA_7B, "vocab_size": 32000}, {}),
    "mistral": ({}, {**MISTRAL_7B, "sliding_window": 4096}, {}),
    "mixtral": ({}, {**MISTRAL_7B, "num_local_experts": 8, "num_experts_per_tok": 2, "rope_theta": 1e6}, {}),
    "qwen": ({"qkv_bias": True, "out_bias": False}, {}, {"ffn_divisor": 2}),
    "qwen2": (
        {"qkv_bias": True, "out_bias": False},
        {**LLAMA_7B, "intermediate_size": 22016, "vocab_size": 151936, "num_key_value_heads": 32,
         "use_sliding_window": False, "max_window_layers": 28},
        {},
    ),
    "qwen2_moe": (
        {"qkv_bias": "qkv_bias", "out_bias": False, "shared_gate": True},
        {"qkv_bias": True, "use_sliding_window": False, "max_window_layers": 28, "decoder_sparse_step": 1},
        {},
    ),
    "qwen3": (
        {"qk_norm": "head"},
        {**LLAMA_7B, "intermediate_size": 22016, "vocab_size": 151936, "num_key_value_heads": 32, "head_dim": 128,
         "use_sliding_window": False, "max_window_layers": 28},
        {},
    ),
    "qwen3_moe": (
        {"qk_norm": "head"},
        {"num_key_value_heads": 4, "use_sliding_window": False, "decoder_sparse_step": 1, "num_experts": 128,
         "num_experts_per_tok": 8, "moe_intermediate_size": 768},
        {},
    ),
    "qwen3_next": (
        GDN_STYLE,
        {**GDN_DEFAULTS, "num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10,
         "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "decoder_sparse_step": 1},
        {},
    ),
    "qwen3_5_text": (GDN_STYLE, {**GDN_DEFAULTS, "num_key_value_heads": 4, "vocab_size": 248320}, {}),
    "qwen3_5_moe_text": (
        GDN_STYLE,
        {**GDN_DEFAULTS, "num_key_value_heads": 2, "vocab_size": 248320, "num_experts": 256, "num_experts_per_tok": 8,
         "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512},
        {},
    ),
    "qwen4_exp_text": (GDN_STYLE, {}, {}),
    "olmo_hybrid": ({"qk_norm": "full"}, {}, {}),
    "gemma": ({}, {"head_dim": 256, "num_key_value_heads": 16, "tie_word_embeddings": True}, {}),
    "gemma2": (
        {"norms": 4},
        {"head_dim": 256, "num_key_value_heads": 4, "sliding_window": 4096, "sliding_window_pattern": 2,
         "tie_word_embeddings": True},
        {},
    ),
    "gemma3_text": (
        {"norms": 4, "qk_norm": "head"},
        {"vocab_size": 262208, "hidden_size": 2304, "num_hidden_layers": 26, "intermediate_size": 9216,
         "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
         "sliding_window_pattern": 6, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": True},
        {},
    ),
    "gemma4_text": (
        {"norms": 4, "qk_norm": "head"},
        {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "global_head_dim": 512,
         "sliding_window": 512, "sliding_window_pattern": 6, "vocab_size": 262144, "tie_word_embeddings": True},
        {},
    ),
    "gemma4_unified_text": (
        {"norms": 4, "qk_norm": "head"},
        {"head_dim": 256, "global_head_dim": 512, "sliding_window": 1024, "sliding_window_pattern": 6,
         "tie_word_embeddings": True},
        {},
    ),
    "gemma3n_text": (
        {"norms": 4, "qk_norm": "head"},
        {"head_dim": 256, "sliding_window": 512, "sliding_window_pattern": 5, "num_kv_shared_layers": 15,
         "rope_theta": 1e6, "rope_local_base_freq": 1e4, "tie_word_embeddings": True},
        {},
    ),
    "vaultgemma": (
        {},
        {"head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2, "tie_word_embeddings": True},
        {},
    ),
    "recurrent_gemma": (
        {"qkv_bias": "attention_bias", "out_bias": True, "ffn_bias": True, "mixer_bias": True},
        {"head_dim": 256, "attention_window_size": 2048, "conv1d_width": 4, "tie_word_embeddings": True},
        {"ffn_divisor": 2},
    ),
    "deepseek_v2": (
        {},
        {**MLA_DEFAULTS, **LLAMA_7B, "vocab_size": 102400, "moe_intermediate_size": 1407, "n_routed_experts": 64,
         "n_shared_experts": 2, "first_k_dense_replace": 0},
        {},
    ),
    "deepseek_v3": (
        {},
        {**MLA_DEFAULTS, "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8,
         "n_shared_experts": 1, "first_k_dense_replace": 3},
        {},
    ),
    "gpt_oss": (
        {**BIASED, "qkv_bias": "attention_bias", "out_bias": "attention_bias", "router_bias": True, "sinks": "all"},
        {"attention_bias": True, "head_dim": 64, "num_key_value_heads": 8, "sliding_window": 128,
         "sliding_window_pattern": 2, "num_local_experts": 128, "num_experts_per_tok": 4, "rope_theta": 150000.0},
        {},
    ),
    "deepseek_v4": (
        {}, {"sliding_window": 128, "hc_mult": 4, "n_shared_experts": 1, "partial_rotary_factor": 0.125}, {},
    ),
    "glm": ({"out_bias": False}, {"attention_bias": True, "head_dim": 128, "partial_rotary_factor": 0.5}, {}),
    "glm4": (
        {"out_bias": False, "norms": 4}, {"attention_bias": True, "head_dim": 128, "partial_rotary_factor": 0.5}, {},
    ),
    "glm4_moe": (
        {"out_bias": False, "qk_norm": "head:use_qk_norm"},
        {"partial_rotary_factor": 0.5, "n_shared_experts": 1, "first_k_dense_replace": 1},
        {},
    ),
    "minimax": ({}, {"rope_theta": 1e6}, {}),
    "minimax_m2": ({"qk_norm": "full"}, {"rope_theta": 5e6}, {}),
    "minimax_m3_vl_text": ({"qk_norm": "head"}, {"head_dim": 128, "rope_theta": 5e6}, {"shared_experts": 1}),
    "nemotron_h": (
        {**HYBRID, "conv_bias": "use_conv_bias", "gated": False, "norms": 1},
        {"use_conv_bias": True, "mamba_num_heads": 128, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8,
         "conv_kernel": 4, "expand": 2, "head_dim": 128, "num_key_value_heads": 8, "n_shared_experts": 1},
        {"rope": False},
    ),
    "kimi_linear": ({}, {"first_k_dense_replace": 1, "kv_lora_rank": 512}, {}),
    "bamba": (HYBRID, {"mamba_conv_bias": True, "partial_rotary_factor": 0.5}, {"rhythm": "mamba"}),
    "granitemoehybrid": (HYBRID, {"mamba_conv_bias": True}, {"rhythm": "mamba"}),
    "falcon_h1": (
        {**HYBRID, "mixer_norm": "mamba_rms_norm"}, {"mamba_conv_bias": True}, {"parallel_mamba": True},
    ),
    "jamba": (HYBRID, {"mamba_conv_bias": True}, {"rope": False}),
    "mamba": (
        {**MAMBA, "norms": 1, "mixer_norm": False},
        {"use_conv_bias": True, "tie_word_embeddings": True, "state_size": 16, "expand": 2, "conv_kernel": 4},
        {"rhythm": "mamba", "rope": False, "pure": True},
    ),
    "mamba2": (
        {**MAMBA, "norms": 1},
        {"use_conv_bias": True, "state_size": 128, "num_heads": 128, "head_dim": 64, "n_groups": 8, "expand": 2},
        {"rhythm": "mamba", "rope": False, "pure": True},
    ),
    "zamba2": (HYBRID, {"mamba_conv_bias": True, "tie_word_embeddings": True}, {"parallel_mamba": True}),
    "lfm2": (
        {"qk_norm": "head", "conv_bias": "conv_bias"},
        {"tie_word_embeddings": True, "rope_theta": 1e6, "conv_L_cache": 3, "num_dense_layers": 2},
        {},
    ),
    "phi": (
        {**BIASED, **LAYERNORM, "norms": 1, "head_bias": True, "qk_norm": "head:qk_layernorm"},
        {"partial_rotary_factor": 0.5},
        {},
    ),
    "phi3": ({}, {}, {}),
    "phi3small": ({**BIASED, "norm_vectors": 2}, {"tie_word_embeddings": True}, {}),
    "openelm": ({"qk_norm": "head:normalize_qk_projections"}, {}, {}),
    "step3p5": (
        {"qk_norm": "head", "query_gate": "head:use_head_wise_attn_gate"}, {"use_head_wise_attn_gate": True}, {},
    ),
    "phimoe": ({"norm_vectors": 2, "head_bias": "lm_head_bias"}, {"rope_theta": 1e6}, {}),
    "olmo": ({"norm_vectors": 0, "final_norm": False}, {}, {}),
    "olmo2": ({"qk_norm": "full"}, {}, {}),
    "cohere": (
        {"norms": 1, "qk_norm": "full:use_qk_norm"}, {"rope_theta": 5e5, "tie_word_embeddings": True}, {},
    ),
    "cohere2": (
        {"norms": 1}, {"sliding_window": 4096, "sliding_window_pattern": 4, "tie_word_embeddings": True}, {},
    ),
    "exaone4": (
        {"qk_norm": "head"}, {"num_key_value_heads": 32, "sliding_window": 4096, "sliding_window_pattern": 4}, {},
    ),
    "ernie4_5": (
        {"qkv_bias": "use_bias", "out_bias": "use_bias", "ffn_bias": "use_bias"},
        {"head_dim": 128, "rope_theta": 5e5, "tie_word_embeddings": True},
        {},
    ),
    "ernie4_5_moe": (
        {"qkv_bias": "use_bias", "out_bias": "use_bias", "ffn_bias": "use_bias", "router_bias": True},
        {"rope_theta": 5e5, "tie_word_embeddings": True, "moe_k": 6, "moe_num_experts": 64, "moe_layer_start_index": 1},
        {},
    ),
    "smollm3": (
        {}, {"num_key_value_heads": 4, "use_sliding_window": False, "rope_theta": 2e6, "tie_word_embeddings": True}, {},
    ),
    "llama4_text": (
        {},
        {"head_dim": 128, "num_attention_heads": 40, "num_key_value_heads": 8, "attention_chunk_size": 8192,
         "intermediate_size_mlp": 16384, "num_local_experts": 16, "num_experts_per_tok": 1, "rope_theta": 5e5},
        {"shared_experts": 1},
    ),
    "starcoder2": (
        {**LAYERNORM, "qkv_bias": "use_bias", "out_bias": "use_bias", "ffn_bias": "use_bias"},
        {"use_bias": True, "num_key_value_heads": 2, "tie_word_embeddings": True},
        {},
    ),
    "stablelm": (
        {"norm_vectors": 2, "qkv_bias": "use_qkv_bias", "out_bias": False}, {"partial_rotary_factor": 0.25}, {},
    ),
    "seed_oss": ({"out_bias": "attention_out_bias"}, {"attention_bias": True, "head_dim": 128}, {}),
    "gpt2": (
        {**BIASED, **LAYERNORM, "positions": 1},
        {"n_positions": 1024, "tie_word_embeddings": True},
        {"rope": False, "ffn_factor": 4},
    ),
    "openai-gpt": (
        {**BIASED, **LAYERNORM, "positions": 1, "final_norm": False},
        {"n_positions": 512, "tie_word_embeddings": True},
        {"rope": False, "ffn_factor": 4},
    ),
    "gpt_bigcode": (
        {**BIASED, **LAYERNORM, "positions": 1},
        {"n_positions": 1024, "tie_word_embeddings": True, "multi_query": True},
        {"rope": False, "ffn_factor": 4},
    ),
    "gpt_neo": (
        {**BIASED, **LAYERNORM, "qkv_bias": False, "positions": 1},
        {"max_position_embeddings": 2048, "window_size": 256, "tie_word_embeddings": True},
        {"rope": False, "ffn_factor": 4},
    ),
    "ctrl": (
        {**BIASED, **LAYERNORM, "head_bias": True}, {"n_positions": 256, "tie_word_embeddings": True}, {"rope": False},
    ),
    "gptj": ({**LAYERNORM, "ffn_bias": True, "norms": 1, "head_bias": True}, {"rotary_dim": 64}, {"ffn_factor": 4}),
    "codegen": ({**LAYERNORM, "ffn_bias": True, "norms": 1, "head_bias": True}, {"rotary_dim": 64}, {"ffn_factor": 4}),
    "gpt_neox": (
        {**BIASED, **LAYERNORM, "qkv_bias": "attention_bias", "out_bias": "attention_bias"},
        {"attention_bias": True, "rotary_pct": 0.25},
        {},
    ),
    "opt": (
        {**LAYERNORM, "qkv_bias": "enable_bias", "out_bias": "enable_bias", "ffn_bias": "enable_bias", "positions": 1,
         "final_norm": "do_layer_norm_before"},
        {"enable_bias": True, "max_position_embeddings": 2048, "tie_word_embeddings": True,
         "do_layer_norm_before": True},
        {"rope": False, "position_offset": 2, "table_width": "word_embed_proj_dim"},
    ),
    "xglm": ({**BIASED, **LAYERNORM}, {"tie_word_embeddings": True}, {"rope": False}),
    "biogpt": (
        {**BIASED, **LAYERNORM, "positions": 1}, {"tie_word_embeddings": True}, {"rope": False, "position_offset": 2},
    ),
    "bloom": (
        {**BIASED, **LAYERNORM, "embedding_norm": True},
        {"tie_word_embeddings": True},
        {"rope": False, "ffn_factor": 4},
    ),
    "mpt": ({"gated": False}, {"tie_word_embeddings": True, "expansion_ratio": 4}, {"rope": False}),
    "falcon": (
        {**LAYERNORM, "qkv_bias": "bias", "out_bias": "bias", "ffn_bias": "bias"},
        {"multi_query": True, "parallel_attn": True, "tie_word_embeddings": True},
        {"ffn_factor": 4},
    ),
    "persimmon": ({**BIASED, **LAYERNORM, "qk_norm": "head:qk_layernorm"}, {"qk_layernorm": True}, {}),
    "afmoe": ({"norms": 4, "qk_norm": "head", "query_gate": "wide", "router_bias": True}, {"num_dense_layers": 1}, {}),
    "apertus": ({"gated": False, "qk_norm": "head", "scalars": 2}, {"rope_theta": 12e6}, {}),
    "arcee": ({"gated": False}, {}, {}),
    "bitnet": ({"sub_norms": True}, {"rope_theta": 5e5}, {}),
    "granite_swa": ({"sinks": "all"}, {"tie_word_embeddings": True}, {}),
    "hy_v3": ({"qk_norm": "head"}, {"head_dim": 128}, {}),
    "hunyuan_v1_dense": ({"qk_norm": "head"}, {}, {}),
    "hunyuan_v1_moe": ({"qk_norm": "head"}, {}, {"shared_experts": 1}),
    "hyperclovax": ({"norms": 4}, {}, {}),
    "jais2": ({**LAYERNORM}, {"attention_bias": True, "mlp_bias": True}, {}),
    "laguna": ({"qk_norm": "head", "query_gate": "head", "router_bias": True}, {"head_dim": 128}, {}),
    "mimo_v2_flash": ({"sinks": "sliding", "out_bias": False}, {"v_head_dim": 128}, {"windowed_kv_factor": 2}),
    "nanochat": ({"gated": False, "norm_vectors": 0, "final_norm": False}, {}, {}),
    "nemotron": ({**LAYERNORM}, {"partial_rotary_factor": 0.5}, {}),
}  # fmt: skip


def find_family(*model_types: Any) -> Family:
    """The family of the first of these model types that is known; a nameless one, built like Llama, otherwise."""
    for name in model_types:
        if not isinstance(name, str):
            continue
        for known in (name, ALIASES.get(name.lower(), ""), name.removesuffix("_text")):
            if known in ROWS:
                style, defaults, traits = ROWS[known]
                return Family(name=known, style=style, defaults=defaults, traits=traits)
    first = next((name for name in model_types if isinstance(name, str)), "")
    return Family(name=shown(first))


# Built like Llama but for what their configs say; every other name is a guess.
LIKE_LLAMA = (
    "aria_text", "axk1", "cwm", "deepseek_v32", "diffllama", "glm4_moe_lite", "glm_moe_dsa", "granite", "granitemoe",
    "granitemoeshared", "helium", "minicpm3", "mistral3_text", "mistral4", "solar_open", "youtu",
    "internlm2", "internlm3", "baichuan", "aquila", "yi", "exaone", "decilm", "deci", "nemotron-nas",
    "bailing_moe",
)  # fmt: skip
# They have parts that `Architecture` has no words for, so that only headers tell their number of weights.
UNCOUNTED = (
    "axk2", "blt", "doge", "gemma3n_text", "hrm_text", "hy_v4", "inkling_text", "jetmoe", "longcat_flash",
    "mllama_text_model", "modernbert-decoder", "phi4_multimodal", "qwen4_exp_text", "step3_text",
    "zamba", "zamba2", "zaya",
)  # fmt: skip


def usual_style() -> Values:
    """How layers of a family without a row are built: like Llama's."""
    return {"qkv_bias": "attention_bias", "out_bias": "attention_bias", "ffn_bias": "mlp_bias"}
