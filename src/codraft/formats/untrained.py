"""Tensors that look as if nobody had trained them, told from a few of their rows.

A fresh matrix has independent entries of one spread: every row and every column has the same mean square up to chance,
and the fourth moment is that of a normal or a uniform distribution. Training breaks the first within a few hundred
steps: rows and columns of trained matrices differ in size by far more than chance allows. Fresh norms are exactly one
(or zero, in families that add one), every one of them.
"""

import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

from codraft.formats.quantnames import FLOATS
from codraft.formats.safetensors import TensorInfo, read_raw, read_values
from codraft.formats.source import HubSource, Source

if TYPE_CHECKING:
    import numpy as np

# Elements of each piece of a matrix that is looked into for constants and NaN, and how many are read as one piece.
PIECE, WHOLE = 512, 1 << 15
# By dtype: the array type that holds an element, the bits that are all set in NaN and infinity, the sign.
BITS = {
    "BF16": ("H", 0x7F80, 1 << 15),
    "F16": ("H", 0x7C00, 1 << 15),
    "F32": ("I", 0x7F80_0000, 1 << 31),
    "F64": ("Q", 0x7FF0 << 48, 1 << 63),
}
# Rows of a matrix that are read, elements of each, and the fewest of both that say something.
ROWS, COLUMNS, FEWEST = 64, 2048, 32
# Standard errors within which chance explains a difference: a fresh matrix exceeds them once in ten thousand times. Of
# the 210 matrices of SmolLM2-135M the one nearest to a fresh one differs by twice as much.
ERRORS = 5.0
# Fourth moments over squared variance, as wide as rounding to bfloat16 makes them: 1.8 is uniform, 3 normal. An
# estimate from n normal entries has a variance of 24/n.
MOMENTS, SPREAD = (1.7, 3.05), 24.0
# Matrices looked into; of a hub's files, each row is a request.
MOST, MOST_REQUESTED, ROWS_REQUESTED = 400, 6, 32


@dataclass(slots=True)
class Untrained:
    """Names of tensors that hold one value, NaN or infinity, or what a fresh matrix holds, of `matrices` looked into;
    `norms`: how many norm weights there are, all of them as they are made, 0 where training changed any."""

    constant: list[str] = field(default_factory=list)
    not_finite: list[str] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    matrices: int = 0
    norms: int = 0

    @property
    def untouched(self) -> list[str]:
        """Matrices that look fresh, where most do. Steps of Muon are as even as noise, so that one or two matrices of a
        trained head may look so too."""
        return self.fresh if 2 * len(self.fresh) > self.matrices else []


