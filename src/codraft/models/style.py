"""What a family's layers have beside their matrices, with the config keys that switch it looked up."""

from dataclasses import replace
from typing import Any

from codraft.models.architecture import Style
from codraft.models.families import Family, usual_style
from codraft.models.fields import FamilyFields
from codraft.models.kinds import POSITIONS


def read_style(fields: FamilyFields, family: Family) -> Style:
    """The family's style with every key looked up in the config."""
    values: dict[str, Any] = {}
    for name, value in {**usual_style(), **family.style}.items():
        if not isinstance(value, str):
            values[name] = value
        elif ":" in value:
            word, _, key = value.partition(":")
            values[name] = word if fields.flag(key) else "none"
        elif value in ("none", "head", "full", "wide", "all", "sliding"):
            values[name] = value
        else:
            values[name] = fields.flag(value)
    if values.get("positions"):
        values["positions"] = (fields.size(*POSITIONS) or 0) + (family.traits.get("position_offset") or 0)
    style = Style(**values, table_width=table_width(fields))
    if family.name == "falcon":
        style = replace(style, norms=falcon_norms(fields))
    if family.name == "deepseek_v4":
        style = replace(style, streams=fields.size("hc_mult") or 0)
    if family.name in ("gemma3n_text", "gemma4_text"):
        width = fields.size("hidden_size_per_layer_input", lowest=0) or 0
        rows = fields.size("vocab_size_per_layer_input", lowest=0) or 0
        style = replace(style, per_layer_width=width, per_layer_vocab=rows if width else 0)
    return style


def falcon_norms(fields: FamilyFields) -> int:
    """Falcon's layers have one norm where attention and FFN stand side by side, but for the newer large ones."""
    if fields.flag("new_decoder_architecture"):
        return fields.size("num_ln_in_parallel_attn") or 2
    return 1 if fields.flag("parallel_attn") else 2


def table_width(fields: FamilyFields) -> int:
    """Width of an embedding table that has one of its own, else 0."""
    key = fields.trait("table_width")
    return (fields.size(key) or 0) if key else 0
