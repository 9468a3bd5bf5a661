"""Where a checkpoint's files lie: a folder here, one file, or a hub repository read by byte ranges."""

from typing import Protocol


class Source(Protocol):
    """Files by name, read in pieces. Names are relative, with `/`."""

    @property
    def label(self) -> str:
        """The model as people name it: the folder or the hub id."""
        ...

    @property
    def bytes_read(self) -> int:
        """Bytes read so far."""
        ...

    def sizes(self) -> dict[str, int]:
        """Bytes of every file that a checkpoint may be made of."""
        ...

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Bytes [start, stop) of a file; SpecError where it cannot be read or is shorter."""
        ...


def open_source(model: str) -> Source:
    """`demo`, a folder, a config.json or safetensors file in one, or a hub id (`owner/name[@revision]`)."""
    raise NotImplementedError
