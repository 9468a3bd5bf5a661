"""Arrays on disk: safetensors files that are whole or absent."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import save_file

from codraft.core.errors import SpecError
from codraft.core.files import PART, part_name, write_failure


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Arrays and header text under `path`, which appears or changes in one step."""
    part = path.with_name(f"{part_name(path)}{os.getpid()}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(dict(arrays), part, metadata=dict(metadata))
        with part.open("rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(part, path)
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        part.unlink(missing_ok=True)
