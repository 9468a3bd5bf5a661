"""Values of a model's config; what is missing comes from the family's defaults, and is noted."""

from collections.abc import Mapping
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.fields import Fields, shown
from codraft.models.families import LIKE_LLAMA, ROWS, UNCOUNTED, Family

# Defaults that no reader of a summary would doubt: rhythms of layers, and sizes that a family has always had.
UNSAID = (
    "sliding_window_pattern", "full_attention_interval", "max_window_layers", "decoder_sparse_step", "conv_kernel",
    "linear_conv_kernel_dim", "conv1d_width", "conv_L_cache", "expand", "expansion_ratio", "hc_mult",
    "num_dense_layers", "moe_layer_start_index", "first_k_dense_replace", "n_positions",
    "max_position_embeddings", "n_groups",
)  # fmt: skip


def unread(model_type: str, reason: str) -> SpecError:
    """The error of a model that is in order, and that only codraft cannot read."""
    name = shown(model_type)
    return SpecError(f"config.json: codraft does not know the keys of model_type {name!r} ({reason}); name another")


class FamilyFields(Fields):
    """A part of a config.json; `family` says what is left unsaid.

    A default is taken for an absent key only: null often means "none". What was taken is in `assumed`, a sentence each.
    `countable` is False where the config alone does not tell the number of weights.
    """

    def __init__(self, part: Mapping[str, Any], path: str = "", family: Family | None = None) -> None:
        super().__init__(part, path)
        self.family = family or Family()
        self.assumed: list[str] = []
        self.countable = self.family.name not in UNCOUNTED

    def default(self, names: tuple[str, ...], *, note: bool) -> Any:
        """What the family takes where none of these names is in the config."""
        if any(name in self.part for name in names):
            return None
        defaults = self.family.defaults
        name = next((name for name in names if name in defaults), None)
        if name is None:
            return None
        if note and name not in UNSAID:
            self.assume(f"{name} is not in the config; {defaults[name]}, the default of {self.family.name}, is taken")
        return defaults[name]

    @property
    def foreign(self) -> bool:
        """Whether nothing is known of the family, so that a key may well mean something else."""
        return bool(self.family.name) and self.family.name not in ROWS and self.family.name not in LIKE_LLAMA

    def missing(self, name: str) -> SpecError:
        """Of a family that is not known here, it may well be there under another name."""
        return unread(self.family.name, f"no {self.dotted(name)} is there") if self.foreign else super().missing(name)

    def wrong(self, name: str, expected: str) -> SpecError:
        """A list where others have a number is how a family that is not known here may say it."""
        unlike = self.foreign and isinstance(self.get(name), list | Mapping)
        if unlike:
            return unread(self.family.name, f"{self.dotted(name)} is of a kind of its own")
        return super().wrong(name, expected)

    def trait(self, name: str) -> Any:
        """A fact about the family that no config key has, None where it has none."""
        return self.family.traits.get(name)

    def assume(self, sentence: str) -> None:
        """Note what is taken for granted, once."""
        if sentence not in self.assumed:
            self.assumed.append(sentence)

    def inner(self, *names: str) -> "FamilyFields | None":
        """A part of this part, None where no name holds one. Defaults are those of the whole, so it has none."""
        found = super().inner(*names)
        return None if found is None else FamilyFields(found.part, found.path)
