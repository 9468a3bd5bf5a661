"""Counter-based noise: every random number is a function of (seed, stream, position, purpose).

So results do not depend on batch composition or on how many numbers were drawn before, and one seed gives one text
for plain decoding, every one-hot drafter and every D. Generator: Philox4x64-10 [Salmon11], through numpy.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Purpose(IntEnum):
    """What a number is used for; different purposes never share one."""

    TARGET = 0
    DRAFT = 1
    ACCEPT = 2
    RESIDUAL = 3


def uniforms(seed: int, stream: int, position: int, purpose: Purpose, size: int) -> NDArray[np.float64]:
    """[size] numbers, uniform and strictly inside (0, 1)."""
    bits = np.random.Philox(key=[seed, purpose], counter=[0, position, stream, 0]).random_raw(size)
    numbers: NDArray[np.float64] = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return numbers


def uniform(seed: int, stream: int, position: int, purpose: Purpose) -> float:
    """One number, uniform and strictly inside (0, 1)."""
    return float(uniforms(seed, stream, position, purpose, 1)[0])


def exponentials(seed: int, stream: int, position: int, purpose: Purpose, size: int) -> NDArray[np.float64]:
    """[size] unit exponentials, one for each vocabulary entry.

    argmin(exponentials / p) is a draw from p: the Gumbel-max trick in its exponential form. The token it picks changes
    as little as may be when p changes a little, which is what keeps two numerically different passes in step.
    """
    return -np.log(uniforms(seed, stream, position, purpose, size))
