"""Learning curves: what is recovered, how sure a forecast is, and when there is none."""

import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.record import to_json
from codraft.train.forecast import LearningPoint, forecast, sentence, tokens_text

Curve = Callable[[float], float]
M = 1_000_000


def saturating(tokens: float) -> float:
    return 2.2 - 1.0 * (tokens / 1e5) ** -0.35


def straight(tokens: float) -> float:
    return 1.3 + 0.2 * float(np.log(tokens / 1e5))


def points(
    curve: Curve, tokens: Sequence[float], noise: float = 0.0, seed: int = 0, half: float | None = None
) -> list[LearningPoint]:
    drawn = np.random.default_rng(seed).normal(0, noise, len(tokens))
    values = [curve(t) + e for t, e in zip(tokens, drawn.tolist(), strict=True)]
    return [
        LearningPoint(int(t), AL, None if half is None else (AL - half, AL + half))
        for t, AL in zip(tokens, values, strict=True)
    ]


EIGHT = np.geomspace(1e5, 2e6, 8).tolist()


@given(a=st.floats(1.5, 4.5), rise=st.floats(0.2, 0.5), c=st.floats(0.2, 1.2))
@settings(max_examples=25)
def test_a_saturating_curve_is_recovered(a: float, rise: float, c: float) -> None:
    def curve(tokens: float) -> float:
        return a - rise * (tokens / 1e5) ** -c

    found = forecast(points(curve, EIGHT), 4, 10 * M)
    assert pytest.approx(curve(1e7), abs=0.005) == found.AL
    assert found.form == "saturating"
    assert found.plateau == pytest.approx(a, abs=0.02)
    assert found.AL_ci95 is not None
    assert found.AL is not None
    assert found.AL_ci95[0] <= found.AL <= found.AL_ci95[1]


def test_a_curve_that_has_not_begun_to_flatten_is_a_line_in_log_tokens() -> None:
    found = forecast(points(straight, EIGHT), 4, 10 * M)
    assert found.form == "log-linear"
    assert pytest.approx(straight(1e7), abs=1e-4) == found.AL
    assert (found.plateau, found.plateau_ci95) == (None, None)
    assert sentence(found).endswith("where the curve flattens cannot be told yet")


@pytest.mark.parametrize("half", [None, 1.96 * 0.02])
@pytest.mark.parametrize("curve", [saturating, straight])
@pytest.mark.parametrize("num", [4, 8, 20])
def test_the_interval_holds_the_truth_as_often_as_it_says(curve: Curve, num: int, half: float | None) -> None:
    """Nominally 95 %. Of 30 curves, fewer than 25 hits would happen once in 2000 such tests by chance."""
    tokens = np.geomspace(1e5, 2e6, num).tolist()
    hits = 0
    for seed in range(30):
        found = forecast(points(curve, tokens, 0.02, seed, half), 4, 8 * M)
        assert found.AL_ci95 is not None
        hits += found.AL_ci95[0] <= curve(8e6) <= found.AL_ci95[1]
    assert hits >= 25


def test_more_checkpoints_and_nearer_forecasts_are_surer() -> None:
    def width(num: int, at: int) -> float:
        found = forecast(points(saturating, np.geomspace(1e5, 2e6, num).tolist(), 0.02, 1, 0.04), 4, at)
        assert found.AL_ci95 is not None
        return found.AL_ci95[1] - found.AL_ci95[0]

    assert width(20, 8 * M) < width(6, 8 * M)
    assert width(8, 2 * M) < width(8, 8 * M) < width(8, 64 * M)


