"""Small-sample statistics: the bootstrap over conversations, and medians with their spread."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
NUM_RESAMPLES = 2000
FEWEST_RESAMPLES = 200
# Multiplicities held at once: 32 MB.
MOST_WEIGHTS = 4_000_000


@lru_cache(maxsize=2)
def bootstrap_weights(n: int) -> NDArray[np.float64]:
    """[R, n] multiplicities of n items drawn n times with replacement; the same n gives the same draws [Efron79].

    R is 2000, and less for many items, whose interval is narrow anyway. The array is shared: read only.
    """
    resamples = max(FEWEST_RESAMPLES, min(NUM_RESAMPLES, MOST_WEIGHTS // n))
    weights = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
    weights.setflags(write=False)
    return weights


def interval95(values: NDArray[np.float64]) -> tuple[float, float]:
    """Central 95 % of the values."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def evenly(items: Sequence[T], count: int) -> list[T]:
    """`count` of the items, spread evenly over them in their order; all where there are not more."""
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median of repeated timings in seconds, with 10th and 90th percentile."""

    median: float
    p10: float
    p90: float
    num_samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> "Spread":
        """From at least one sample."""
        p10, median, p90 = np.quantile(np.asarray(samples, dtype=float), (0.1, 0.5, 0.9))
        return cls(median=float(median), p10=float(p10), p90=float(p90), num_samples=len(samples))
