"""Rotary frequencies of a drafter's config: those of transformers, and one sentence where a value cannot be used."""

from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from codraft.core.errors import SpecError
from codraft.decode.hf.rope import frequencies, head_frequencies

YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 64}
KINDS = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}


@pytest.mark.parametrize("rope", [{"rope_theta": 500.0}, YARN, {"rope_type": "linear", "factor": 2.0}])
@pytest.mark.parametrize("width", [8, 12])
def test_frequencies_are_those_of_transformers(rope: dict[str, Any], width: int) -> None:
    config = transformers.LlamaConfig(
        hidden_size=width, num_attention_heads=1, head_dim=width, max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, **rope},
    )  # fmt: skip
    theirs = LlamaRotaryEmbedding(config)
    inverse, factor = frequencies({"rope_parameters": rope, "max_position_embeddings": 256}, width, "config.json")
    torch.testing.assert_close(inverse, theirs.inv_freq, rtol=0, atol=0)
    assert factor == theirs.attention_scaling


@pytest.mark.parametrize("rope", [{"rope_theta": 500.0}, YARN])
@pytest.mark.parametrize("inside", [True, False])
def test_a_share_of_a_head_turns_where_the_config_says_so(rope: dict[str, Any], inside: bool) -> None:
    share = {"partial_rotary_factor": 0.25}
    text = {"rope_parameters": {**rope, **share}} if inside else {"rope_parameters": rope, **share}
    inverse, _ = head_frequencies(text, 32, "config.json")
    torch.testing.assert_close(inverse, frequencies({"rope_parameters": rope}, 8, "config.json")[0], rtol=0, atol=0)
    assert len(head_frequencies({"rope_parameters": rope}, 32, "config.json")[0]) == 16


@pytest.mark.parametrize("layers", [["full_attention"] * 2, ["sliding_attention"] * 2])
def test_each_kind_of_layer_may_have_frequencies_of_its_own_where_a_head_has_one_kind(layers: list[str]) -> None:
    text = {"rope_parameters": KINDS, "layer_types": layers, "num_hidden_layers": 2}
    inverse, _ = frequencies(text, 8, "config.json")
    torch.testing.assert_close(inverse, frequencies(KINDS[layers[0]], 8, "config.json")[0], rtol=0, atol=0)
    same = dict.fromkeys(KINDS, KINDS["full_attention"])
    inverse, _ = frequencies({"rope_parameters": same}, 8, "config.json")
    torch.testing.assert_close(inverse, frequencies(KINDS["full_attention"], 8, "config.json")[0], rtol=0, atol=0)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rope_theta": "fast"}, "rope_theta is 'fast', expected a positive number"),
    ({"rope_theta": [1]}, r"rope_theta is \[1\], expected a positive number"),
    ({"rope_parameters": {"rope_theta": -1.0}}, "rope_parameters.rope_theta is -1.0, expected a positive number"),
    ({"rope_scaling": 3}, "rope_scaling is 3, expected an object"),
    ({"rope_scaling": {"type": ["yarn"]}}, "rope_scaling.type is .*, expected a text"),
    ({"rope_scaling": {"type": "dynamic"}}, "'dynamic' is not supported"),
    ({"rope_scaling": {"type": "yarn"}, "max_position_embeddings": "x"}, "max_position_embeddings is 'x'"),
    ({"rope_parameters": {**YARN, "factor": "x"}}, "lack something|factor"),
    ({"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5, expected a share of heads of 16 that turns"),
    ({"partial_rotary_factor": 0.01}, "partial_rotary_factor is 0.01, expected a share"),
    ({"partial_rotary_factor": "half"}, "partial_rotary_factor is 'half', expected a positive number"),
    ({"rope_parameters": KINDS}, "differs between full_attention and sliding_attention"),
    (
        {"rope_parameters": KINDS, "layer_types": ["sliding_attention", "full_attention"]},
        "rope_parameters differs between",
    ),
]


@pytest.mark.parametrize(("text", "words"), REFUSED)
def test_what_cannot_be_used_is_one_sentence(text: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=f"^head/config.json: .*({words})"):
        head_frequencies(text, 16, "head/config.json")
