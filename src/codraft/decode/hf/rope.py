"""Rotary frequencies of a drafter's config, scaled as transformers scales them."""

import torch
from torch import Tensor

from codraft.formats.heads.rope import Rope


def frequencies(rope: Rope) -> tuple[Tensor, float]:
    """([rotated / 2] float32 inverse frequencies, factor of cos and sin), numbers also where a module is made of shapes
    alone."""
    with torch.device("cpu"):
        return numbers(rope)


def numbers(rope: Rope) -> tuple[Tensor, float]:
    """As `frequencies`, on torch's current device."""
    if rope.kind == "default":
        return 1.0 / rope.theta ** (torch.arange(0, rope.rotated, 2, dtype=torch.float32) / rope.rotated), 1.0
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=rope.rotated,
        num_attention_heads=1,
        head_dim=rope.rotated,
        max_position_embeddings=rope.window,
        rope_parameters={**rope.parameters, "rope_type": rope.kind, "rope_theta": rope.theta},
    )
    inverse, factor = ROPE_INIT_FUNCTIONS[rope.kind](config)
    return inverse.float(), float(factor)
