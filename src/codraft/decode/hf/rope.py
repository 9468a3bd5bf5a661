"""Rotary frequencies of a drafter's config, scaled as transformers scales them."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.formats.fields import Fields, shown

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
    rope, top = parameters(text, where), Fields(text, file=where)
    kind = rope.text("rope_type", "type") or "default"
    if kind not in STATIC:
        raise SpecError(
            f"{where}: rope of type '{shown(kind, 40)}' is not supported; a drafter's may be {', '.join(STATIC)}"
        )
    theta = rope.ratio("rope_theta") or top.ratio("rope_theta") or USUAL_THETA
    if kind == "default":
        return 1.0 / theta ** (torch.arange(0, rotated, 2, dtype=torch.float32) / rotated), 1.0
    window = top.size("max_position_embeddings") or USUAL_WINDOW
    return scaled({**rope.part, "rope_type": kind, "rope_theta": theta}, rotated, window, where)


def head_frequencies(text: Mapping[str, Any], head_dim: int, where: str) -> tuple[Tensor, float]:
    """As `frequencies`, of heads this wide, of which the config may let a share turn (`partial_rotary_factor`)."""
    key = "partial_rotary_factor"
    part = next((fields for fields in (parameters(text, where), Fields(text, file=where)) if fields.key(key)), None)
    share = None if part is None else part.ratio(key)
    if part is None or share is None:
        return frequencies(text, head_dim, where)
    rotated = int(head_dim * share) // 2 * 2
    if share > 1 or not rotated:
        raise part.wrong(key, f"a share of heads of {head_dim} that turns, above {2 / head_dim:g} and at most 1")
    return frequencies(text, rotated, where)


def parameters(text: Mapping[str, Any], where: str) -> Fields:
    """The rope part of a config, empty where it has none. Some have one for each kind of layer: a head's layers share
    their frequencies, so those of the kinds that it has must agree."""
    name = next((name for name in ("rope_parameters", "rope_scaling") if text.get(name)), None)
    if name is None:
        return Fields({}, "rope_parameters", where)
    given = text[name]
    if not isinstance(given, Mapping):
        raise SpecError(f"{where}: {name} is {shown(repr(given), 60)}, expected an object; mend the config")
    kinds = {kind: part for kind, part in given.items() if isinstance(part, Mapping)}
    if not kinds:
        return Fields(given, name, where)
    listed = Fields(text, file=where).words("layer_types")
    count = text.get("num_hidden_layers")
    used = [kind for kind in kinds if listed is None or kind in listed[: count if isinstance(count, int) else None]]
    first = (used or list(kinds))[0]
    other = next((kind for kind in used if dict(kinds[kind]) != dict(kinds[first])), None)
    if other is not None:
        raise SpecError(
            f"{where}: {name} differs between {shown(first)} and {shown(other)}, and codraft turns all layers of a "
            "head alike; name in layer_types those that it has, or measure it with an engine"
        )
    return Fields(kinds[first], f"{name}.{first}", where)


def scaled(parameters: dict[str, Any], rotated: int, window: int, where: str) -> tuple[Tensor, float]:
    """The frequencies of a scaled kind, by transformers' own functions."""
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters.pop("partial_rotary_factor", None)
    config = LlamaConfig(
        hidden_size=rotated,
        num_attention_heads=1,
        head_dim=rotated,
        max_position_embeddings=window,
        rope_parameters=parameters,
    )
    try:
        inverse, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](config, device=torch.device("cpu"))
    except (KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{where}: rope parameters {parameters} lack something ({error}); mend the config") from error
    return inverse.float(), float(factor)
