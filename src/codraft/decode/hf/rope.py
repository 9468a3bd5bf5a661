"""Rotary frequencies of a drafter's config, scaled as transformers scales them."""

import torch
from torch import Tensor

from codraft.formats.heads.rope import Rope


def frequencies(rope: Rope) -> tuple[Tensor, float]:
    """([rotated / 2] float32 inverse frequencies on the CPU, factor of cos and sin)."""
    if rope.kind == "default":
        channels = torch.arange(0, rope.rotated, 2, dtype=torch.float32, device="cpu")
        return 1.0 / rope.theta ** (channels / rope.rotated), 1.0
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = LlamaConfig(
        hidden_size=rope.rotated,
        num_attention_heads=1,
        head_dim=rope.rotated,
        max_position_embeddings=rope.window,
        rope_parameters={**rope.parameters, "rope_type": rope.kind, "rope_theta": rope.theta},
    )
    # Numbers also where a module is being made of shapes alone, on torch's `meta` device.
    with torch.device("cpu"):
        inverse, factor = ROPE_INIT_FUNCTIONS[rope.kind](config)
    return inverse.float(), float(factor)
