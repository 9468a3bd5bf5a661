"""What training must know of a mechanism, in a table. Makers of fresh ones are in fresh.py, lessons in objective.py."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`whole_model`: a language model between the target's own ends, not a head. `blocks`: fills blocks of masks.
    `reduced`: a fresh one has an output head of its own over a part of the vocabulary. `confident`: has a confidence
    head."""

    whole_model: bool = False
    blocks: bool = False
    reduced: bool = False
    confident: bool = False


KINDS: Mapping[str, Kind] = {
    "eagle3": Kind(reduced=True),
    "mtp": Kind(),
    "dflash": Kind(blocks=True),
    "dspark": Kind(blocks=True, confident=True),
    "external": Kind(whole_model=True),
}
