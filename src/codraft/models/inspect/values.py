"""Copies of a matrix, told by a few of their rows."""

from codraft.formats.safetensors import TensorInfo, read_values
from codraft.formats.source import Source

# Largest difference of two copies of a row, relative to its largest value: one of them may have been rounded to fewer
# bits (bfloat16 has 8 of them).
ROUNDING = 2.0**-7


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
