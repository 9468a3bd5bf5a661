"""What training must know of a mechanism, in a table. Makers of fresh ones are in fresh.py, lessons in objective.py."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from codraft.core.errors import SpecError

Init = Literal["target", "layers", "random"]
COPYING = frozenset({"copying", "copying_rate"})
SERIAL = COPYING | {"drafts", "follow", "noise"}
BLOCKS = COPYING | {"anchors", "block_size", "block_sizes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """`whole_model`: a language model between the target's own ends, not a head. `blocks`: fills blocks of masks.
    `reduced`: a fresh one has an output head of its own over a part of the vocabulary. `confident`: has a confidence
    head. `init` is what a fresh one begins as. `recipe` and `shape` are words of a recipe and of a fresh one's shape
    that not all mechanisms have."""

    whole_model: bool = False
    blocks: bool = False
    reduced: bool = False
    confident: bool = False
    init: Init = "random"
    recipe: frozenset[str]
    shape: frozenset[str]


KINDS: Mapping[str, Kind] = {
    "eagle3": Kind(reduced=True, recipe=SERIAL, shape=frozenset({"init", "ffn", "taps", "fc_norm", "draft_vocab"})),
    "mtp": Kind(recipe=SERIAL, shape=frozenset({"init", "ffn"})),
    "dflash": Kind(blocks=True, recipe=BLOCKS, shape=frozenset({"init", "layers", "ffn", "taps", "mask_token"})),
    "dspark": Kind(
        blocks=True,
        confident=True,
        recipe=BLOCKS | {"confidence"},
        shape=frozenset({"init", "layers", "ffn", "taps", "mask_token", "markov_rank"}),
    ),
    "external": Kind(whole_model=True, init="target", recipe=frozenset(), shape=frozenset({"layers"})),
}


def refuse_idle(mechanism: str, recipe: Collection[str], shape: Collection[str], source: str | None) -> None:
    """SpecError for flags that were given and would change nothing."""
    kind = kind_of(mechanism)
    idle = sorted({*recipe} & idle_words(mechanism)) or sorted({*shape} - kind.shape)
    if idle:
        owners = [name for name, one in KINDS.items() if idle[0] in one.recipe | one.shape]
        raise SpecError(f"{flag(idle[0])} is of {', '.join(owners)} and means nothing for {mechanism}; leave it out")
    taught = sorted(COPYING & {*recipe})
    if taught and source is not None:
        raise SpecError(f"{flag(taught[0])} teaches a fresh drafter, and --from goes on from {source}; leave one out")
    if shape and source is not None:
        first = flag(sorted(shape)[0])
        raise SpecError(f"{first} shapes a fresh drafter, and --from goes on from {source}; leave one of them out")


def idle_words(mechanism: str) -> frozenset[str]:
    """Words of a recipe that mean nothing to this mechanism."""
    return frozenset.union(*(one.recipe for one in KINDS.values())) - kind_of(mechanism).recipe


def kind_of(mechanism: str) -> Kind:
    """By name. SpecError for one that cannot be trained."""
    if mechanism not in KINDS:
        raise SpecError(f"cannot train '{mechanism}'; choose of {', '.join(KINDS)}")
    return KINDS[mechanism]


def flag(word: str) -> str:
    """As it is typed."""
    return "--" + word.replace("_", "-")
