"""Reduced draft vocabularies: `d2t` and `t2d`.

Two ways of writing a map of Vd draft ids are about. Offsets: target id = j + d2t[j] [SafeAILab's EAGLE-3, and what vLLM
and SGLang read]. Absolute: target id = d2t[j]. Most arrays can be only one of the two. Where both readings are in range
and free of duplicates, `t2d` decides. Without it the absolute reading stands, and is reported as ambiguous: an array of
offsets that allows it never repeats a value, so its map would have no two neighbouring ids, and maps made from counts
are full of them. Hence all zeros are offsets (the first Vd ids), and 0, 1, 2, ... is absolute (the same ids).
"""

import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Form = Literal["offset", "absolute", "inconsistent"]
Kind = Literal["dtype", "shape", "length", "range", "duplicates", "order", "zeros", "constant", "t2d", "ambiguous"]
# Sums with a position stay far from the ends of int64, and such values are out of range in any case.
LARGE = 2**40


@dataclass(frozen=True, slots=True)
class MapProblem:
    """One thing that is wrong or doubtful with a draft map."""

    kind: Kind
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class DraftMap:
    """Target id of every draft id. `inconsistent`: neither reading is in range and free of duplicates; `target_ids` is
    then the one with fewer faults, not safe to index with, and empty where the array is no list of numbers."""

    form: Form
    target_ids: "Sequence[int] | NDArray[np.int64]"
    problems: list[MapProblem]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """The array read in one way. `against_t2d`: ids that only one of the map and t2d has, None without a t2d."""

    form: Literal["offset", "absolute"]
    target_ids: "NDArray[np.int64]"
    outside: int
    duplicates: int
    against_t2d: int | None
    descents: int

    @property
    def faults(self) -> tuple[int, int, int]:
        """Fewer is better: entries that cannot be, disagreement with t2d, entries out of order."""
        return self.outside + self.duplicates, self.against_t2d or 0, self.descents


def plain_map(d2t: bytes, t2d: bytes, vocab_size: int, draft_vocab_size: int | None) -> DraftMap | None:
    """The map of int64 offsets and boolean marks that leaves no doubt, as `read_draft_map` finds it but without numpy,
    whose import takes longer than all the rest; None for any other."""
    offsets = array("q", d2t)
    if sys.byteorder == "big":
        offsets.byteswap()
    ids = [j + offset for j, offset in enumerate(offsets)]
    ascending = all(one < other for one, other in pairwise(ids))
    inside = bool(ids) and ids[0] >= 0 and ids[-1] < vocab_size == len(t2d)
    # Values that repeat cannot be ids; one value alone may be a buffer that was never filled.
    repeats = 1 < len(set(offsets)) < len(ids)
    if not (ascending and inside and repeats and draft_vocab_size in (None, len(ids))):
        return None
    marked = len(t2d) - t2d.count(0) == len(ids) and all(t2d[i] for i in ids)
    return DraftMap("offset", ids, []) if marked else None


def read_draft_map(
    d2t: "NDArray[Any]", t2d: "NDArray[Any] | None", vocab_size: int, draft_vocab_size: int | None = None
) -> DraftMap:
    """How a head maps its draft ids, and what is doubtful. Sizes as config.json has them; nothing here raises."""
    import numpy as np

    problems: list[MapProblem] = []
    values = whole_numbers(d2t, problems)
    if values is None:
        return DraftMap("inconsistent", np.zeros(0, np.int64), problems)
    if draft_vocab_size is not None and len(values) != draft_vocab_size:
        problems.append(MapProblem("length", f"d2t has {len(values)} entries, draft_vocab_size is {draft_vocab_size}"))
    marked = None if t2d is None else marked_ids(t2d, vocab_size, problems)
    offset = read_as("offset", values + np.arange(len(values)), marked, vocab_size)
    absolute = read_as("absolute", values, marked, vocab_size)
    # Both are the same for a single id: then it is what engines read. A tie goes to the absolute reading.
    same = np.array_equal(offset.target_ids, absolute.target_ids)
    best, other = (offset, absolute) if same or offset.faults < absolute.faults else (absolute, offset)
    if not same and offset.faults == absolute.faults and not best.faults[0]:
        problems.append(
            MapProblem(
                "ambiguous",
                f"d2t is a valid map read as absolute ids (last {best.target_ids[-1]}) and as offsets (last "
                f"{other.target_ids[-1]}), and "
                f"{'there is no t2d to tell' if marked is None else 't2d agrees with neither'}",
            )
        )
    problems += faults_of(best, vocab_size, marked)
    problems += suspicions(values, best, vocab_size)
    return DraftMap("inconsistent" if best.faults[0] else best.form, best.target_ids, problems)


