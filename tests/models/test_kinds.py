"""Kinds of layers by any of the keys in use, their windows, experts and heads."""

from collections.abc import Mapping
from typing import Any

import pytest

from codraft.models.reader import read_architecture

from tests.models.small import BLOCKS, GDN, KDA, LATENT, LLAMA, MAMBA, MOE, PATTERN, RHYTHM, WINDOW

LETTERS = {
    "full": "F",
    "sliding": "S",
    "chunked": "C",
    "mla": "L",
    "linear": "R",
    "mamba": "M",
    "conv": "V",
    "none": "-",
}


def mixers(config: Mapping[str, Any]) -> str:
    """A letter for each layer's mixer."""
    return "".join(LETTERS[layer.mixer] for layer in read_architecture(config).layers)


def ffns(config: Mapping[str, Any]) -> str:
    """A letter for each layer's FFN: dense, experts, none."""
    return "".join({"dense": "d", "moe": "e", "none": "-"}[layer.ffn] for layer in read_architecture(config).layers)


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, "FFFFFF"),
        (WINDOW, "SSSSSS"),
        ({**WINDOW, "sliding_window": None}, "FFFFFF"),
        ({**WINDOW, "sliding_window": 0}, "FFFFFF"),
        ({"sliding_window": -1}, "FFFFFF"),
        ({**WINDOW, "max_position_embeddings": 17}, "SSSSSS"),
        ({**WINDOW, "max_position_embeddings": 16}, "FFFFFF"),
        ({**WINDOW, "max_position_embeddings": 15.0}, "FFFFFF"),
        ({**WINDOW, "max_position_embeddings": 8, "rope_scaling": {"type": "yarn", "factor": 4}}, "SSSSSS"),
        ({"attention_chunk_size": 8, "max_position_embeddings": 8}, "FFFFFF"),
        ({**WINDOW, "layer_types": RHYTHM}, "SFSFSF"),
        ({"layer_types": RHYTHM}, "FFFFFF"),
        ({**WINDOW, "layer_types": [*RHYTHM, "full_attention"]}, "SFSFSF"),
        ({**WINDOW, "sliding_window_pattern": 3}, "SSFSSF"),
        ({**WINDOW, "sliding_window_pattern": "LLLG"}, "SSSFSS"),
        ({**WINDOW, "global_attn_every_n_layers": 4}, "SSSFSS"),
        ({**WINDOW, "hybrid_layer_pattern": [0, 1, 1, 0, 1, 0]}, "FSSFSF"),
        ({**WINDOW, "use_sliding_window": False}, "FFFFFF"),
        ({**WINDOW, "model_type": "qwen2"}, "FFFFFF"),
        ({**WINDOW, "model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 4}, "FFFFSS"),
        ({**WINDOW, "model_type": "gemma2"}, "SFSFSF"),
        ({**WINDOW, "model_type": "gpt_oss", "num_local_experts": 2}, "SFSFSF"),
        ({**WINDOW, "model_type": "gemma3_text"}, "SSSSSF"),
        ({**WINDOW, "model_type": "cohere2"}, "SSSFSS"),
        ({"attention_chunk_size": 8, "no_rope_layers": [1, 1, 0, 1, 1, 0]}, "CCFCCF"),
        ({"attention_chunk_size": 8}, "CCCFCC"),
        ({"no_rope_layers": [1, 1, 0, 1, 1, 0]}, "FFFFFF"),
        ({"full_attention_interval": 3, **GDN}, "RRFRRF"),
        ({"model_type": "qwen3_5_text", **GDN}, "RRRFRR"),
        ({"attn_type_list": [0, 1, 0, 1, 0, 1]}, "RFRFRF"),
        (KDA, "RRFRRF"),
        ({**KDA, **LATENT}, "RRLRRL"),
        (LATENT, "LLLLLL"),
        ({"full_attn_idxs": [2, 5]}, "VVFVVF"),
        ({"layer_types": ["conv", "full_attention"] * 3}, "VFVFVF"),
        ({"attn_layer_period": 3, "attn_layer_offset": 1, "mamba_d_state": 8}, "MFMMFM"),
        ({"attn_layer_indices": [0], **MAMBA}, "FMMMMM"),
        ({"layer_types": ["linear_attention", "full_attention"] * 3, **MAMBA}, "MFMFMF"),
        ({"layer_types": ["linear_attention", "full_attention"] * 3, **GDN}, "RFRFRF"),
        ({"block_types": ["recurrent", "recurrent", "attention"], "lru_width": 64, **WINDOW}, "RRSRRS"),
        (PATTERN, "M-M-F-"),
        ({**PATTERN, "hybrid_override_pattern": None, "layers_block_type": BLOCKS}, "M-M-F-"),
    ],
    ids=str,
)  # fmt: skip
def test_layers_mix_as_any_of_the_keys_in_use_says(keys: dict[str, Any], kinds: str) -> None:
    assert mixers({**LLAMA, "moe_intermediate_size": 8, **keys}) == kinds


