"""One pinned file from a plain web address, kept whole or not at all. Standard library only; proxies as usual.

No address outside is reachable from the machines codraft is developed on; this code is tested against a local server.
"""

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from typing import TextIO, cast
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, sha256_file

# Seconds that one connection or read may stay silent.
TIMEOUT_S = 30.0


def fetch_file(what: str, address: str, path: Path, *, sha256: str, instead: str, timeout_s: float = TIMEOUT_S) -> Path:
    """`path` with that content: as it lies there, or else downloaded. `what` and `instead` word the refusal."""
    if os.path.isfile(path) and sha256_file(path) == sha256:
        return path
    try:
        with urlopen(address, timeout=timeout_s) as response:
            content: bytes = response.read()
    except (OSError, HTTPException, ValueError) as error:
        raise SpecError(f"{what} cannot be downloaded from {address} ({why(error)}); {instead}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise SpecError(
            f"{what} is not kept: {address} gave another file than the pinned one (sha256 {found[:12]}, expected "
            f"{sha256[:12]}); {instead}"
        )
    with atomic_write(path) as handle:
        cast(TextIO, handle).buffer.write(content)
    return path


def why(error: Exception) -> str:
    """The reason of a failed download, in one line."""
    reason = error.reason if isinstance(error, URLError) and not isinstance(error, HTTPError) else error
    return (str(reason) or type(reason).__name__).splitlines()[0]