def fault_of(source: Source, info: TensorInfo) -> Literal["constant", "not finite"] | None:
    """What is wrong with a tensor of floats, or with pieces of a large one: one value everywhere, or one that is no
    number."""
    code, exponent, sign = BITS[info.dtype]
    count = info.num_elements if info.num_elements <= WHOLE else PIECE
    if not count:
        return None
    found: set[int] = set()
    for start in sorted({0, (info.num_elements - count) // 2, info.num_elements - count}):
        piece = array(code, read_raw(source, info, start, count))
        if sys.byteorder == "big":
            piece.byteswap()
        found.update(piece)
    if any(value & exponent == exponent for value in found):
        return "not finite"
    # Zero has two signs.
    return "constant" if len(found) == 1 or found <= {0, sign} else None


def not_finite(source: Source, tensors: Mapping[str, TensorInfo]) -> list[str]:
    """Names of the tensors in which NaN or infinity is seen, the largest looked into first, up to `MOST`."""
    floats = [(name, info) for name, info in tensors.items() if info.dtype in FLOATS]
    floats.sort(key=lambda pair: -pair[1].num_elements)
    return [name for name, info in floats[:MOST] if fault_of(source, info) == "not finite"]


def look(source: Source, tensors: Mapping[str, TensorInfo]) -> Untrained:
    """What of a drafter's own tensors looks untrained. Copies of the target's ends are the caller's to leave out."""
    found = Untrained()
    requested = isinstance(source, HubSource)
    matrices = [(name, info) for name, info in tensors.items() if len(info.shape) in (2, 3) and info.dtype in FLOATS]
    matrices.sort(key=lambda pair: -pair[1].num_elements)
    matrices = matrices[: MOST_REQUESTED if requested else MOST]
    found.matrices = len(matrices)
    for name, info in matrices:
        fault = fault_of(source, info)
        if fault == "not finite":
            found.not_finite.append(name)
        elif min(info.shape[-2:]) == 1:
            # A row alone, as in a confidence head, shows nothing.
            continue
        elif fault == "constant":
            found.constant.append(name)
        elif fresh_inside(source, info, ROWS_REQUESTED if requested else ROWS):
            found.fresh.append(name)
    if not requested:
        vectors = [(name, info) for name, info in tensors.items() if len(info.shape) == 1 and info.dtype in FLOATS]
        found.not_finite += [name for name, info in vectors if fault_of(source, info) == "not finite"]
        found.norms = fresh_norms(source, tensors)
    return found


def fresh_inside(source: Source, info: TensorInfo, num_rows: int) -> bool:
    """Whether a matrix looks fresh, or that of the expert in the middle where a tensor has one for each, [E, ...]."""
    one = info
    if len(info.shape) == 3 and info.num_elements:
        count, size = info.shape[0], info.num_bytes // info.shape[0]
        start = info.start + count // 2 * size
        one = replace(info, shape=info.shape[1:], start=start, stop=start + size)
    return min(one.shape) >= FEWEST and is_fresh(sample(source, one, num_rows))


def sample(source: Source, info: TensorInfo, num_rows: int) -> "np.ndarray[Any, Any]":
    """[rows, columns] of a matrix in float64: rows spread evenly, of each the first columns."""
    import numpy as np

    rows, width = info.shape
    count, columns = min(rows, num_rows), min(width, COLUMNS)
    at = [rows * i // count for i in range(count)]
    return np.stack([read_values(source, info, row * width, columns).astype(np.float64) for row in at])


def is_fresh(values: "np.ndarray[Any, Any]") -> bool:
    """Whether these entries of a matrix are as independent draws of one distribution would be."""
    rows, columns = values.shape
    squares = values**2
    mean_square = float(squares.mean())
    if not mean_square > 0:
        return False
    moment = float((squares**2).mean()) / mean_square**2
    chance = ERRORS * sqrt(SPREAD / values.size)
    if not MOMENTS[0] - chance <= moment <= MOMENTS[1] + chance:
        return False
    if abs(float(values.mean())) > ERRORS * sqrt(mean_square / values.size):
        return False
    # The mean square of n independent entries has a relative variance of (moment - 1)/n.
    return all(
        even(squares.mean(axis=axis) / mean_square, (moment - 1) / length) for axis, length in ((1, columns), (0, rows))
    )


def even(means: "np.ndarray[Any, Any]", variance: float) -> bool:
    """Whether means of squares differ by no more than chance; `variance` is what chance gives."""
    return abs(float(means.var()) / variance - 1) <= ERRORS * sqrt(2 / len(means)) + 1 / len(means)


def fresh_norms(source: Source, tensors: Mapping[str, TensorInfo]) -> int:
    """How many norms there are, if every one of them is exactly one everywhere, or every one zero; else 0."""
    norms = [info for name, info in tensors.items() if is_norm(name, info)]
    values: set[float] = set()
    for info in norms:
        values.update(read_values(source, info).tolist())
        if len(values) > 1:
            return 0
    return len(norms) if values in ({1.0}, {0.0}) else 0


def is_norm(name: str, info: TensorInfo) -> bool:
    """Whether a tensor is the weight of a norm."""
    return len(info.shape) == 1 and info.dtype in FLOATS and name.endswith(".weight") and "norm" in name
