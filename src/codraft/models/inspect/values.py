"""Looking into tensors without reading them: a few kilobytes from three places."""

import sys
from array import array
from typing import Literal

from codraft.formats.safetensors import TensorInfo, read_raw, read_values
from codraft.formats.source import Source

# Elements of each piece.
PIECE = 512
# By dtype: the array type that holds an element, the bits that are all set in NaN and infinity, the sign.
BITS = {
    "BF16": ("H", 0x7F80, 1 << 15),
    "F16": ("H", 0x7C00, 1 << 15),
    "F32": ("I", 0x7F80_0000, 1 << 31),
    "F64": ("Q", 0x7FF0 << 48, 1 << 63),
}
# Largest difference of two copies of a row, relative to its largest value: one of them may have been rounded to fewer
# bits (bfloat16 has 8 of them).
ROUNDING = 2.0**-7


def fault_of(source: Source, info: TensorInfo) -> Literal["constant", "not finite"] | None:
    """What is wrong with pieces of a floating-point tensor: one value everywhere, or one that is no number."""
    code, exponent, sign = BITS[info.dtype]
    count = min(PIECE, info.num_elements)
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


def same_rows(ours: tuple[Source, TensorInfo], theirs: tuple[Source, TensorInfo], num_rows: int = 6) -> bool:
    """Whether some rows of two matrices of one shape hold the same numbers, up to rounding.

    Rows are spread over the matrix: reserved ids often share one untrained row.
    """
    import numpy as np

    (rows, width), (source_a, a), (source_b, b) = ours[1].shape, ours, theirs
    for row in sorted({rows * i // num_rows for i in range(num_rows)} | {rows - 1}):
        left = read_values(source_a, a, row * width, width).astype(np.float64)
        right = read_values(source_b, b, row * width, width).astype(np.float64)
        if not np.abs(left - right).max(initial=0.0) <= ROUNDING * max(np.abs(left).max(initial=0.0), 1e-9):
            return False
    return True
