"""Small-sample statistics."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.stats import (
    FEWEST_RESAMPLES,
    MOST_WEIGHTS,
    NUM_RESAMPLES,
    Spread,
    bootstrap_weights,
    evenly,
    interval95,
)


@given(st.integers(1, 40))
def test_every_resample_draws_as_many_items_as_there_are(n: int) -> None:
    weights = bootstrap_weights(n)
    assert weights.shape == (NUM_RESAMPLES, n)
    assert weights.sum(axis=1).tolist() == [n] * NUM_RESAMPLES


def test_the_same_number_of_items_gives_the_same_draws() -> None:
    first = bootstrap_weights(7).copy()
    bootstrap_weights.cache_clear()
    assert np.array_equal(bootstrap_weights(7), first)


def test_the_shared_draws_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        bootstrap_weights(7)[0, 0] = 3


@pytest.mark.parametrize(
    ("n", "resamples"),
    [(MOST_WEIGHTS // NUM_RESAMPLES, NUM_RESAMPLES), (10_000, 400), (50_000, FEWEST_RESAMPLES)],
)
def test_many_items_are_drawn_less_often_but_never_too_seldom(n: int, resamples: int) -> None:
    assert bootstrap_weights(n).shape == (resamples, n)
    bootstrap_weights.cache_clear()


def test_every_item_is_drawn_once_on_average_with_the_bootstraps_variance() -> None:
    n = 10
    weights = bootstrap_weights(n)
    assert weights.mean(axis=0).tolist() == pytest.approx([1.0] * n, abs=0.1)
    assert weights.var(axis=0).tolist() == pytest.approx([1 - 1 / n] * n, abs=0.15)


def test_interval95_leaves_out_two_and_a_half_percent_at_each_end() -> None:
    assert interval95(np.arange(1001.0)) == (25.0, 975.0)


def test_a_spread_is_the_median_with_the_outer_tenths() -> None:
    assert Spread.of([float(i) for i in (11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10)]) == Spread(
        median=6.0, p10=2.0, p90=10.0, num_samples=11
    )


def test_a_spread_of_one_sample_is_that_sample() -> None:
    assert Spread.of([0.25]) == Spread(median=0.25, p10=0.25, p90=0.25, num_samples=1)


@given(st.integers(1, 60), st.integers(1, 60))
def test_items_taken_evenly_keep_their_order_and_lie_equally_far_apart(length: int, count: int) -> None:
    taken = evenly(range(length), count)
    assert len(taken) == min(count, length)
    assert taken == sorted(set(taken))
    gaps = [b - a for a, b in zip(taken, [*taken[1:], length], strict=True)]
    assert taken[0] == 0
    assert max(gaps) - min(gaps) <= 1


def test_of_nothing_nothing_is_taken() -> None:
    assert evenly([], 3) == []
