"""What tensor headers prove of a model, and where they contradict its config."""

from typing import Any

import pytest

from codraft.models.parameters import count_parameters
from codraft.models.reader import read_architecture

from tests.models.small import LLAMA, MOE, llama_tensors, tensors


@pytest.mark.parametrize(
    "prefix",
    ["model.", "model.language_model.", "language_model.model.", "backbone.", "transformer.", "", "thinker.model."],
)
def test_headers_prove_a_width_whatever_the_prefix(prefix: str) -> None:
    wide = llama_tensors(prefix, k_proj=(48, 64), q_proj=(192, 64), o_proj=(64, 192))
    wide |= tensors({f"vision_tower.layers.{i}.self_attn.k_proj.weight": (64, 64) for i in range(30)})
    arch = read_architecture(LLAMA, wide)
    assert (arch.head_dim, arch.head_dim_basis, arch.assumed) == (24, "headers", [])
    assert arch.disagreements == []
    assert {layer.attention.head_dim for layer in arch.layers if layer.attention} == {24}


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("self_attn.qkv_proj.weight", (12 * 24, 64)),
        ("attention.query_key_value.weight", (12 * 24, 64)),
        ("attn.c_attn.weight", (64, 12 * 24)),
        ("self_attn.q_norm.weight", (24,)),
    ],
)
def test_fused_projections_and_norms_prove_a_width_too(name: str, shape: tuple[int, ...]) -> None:
    found = tensors({f"model.layers.{i}.{name}": shape for i in range(6)})
    if len(shape) == 1:
        found |= tensors({f"model.layers.{i}.self_attn.k_proj.weight": (48, 64) for i in range(6)})
    arch = read_architecture(LLAMA, found)
    assert (arch.head_dim, arch.head_dim_basis) == (24, "headers")


def test_packed_weights_prove_a_width_by_their_rows() -> None:
    names = {f"model.layers.{i}.self_attn.k_proj.weight_packed": (48, 8) for i in range(6)}
    assert read_architecture(LLAMA, tensors(names, "I32")).head_dim == 24


@pytest.mark.parametrize(
    ("config", "changed", "key", "stated", "found"),
    [
        ({"num_key_value_heads": 4, "head_dim": 8}, {}, "num_key_value_heads", 4, 2),
        ({"head_dim": 16}, {}, "head_dim", 16, 8),
        ({"hidden_size": 64}, {"embed_tokens": (100, 32)}, "hidden_size", 64, 32),
        ({"vocab_size": 110}, {}, "vocab_size", 110, 100),
        ({"vocab_size": 90}, {"embed_tokens": (2000, 64)}, "vocab_size", 90, 2000),
        ({"tie_word_embeddings": False}, {"lm_head": None}, "tie_word_embeddings", False, True),
    ],
)
def test_what_headers_prove_against_the_config_is_kept(
    config: dict[str, Any], changed: dict[str, Any], key: str, stated: Any, found: Any
) -> None:
    arch = read_architecture({**LLAMA, **config}, llama_tensors(**changed))
    assert [(d.key, d.config, d.headers) for d in arch.disagreements] == [(key, stated, found)]
    assert arch.disagreements[0].tensor
    assert (arch.num_kv_heads, arch.head_dim) == (2, 8)


def test_a_disagreement_names_the_key_of_a_nested_config() -> None:
    arch = read_architecture({"text_config": {**LLAMA, "vocab_size": 101}}, llama_tensors())
    assert [d.key for d in arch.disagreements] == ["text_config.vocab_size"]


def test_the_number_of_layers_stays_the_configs() -> None:
    arch = read_architecture(LLAMA, llama_tensors(layers=5))
    assert [(d.key, d.config, d.headers) for d in arch.disagreements] == [("num_hidden_layers", 6, 5)]
    assert len(arch.layers) == 6


@pytest.mark.parametrize("stacked", [True, False])
def test_experts_are_those_that_are_stored(stacked: bool) -> None:
    one = {"mlp.experts.gate_up_proj": (8, 64, 64)}
    many = {f"mlp.experts.{e}.up_proj.weight": (32, 64) for e in range(8)}
    found = {f"model.layers.{i}.{name}": shape for i in range(6) for name, shape in (one if stacked else many).items()}
    arch = read_architecture(MOE, llama_tensors() | tensors(found))
    assert [(d.key, d.config, d.headers) for d in arch.disagreements] == [("num_experts", 4, 8)]
    assert arch.layers[0].moe is not None
    assert arch.layers[0].moe.num_experts == 8


def test_an_mtp_module_after_the_last_layer_is_no_layer() -> None:
    module = tensors({"model.layers.6.eh_proj.weight": (64, 128), "model.layers.6.enorm.weight": (64,)})
    arch = read_architecture(LLAMA, llama_tensors() | module)
    assert (arch.disagreements, arch.mtp_layers) == ([], 1)


def test_headers_settle_a_tie_that_nothing_names() -> None:
    arch = read_architecture(LLAMA, llama_tensors(lm_head=None))
    assert (arch.tied, arch.disagreements) == (True, [])
    gemma = read_architecture({**LLAMA, "model_type": "gemma", "head_dim": 8}, llama_tensors())
    assert (gemma.tied, gemma.disagreements) == (True, [])


def test_a_few_rows_more_than_the_vocabulary_are_padding() -> None:
    assert read_architecture({**LLAMA, "vocab_size": 92}, llama_tensors()).disagreements == []


@pytest.mark.parametrize("outer", [True, False])
def test_a_tie_that_either_level_states_is_no_contradiction(outer: bool) -> None:
    config = {"tie_word_embeddings": outer, "text_config": {**LLAMA, "tie_word_embeddings": not outer}}
    arch = read_architecture(config, llama_tensors(lm_head=None))
    assert (arch.tied, arch.disagreements) == (True, [])


@pytest.mark.parametrize(
    "foreign",
    [
        {"qformer.embeddings.word_embeddings.weight": (30523, 768)},
        {f"model.protein_encoder.encoder.layer.{i}.attention.self.query.weight": (32, 32) for i in range(33)},
    ],
)
def test_towers_prove_nothing_of_the_language_model(foreign: dict[str, tuple[int, ...]]) -> None:
    assert read_architecture(LLAMA, tensors(foreign) | llama_tensors()).disagreements == []


def test_a_family_that_runs_its_layers_several_times_has_as_many_as_its_config_says() -> None:
    arch = read_architecture({**LLAMA, "model_type": "hrm_text"}, llama_tensors(layers=2))
    assert (len(arch.layers), arch.disagreements) == (6, [])


@pytest.mark.parametrize("digits", ["9" * 5000, "1234567", "\u0663"])
def test_a_number_that_no_layer_and_no_expert_has_is_none(digits: str) -> None:
    odd = {
        f"model.layers.{digits}.mlp.up_proj.weight": (96, 64),
        f"model.layers.0.mlp.experts.{digits}.up_proj.weight": (32, 64),
    }
    found = llama_tensors() | tensors(odd)
    arch = read_architecture(MOE, found)
    assert (len(arch.layers), arch.disagreements) == (6, [])
    assert count_parameters(arch, found) is not None
