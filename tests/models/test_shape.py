"""The numbers of a config.json that the guidelines need."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.models.shape import Shape, checkpoint_dtype, read_shape

SMOLLM2 = {
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "vocab_size": 49152,
}
# SmolLM2-135M has 134,515,008 parameters, of which 61 norms of 576 are not read as matrices.
SMOLLM2_FFN = 30 * 3 * 576 * 1536
SMOLLM2_LINEAR = 134_515_008 - 61 * 576


def folder_with(folder: Path, config: Any) -> Path:
    """A folder with this config.json."""
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return folder


def test_the_shape_of_a_known_model_is_counted_to_the_parameter(tmp_path: Path) -> None:
    assert read_shape(folder_with(tmp_path, SMOLLM2), 128) == Shape(
        G=3,
        ffn_params=SMOLLM2_FFN,
        other_params=SMOLLM2_LINEAR - SMOLLM2_FFN,
        kv_elements_per_token=2 * 30 * 3 * 64,
        tile=128,
    )


def test_heads_of_a_width_of_their_own_change_attention_and_cache(tmp_path: Path) -> None:
    plain = read_shape(folder_with(tmp_path, SMOLLM2), None)
    wide = read_shape(folder_with(tmp_path, {**SMOLLM2, "head_dim": 128}), None)
    assert plain is not None
    assert wide is not None
    assert wide.kv_elements_per_token == 2 * plain.kv_elements_per_token
    assert wide.other_params - plain.other_params == 30 * 576 * 64 * (2 * 9 + 2 * 3)
    assert wide.tile is None


def test_without_key_value_heads_every_head_has_its_own(tmp_path: Path) -> None:
    config = {key: value for key, value in SMOLLM2.items() if key != "num_key_value_heads"}
    shape = read_shape(folder_with(tmp_path, config), None)
    assert shape is not None
    assert (shape.G, shape.kv_elements_per_token) == (1, 2 * 30 * 9 * 64)


def test_a_model_with_a_text_part_is_read_there(tmp_path: Path) -> None:
    shape = read_shape(folder_with(tmp_path, {"vision_config": {}, "text_config": SMOLLM2}), None)
    assert shape is not None
    assert shape.ffn_params + shape.other_params == SMOLLM2_LINEAR


@pytest.mark.parametrize("key", sorted(SMOLLM2.keys() - {"num_key_value_heads"}))
def test_a_config_that_does_not_say_enough_has_no_shape(key: str, tmp_path: Path) -> None:
    assert read_shape(folder_with(tmp_path, {k: v for k, v in SMOLLM2.items() if k != key}), 128) is None


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        "3",
        "[" * 100_000,
        {**SMOLLM2, "num_attention_heads": 0},
        {**SMOLLM2, "num_key_value_heads": [3]},
    ],
)
def test_a_config_that_makes_no_sense_has_no_shape(config: Any, tmp_path: Path) -> None:
    assert read_shape(folder_with(tmp_path, config), 128) is None


def test_a_folder_without_a_config_has_no_shape(tmp_path: Path) -> None:
    assert read_shape(tmp_path, 128) is None


MLA = {"kv_lora_rank": 64, "qk_nope_head_dim": 32, "qk_rope_head_dim": 16}
KINDS = ["full_attention", "linear_attention"] * 15
GDN = {"layer_types": KINDS, "linear_num_value_heads": 4, "linear_key_head_dim": 32}


@pytest.mark.parametrize(
    "keys",
    [
        {"num_local_experts": 8},
        {"n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 1},
        MLA,
        GDN,
        {"layer_types": KINDS, "mamba_d_state": 16, "mamba_n_heads": 8},
        {"layer_types": ["full_attention", "conv"] * 15},
        {"num_kv_shared_layers": 10},
    ],
    ids=lambda keys: ",".join(keys),
)
def test_a_model_that_is_not_dense_has_no_shape(keys: dict[str, Any], tmp_path: Path) -> None:
    assert read_shape(folder_with(tmp_path, {**SMOLLM2, **keys}), 128) is None


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "float32", "torch_dtype": "float16"}, "float32"),
        ({"text_config": {"dtype": "bfloat16"}}, "bfloat16"),
        ({"dtype": None}, None),
        ({"dtype": 32}, None),
        ({}, None),
        ("{", None),
        ("[]", None),
        ("[" * 100_000, None),
    ],
)
def test_the_checkpoints_dtype_is_what_its_config_names(config: Any, name: str | None, tmp_path: Path) -> None:
    assert checkpoint_dtype(folder_with(tmp_path, config)) == name


def test_a_folder_without_a_config_names_no_dtype(tmp_path: Path) -> None:
    assert checkpoint_dtype(tmp_path) is None


SHAPE = Shape(G=3, ffn_params=600, other_params=400, kv_elements_per_token=10, tile=None)


def test_attention_reads_its_cache_against_all_weights_once() -> None:
    assert SHAPE.shares(1, 100) == (0.3, 0.5)
    assert SHAPE.shares(1, 100)[1] == 0.5
    assert SHAPE.shares(3, 100)[1] == 0.75


@given(st.integers(1, 512), st.integers(1, 10**6))
def test_more_sequences_or_more_context_raise_the_attention_share(B: int, S: int) -> None:
    share = SHAPE.shares(B, S)[1]
    assert 0 < share < 1
    assert SHAPE.shares(B + 1, S)[1] > share
    assert SHAPE.shares(B, S + 1)[1] > share
