"""Bytes of caches and states, against formulas written out by hand and against each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.models.architecture import Architecture
from codraft.models.memory import cache_bytes, kv_bytes, kv_bytes_per_token, state_bytes_per_sequence
from codraft.models.reader import read_architecture

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 64, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip
MLA: dict[str, Any] = {
    **LLAMA, "model_type": "deepseek_v3", "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "first_k_dense_replace": 4,
}  # fmt: skip
WINDOWED = {**LLAMA, "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 100}
HYBRID = {
    **LLAMA, "model_type": "qwen3_5_text", "head_dim": 8, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
}  # fmt: skip


def read(config: dict[str, Any]) -> Architecture:
    """The architecture of this config."""
    return read_architecture(config)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_grouped_query_attention_keeps_keys_and_values_of_its_kv_heads(size: int) -> None:
    assert kv_bytes_per_token(read(LLAMA), size) == 4 * 2 * 2 * 8 * size
    assert kv_bytes(read(LLAMA), size).windowed == ()
    assert state_bytes_per_sequence(read(LLAMA)) == 0


def test_values_of_another_width_are_counted_as_such() -> None:
    arch = read({**LLAMA, "head_dim": 24, "v_head_dim": 16})
    assert kv_bytes_per_token(arch) == 4 * 2 * (24 + 16) * 2


def test_latent_attention_keeps_576_numbers_however_many_heads() -> None:
    assert kv_bytes_per_token(read(MLA)) == 4 * 576 * 2
    assert kv_bytes_per_token(read({**MLA, "num_attention_heads": 16, "num_key_value_heads": 16})) == 4 * 576 * 2


def test_an_indexer_keeps_a_key_of_its_own() -> None:
    arch = read({**MLA, "model_type": "deepseek_v32", "index_n_heads": 4, "index_head_dim": 32})
    assert kv_bytes_per_token(arch) == 4 * (576 + 32) * 2


def test_windowed_layers_fill_up_and_full_ones_grow() -> None:
    kept = kv_bytes(read(WINDOWED), 2)
    layer = 2 * 2 * 8 * 2
    assert (kept.per_token, kept.windowed, kept.short) == (2 * layer, ((2 * layer, 100),), 4 * layer)
    assert kept.bound == 2 * layer * 100
    assert kept.at(0) == 0
    assert kept.at(100) == 4 * layer * 100
    assert kept.at(1000) == 2 * layer * 1000 + 2 * layer * 100


def test_chunked_layers_keep_a_chunk() -> None:
    config = {**LLAMA, "model_type": "llama4_text", "attention_chunk_size": 64, "no_rope_layers": [1, 1, 1, 0]}
    kept = kv_bytes(read({**config, "head_dim": 8, "num_experts": 0, "num_local_experts": 0}), 2)
    assert (kept.per_token, kept.windowed) == (64, ((3 * 64, 64),))


def test_layers_that_read_anothers_keys_keep_none() -> None:
    config = {**LLAMA, "num_kv_shared_layers": 3}
    assert kv_bytes_per_token(read(config)) == 2 * 2 * 8 * 2


def test_compressed_attention_keeps_one_vector_per_token_and_fewer_beyond_its_window() -> None:
    config = {
        **LLAMA, "model_type": "deepseek_v4", "num_key_value_heads": 1, "head_dim": 32, "q_lora_rank": 16,
        "o_lora_rank": 16, "o_groups": 2, "n_routed_experts": 4, "num_experts_per_tok": 1, "moe_intermediate_size": 8,
        "index_n_heads": 2, "index_head_dim": 16, "compress_ratios": [0, 128, 4, 128],
    }  # fmt: skip
    kept = kv_bytes(read(config), 2)
    assert kept.windowed == ((4 * 32 * 2, 128),)
    assert kept.per_token == 2 * (2 * 32 / 128 + (32 + 16) / 4)


def test_a_gated_delta_net_keeps_a_matrix_for_each_value_head_and_its_last_inputs() -> None:
    """One layer of Qwen3.5-122B: 4.2 MB of state and 74 KB of convolution."""
    state, conv = 64 * 128 * 128, (2 * 16 + 64) * 128 * 3
    arch = read(HYBRID)
    assert [layer.mixer for layer in arch.layers] == ["linear", "linear", "linear", "full"]
    assert state_bytes_per_sequence(arch) == 3 * (4 * state + 2 * conv)
    assert state_bytes_per_sequence(arch, 2) == 3 * 2 * (state + conv)
    assert kv_bytes_per_token(arch) == 2 * 2 * 8 * 2


def test_mamba_keeps_its_state_per_channel() -> None:
    """A Mamba-2 layer of Nemotron-3-Nano: 64 heads of 64 channels, 128 numbers each (0.52 M values)."""
    config = {
        **LLAMA, "model_type": "nemotron_h", "hybrid_override_pattern": "M*-E", "mamba_num_heads": 64,
        "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 8, "head_dim": 8,
    }  # fmt: skip
    arch = read(config)
    assert state_bytes_per_sequence(arch) == 4 * 524_288 + 2 * 3 * (64 * 64 + 2 * 8 * 128)
    assert kv_bytes_per_token(arch) == 2 * 2 * 8 * 2


def test_the_first_mamba_has_no_groups() -> None:
    arch = read({"model_type": "mamba", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 100, "state_size": 16})
    assert state_bytes_per_sequence(arch) == 2 * (4 * 128 * 16 + 2 * 3 * 128)


def test_attention_and_mamba_side_by_side_keep_both() -> None:
    config = {**LLAMA, "model_type": "falcon_h1", "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16}
    arch = read(config)
    assert kv_bytes_per_token(arch) == kv_bytes_per_token(read(LLAMA))
    assert state_bytes_per_sequence(arch) == 4 * (4 * 128 * 16 + 2 * 3 * (128 + 2 * 16))


def test_a_short_convolution_keeps_all_inputs_of_its_filter_but_one() -> None:
    arch = read({**LLAMA, "model_type": "lfm2", "full_attn_idxs": [1], "conv_L_cache": 3})
    assert state_bytes_per_sequence(arch) == 3 * 64 * 2 * 2


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        (
            {"linear_attn_config": {"full_attn_layers": [4], "num_heads": 2, "head_dim": 16}},
            2 * 16 * 16 * 4 + 3 * 32 * 3 * 2,
        ),
        ({"model_type": "minimax", "attn_type_list": [0, 0, 0, 1]}, 8 * 8 * 8 * 4),
    ],
    ids=["kda", "lightning"],
)  # fmt: skip
def test_other_linear_attention_keeps_its_matrix(keys: dict[str, Any], values: int) -> None:
    assert state_bytes_per_sequence(read({**LLAMA, **keys})) == 3 * values


@given(st.integers(0, 10**6), st.integers(1, 10**5), st.sampled_from([LLAMA, MLA, WINDOWED, HYBRID]))
def test_a_cache_grows_with_its_context_by_no_more_than_the_usual_figure(S: int, more: int, config: Any) -> None:
    arch = read(config)
    kept = kv_bytes(arch)
    grown = cache_bytes(arch, S + more) - cache_bytes(arch, S)
    assert kept.per_token * more <= grown <= kept.short * more
    assert cache_bytes(arch, 0) == state_bytes_per_sequence(arch)
    assert kept.at(S) <= kept.per_token * S + kept.bound