def test_a_point_of_little_weight_does_not_bend_the_curve() -> None:
    good = points(saturating, EIGHT, half=0.01)
    off = LearningPoint(good[4].tokens, good[4].AL - 0.3, (good[4].AL - 1.8, good[4].AL + 1.2))
    found = forecast([*good[:4], off, *good[5:]], 4, 8 * M)
    assert pytest.approx(saturating(8e6), abs=0.01) == found.AL


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.floats(1, 3)), max_size=9, unique_by=lambda pair: pair[0]),
    st.integers(2, 8),
    st.integers(1, 10**12),
)
@settings(max_examples=60)
def test_no_forecast_leaves_the_range_of_AL_or_comes_without_words(
    pairs: list[tuple[int, float]], D: int, at: int
) -> None:
    found = forecast([LearningPoint(tokens, AL) for tokens, AL in pairs], D, at)
    assert (found.AL is None) == (found.reason is not None)
    if found.AL is not None and found.AL_ci95 is not None:
        assert 1 <= found.AL_ci95[0] <= found.AL_ci95[1] <= 1 + D
        assert 1 <= found.AL <= 1 + D
    assert sentence(found)
    json.dumps(to_json(found), allow_nan=False)


def test_a_line_is_cut_at_one_more_than_D() -> None:
    found = forecast(points(lambda t: 1 + 0.3 * float(np.log(t / 9e4)), EIGHT), 2, 10**12)
    assert (found.AL, found.AL_ci95) == (3.0, (3.0, 3.0))


def test_no_curve_flattens_above_one_more_than_D() -> None:
    """This one would at 2.6, which no drafter reaches at D = 1; there is nothing to say of its plateau."""
    steep = points(lambda t: 2.6 - 1.2 * (t / 1e5) ** -0.2, EIGHT)
    assert forecast(steep, 4, 8 * M).form == "saturating"
    found = forecast(steep, 1, 8 * M)
    assert (found.form, found.plateau) == ("log-linear", None)
    assert found.AL is not None
    assert found.AL <= 2


# No forecast.


@pytest.mark.parametrize(
    "tokens, told",
    [
        ([], "there are 0"),
        ([1e5], "there is 1"),
        ([1e5, 8e5], "there are 2 over a factor of 8.0"),
        ([1e5, 2e5, 4e5], "there are 3 over a factor of 4.0"),
        ([1e5, 2e5, 3e5, 3.9e5], "there are 4 over a factor of 3.9"),
    ],
)
def test_too_few_points_say_so(tokens: list[float], told: str) -> None:
    found = forecast(points(saturating, tokens), 4, 8 * M)
    assert (found.AL, found.AL_ci95, found.plateau) == (None, None, None)
    assert found.reason == f"a forecast needs at least 4 checkpoints over a factor of 4 in tokens; {told}"
    assert "no forecast: a forecast needs at least 4" in sentence(found)
    assert forecast(points(saturating, [1e5, 2e5, 3e5, 4e5]), 4, 8 * M).AL is not None


def test_a_curve_that_falls_is_said_to_fall() -> None:
    found = forecast(points(lambda t: 3.0 - straight(t) / 3, EIGHT), 4, 8 * M)
    assert (found.AL, found.falling) == (None, True)
    assert found.best is not None
    assert found.best[0] == 100_000
    assert sentence(found) == (
        "AL(4) is falling: best 2.57 at 100 k tokens, 2.37 at 2 M; keep the checkpoint of the best, more of the same "
        "training does not help"
    )


# As in DeepSpec issue 84: a best of 3.34, and 3.18 at the end of training while the loss fell on.
PEAK = [2.41, 2.78, 2.99, 3.12, 3.21, 3.27, 3.31, 3.33, 3.34, 3.33, 3.31, 3.27, 3.23, 3.18]


@pytest.mark.parametrize("half", [None, 0.08])
def test_a_peak_passed_long_ago_is_named(half: float | None) -> None:
    seen = [
        LearningPoint((k + 1) * M, AL, None if half is None else (AL - half, AL + half)) for k, AL in enumerate(PEAK)
    ]
    found = forecast(seen, 7, 40 * M)
    assert found.falling
    assert found.best == (9 * M, 3.34)
    assert found.AL is None
    assert "best 3.34 at 9 M tokens, 3.18 at 14 M" in sentence(found)
    before = forecast(seen[:9], 7, 40 * M)
    assert not before.falling
    assert before.AL is not None


