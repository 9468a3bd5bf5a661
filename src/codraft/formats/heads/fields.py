"""Values of a config.json by dotted key, checked: a value of the wrong kind is an error that names its key."""

from collections.abc import Mapping
from typing import Any

from codraft.core.errors import SpecError

# Beyond this a size is a slip of the pen, and arithmetic on it a trap.
LARGEST = 1 << 40


class Fields:
    """A config as its file names it in errors; keys are dotted (`dflash_config.block_size`)."""

    def __init__(self, config: Mapping[str, Any], file: str) -> None:
        self.config = config
        self.file = file

    def get(self, key: str) -> Any:
        """The value, None where some part of the key is absent or null."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def wrong(self, key: str, expected: str) -> SpecError:
        """The error of a value that cannot be used."""
        shown = repr(self.get(key))
        return SpecError(
            f"{self.file}: {key} is {shown if len(shown) <= 60 else shown[:57] + '...'}, expected {expected}; "
            "mend the config or fetch it again"
        )

    def size(self, key: str, lowest: int = 1) -> int | None:
        """A whole number of at least `lowest`."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= LARGEST:
            raise self.wrong(key, f"a whole number of at least {lowest}")
        return value

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def ids(self, key: str) -> tuple[int, ...] | None:
        """A list of whole numbers, of any sign."""
        value = self.get(key)
        if value is None:
            return None
        whole = isinstance(value, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in value)
        if not whole or len(value) > 4096:
            raise self.wrong(key, "a list of layer ids")
        return tuple(value)

    def text(self, key: str) -> str | None:
        """A string."""
        value = self.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value
