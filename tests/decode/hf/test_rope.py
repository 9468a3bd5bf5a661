"""Rotary frequencies of a drafter's config are those of transformers."""

from typing import Any

import pytest
import torch
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from codraft.decode.hf.rope import frequencies
from codraft.formats.heads.rope import read_rope

YARN = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
KINDS: list[dict[str, Any]] = [
    {"rope_theta": 500.0},
    YARN,
    {**YARN, "beta_fast": 20, "beta_slow": 2.5, "attention_factor": 0.7},
    {**YARN, "mscale": 1.0, "mscale_all_dim": 0.5},
    {**YARN, "mscale": 1.0, "mscale_all_dim": 0},
    {**YARN, "truncate": False},
    {"rope_type": "linear", "factor": 2.0},
    LLAMA3,
    # Without it, positions are stretched from the whole window.
    {key: value for key, value in YARN.items() if key != "original_max_position_embeddings"},
]


@pytest.mark.parametrize("rope", KINDS)
@pytest.mark.parametrize("width", [8, 12])
def test_frequencies_are_those_of_transformers(rope: dict[str, Any], width: int) -> None:
    config = transformers.LlamaConfig(
        hidden_size=width, num_attention_heads=1, head_dim=width, max_position_embeddings=256,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, **rope},
    )  # fmt: skip
    theirs = LlamaRotaryEmbedding(config)
    ours = read_rope({"rope_parameters": rope, "max_position_embeddings": 256}, width, "config.json")
    inverse, factor = frequencies(ours)
    torch.testing.assert_close(inverse, theirs.inv_freq, rtol=0, atol=0)
    assert factor == theirs.attention_scaling
