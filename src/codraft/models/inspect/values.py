"""Looking into tensors without reading them: a few kilobytes from three places."""

from typing import Literal

from codraft.formats.safetensors import TensorInfo, read_values
from codraft.formats.source import Source

# Elements of each piece.
PIECE = 512
# Largest difference of two copies of a row, relative to its largest value: one of them may have been rounded to fewer
# bits (bfloat16 has 8 of them).
ROUNDING = 2.0**-7


def constant_value(source: Source, info: TensorInfo) -> float | Literal["not finite"] | None:
    """The one value that pieces of a tensor hold, `not finite`, or None where they hold several."""
    import numpy as np

    pieces = []
    count = min(PIECE, info.num_elements)
    if not count:
        return None
    for start in sorted({0, (info.num_elements - count) // 2, info.num_elements - count}):
        pieces.append(read_values(source, info, start, count))
    values = np.concatenate(pieces)
    if not np.isfinite(values).all():
        return "not finite"
    first = float(values[0])
    return first if bool((values == first).all()) else None


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
