"""The records of a study: each made once and used again while its inputs are unchanged.

A record is written whole when it is done, so killing a study loses at most the one in the making.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from codraft.core.errors import SpecError
from codraft.core.provenance import Record
from codraft.core.record import hash_of, read_record, write_record
from codraft.replay.job import Ui

R = TypeVar("R", bound=Record)


class Store:
    """The folder `records/` of one study."""

    def __init__(self, folder: Path, ui: Ui) -> None:
        self.folder, self.ui = folder / "records", ui

    def path(self, name: str) -> Path:
        """Where a record lies."""
        return self.folder / f"{name}.json"

    def read(self, name: str, kind: type[R]) -> R | None:
        """The record as it lies there, None where there is none that can be read."""
        try:
            return read_record(self.path(name), kind) if self.path(name).exists() else None
        except SpecError:
            return None

    def found(self, name: str, kind: type[R], inputs: Any) -> R | None:
        """The record as it lies there, if it was made from these inputs."""
        record = self.read(name, kind)
        return record if record and record.provenance.input_hashes.get("inputs") == hash_of(inputs) else None

    def cached(self, name: str, kind: type[R], inputs: Any, make: Callable[[], R]) -> R:
        """The record: read where its inputs are unchanged, else made, stamped with their hash and written."""
        found = self.found(name, kind, inputs)
        if found is not None:
            with self.ui.stage(f"{name}: used again, inputs unchanged"):
                return found
        record = stamped(make(), hash_of(inputs))
        write_record(record, self.path(name))
        return record


def stamped(record: R, key: str) -> R:
    """The record with the hash of its inputs."""
    hashes = {"inputs": key, **record.provenance.input_hashes}
    return replace(record, provenance=replace(record.provenance, input_hashes=hashes))
