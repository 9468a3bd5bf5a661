"""Rotary frequencies of a drafter's config, scaled as transformers scales them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from codraft.core.errors import SpecError

# Those whose frequencies depend on the length of a text would rotate the keys of a cache in several ways.
STATIC = ("default", "linear", "yarn", "llama3")
# Where a config names none: what every family takes then, and what EAGLE-3's training code takes in any case.
USUAL_THETA = 10_000.0
USUAL_WINDOW = 2048


def frequencies(text: Mapping[str, Any], rotated: int, where: str) -> tuple[Tensor, float]:
    """([rotated / 2] float32 inverse frequencies, factor of cos and sin) that a part of a config.json asks for.

    `rotated` is the width of a head that turns. Keys of old configs (`rope_theta`, `rope_scaling`) and of new ones
    (`rope_parameters`) are read; SpecError, beginning with `where`, for a kind that is not static.
    """
    given = text.get("rope_parameters") or text.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise SpecError(f"{where}: rope_scaling is {given!r}, expected an object; mend the config")
    if isinstance(given.get("full_attention"), Mapping):
        given = given["full_attention"]
    kind = str(given.get("rope_type") or given.get("type") or "default")
    if kind not in STATIC:
        raise SpecError(f"{where}: rope of type '{kind}' is not supported; a drafter's may be {', '.join(STATIC)}")
    theta = float(given.get("rope_theta") or text.get("rope_theta") or USUAL_THETA)
    if kind == "default":
        return 1.0 / theta ** (torch.arange(0, rotated, 2, dtype=torch.float32) / rotated), 1.0
    return scaled(text, {**given, "rope_type": kind, "rope_theta": theta}, rotated, where)


def scaled(text: Mapping[str, Any], parameters: dict[str, Any], rotated: int, where: str) -> tuple[Tensor, float]:
    """The frequencies of a scaled kind, by transformers' own functions."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters.pop("partial_rotary_factor", None)
    window = text.get("max_position_embeddings") or USUAL_WINDOW
    config = LlamaConfig(
        hidden_size=rotated,
        num_attention_heads=1,
        head_dim=rotated,
        max_position_embeddings=int(window),
        rope_parameters=parameters,
    )
    try:
        inverse, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, device=torch.device("cpu"))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{where}: rope parameters {parameters} lack something ({error}); mend the config") from error
    return inverse.float(), float(factor)
