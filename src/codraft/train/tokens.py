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
from codraft.core.spec import check_positive, load
from codraft.train.arrays import save_arrays

# In the metadata, by which a reader knows the file and its version.
FORMAT = "codraft.tokens/1"
ARRAYS = ("tokens", "ends", "mask", "category")
CATEGORY_KINDS = (np.uint16, np.uint32)
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
                arrays = {name: handle.get_tensor(name) for name in ARRAYS}
        except FileNotFoundError as error:
            raise SpecError(f"there is no {path}; make it with: codraft train data") from error
        except (OSError, SafetensorError) as error:
            raise SpecError(f"cannot read {path}: {error}; make it again with: codraft train data") from error
        self.origin, self.categories = told(path, metadata)
        wrong = fault(arrays, len(self.categories), self.origin.vocab_size)
        if wrong is not None:
            raise SpecError(f"{path} is broken: {wrong}; make it again with: codraft train data")
        self._tokens, self._ends = arrays["tokens"], arrays["ends"].astype(np.int64)
        self._mask, self._category = arrays["mask"], arrays["category"]
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


def told(path: Path, metadata: Mapping[str, str]) -> tuple[Origin, list[str]]:
    """What the header of a token file says: where rows come from, and names of categories. SpecError."""
    try:
        origin, names = json.loads(metadata["origin"]), json.loads(metadata["categories"])
    except (KeyError, ValueError, RecursionError) as error:
        raise SpecError(f"{path} is broken: its header says {error}; make it again with: codraft train data") from error
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise SpecError(f"{path} is broken: its categories are no names; make it again with: codraft train data")
    found = load(Origin, origin, str(path))
    check_positive(found.vocab_size, f"{path}: vocab_size")
    return found, names


def fault(arrays: Mapping[str, NDArray[Any]], categories: int, vocab_size: int) -> str | None:
    """What is wrong with the arrays of a token file, None where nothing is."""
    tokens, ends, mask, category = (arrays[name] for name in ARRAYS)
    kinds = {"tokens": (np.uint16, np.uint32), "ends": (np.int64,), "mask": (np.uint8,), "category": CATEGORY_KINDS}
    for name, allowed in kinds.items():
        one = arrays[name]
        if one.ndim != 1 or one.dtype not in allowed:
            return f"its {name} are {one.dtype} of shape {list(one.shape)}"
    if (int(ends[-1]) if len(ends) else 0) != len(tokens) or bool((np.diff(ends, prepend=0) <= 0).any()):
        return "its rows do not cover its tokens"
    if len(mask) != (len(tokens) + 7) // 8:
        return f"its mask has {len(mask)} bytes for {len(tokens)} tokens"
    if len(category) != len(ends) or (len(category) and int(category.max()) >= categories):
        return f"its rows have categories that are not among its {categories}"
    if len(tokens) and int(tokens.max()) >= vocab_size:
        return f"token id {tokens.max()} is outside its vocabulary of {vocab_size}"
    return None


def write_tokens(path: Path, rows: Iterable[Row], origin: Origin) -> None:
    """Rows to a file that appears whole. SpecError where an id lies outside the vocabulary."""
    kept = [row for row in rows if len(row.ids)]
    names = sorted({row.category or "" for row in kept})
    places = {name: place for place, name in enumerate(names)}
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
        "category": np.array(
            [places[row.category or ""] for row in kept], dtype=np.uint16 if len(names) <= 1 << 16 else np.uint32
        ),
    }
    save_arrays(path, arrays, metadata_of(origin, names))


def metadata_of(origin: Origin, categories: Sequence[str]) -> dict[str, str]:
    """Text that stands in the file's header."""
    told = {name: getattr(origin, name) for name in Origin.__slots__}
    return {"format": FORMAT, "origin": json.dumps(told), "categories": json.dumps(categories)}
