"""What a conversion leaves in the safetensors header, so that the way back gives the same files.

A layout may demand tensors that another one leaves to the target or derives. Names of what was added or left out stand
under one key of `__metadata__`, with the SHA-256 of each, which tells whether it is still the same. Every other reader
passes over it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

KEY = "codraft.convert"
# What other tools write and look for.
FRAMEWORK = {"format": "pt"}
MOST_NAMES = 16


@dataclass(frozen=True, slots=True)
class Origin:
    """`family` is the layout that the tensors came from, `style` how it spelt what layouts spell in several ways. Names
    are canonical."""

    family: str
    added: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)
    style: Mapping[str, str] = field(default_factory=dict)


def read_origin(metadata: Mapping[str, str]) -> Origin | None:
    """What an earlier conversion left, None where there is none that makes sense."""
    try:
        data = json.loads(metadata.get(KEY, "null"))
        family, parts = data["from"], [data[key] for key in ("added", "dropped", "style")]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    good = isinstance(family, str) and all(
        isinstance(part, dict) and len(part) <= MOST_NAMES and all(isinstance(v, str) for v in part.values())
        for part in parts
    )
    return Origin(family, *parts) if good else None


def metadata_of(origin: Origin) -> dict[str, str]:
    """The header's metadata of a converted file."""
    data = {
        "from": origin.family,
        "added": dict(origin.added),
        "dropped": dict(origin.dropped),
        "style": dict(origin.style),
    }
    return {**FRAMEWORK, KEY: json.dumps(data, sort_keys=True)}
