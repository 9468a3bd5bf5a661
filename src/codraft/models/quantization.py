"""What a config says of quantised weights, in any of the formats in use."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from codraft.formats.fields import shown
from codraft.models.architecture import Quantization

HOLDERS = ("quantization_config", "compression_config", "hf_quant_config", "quantization")
IGNORED = (
    "ignore",
    "modules_to_not_convert",
    "ignored_layers",
    "exclude_modules",
    "exclude",
    "llm_int8_skip_modules",
    "modules_to_not_quantize",
)
METHODS = ("quant_method", "quant_algo", "method", "quant_type", "format")
ROTATION = re.compile(r"rotat|hadamard|quarot|spinquant", re.IGNORECASE)
# Deeper than any config in use.
DEEPEST = 12
# More than any model has modules that are left out one by one; beyond it a list costs time and says nothing.
MOST_IGNORED = 4096


def read_quantization(*configs: Mapping[str, Any]) -> Quantization | None:
    """The first of these configs (whole config, text part) that names a quantisation, None where none does.

    A hf_quant_config.json of ModelOpt may stand in a config under that key, or be given as it is.
    """
    for config in configs:
        holder = next((config[key] for key in HOLDERS if isinstance(config.get(key), Mapping)), None)
        transforms = {key: config[key] for key in ("transform_config", "rotation_config") if config.get(key)}
        if holder is None and not transforms:
            continue
        raw = {**(holder or {}), **transforms}
        inner = raw.get("quantization")
        flat = {**raw, **inner} if isinstance(inner, Mapping) else raw
        names = ignored(flat)
        return Quantization(
            method=method(flat),
            bits=bits(flat),
            ignored=names[:MOST_IGNORED],
            left_out=max(len(names) - MOST_IGNORED, 0),
            rotated=any(ROTATION.search(word) for word in words(raw)),
            raw=dict(raw),
        )
    return None


def method(raw: Mapping[str, Any]) -> str:
    """How the weights were quantised, in the config's own word."""
    names = (raw.get(key) for key in METHODS)
    return shown(next((name for name in names if isinstance(name, str) and name), "unknown"))


def bits(raw: Mapping[str, Any]) -> int | None:
    """Bits of a weight, None where they are not stated; of several groups the fewest."""
    if raw.get("load_in_4bit") is True or raw.get("_load_in_4bit") is True:
        return 4
    if raw.get("load_in_8bit") is True or raw.get("_load_in_8bit") is True:
        return 8
    stated = [raw.get("bits"), raw.get("w_bit"), raw.get("weight_bits")]
    groups = raw.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else []:
        weights = group.get("weights") if isinstance(group, Mapping) else None
        stated.append(weights.get("num_bits") if isinstance(weights, Mapping) else None)
    known = [width for width in stated if isinstance(width, int) and not isinstance(width, bool) and 0 < width <= 32]
    if known:
        return min(known)
    named = " ".join(name for key in METHODS if isinstance(name := raw.get(key), str)).lower()
    return next((width for width in (4, 8) if re.search(rf"(fp|int|w|nf|mxfp|nvfp){width}|{width}bit", named)), None)


def ignored(raw: Mapping[str, Any]) -> list[str]:
    """Modules that are not quantised, as written."""
    lists = (raw.get(key) for key in IGNORED)
    return [name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)]


def words(value: Any, depth: int = 0) -> Iterator[str]:
    """Every key and text below, but for keys that are switched off."""
    if depth > DEEPEST:
        return
    if isinstance(value, Mapping):
        for key, below in value.items():
            if below is None or below is False:
                continue
            yield str(key)
            yield from words(below, depth + 1)
    elif isinstance(value, list):
        for below in value:
            yield from words(below, depth + 1)
    elif isinstance(value, str):
        yield value
