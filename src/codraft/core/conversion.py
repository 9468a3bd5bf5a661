"""What a conversion wrote: the record of `codraft convert`."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from codraft.core.provenance import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file that was written."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerIds:
    """Layer ids as a file has them, and under which key. `output`: what a layer puts out; `input`: what enters it."""

    key: str
    convention: Literal["output", "input"]
    ids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TapsInfo:
    """Layers that the head reads, by what they put out (-1: the embedding) and by what enters them; every list of them
    in the source and in the result."""

    outputs: list[int]
    inputs: list[int]
    read: list[LayerIds]
    written: list[LayerIds]


@dataclass(frozen=True, kw_only=True)
class ConversionRecord(Record):
    """A drafter's checkpoint in another layout.

    `tensors` and `bytes` count what was written. Of these, by canonical name, `filled` were copied from the target and
    `derived` made from others; `dropped` were left out. `notes` say what was done, `warnings` what looks wrong.
    """

    SCHEMA: ClassVar[str] = "codraft.convert/1"
    input: str
    output: str
    mechanism: str
    from_format: str
    to_format: str
    engine: str | None = None
    target: str | None = None
    tensors: int
    bytes: int
    files: list[FileInfo]
    taps: TapsInfo | None = None
    filled: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    wall_s: float
