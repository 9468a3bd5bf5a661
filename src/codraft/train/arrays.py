"""Arrays on disk: safetensors files that are whole or absent."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from numpy.typing import NDArray
from safetensors.numpy import save_file

from codraft.train.saving import appearing


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Arrays and header text under `path`, which appears or changes in one step. Equal content gives equal bytes."""
    with appearing(path) as part:
        save_file(dict(arrays), part, metadata=dict(metadata))
        with part.open("rb+") as handle:
            sort_header(handle)
            handle.flush()
            os.fsync(handle.fileno())


def sort_header(file: IO[bytes]) -> None:
    """Put the header's texts in the order of their names, in place: safetensors writes them in any order."""
    size = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(size))
    if texts := header.get("__metadata__"):
        header["__metadata__"] = dict(sorted(texts.items()))
        content = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        assert len(content) <= size
        file.seek(8)
        file.write(content.ljust(size))