@pytest.mark.parametrize(
    ("keys", "kinds"),
    [
        ({}, "eeeeee"),
        ({"num_experts": 0}, "dddddd"),
        ({"num_experts": None}, "dddddd"),
        ({"first_k_dense_replace": 2}, "ddeeee"),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddeded"),
        ({"moe_layer_freq": [0, 0, 1, 1, 1, 1]}, "ddeeee"),
        ({"num_dense_layers": 3}, "dddeee"),
        ({"mlp_only_layers": [0, 4]}, "deeede"),
        ({"decoder_sparse_step": 2}, "dedede"),
        ({"interleave_moe_layer_step": 3}, "ddedde"),
        ({"moe_layers": [1, 2]}, "deeddd"),
        ({"mlp_layer_types": ["dense", *["sparse"] * 5]}, "deeeee"),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, "dedede"),
        ({"moe_layer_start_index": 1, "moe_layer_end_index": 4, "moe_layer_interval": 1}, "deeeed"),
        ({"moe_layer_start_index": 2, "moe_layer_end_index": -1}, "ddeeee"),
        ({"enable_moe_block": False}, "dddddd"),
        (PATTERN, "-d-e-e"),
    ],
    ids=str,
)
def test_layers_have_experts_as_any_of_the_keys_in_use_says(keys: dict[str, Any], kinds: str) -> None:
    assert ffns({**MOE, **keys}) == kinds


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, (4, 2, 32, 0, None)),
        ({"num_experts": None, "n_routed_experts": 8, "n_shared_experts": 2}, (8, 2, 32, 64, None)),
        ({"shared_expert_intermediate_size": 40}, (4, 2, 32, 40, None)),
        ({"moe_intermediate_size": None}, (4, 2, 96, 0, None)),
        (
            {"num_experts": None, "num_local_experts": 3, "num_experts_per_tok": None, "moe_topk": 1},
            (3, 1, 32, 0, None),
        ),
        ({"moe_latent_size": 16}, (4, 2, 32, 0, 16)),
        ({"num_experts": [6] * 6, "num_experts_per_tok": [3] * 6}, (6, 3, 32, 0, None)),
    ],
)
def test_experts_are_those_of_the_config(keys: dict[str, Any], expected: tuple[Any, ...]) -> None:
    moe = read_architecture({**MOE, **keys}).layers[0].moe
    assert moe is not None
    assert (moe.num_experts, moe.top_k, moe.width, moe.shared_width, moe.latent) == expected


def test_latent_attention_is_one_kv_head_to_all_query_heads() -> None:
    arch = read_architecture({**LLAMA, **LATENT, "q_lora_rank": 24})
    assert (arch.G, arch.num_kv_heads, arch.head_dim) == (8, 1, 12)
    mla = arch.layers[0].mla
    assert mla is not None
    assert (mla.q_rank, mla.kv_rank, mla.nope_dim, mla.rope_dim, mla.value_dim) == (24, 16, 8, 4, 8)
    assert arch.rope is not None
    assert arch.rope.partial == pytest.approx(1 / 3)


def test_a_model_without_attention_has_no_heads() -> None:
    arch = read_architecture({"model_type": "mamba2", "num_hidden_layers": 2, "hidden_size": 64, "vocab_size": 9})
    assert (arch.num_heads, arch.num_kv_heads, arch.head_dim, arch.G, arch.rope) == (None, None, None, None, None)


def test_windowed_layers_may_have_heads_of_their_own() -> None:
    config = {
        **LLAMA,
        "model_type": "gemma4_text",
        "head_dim": 8,
        "global_head_dim": 16,
        **WINDOW,
        "layer_types": RHYTHM,
    }
    arch = read_architecture({**config, "attention_k_eq_v": True, "num_global_key_value_heads": 1})
    heads = [layer.attention for layer in arch.layers]
    assert [(h.num_kv_heads, h.head_dim, h.shared_projection) for h in heads if h] == [(2, 8, False), (1, 16, True)] * 3
    assert (arch.num_kv_heads, arch.head_dim, arch.window) == (1, 16, 16)
