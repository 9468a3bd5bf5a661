"""Values of a config by any of their names, checked: a value of the wrong kind is an error that names its key."""

import math
from collections.abc import Mapping
from typing import Any

from codraft.core.errors import SpecError

# Beyond these a size is a slip of the pen, and a loop over it a trap.
LARGEST = 1 << 40
MOST_LAYERS = 10_000
MOST_IDS = 4096


def shown(text: str, limit: int = 80) -> str:
    """A text of somebody else's file as it may stand in a sentence, a record or on a terminal: short, printable."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(c if c.isprintable() else "?" for c in cut)


def whole(value: Any) -> int | None:
    """A whole number, which Python's configs may write as a float; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value


class Fields:
    """One part of a config. `path` is its dotted key in the whole, `file` its name in errors.

    Names may be dotted themselves (`dflash_config.block_size`). A key that holds null is absent.
    """

    def __init__(self, part: Mapping[str, Any], path: str = "", file: str = "config.json") -> None:
        self.part = part
        self.path = path
        self.file = file

    def get(self, name: str) -> Any:
        """The value, None where some part of the name is absent or null."""
        value: Any = self.part
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def key(self, *names: str) -> str | None:
        """The first of these names that holds something."""
        return next((name for name in names if self.get(name) is not None), None)

    def default(self, names: tuple[str, ...], *, note: bool) -> Any:
        """What is taken where none of these names is in the config: nothing; a family's reader knows better."""
        return None

    def dotted(self, name: str) -> str:
        """The key as it stands in the whole config."""
        return f"{self.path}.{name}" if self.path else name

    def wrong(self, name: str, expected: str) -> SpecError:
        """The error of a value that cannot be used."""
        shown = repr(self.get(name))
        shown = shown if len(shown) <= 60 else shown[:57] + "..."
        return SpecError(f"{self.file}: {self.dotted(name)} is {shown}, expected {expected}; mend it or fetch it again")

    def size(self, *names: str, lowest: int = 1, highest: int = LARGEST) -> int | None:
        """A whole number from `lowest` to `highest`, None where no name holds one and the family has no default."""
        name = self.key(*names)
        if name is None:
            taken = self.default(names, note=True)
            return taken if isinstance(taken, int) else None
        value = whole(self.get(name))
        if value is None or not lowest <= value <= highest:
            open_ended = highest == LARGEST and (value or 0) < LARGEST
            within = f"of at least {lowest}" if open_ended else f"from {lowest} to {highest}"
            raise self.wrong(name, f"a whole number {within}")
        return value

    def needed(self, *names: str, highest: int = LARGEST) -> int:
        """As `size`, of a number without which there is no model."""
        value = self.size(*names, highest=highest)
        if value is None:
            raise self.missing(names[0])
        return value

    def missing(self, name: str) -> SpecError:
        """The error of a value without which there is no model."""
        return SpecError(
            f"{self.file} has no {self.dotted(name)}, without which there is no causal language model to "
            "describe; check that it is the model's own config"
        )

    def common(self, *names: str, lowest: int = 0) -> int | None:
        """As `size`, of a number that some families (Hunyuan) repeat in a list for every layer."""
        name = self.key(*names)
        if name is not None and isinstance(self.get(name), list) and len(set(map(repr, self.get(name)))) == 1:
            return Fields({name: self.get(name)[0]}, self.path).size(name, lowest=lowest)
        return self.size(*names, lowest=lowest)

    def flag(self, *names: str) -> bool:
        """True or false; false where nothing says so."""
        name = self.key(*names)
        if name is None:
            return bool(self.default(names, note=False))
        value = self.get(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def ratio(self, *names: str) -> float | None:
        """A positive number."""
        name = self.key(*names)
        if name is None:
            taken = self.default(names, note=False)
            return None if taken is None else float(taken)
        value = self.get(name)
        good = not isinstance(value, bool) and isinstance(value, int | float)
        if not good or not 0 < value <= LARGEST or not math.isfinite(value):
            raise self.wrong(name, "a positive number")
        return float(value)

    def text(self, *names: str) -> str | None:
        """A string."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.get(name)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def sizes(self, *names: str) -> list[int] | None:
        """A list of whole numbers of at least 0, None where no name holds one."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.get(name)
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self.wrong(name, "a list of whole numbers")
        found = [i for i in map(whole, value) if i is not None and 0 <= i <= LARGEST]
        if len(found) < len(value):
            raise self.wrong(name, "a list of whole numbers")
        return found

    def ratios(self, name: str) -> list[float] | None:
        """A list of positive numbers, None where there is none."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self.wrong(name, "a list of positive numbers")
        found = [Fields({name: one}).ratio(name) if one is not None else None for one in value]
        if any(one is None for one in found):
            raise self.wrong(name, "a list of positive numbers")
        return [one for one in found if one is not None]

    def words(self, *names: str) -> list[str] | None:
        """A list of strings, None where no name holds one."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.get(name)
        if not isinstance(value, list) or len(value) > MOST_LAYERS or not all(isinstance(word, str) for word in value):
            raise self.wrong(name, "a list of words")
        return list(value)

    def inner(self, *names: str) -> "Fields | None":
        """A part of this part, None where no name holds one."""
        name = self.key(*names)
        if name is None:
            return None
        value = self.get(name)
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        return Fields(value, self.dotted(name), self.file)

    def fit(self, name: str, found: int, expected: int) -> None:
        """A list by layer must have an entry for each; some go on with those of MTP modules."""
        if found < expected:
            raise SpecError(
                f"{self.file}: {self.dotted(name)} has {found} entries for {expected} layers; mend it or fetch it again"
            )

    def switch(self, *names: str) -> bool | None:
        """True or false, None where nothing says so."""
        name = self.key(*names)
        return None if name is None else self.flag(name)

    def ids(self, name: str) -> tuple[int, ...] | None:
        """A list of whole numbers of any sign, None where there is none."""
        value = self.get(name)
        if value is None:
            return None
        whole = isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
        if not whole or len(value) > MOST_IDS:
            raise self.wrong(name, "a list of layer ids")
        return tuple(value)
