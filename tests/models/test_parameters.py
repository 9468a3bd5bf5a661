"""Weights counted from a config, against every family that transformers can build and against published figures."""

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import Architecture
from codraft.models.memory import kv_bytes_per_token, state_bytes_per_sequence
from codraft.models.parameters import break_down, count_parameters
from codraft.models.reader import read_architecture

GOLDEN = tomllib.loads((Path(__file__).parents[1] / "golden" / "models.toml").read_text(encoding="utf-8"))["model"]

# Small sizes, no two of which can be mistaken for each other; a family takes those that its config class has.
TINY: dict[str, Any] = {
    "vocab_size": 131, "hidden_size": 96, "num_hidden_layers": 7, "intermediate_size": 136, "head_dim": 20,
    "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": 64, "max_seq_len": 64,
    "n_embd": 96, "n_layer": 7, "n_head": 6, "n_positions": 64, "d_model": 96, "n_layers": 7, "n_heads": 6,
    "num_layers": 7, "num_heads": 6, "ffn_dim": 136, "attention_heads": 6, "rotary_dim": 8, "word_embed_proj_dim": 96,
    "moe_intermediate_size": 40, "num_experts": 6, "num_local_experts": 6, "n_routed_experts": 6, "moe_num_experts": 6,
    "num_experts_per_tok": 2, "moe_topk": 2, "moe_k": 2, "n_shared_experts": 1, "shared_expert_intermediate_size": 56,
    "shared_intermediate_size": 56, "moe_shared_expert_intermediate_size": 56, "intermediate_size_mlp": 72,
    "dense_intermediate_size": 72, "first_k_dense_replace": 1, "num_dense_layers": 1, "attn_layer_period": 3,
    "attn_layer_offset": 1, "kv_lora_rank": 28, "q_lora_rank": 36, "qk_nope_head_dim": 12, "qk_rope_head_dim": 8,
    "v_head_dim": 20, "index_head_dim": 24, "index_n_heads": 3, "o_lora_rank": 16, "o_groups": 2,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 10, "linear_value_head_dim": 14,
    "linear_head_dim": 10, "linear_num_heads": 4, "mamba_n_heads": 4, "mamba_num_heads": 4, "mamba_d_head": 48,
    "mamba_head_dim": 24, "mamba_d_state": 10, "ssm_state_size": 10, "mamba_n_groups": 2, "n_groups": 2,
    "lru_width": 96, "hidden_size_per_layer_input": 12, "vocab_size_per_layer_input": 131,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

ALTERNATE = ["sliding_attention", "full_attention"] * 3
# What a family needs beside, or switches that change its layers; a name with `+` is a variant of the family before it.
FAMILIES: dict[str, dict[str, Any]] = {
    "afmoe": {}, "apertus": {}, "arcee": {}, "aria_text": {}, "bamba": {"attn_layer_indices": [2, 5]}, "biogpt": {},
    "bitnet": {}, "bloom": {}, "codegen": {}, "ctrl": {"dff": 136}, "cohere": {},
    "cohere+norms": {"use_qk_norm": True}, "cohere2": {},
    "cohere2_moe": {}, "cwm": {}, "deepseek_v2": {}, "deepseek_v3": {}, "deepseek_v3+plain": {"q_lora_rank": None},
    "deepseek_v32": {}, "deepseek_v4": {}, "dots1": {}, "ernie4_5": {}, "ernie4_5_moe": {}, "exaone4": {},
    "exaone_moe": {}, "falcon": {}, "falcon+new": {"new_decoder_architecture": True, "num_kv_heads": 2},
    "falcon_h1": {"mamba_d_ssm": 96, "mamba_d_head": 24}, "falcon_mamba": {}, "flex_olmo": {}, "gemma": {},
    "gemma2": {}, "gemma3_text": {}, "gemma4_text": {},
    "gemma4_text+moe": {
        "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "attention_k_eq_v": True, "enable_moe_block": True,
        "num_global_key_value_heads": 1, "top_k_experts": 2, "layer_types": [*ALTERNATE, "full_attention"],
    },
    "gemma4_unified_text": {}, "glm": {}, "glm4": {}, "glm4_moe": {},
    "glm4_moe+norms": {"attention_bias": True, "use_qk_norm": True}, "glm4_moe_lite": {}, "glm_moe_dsa": {},
    "gpt2": {}, "gpt_bigcode": {}, "gpt_neo": {"attention_types": [[["global", "local"], 3], [["global"], 1]]},
    "gpt_neox": {}, "gpt_oss": {}, "gptj": {}, "granite": {},
    "granite+bias": {"attention_bias": True, "mlp_bias": True}, "granite_swa": {}, "granitemoe": {},
    "granitemoe_swa": {}, "granitemoeshared": {},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 3 + ["mamba"]}, "helium": {"head_dim": 16},
    "hunyuan_v1_dense": {}, "hunyuan_v1_moe": {}, "hy_v3": {}, "hyperclovax": {"use_post_norm": True}, "jais2": {},
    "jamba": {}, "kimi_linear": {}, "lfm2": {"full_attn_idxs": [2, 5]},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 3 + ["conv"]}, "llama": {}, "llama4_text": {},
    "llama4_text+dense": {"interleave_moe_layer_step": 2}, "mamba": {},
    "mamba2": {"num_heads": 8, "head_dim": 24, "state_size": 10}, "mellum": {}, "mimo_v2_flash": {}, "minicpm3": {},
    "minimax": {}, "minimax_m2": {}, "minimax_m3_vl_text": {}, "ministral": {}, "ministral3": {}, "mistral": {},
    "mixtral": {}, "mpt": {}, "nanochat": {}, "nemotron": {}, "nemotron_h": {},
    "nemotron_h+latent": {
        "moe_latent_size": 16, "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
    },
    "olmo": {}, "olmo2": {}, "olmo3": {}, "olmo_hybrid": {}, "olmoe": {}, "openai-gpt": {}, "opt": {},
    "opt+narrow": {"word_embed_proj_dim": 32, "do_layer_norm_before": False}, "persimmon": {},
    "phi": {}, "phi3": {}, "phimoe": {}, "qwen2": {}, "qwen2_moe": {}, "qwen3": {},
    "qwen2+window": {"use_sliding_window": True, "max_window_layers": 3, "sliding_window": 16}, "qwen3_5_text": {},
    "qwen3_5_moe_text": {}, "qwen3_moe": {}, "qwen3_moe+dense": {"mlp_only_layers": [1], "decoder_sparse_step": 2},
    "qwen3_next": {}, "recurrent_gemma": {}, "seed_oss": {}, "smollm3": {}, "solar_open": {}, "stablelm": {},
    "stablelm+bias": {"use_qkv_bias": True}, "starcoder2": {}, "vaultgemma": {}, "xglm": {}, "youtu": {},
}  # fmt: skip

