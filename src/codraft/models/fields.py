"""Values of a config by any of their names, checked; what is missing comes from the family's defaults, and is noted."""

import math
from collections.abc import Mapping
from typing import Any

from codraft.core.errors import SpecError
from codraft.models.families import Family

# Beyond these a size is a slip of the pen, and a loop over it a trap.
LARGEST = 1 << 40
MOST_LAYERS = 10_000
# Defaults that no reader of a summary would doubt: rhythms of layers, and sizes that a family has always had.
UNSAID = (
    "sliding_window_pattern", "full_attention_interval", "max_window_layers", "decoder_sparse_step", "conv_kernel",
    "linear_conv_kernel_dim", "conv1d_width", "conv_L_cache", "expand", "expansion_ratio", "hc_mult",
    "num_dense_layers", "moe_layer_start_index", "first_k_dense_replace", "n_positions",
    "max_position_embeddings", "n_groups",
)  # fmt: skip


class Fields:
    """One part of a config.json. `path` is its dotted key, empty for the whole; `family` says what is left unsaid.

    A key that holds null is absent, and its default is not taken: null often means "none". What was taken from the
    defaults is kept in `assumed`, a sentence each.
    """

    def __init__(self, part: Mapping[str, Any], path: str = "", family: Family | None = None) -> None:
        self.part = part
        self.path = path
        self.family = family or Family()
        self.assumed: list[str] = []

    def key(self, *names: str) -> str | None:
        """The first of these names that holds something."""
        return next((name for name in names if self.part.get(name) is not None), None)

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

    def dotted(self, name: str) -> str:
        """The key as it stands in the whole config."""
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, expected: str) -> SpecError:
        """The error of a value that cannot be used."""
        shown = repr(self.part[name])
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return SpecError(f"config.json: {self.dotted(name)} is {shown}, expected {expected}; mend it or fetch it again")

    def size(self, *names: str, lowest: int = 1, highest: int = LARGEST) -> int | None:
        """A whole number from `lowest` to `highest`, None where no name holds one and the family has no default."""
        name = self.key(*names)
        if name is None:
            taken = self.default(names, note=True)
            return taken if isinstance(taken, int) else None
        value = self.part[name]
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self.wrong(name, f"a whole number from {lowest} to {highest}")
        return value

    def needed(self, *names: str, highest: int = LARGEST) -> int:
        """As `size`, of a number without which there is no model."""
        value = self.size(*names, highest=highest)
        if value is None:
            raise SpecError(
                f"config.json has no {self.dotted(names[0])}, without which there is no causal language model to "
                "describe; check that it is the model's own config"
            )
        return value

    def common(self, *names: str, lowest: int = 0) -> int | None:
        """As `size`, of a number that some families (Hunyuan) repeat in a list for every layer."""
        name = self.key(*names)
        if name is not None and isinstance(self.part[name], list) and len(set(map(repr, self.part[name]))) == 1:
            return Fields({name: self.part[name][0]}, self.path).size(name, lowest=lowest)
        return self.size(*names, lowest=lowest)

    def flag(self, *names: str) -> bool:
        """True or false; false where nothing says so."""
        name = self.key(*names)
        if name is None:
            return bool(self.default(names, note=False))
        value = self.part[name]
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def ratio(self, *names: str) -> float | None:
        """A positive number."""
        name = self.key(*names)
        if name is None:
            taken = self.default(names, note=False)
            return None if taken is None else float(taken)
        value = self.part[name]
        good = not isinstance(value, bool) and isinstance(value, int | float)
        if not good or not 0 < value <= LARGEST or not math.isfinite(value):
            raise self.wrong(name, "a positive number")
        return float(value)

    def text(self, *names: str) -> str | None:
        """A string."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.part[name]
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def sizes(self, *names: str) -> list[int] | None:
        """A list of whole numbers of at least 0, None where no name holds one."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.part[name]
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self.wrong(name, "a list of whole numbers")
        if any(isinstance(i, bool) or not isinstance(i, int) or not 0 <= i <= LARGEST for i in value):
            raise self.wrong(name, "a list of whole numbers")
        return list(value)

    def words(self, *names: str) -> list[str] | None:
        """A list of strings, None where no name holds one."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.part[name]
        if not isinstance(value, list) or len(value) > MOST_LAYERS or not all(isinstance(word, str) for word in value):
            raise self.wrong(name, "a list of words")
        return list(value)

    def inner(self, *names: str) -> "Fields | None":
        """A part of this part, None where no name holds one."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.part[name]
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return Fields(value, self.dotted(name))

    def fit(self, name: str, found: int, expected: int) -> None:
        """A list by layer must have an entry for each; some go on with those of MTP modules."""
        if found < expected:
            raise SpecError(
                f"config.json: {self.dotted(name)} has {found} entries for {expected} layers; mend it or fetch it again"
            )