def whole_numbers(d2t: "NDArray[Any]", problems: list[MapProblem]) -> "NDArray[np.int64] | None":
    """The entries as int64, None where they are no list of whole numbers."""
    import numpy as np

    if d2t.ndim != 1 or not len(d2t):
        problems.append(MapProblem("shape", f"d2t has shape {list(d2t.shape)}, not one number for each draft id"))
        return None
    if d2t.dtype.kind in "iu":
        return clipped(d2t)
    whole = d2t.dtype.kind == "f" and bool(np.isfinite(d2t).all()) and bool((d2t == np.floor(d2t)).all())
    lost = "floats round large ids" if whole else "and not all entries are whole numbers"
    problems.append(MapProblem("dtype", f"d2t is stored as {d2t.dtype}, not as integers; {lost}"))
    return clipped(d2t) if whole else None


def clipped(values: "NDArray[Any]") -> "NDArray[np.int64]":
    """Whole numbers of any type as int64, those that no vocabulary reaches cut to a size that can be added to."""
    import numpy as np

    return np.clip(values.astype(np.float64), -LARGE, LARGE).astype(np.int64)


def marked_ids(t2d: "NDArray[Any]", vocab_size: int, problems: list[MapProblem]) -> "NDArray[np.int64] | None":
    """Target ids that t2d marks, ascending; None where it is no mask."""
    import numpy as np

    if t2d.ndim != 1:
        problems.append(MapProblem("shape", f"t2d has shape {list(t2d.shape)}, not one mark for each target id"))
        return None
    if t2d.dtype.kind not in "biuf" or not np.isin(t2d, (0, 1)).all():
        problems.append(MapProblem("dtype", f"t2d is stored as {t2d.dtype} and holds more than true and false"))
        return None
    if len(t2d) != vocab_size:
        problems.append(MapProblem("length", f"t2d has {len(t2d)} entries, the target's vocabulary {vocab_size}"))
    return np.flatnonzero(t2d).astype(np.int64)


def read_as(
    form: Literal["offset", "absolute"],
    target_ids: "NDArray[np.int64]",
    marked: "NDArray[np.int64] | None",
    vocab_size: int,
) -> Reading:
    """One reading and its faults."""
    import numpy as np

    distinct = np.unique(target_ids)
    return Reading(
        form,
        target_ids,
        outside=int(((target_ids < 0) | (target_ids >= vocab_size)).sum()),
        duplicates=len(target_ids) - len(distinct),
        against_t2d=None if marked is None else len(np.setxor1d(distinct, marked, assume_unique=True)),
        descents=int((np.diff(target_ids) < 0).sum()),
    )


def faults_of(reading: Reading, vocab_size: int, marked: "NDArray[np.int64] | None") -> list[MapProblem]:
    """What is wrong with the better reading, one sentence each."""
    ids = reading.target_ids
    found: list[MapProblem] = []
    if reading.outside:
        bad = int(ids[(ids < 0) | (ids >= vocab_size)][0])
        found.append(
            MapProblem("range", f"{reading.outside} of {len(ids)} draft ids map outside 0..{vocab_size - 1} (to {bad})")
        )
    if reading.duplicates:
        found.append(
            MapProblem("duplicates", f"{reading.duplicates} draft ids map to a target id that another one has")
        )
    if reading.descents:
        found.append(MapProblem("order", f"target ids are not ascending ({reading.descents} descents)"))
    if marked is not None and reading.against_t2d:
        found.append(
            MapProblem(
                "t2d",
                f"t2d marks {len(marked)} target ids and d2t maps to {len(ids) - reading.duplicates}; "
                f"{reading.against_t2d} ids are in only one of them",
            )
        )
    return found


def suspicions(values: "NDArray[np.int64]", reading: Reading, vocab_size: int) -> list[MapProblem]:
    """Maps that are valid and look like a buffer that nobody filled. A t2d that agrees clears them."""
    first = int(values[0])
    constant = len(values) > 1 and bool((values == first).all())
    if not constant or len(values) >= vocab_size or reading.against_t2d == 0:
        return []
    if first == 0:
        return [
            MapProblem("zeros", f"d2t is all zeros: the first {len(values)} ids, or a buffer that was never filled")
        ]
    return [MapProblem("constant", f"every entry of d2t is {first}")]
