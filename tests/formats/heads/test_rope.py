"""What a drafter's config says of positions, and one sentence where a value cannot be used."""

from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.formats.heads.rope import Rope, read_head_rope, read_rope

YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
KINDS = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}


def read(text: dict[str, Any], width: int = 16) -> Rope:
    return read_head_rope(text, width, "head/config.json")


@pytest.mark.parametrize("rope", [{"rope_theta": 500.0}, YARN])
@pytest.mark.parametrize("inside", [True, False])
def test_a_share_of_a_head_turns_where_the_config_says_so(rope: dict[str, Any], inside: bool) -> None:
    share = {"partial_rotary_factor": 0.25}
    text = {"rope_parameters": {**rope, **share}} if inside else {"rope_parameters": rope, **share}
    assert read(text, 32) == read_rope({"rope_parameters": rope}, 8, "head/config.json")
    assert read({"rope_parameters": rope}, 32).rotated == 32


@pytest.mark.parametrize("layers", [["full_attention"] * 2, ["sliding_attention"] * 2])
def test_each_kind_of_layer_may_have_frequencies_of_its_own_where_a_head_has_one_kind(layers: list[str]) -> None:
    text = {"rope_parameters": KINDS, "layer_types": layers, "num_hidden_layers": 2}
    assert read(text).theta == KINDS[layers[0]]["rope_theta"]
    assert read({"rope_parameters": dict.fromkeys(KINDS, KINDS["full_attention"])}).theta == 1e6


def test_old_keys_and_new_ones_say_the_same() -> None:
    old = {"rope_theta": 700.0, "rope_scaling": {"type": "linear", "factor": 2.0}, "max_position_embeddings": 64}
    new = {
        "rope_parameters": {"rope_type": "linear", "rope_theta": 700.0, "factor": 2.0}, "max_position_embeddings": 64
    }  # fmt: skip
    assert read(old) == read(new)
    assert read(old).parameters == {"factor": 2.0}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rope_theta": "fast"}, "rope_theta is 'fast', expected a positive number"),
    ({"rope_theta": [1]}, r"rope_theta is \[1\], expected a positive number"),
    ({"rope_parameters": {"rope_theta": -1.0}}, "rope_parameters.rope_theta is -1.0, expected a positive number"),
    ({"rope_scaling": 3}, "rope_scaling is 3, expected an object"),
    ({"rope_scaling": {"type": ["yarn"]}}, "rope_scaling.type is .*, expected a text"),
    ({"rope_scaling": {"type": "dynamic"}}, "'dynamic' is not supported"),
    ({"rope_scaling": {"type": "yarn"}, "max_position_embeddings": "x"}, "max_position_embeddings is 'x'"),
    ({"max_position_embeddings": 0}, "max_position_embeddings is 0, expected a whole number of at least 1"),
    ({"rope_scaling": {"type": "yarn"}}, "rope_scaling.factor is missing, which rope of type 'yarn' cannot do without"),
    ({"rope_scaling": {"type": "linear"}}, "rope_scaling.factor is missing"),
    ({"rope_parameters": {**YARN, "factor": "x"}}, "rope_parameters.factor is 'x', expected a positive number"),
    ({"rope_parameters": {**YARN, "factor": -1}}, "factor is -1, expected a positive number"),
    ({"rope_parameters": {**YARN, "factor": 0.5}}, "factor is 0.5, expected a number of at least 1"),
    ({"rope_parameters": {**YARN, "original_max_position_embeddings": 0}}, "expected a whole number of at least 1"),
    ({"rope_parameters": {**YARN, "attention_factor": -0.1}}, "attention_factor is -0.1, expected a positive number"),
    ({"rope_parameters": {**YARN, "truncate": "no"}}, "truncate is 'no', expected true or false"),
    ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor is 0, expected a positive number"),
    *(
        ({"rope_parameters": {key: value for key, value in LLAMA3.items() if key != lost}}, f"{lost} is missing")
        for lost in ("factor", "low_freq_factor", "high_freq_factor")
    ),
    ({"rope_parameters": {**LLAMA3, "high_freq_factor": 1.0}}, "expected a number above low_freq_factor, 1"),
    ({"rope_scaling": {"factor": 4}}, "rope_scaling.factor is 4, expected none, since no rope_type says"),
    (
        {"rope_scaling": {"rope_type": "default", "type": "yarn", "factor": 4}},
        "rope_type is 'default' and .*type 'yarn'",
    ),
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
        read(text)