# Families that are not counted to the weight: the relative error allowed at this size, and why.
INEXACT = {
    "axk1": (1e-3, "one more norm where experts are"),
    "diffllama": (2e-3, "lambdas of its differential attention"),
}
# Headers that hold a parameter which other families keep as a buffer, by the weights that are missed.
ROUTER_BIAS = {"ernie4_5_moe": 36, "laguna": 36}


@cache
def built(name: str) -> tuple[dict[str, Any], dict[str, int], dict[str, tuple[int, ...]]]:
    """(config.json, weights by parameter, shapes of what a checkpoint holds) of a small model of that family."""
    import torch
    from transformers import AutoModelForCausalLM, logging
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    logging.set_verbosity_error()
    kind = CONFIG_MAPPING[name.partition("+")[0]]
    own = {key: value for key, value in TINY.items() if key in kind.__dataclass_fields__}
    config = kind(**{**own, **FAMILIES.get(name, {})})
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    weights = {key: value.numel() for key, value in model.named_parameters()}
    buffers = {key for key, _ in model.named_buffers()}
    shapes = {key: tuple(value.shape) for key, value in model.state_dict().items() if key in weights or key in buffers}
    return config.to_dict(), weights, shapes


def headers(shapes: dict[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, TensorInfo]:
    """Headers of these shapes, in one file."""
    return {
        name: TensorInfo(name=name, dtype=dtype, shape=shape, file="model.safetensors", start=0, stop=0)
        for name, shape in shapes.items()
    }


def read(name: str) -> Architecture:
    """The architecture that the family's small config describes."""
    return read_architecture(built(name)[0])


@pytest.mark.parametrize("name", [*FAMILIES, *INEXACT, "laguna"])
def test_a_config_is_counted_as_transformers_builds_it(name: str) -> None:
    counted = count_parameters(read(name))
    assert counted is not None
    weights = sum(built(name)[1].values())
    allowed, _ = INEXACT.get(name, (0, ""))
    assert abs(counted.total - weights) <= allowed * weights
    assert counted.basis == "config"


@pytest.mark.parametrize("name", [*FAMILIES, "laguna"])
def test_headers_and_config_agree_on_every_part(name: str) -> None:
    config, weights, shapes = built(name)
    tensors = headers(shapes)
    arch = read_architecture(config, tensors)
    counted, expected = count_parameters(arch, tensors), count_parameters(read(name))
    assert counted is not None
    assert expected is not None
    missed = ROUTER_BIAS.get(name, 0)
    total, active = sum(weights.values()) - missed, expected.active - missed
    assert counted == replace(expected, total=total, active=active, mtp=0, basis="headers")
    assert arch.disagreements == []
    assert arch.layers == read(name).layers


@pytest.mark.parametrize("name", [name for name in FAMILIES if "+" not in name])
def test_active_weights_leave_out_the_experts_that_are_not_picked(name: str) -> None:
    arch = read(name)
    counted = count_parameters(arch)
    assert counted is not None
    experts = sum(size for key, size in built(name)[1].items() if ".experts." in key and "shared" not in key)
    moe = next((layer.moe for layer in arch.layers if layer.moe), None)
    idle = 0 if moe is None else experts * (moe.num_experts - moe.top_k) // moe.num_experts
    looked_up = counted.embedding if counted.head else 0
    assert counted.total - counted.active == idle + looked_up
    assert (moe is None) == (experts == 0)


def layer_numbers() -> Iterator[Any]:
    """Each family whose k_proj or fused projection tells the width of a head."""
    for name in FAMILIES:
        if "+" not in name and any(key.endswith(".k_proj.weight") for key in built(name)[2]):
            yield name


def test_head_widths_are_those_of_the_projections() -> None:
    for name in layer_numbers():
        arch, shapes = read(name), built(name)[2]
        for number, layer in enumerate(arch.layers):
            keys = [
                shape for key, shape in shapes.items() if f".{number}." in key and key.endswith("attn.k_proj.weight")
            ]
            if layer.attention is not None and keys:
                assert keys[0][0] == layer.attention.num_kv_heads * layer.attention.head_dim, name


def test_parts_of_a_layer_add_up_to_the_whole() -> None:
    for name in FAMILIES:
        arch = read(name)
        parts, counted = break_down(arch), count_parameters(arch)
        assert counted is not None
        assert (parts.total, parts.active) == (counted.total, counted.active)
        assert len(parts.layers) == len(arch.layers)
        for layer, count in zip(arch.layers, parts.layers, strict=True):
            assert (count.experts > 0) == (layer.ffn == "moe")
            assert (count.dense > 0) == (layer.width is not None)
            assert (count.attention > 0) == (layer.attention is not None or layer.mla is not None)
            assert (count.recurrent > 0) == (layer.mixer in ("linear", "mamba", "conv") or layer.mamba is not None)


@pytest.mark.parametrize("model", GOLDEN, ids=lambda model: model["name"])
def test_published_figures_come_out(model: dict[str, Any]) -> None:
    arch = read_architecture(model["config"])
    counted = count_parameters(arch)
    assert counted is not None
    assert counted.total == pytest.approx(model["total"], rel=model["within"], abs=0)
    if "active" in model:
        left_out = {
            "with embedding": -counted.embedding if counted.head else 0,
            "without embedding": 0 if counted.head else counted.embedding,
            "without both": counted.head or counted.embedding,
        }[model["active_of"]]
        assert counted.active - left_out == pytest.approx(model["active"], rel=model["active_within"])
    if "mtp" in model:
        assert counted.mtp == pytest.approx(model["mtp"], rel=model["mtp_within"])
    if "embedding_share" in model:
        assert counted.embedding / counted.total == pytest.approx(model["embedding_share"], abs=0.005)
    if "G" in model:
        assert model["G"] == arch.G
    if "kv" in model:
        assert kv_bytes_per_token(arch) == model["kv"]
    if "state" in model:
        assert state_bytes_per_sequence(arch) / 1e6 == pytest.approx(model["state"], abs=0.05)


def test_every_known_model_names_its_source() -> None:
    assert all(model["source"] for model in GOLDEN)
    assert len({model["config"].get("text_config", model["config"])["model_type"] for model in GOLDEN}) >= 20


def test_weights_packed_several_to_an_element_are_counted_from_the_config() -> None:
    config, weights, shapes = built("llama")
    packed = {
        name: replace(info, dtype="I32", shape=(info.shape[0], info.shape[1] // 8), name=name)
        if name.endswith("_proj.weight")
        else info
        for name, info in headers(shapes).items()
    }
    counted = count_parameters(read_architecture(config, packed), packed)
    assert counted is not None
    assert (counted.total, counted.basis) == (sum(weights.values()), "config")


def test_scales_beside_fp8_weights_are_not_weights() -> None:
    config, weights, shapes = built("deepseek_v3")
    scales = {f"{name}_scale_inv": (1, 1) for name in shapes if name.endswith("_proj.weight")}
    counted = count_parameters(read_architecture(config), headers({**shapes, **scales}, "F8_E4M3"))
    assert counted is not None
    assert (counted.total, counted.basis) == (sum(weights.values()), "headers")


def test_a_shard_that_is_missing_does_not_make_the_model_smaller() -> None:
    config, weights, shapes = built("qwen3")
    some = {name: shape for name, shape in shapes.items() if ".layers.3." not in name}
    counted = count_parameters(read_architecture(config), headers(some))
    assert counted is not None
    assert (counted.total, counted.basis) == (sum(weights.values()), "config")


def test_towers_and_mtp_modules_are_not_in_the_total() -> None:
    config, weights, shapes = built("qwen3_5_text")
    more = {
        "model.visual.blocks.0.attn.qkv.weight": (64, 64),
        "mtp.fc.weight": (96, 192),
        "mtp.layers.0.mlp.up_proj.weight": (136, 96),
    }
    tensors = headers(
        {**{f"model.language_model.{key.removeprefix('model.')}": s for key, s in shapes.items()}, **more}
    )
    counted = count_parameters(read_architecture(config, tensors), tensors)
    assert counted is not None
    assert (counted.total, counted.mtp) == (sum(weights.values()), 96 * 192 + 136 * 96)


def test_what_an_mtp_module_repeats_is_not_counted_again() -> None:
    config, weights, shapes = built("deepseek_v3")
    module = {
        "model.layers.7.eh_proj.weight": (96, 192),
        "model.layers.7.embed_tokens.weight": (131, 96),
        "model.layers.7.shared_head.head.weight": (131, 96),
        "model.layers.7.self_attn.o_proj.weight": (96, 120),
    }
    tensors = headers({**shapes, **module})
    arch = read_architecture(config, tensors)
    counted = count_parameters(arch, tensors)
    assert counted is not None
    assert arch.disagreements == []
    assert (counted.total, counted.mtp, counted.basis) == (sum(weights.values()), 96 * 192 + 96 * 120, "headers")


def test_a_head_stored_by_a_tied_model_is_a_copy() -> None:
    config, weights, shapes = built("gemma2")
    tensors = headers({**shapes, "lm_head.weight": (131, 96)})
    arch = read_architecture(config, tensors)
    counted = count_parameters(arch, tensors)
    assert counted is not None
    assert arch.tied
    assert (counted.total, counted.head) == (sum(weights.values()), 0)


@pytest.mark.parametrize("name", ["longcat_flash", "modernbert-decoder", "jetmoe"])
def test_a_family_with_parts_unknown_here_is_counted_from_its_headers_alone(name: str) -> None:
    arch = read_architecture(
        {"model_type": name, "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2,
         "intermediate_size": 16, "vocab_size": 32}
    )  # fmt: skip
    assert count_parameters(arch) is None
    assert any("not described here" in sentence for sentence in arch.assumed)
