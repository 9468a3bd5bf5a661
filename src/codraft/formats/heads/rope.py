"""How a drafter's config turns queries and keys by position: read and checked, without arithmetic.

Kinds and their parameters as transformers 5.19 has them (modeling_rope_utils.py), which computes the frequencies.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.fields import Fields, shown

# By kind the numbers that it cannot do without. Kinds whose frequencies depend on the length of a text are none of
# these: they would rotate the keys of a cache in several ways.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "default": (), "linear": ("factor",), "yarn": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
}  # fmt: skip
OPTIONAL = ("attention_factor", "beta_fast", "beta_slow")
# Zero is as good as absent here.
SCALES = ("mscale", "mscale_all_dim")
# Where a config names none: what every family takes then, and what EAGLE-3's training code takes in any case.
USUAL_THETA = 10_000.0
USUAL_WINDOW = 2048
SHARE = "partial_rotary_factor"
# The window that a scaled kind starts from.
BEFORE = "original_max_position_embeddings"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rope:
    """`rotated` channels of a head turn. `parameters` are those of the kind, `window` the config's own."""

    kind: str
    theta: float
    rotated: int
    window: int
    parameters: Mapping[str, Any]


def read_rope(text: Mapping[str, Any], rotated: int, where: str) -> Rope:
    """What a part of a config.json asks for, of heads of which `rotated` channels turn.

    Keys of old configs (`rope_theta`, `rope_scaling`) and of new ones (`rope_parameters`) are read; SpecError,
    beginning with `where`, for a kind that is not static, and for parameters that are missing or out of range.
    """
    rope, top = rope_part(text, where), Fields(text, file=where)
    kind = rope.text("rope_type", "type") or "default"
    if rope.text("type") not in (None, kind):
        raise SpecError(
            f"{where}: {rope.dotted('rope_type')} is '{shown(kind, 40)}' and {rope.dotted('type')} "
            f"'{shown(str(rope.get('type')), 40)}'; keep the one of the training"
        )
    if kind == "default" and rope.get("factor") not in (None, 1):
        raise rope.wrong(
            "factor", "none, since no rope_type says how positions are stretched, or a rope_type beside it"
        )
    if kind not in NEEDED:
        raise SpecError(
            f"{where}: rope of type '{shown(kind, 40)}' is not supported; a drafter's may be {', '.join(NEEDED)}"
        )
    window = top.size("max_position_embeddings") or USUAL_WINDOW
    return Rope(
        kind=kind,
        theta=rope.ratio("rope_theta") or top.ratio("rope_theta") or USUAL_THETA,
        rotated=rotated,
        window=window,
        parameters=scaling(rope, kind, window) if kind != "default" else {},
    )


def read_head_rope(text: Mapping[str, Any], head_dim: int, where: str) -> Rope:
    """As `read_rope`, of heads this wide, of which the config may let a share turn (`partial_rotary_factor`)."""
    part = next((fields for fields in (rope_part(text, where), Fields(text, file=where)) if fields.key(SHARE)), None)
    share = None if part is None else part.ratio(SHARE)
    if part is None or share is None:
        return read_rope(text, head_dim, where)
    rotated = int(head_dim * share) // 2 * 2
    if share > 1 or not rotated:
        raise part.wrong(SHARE, f"a share of heads of {head_dim} that turns, above {2 / head_dim:g} and at most 1")
    return read_rope(text, rotated, where)


def scaling(rope: Fields, kind: str, window: int) -> dict[str, Any]:
    """The parameters of a scaled kind."""
    found: dict[str, Any] = {}
    for key in NEEDED[kind]:
        value = rope.ratio(key)
        if value is None:
            raise SpecError(
                f"{rope.file}: {rope.dotted(key)} is missing, which rope of type '{kind}' cannot do without; write the "
                "one of the training"
            )
        found[key] = value
    if found["factor"] < 1:
        raise rope.wrong("factor", "a number of at least 1, by which positions are stretched")
    if kind == "linear":
        return found
    if kind == "llama3" and found["high_freq_factor"] <= found["low_freq_factor"]:
        raise rope.wrong("high_freq_factor", f"a number above low_freq_factor, {found['low_freq_factor']:g}")
    found[BEFORE] = rope.size(BEFORE) or window
    if kind == "yarn":
        found |= {key: value for key in OPTIONAL if (value := rope.ratio(key)) is not None}
        found |= {key: rope.ratio(key) for key in SCALES if rope.get(key) not in (None, 0)}
        if (whole := rope.switch("truncate")) is not None:
            found["truncate"] = whole
    return found


def rope_part(text: Mapping[str, Any], where: str) -> Fields:
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