def test_a_peak_is_seen_through_noise_and_by_narrow_intervals_where_few_points_know_no_better() -> None:
    for seed in range(10):
        drawn = np.random.default_rng(seed).normal(0, 0.02, len(PEAK)).tolist()
        noisy = [LearningPoint((k + 1) * M, AL + drawn[k], (AL - 0.3, AL + 0.3)) for k, AL in enumerate(PEAK)]
        assert forecast(noisy, 7, 40 * M).falling
    few = list(zip([0.5, 1, 2, 4, 6, 8], [2.6, 3.0, 3.2, 3.34, 3.25, 3.18], strict=True))
    assert not forecast([LearningPoint(int(t * M), AL) for t, AL in few], 7, 40 * M).falling
    assert forecast([LearningPoint(int(t * M), AL, (AL - 0.05, AL + 0.05)) for t, AL in few], 7, 40 * M).falling


@pytest.mark.parametrize("curve", [saturating, lambda tokens: 2.0])
@pytest.mark.parametrize("num", [4, 8, 20])
def test_noise_on_a_curve_that_rises_or_is_flat_is_seldom_taken_for_a_fall(curve: Curve, num: int) -> None:
    tokens = np.geomspace(1e5, 2e6, num).tolist()
    assert sum(forecast(points(curve, tokens, 0.02, seed), 4, 8 * M).falling for seed in range(40)) <= 6


def test_a_best_checkpoint_before_the_last_is_named_where_it_is_no_fall() -> None:
    seen = points(lambda t: 2.0, EIGHT, 0.02, 3)
    seen[-3] = LearningPoint(seen[-3].tokens, 2.05)
    found = forecast(seen, 4, 8 * M)
    assert not found.falling
    assert f"(best 2.05 at {tokens_text(seen[-3].tokens)})" in sentence(found)


# Words and input.


def test_a_forecast_is_told_in_one_sentence() -> None:
    seen = points(saturating, np.geomspace(1e5, 2.1e6, 12).tolist(), 0.005, 2, 0.01)
    said = sentence(forecast(seen, 4, 8 * M))
    assert said.startswith(f"AL(4) {seen[-1].AL:.2f} at 2.1 M tokens; at 8 M expect ")
    assert ", extrapolated 3.8x; the curve flattens at 2." in said
    assert sentence(forecast(seen, 4, 2 * M)).count(", within the data; ") == 1


def test_the_order_of_points_does_not_matter_and_the_same_points_give_the_same_forecast() -> None:
    seen = points(saturating, EIGHT, 0.02, 5, 0.04)
    assert forecast(seen, 4, 8 * M) == forecast(seen[::-1], 4, 8 * M)


def test_a_checkpoint_that_is_measured_again_counts_once() -> None:
    seen = points(saturating, EIGHT)
    again = [LearningPoint(seen[2].tokens, 1.1), *seen]
    assert forecast(again, 4, 8 * M) == forecast(seen, 4, 8 * M)


@pytest.mark.parametrize(
    "seen, D, at, told",
    [
        ([LearningPoint(0, 1.5)], 4, M, "tokens of a checkpoint must be at least 1; got 0"),
        ([LearningPoint(5, 5.5)], 4, M, r"AL\(4\) must be in 1\.\.5; got 5\.5 at 5 tokens"),
        ([LearningPoint(5, float("nan"))], 4, M, r"must be in 1\.\.5; got nan"),
        ([LearningPoint(5, 1.5, (1.6, 1.4))], 4, M, "AL_ci95 must be two numbers, the lower first"),
        ([LearningPoint(5, 1.5, (1.4, float("inf")))], 4, M, "AL_ci95 must be two numbers"),
        ([], 0, M, r"D \(--depth\) must be in 1"),
        ([], 4, 0, "at_tokens must be at least 1; got 0"),
    ],
)
def test_points_that_cannot_be_are_refused(seen: list[LearningPoint], D: int, at: int, told: str) -> None:
    with pytest.raises(SpecError, match=told):
        forecast(seen, D, at)
