"""Training data as one compact file: token ids, and which of them the target wrote.

A safetensors file: `tokens` (uint16 where the vocabulary allows, else uint32) of all rows one after the other, `ends`
[N] where each row ends, `mask` one bit a token (numpy.packbits), `category` [N] an index into the names in the
metadata. A set bit at t says that the target wrote token t as part of an answer: a drafter is to predict it. In memory
it takes what it takes on disk, two or four bytes a token.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from codraft.core.errors import SpecError
from codraft.core.files import sha256_file
from codraft.train.arrays import save_arrays

# In the metadata, by which a reader knows the file and its version.
FORMAT = "codraft.tokens/1"
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence: `ids` [T], `mask` [T] of what the target wrote."""

    ids: Ids
    mask: Mask
    category: str | None = None

    def spans(self) -> list[tuple[int, int]]:
        """[first, last) of every run that the target wrote."""
        edges = np.flatnonzero(np.diff(np.concatenate(([0], self.mask.astype(np.int8), [0]))))
        return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where rows come from: `target` as the user calls it, its vocabulary, how answers were drawn, other notes."""

    target: str
    vocab_size: int
    template: str
    sampling: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)


class TokenFile:
    """All rows of a file or the first `rows`, read when asked for. SpecError where it is not one, or is cut."""

    def __init__(self, path: Path, rows: int | None = None) -> None:
        self.path = path
        try:
            with safe_open(path, framework="np") as handle:
                metadata = handle.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise SpecError(f"{path} is no token file of codraft ({FORMAT}); make one with: codraft train data")
                arrays = {name: handle.get_tensor(name) for name in ("tokens", "ends", "mask", "category")}
        except FileNotFoundError as error:
            raise SpecError(f"there is no {path}; make it with: codraft train data") from error
        except (OSError, SafetensorError) as error:
            raise SpecError(f"cannot read {path}: {error}; make it again with: codraft train data") from error
        self.origin = Origin(**json.loads(metadata["origin"]))
        self.categories: list[str] = json.loads(metadata["categories"])
        self._tokens, self._ends = arrays["tokens"], arrays["ends"].astype(np.int64)
        self._mask, self._category = arrays["mask"], arrays["category"]
        if len(self._ends) and (int(self._ends[-1]) != len(self._tokens) or bool((np.diff(self._ends) <= 0).any())):
            raise SpecError(f"{path}: its rows do not cover its tokens; make it again with: codraft train data")
        if rows is not None:
            self._ends, self._category = self._ends[:rows], self._category[:rows]
            self._tokens = self._tokens[: int(self._ends[-1]) if len(self._ends) else 0]

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def lengths(self) -> Ids:
        """[N] tokens of each row."""
        lengths: Ids = np.diff(self._ends, prepend=0)
        return lengths

    @property
    def num_tokens(self) -> int:
        """Tokens of all rows."""
        return len(self._tokens)

    @property
    def num_supervised(self) -> int:
        """Tokens that the target wrote."""
        return int(np.unpackbits(self._mask, count=len(self._tokens)).sum())

    def rows_by_category(self) -> dict[str, int]:
        """How many rows each category has, by name; rows without one under an empty name."""
        counts = np.bincount(self._category, minlength=len(self.categories)).tolist()
        return dict(zip(self.categories, counts, strict=True))

    @property
    def sha256(self) -> str:
        """Hash of the whole file."""
        return sha256_file(self.path)

    def row(self, index: int) -> Row:
        """One row."""
        end = int(self._ends[index])
        start = int(self._ends[index - 1]) if index else 0
        bits = np.unpackbits(self._mask[start // 8 : (end + 7) // 8])[start % 8 : start % 8 + end - start]
        name = self.categories[int(self._category[index])]
        return Row(self._tokens[start:end].astype(np.int64), bits.astype(bool), name or None)


def write_tokens(path: Path, rows: Iterable[Row], origin: Origin) -> None:
    """Rows to a file that appears whole. SpecError where an id lies outside the vocabulary."""
    kept = [row for row in rows if len(row.ids)]
    names = sorted({row.category or "" for row in kept})
    lengths = [len(row.ids) for row in kept]
    ids = np.concatenate([row.ids for row in kept]) if kept else np.zeros(0, dtype=np.int64)
    if len(ids) and not 0 <= ids.min() <= ids.max() < origin.vocab_size:
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise SpecError(f"{path}: token id {wrong} is outside the target's vocabulary of {origin.vocab_size}")
    bits = np.concatenate([row.mask for row in kept]) if kept else np.zeros(0, dtype=bool)
    arrays: Mapping[str, NDArray[Any]] = {
        "tokens": ids.astype(np.uint16 if origin.vocab_size <= 1 << 16 else np.uint32),
        "ends": np.cumsum(lengths, dtype=np.int64),
        "mask": np.packbits(bits),
        "category": np.array([names.index(row.category or "") for row in kept], dtype=np.uint16),
    }
    save_arrays(path, arrays, metadata_of(origin, names))


def metadata_of(origin: Origin, categories: Sequence[str]) -> dict[str, str]:
    """Text that stands in the file's header."""
    told = {name: getattr(origin, name) for name in Origin.__slots__}
    return {"format": FORMAT, "origin": json.dumps(told), "categories": json.dumps(categories)}
