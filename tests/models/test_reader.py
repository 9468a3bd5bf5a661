"""Any config.json to one architecture: nested parts, names of keys, widths of heads, and what is wrong."""

import copy
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.models.architecture import Architecture
from codraft.models.families import ROWS
from codraft.models.memory import cache_bytes
from codraft.models.parameters import count_parameters
from codraft.models.reader import read_architecture

from tests.models.small import LLAMA, MOE, PATTERN

GOLDEN = tomllib.loads((Path(__file__).parents[1] / "golden" / "models.toml").read_text(encoding="utf-8"))["model"]


@pytest.mark.parametrize(
    ("config", "path"),
    [
        (LLAMA, ""),
        ({"text_config": LLAMA, "vision_config": {"num_hidden_layers": 2, "hidden_size": 32}}, "text_config"),
        ({"llm_config": LLAMA, "hidden_size": 3}, "llm_config"),
        ({"language_config": LLAMA}, "language_config"),
        ({"thinker_config": {"text_config": LLAMA, "audio_config": {"hidden_size": 5}}}, "thinker_config.text_config"),
        ({"decoder": LLAMA}, "decoder"),
        ({"language_model": LLAMA}, "language_model"),
        ({**LLAMA, "text_config": {}}, ""),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_the_part_with_layers_is_found_wherever_it_stands(config: dict[str, Any], path: str) -> None:
    arch = read_architecture(config)
    assert arch.path == path
    assert (arch.layers, arch.hidden, arch.vocab_size) == (read_architecture(LLAMA).layers, 64, 100)


def test_a_vocabulary_may_stand_beside_the_text_part() -> None:
    text = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    assert read_architecture({"text_config": text, "vocab_size": 77}).vocab_size == 77


def test_the_whole_config_names_the_model_and_the_part_its_family() -> None:
    text = {**LLAMA, "model_type": "qwen3", "head_dim": 16}
    arch = read_architecture({"model_type": "some_vl", "architectures": ["SomeVL", 3], "text_config": text})
    assert (arch.model_type, arch.architectures, arch.style.qk_norm) == ("some_vl", ["SomeVL"], "head")


def test_a_text_part_may_leave_out_what_is_its_familys_default() -> None:
    """LLaVA-1.5's text part names Llama and a vocabulary; Gemma 3's leaves out heads and vocabulary."""
    arch = read_architecture({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    assert (len(arch.layers), arch.hidden, arch.num_heads, arch.vocab_size) == (32, 4096, 32, 32064)
    assert "hidden_size is not in the config; 4096, the default of llama, is taken" in arch.assumed
    gemma = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34}
    arch = read_architecture({"model_type": "gemma3", "text_config": {**gemma, "sliding_window": 1024}})
    assert (arch.num_heads, arch.num_kv_heads, arch.head_dim, arch.vocab_size, arch.tied) == (8, 4, 256, 262208, True)
    counted = count_parameters(arch)
    assert counted is not None
    assert counted.total == 3_880_263_168  # Gemma-3-4B's language model


@pytest.mark.parametrize(
    "config",
    [
        {"n_layer": 6, "n_embd": 64, "n_head": 8, "num_kv_heads": 2, "n_inner": 96, "n_vocab": 100},
        {"n_layers": 6, "d_model": 64, "n_heads": 8, "n_kv_heads": 2, "ffn_dim": 96, "vocab_size": 100},
        {"num_layers": 6, "hidden_size": 64, "num_heads": 8, "n_head_kv": 2, "ffn_hidden_size": 96,
         "padded_vocab_size": 100},
        {"num_layers": 6, "hidden_size": 64, "attention_heads": 8, "multi_query_group_num": 2, "d_ff": 96,
         "vocab_size": 100},
    ],
)  # fmt: skip
def test_keys_have_many_names(config: dict[str, Any]) -> None:
    arch, usual = read_architecture(config), read_architecture(LLAMA)
    assert (arch.layers, arch.hidden, arch.vocab_size, arch.G) == (usual.layers, 64, 100, 4)


def test_one_kv_head_for_multi_query_models() -> None:
    plain = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    assert read_architecture(plain).G == 1
    assert read_architecture({**plain, "multi_query": True}).G == 8
    assert read_architecture({**plain, "attn_config": {"kv_n_heads": 4}}).G == 2
    assert read_architecture({**plain, "model_type": "falcon", "multi_query": True, "num_kv_heads": 8}).G == 8
    new = {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2}
    assert read_architecture({**plain, **new}).G == 4


def test_a_stated_head_width_is_given() -> None:
    arch = read_architecture({**LLAMA, "head_dim": 16})
    assert (arch.head_dim, arch.head_dim_basis, arch.assumed) == (16, "given", [])


def test_a_width_that_is_not_stated_is_hidden_size_over_heads_and_says_so() -> None:
    arch = read_architecture({**LLAMA, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3})
    assert (arch.head_dim, arch.head_dim_basis) == (64, "assumed")
    assert arch.assumed == ["head_dim is not in the config; 576/9 = 64 is taken"]


def test_a_width_that_does_not_come_out_even_is_a_guess() -> None:
    arch = read_architecture({**LLAMA, "hidden_size": 2560, "num_attention_heads": 48, "num_key_value_heads": 8})
    assert (arch.head_dim, arch.head_dim_basis) == (53, "assumed")
    assert "no whole number" in arch.assumed[0]


def test_a_familys_own_width_is_taken_before_the_quotient() -> None:
    arch = read_architecture({**LLAMA, "model_type": "qwen3"})
    assert (arch.head_dim, arch.head_dim_basis) == (128, "assumed")
    assert arch.assumed == ["head_dim is not in the config; 128, the default of qwen3, is taken"]
    null = read_architecture({**LLAMA, "model_type": "qwen3", "head_dim": None})
    assert null.head_dim == 8


@pytest.mark.parametrize(
    ("config", "tied"),
    [
        (LLAMA, False),
        ({**LLAMA, "tie_word_embeddings": True}, True),
        ({**LLAMA, "model_type": "gemma"}, True),
        ({"tie_word_embeddings": True, "text_config": LLAMA}, True),
        ({"tie_word_embeddings": True, "text_config": {**LLAMA, "tie_word_embeddings": False}}, True),
        ({"tie_word_embeddings": False, "text_config": {**LLAMA, "tie_word_embeddings": True}}, False),
        (
            {"thinker_config": {"tie_word_embeddings": True, "text_config": {**LLAMA, "tie_word_embeddings": False}}},
            True,
        ),
        ({"text_config": {**LLAMA, "model_type": "gemma3_text"}}, True),
    ],
)
def test_embeddings_are_tied_where_the_outermost_word_says_so(config: dict[str, Any], tied: bool) -> None:
    assert read_architecture(config).tied is tied


@pytest.mark.parametrize(
    "key", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", "mtp_num_layers", "num_mtp_layers"]
)
def test_mtp_modules_have_many_names(key: str) -> None:
    arch = read_architecture({**LLAMA, key: 2})
    assert (arch.mtp_layers, arch.mtp) == (2, (arch.layers[-1],))
    assert read_architecture({**LLAMA, key: 0}).mtp_layers == 0


def test_an_mtp_module_has_the_blocks_that_the_config_names() -> None:
    config = {**LLAMA, "model_type": "nemotron_h", "moe_intermediate_size": 8, **PATTERN, "num_nextn_predict_layers": 1}
    for keys in ({"mtp_hybrid_override_pattern": "*E"}, {"mtp_layers_block_type": ["attention", "moe"]}):
        arch = read_architecture({**config, **keys})
        assert [(layer.mixer, layer.ffn) for layer in arch.mtp] == [("full", "none"), ("none", "moe")]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "no causal language model"),
        (
            {"model_type": "clip", "vision_config": {"num_hidden_layers": 2, "hidden_size": 3}},
            "model_type 'clip' is no decoder-only language model",
        ),
        ({"text_config": 3}, "no causal language model"),
        ([], "does not hold an object"),
        ({**LLAMA, "is_encoder_decoder": True}, "an encoder with a decoder"),
        ({**LLAMA, "vocab_size": None}, "no vocab_size"),
        ({**LLAMA, "vocab_size": None, "model_type": "gptj"}, "no vocab_size, without which"),
        (
            {**LLAMA, "num_attention_heads": None, "model_type": "x"},
            "does not know the keys of model_type 'x' (no num_attention_heads is there)",
        ),
        ({**LLAMA, "num_attention_heads": [8, 8], "model_type": "x"}, "does not know the keys of model_type 'x'"),
        ({**LLAMA, "intermediate_size": None}, "no intermediate_size"),
        ({**LLAMA, "num_hidden_layers": "six"}, "num_hidden_layers is 'six'"),
        (
            {**LLAMA, "num_hidden_layers": 10**6},
            "num_hidden_layers is 1000000, expected a whole number from 1 to 10000",
        ),
        ({**LLAMA, "hidden_size": -4}, "hidden_size is -4"),
        ({**LLAMA, "hidden_size": 64.5}, "hidden_size is 64.5"),
        ({**LLAMA, "hidden_size": True}, "hidden_size is True"),
        ({**LLAMA, "num_attention_heads": 0}, "num_attention_heads is 0"),
        ({**LLAMA, "num_key_value_heads": [2]}, "num_key_value_heads is [2]"),
        ({**LLAMA, "head_dim": 10**30}, "head_dim is 1000"),
        ({"text_config": {**LLAMA, "rope_theta": "x"}}, "text_config.rope_theta is 'x'"),
        ({**LLAMA, "rope_scaling": "yarn"}, "rope_scaling is 'yarn', expected an object"),
        ({**LLAMA, "rope_scaling": {"factor": -1}}, "rope_scaling.factor is -1, expected a positive number"),
        ({**LLAMA, "tie_word_embeddings": "no"}, "tie_word_embeddings is 'no', expected true or false"),
        ({**LLAMA, "layer_types": ["full_attention"]}, "layer_types has 1 entries for 6 layers"),
        ({**LLAMA, "layer_types": ["strange"] * 6}, "layer_types is ['strange'"),
        ({**LLAMA, "layer_types": "full_attention"}, "layer_types is 'full_attention', expected a list of words"),
        ({**LLAMA, "hybrid_override_pattern": "M*X"}, "hybrid_override_pattern is 'M*X'"),
        ({**MOE, "mlp_layer_types": ["none"] * 6}, "mlp_layer_types is ['none'"),
        ({**MOE, "mlp_only_layers": [-1]}, "mlp_only_layers is [-1], expected a list of whole numbers"),
        ({**MOE, "num_experts_per_tok": 0}, "num_experts_per_tok is 0"),
        ({**LLAMA, "kv_lora_rank": 16}, "no qk_nope_head_dim"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_in_one_sentence(config: Any, words: str) -> None:
    with pytest.raises(SpecError, match=r"config\.json") as caught:
        read_architecture(config)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_family_that_is_not_known_is_taken_for_llamas_and_says_so() -> None:
    arch = read_architecture({**LLAMA, "model_type": "brandnew", "head_dim": 8})
    assert arch.assumed == ["model_type 'brandnew' is not known here; its layers are taken to be built like Llama's"]


def test_foreign_texts_are_short_and_printable() -> None:
    bad = "\x1b[2J\u202e" + "x" * 500
    config = {**LLAMA, "model_type": bad, "architectures": [bad] * 100, "rope_scaling": {"type": bad, "factor": 2}}
    arch = read_architecture(config)
    assert arch.rope is not None
    assert len(arch.architectures) == 16
    for text in (arch.model_type, arch.architectures[0], arch.rope.kind):
        assert (len(text), text.isprintable()) == (80, True)
    assert all(sentence.isprintable() for sentence in arch.assumed)


def test_a_whole_number_may_be_written_as_a_float() -> None:
    assert read_architecture({**LLAMA, "max_position_embeddings": 131072.0}).max_positions == 131072
    assert (
        read_architecture({**LLAMA, "model_type": "mpt", "intermediate_size": None, "expansion_ratio": 1.5})
        .layers[0]
        .width
        == 96
    )


def slots(config: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every key of a config, with its parents."""
    found = []
    for key, value in config.items():
        found.append((*path, key))
        if isinstance(value, dict):
            found += slots(value, (*path, key))
    return found


STRANGE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from([0, 1, 2, 3, 10**30]),
    st.lists(st.one_of(st.integers(-1, 9), st.none(), st.text(max_size=3)), max_size=9),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_no_value_of_any_key_ends_in_anything_but_an_architecture_or_one_sentence(data: st.DataObject) -> None:
    config = copy.deepcopy(data.draw(st.sampled_from(GOLDEN))["config"])
    *parents, key = data.draw(st.sampled_from(slots(config)))
    holder = config
    for name in parents:
        holder = holder[name]
    holder[key] = data.draw(STRANGE)
    with suppress(SpecError):
        arch = read_architecture(config)
        assert isinstance(arch, Architecture)
        assert cache_bytes(arch, 1000) >= 0
        count_parameters(arch)


def test_defaults_are_those_of_the_config_classes() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    checked = 0
    for name, (_, defaults, _) in ROWS.items():
        kind = CONFIG_MAPPING[name] if name in CONFIG_MAPPING else None  # noqa: SIM401
        for key, value in defaults.items():
            own = vars(kind).get(key) if kind is not None else None
            if isinstance(own, bool | int | float):
                assert own == value, (name, key)
                checked += 1
    assert checked > 150
