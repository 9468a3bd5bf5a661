"""Families with keys of their own, and models that are none to draft for."""

from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.models.architecture import Architecture
from codraft.models.memory import kv_bytes
from codraft.models.parameters import count_parameters
from codraft.models.reader import read_architecture

from tests.models.small import LLAMA, MOE, WINDOW, llama_tensors, tensors

PLAIN = {"no_op": False, "replace_with_linear": False}
BLOCKS = [
    {"attention": {**PLAIN, "n_heads_in_group": 4, "window_length": None}, "ffn": {**PLAIN, "ffn_mult": 2.625}},
    {"attention": {**PLAIN, "no_op": True, "n_heads_in_group": None}, "ffn": {**PLAIN, "ffn_mult": 5.25}},
    {"attention": {**PLAIN, "n_heads_in_group": 8}, "ffn": {**PLAIN, "no_op": True, "ffn_mult": None}},
]
SEARCHED = {
    **LLAMA, "model_type": "nemotron-nas", "num_hidden_layers": 3, "num_key_value_heads": None,
    "intermediate_size": None, "block_configs": BLOCKS, "hidden_size": 512,
}  # fmt: skip


def kv_heads(arch: Architecture) -> list[int]:
    """KV heads of each layer, 0 without attention."""
    return [0 if layer.attention is None else layer.attention.num_kv_heads for layer in arch.layers]


def test_blocks_of_a_search_may_lack_attention_or_ffn() -> None:
    arch = read_architecture(SEARCHED)
    assert kv_heads(arch) == [2, 0, 1]
    assert [layer.width for layer in arch.layers] == [1024, 1792, None]
    assert [(layer.mixer, layer.ffn) for layer in arch.layers] == [
        ("full", "dense"),
        ("none", "dense"),
        ("full", "none"),
    ]
    assert (arch.G, kv_bytes(arch).per_token) == (4, 3 * 2 * 64 * 2)
    assert count_parameters(arch) is not None


def test_a_block_that_is_one_matrix_is_not_counted_from_the_config() -> None:
    blocks = [{**BLOCKS[0], "ffn": {"replace_with_linear": True}}, *BLOCKS[1:]]
    arch = read_architecture({**SEARCHED, "block_configs": blocks})
    assert count_parameters(arch) is None
    assert kv_heads(arch) == [2, 0, 1]
    assert any("one matrix" in sentence for sentence in arch.assumed)


def test_kv_heads_may_be_listed_by_layer() -> None:
    config = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    arch = read_architecture({**config, "model_type": "deci", "num_key_value_heads_per_layer": [4, 4, 2, 1, 1, 8]})
    assert kv_heads(arch) == [4, 4, 2, 1, 1, 8]
    assert kv_bytes(arch).per_token == 20 * 2 * 8 * 2
    assert arch.G == 2


def test_windowed_layers_of_step_have_heads_of_their_own_and_the_first_theta_is_taken() -> None:
    other = {"attention_type": "sliding_attention", "num_attention_heads": 12, "num_attention_groups": 4}
    config = {
        **MOE, **WINDOW, "model_type": "step3p5", "num_key_value_heads": None, "num_attention_groups": 2,
        "head_dim": 8, "attention_other_setting": other, "layer_types": ["full_attention", "sliding_attention"] * 3,
        "moe_layers_enum": "1, 2,5", "rope_theta": [5e6, 1e4], "partial_rotary_factors": [0.5, 1.0],
    }  # fmt: skip
    arch = read_architecture(config)
    assert [(a.num_heads, a.num_kv_heads) for layer in arch.layers if (a := layer.attention)] == [(8, 2), (12, 4)] * 3
    assert [layer.ffn for layer in arch.layers] == ["dense", "moe", "moe", "dense", "dense", "moe"]
    assert arch.rope is not None
    assert (arch.rope.theta, arch.rope.partial) == (5e6, 0.5)
    assert "rope_theta is a list by layer; the first is taken" in arch.assumed


def test_sizes_of_latent_attention_that_is_not_used_are_ignored() -> None:
    sizes = {"use_mla": False, "kv_lora_rank": 8, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0}
    arch = read_architecture({**LLAMA, "model_type": "deepseek_v2", "n_routed_experts": 0, **sizes})
    assert arch.layers == read_architecture({**LLAMA, "v_head_dim": 0}).layers == read_architecture(LLAMA).layers


