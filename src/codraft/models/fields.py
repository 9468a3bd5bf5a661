"""Values of a model's config; what is missing comes from the family's defaults, and is noted."""

from collections.abc import Mapping
from typing import Any

from codraft.formats.fields import Fields
from codraft.models.families import Family

# Defaults that no reader of a summary would doubt: rhythms of layers, and sizes that a family has always had.
UNSAID = (
    "sliding_window_pattern", "full_attention_interval", "max_window_layers", "decoder_sparse_step", "conv_kernel",
    "linear_conv_kernel_dim", "conv1d_width", "conv_L_cache", "expand", "expansion_ratio", "hc_mult",
    "num_dense_layers", "moe_layer_start_index", "first_k_dense_replace", "n_positions",
    "max_position_embeddings", "n_groups",
)  # fmt: skip


class FamilyFields(Fields):
    """A part of a config.json; `family` says what is left unsaid.

    A default is taken for an absent key only: null often means "none". What was taken is in `assumed`, a sentence each.
    """

    def __init__(self, part: Mapping[str, Any], path: str = "", family: Family | None = None) -> None:
        super().__init__(part, path)
        self.family = family or Family()
        self.assumed: list[str] = []

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
