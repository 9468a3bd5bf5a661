"""Which weights lie in a folder: what a run or a folder of features was made of must be what it goes on with."""

import hashlib
from pathlib import Path

# A model of many gigabytes is told from its other states by so much of each file: training changes every matrix.
FIRST, PIECES, PIECE = 1 << 20, 64, 1 << 12
PATTERNS = ("*.safetensors", "*.bin")


def weights_id(folder: Path) -> str:
    """A hash of names, sizes, headers and pieces of the weights in a folder."""
    found = hashlib.sha256()
    for path in sorted(path for pattern in PATTERNS for path in folder.glob(pattern)):
        size = path.stat().st_size
        found.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            found.update(file.read(FIRST))
            for piece in range(PIECES):
                file.seek(size * piece // PIECES)
                found.update(file.read(PIECE))
    return found.hexdigest()[:16]