@pytest.mark.parametrize(
    "name",
    ["bert", "roberta", "xlm-roberta", "distilbert", "deberta-v2", "electra", "clip", "clip_text_model",
     "siglip2_text_model", "t5", "umt5", "mt5", "bart", "mbart", "whisper", "wav2vec2-bert", "trocr", "xlnet"],
)  # fmt: skip
def test_an_encoder_is_no_decoder_only_language_model(name: str) -> None:
    for config in ({**LLAMA, "model_type": name}, {"model_type": "x", "text_config": {**LLAMA, "model_type": name}}):
        with pytest.raises(SpecError, match=rf"model_type '{name}' is no decoder-only language model"):
            read_architecture(config)


def test_an_encoder_that_is_set_up_as_a_decoder_is_read_but_not_counted() -> None:
    decoder = {"decoder_layers": 3, "decoder_attention_heads": 4, "decoder_ffn_dim": 32, "num_hidden_layers": 9}
    arch = read_architecture(
        {**LLAMA, "model_type": "bart", "is_decoder": True, "num_key_value_heads": None, **decoder}
    )
    assert (len(arch.layers), arch.num_heads, arch.layers[0].width, arch.rope) == (3, 4, 32, None)
    assert count_parameters(arch) is None
    factorised = {**LLAMA, "model_type": "rembert", "is_decoder": True}
    assert read_architecture(factorised, llama_tensors(embed_tokens=(100, 16), lm_head=None)).disagreements == []


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"model_type": "rwkv"}, "its layers are of a kind of their own"),
        ({"model_type": "ernie4_5_moe_vl", "moe_layer_start_index": [1, 1]}, "moe_layer_start_index is a list"),
        ({"model_type": "plamo2", "mamba_enabled": True}, "mamba_enabled is true"),
        ({"model_type": "new", "intermediate_size": None}, "no intermediate_size is there"),
        ({"model_type": "new", "num_attention_heads": None}, "no num_attention_heads is there"),
        ({"model_type": "new", "num_hidden_layers": [6]}, "num_hidden_layers is of a kind of its own"),
        ({"model_type": "openelm"}, "num_query_heads, num_kv_heads or ffn_multipliers is no list"),
        ({**SEARCHED, "block_configs": [{**BLOCKS[0], "attention": {"window_length": 9}}] * 3}, "window_length is set"),
    ],
)  # fmt: skip
def test_keys_that_are_not_known_are_codrafts_fault_and_not_the_files(keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(SpecError, match="codraft does not know the keys of model_type") as caught:
        read_architecture({**LLAMA, "model_dim": 64, **keys})
    assert reason in str(caught.value)
    assert "check the file" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({**SEARCHED, "block_configs": BLOCKS[:2]}, "block_configs has 2 entries for 3 layers"),
        ({**SEARCHED, "block_configs": [3] * 3}, "expected a list of objects"),
        ({**MOE, "moe_layers_enum": "1,x"}, "expected numbers of layers with commas between"),
        ({"partial_rotary_factors": [0.5, None]}, "expected a list of positive numbers"),
    ],
)
def test_what_cannot_be_in_keys_of_their_own_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=r"config\.json") as caught:
        read_architecture({**LLAMA, **keys})
    assert words in str(caught.value)


def test_a_projected_embedding_is_no_contradiction() -> None:
    config = {
        "model_type": "opt", "hidden_size": 64, "word_embed_proj_dim": 16, "num_hidden_layers": 6, "vocab_size": 100,
        "num_attention_heads": 8, "ffn_dim": 96,
    }  # fmt: skip
    found = llama_tensors("model.decoder.", embed_tokens=(100, 16), k_proj=(64, 64), v_proj=(64, 64), lm_head=None)
    assert read_architecture(config, found).disagreements == []
    wider = tensors({"model.decoder.embed_tokens.weight": (100, 32)})
    differs = read_architecture(config, wider).disagreements
    assert [(item.key, item.config, item.headers) for item in differs] == [("word_embed_proj_dim", 16, 32)]
