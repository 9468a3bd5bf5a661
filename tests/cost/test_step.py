"""The one formula: speed-up, break-even, what a step's time is made of, and how wide a pass really is."""

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.schema import Ragged
from codraft.cost.step import StepTimes, break_even_AL, drafting_time, pass_widths, speedup, times_at

from tests.build import timing

SECONDS = st.floats(1e-6, 10.0)
ALS = st.floats(1.0, 65.0)


@st.composite
def step_times(draw: st.DrawFn) -> StepTimes:
    """Any step that takes time."""
    return StepTimes(t_verif_s=draw(SECONDS), t_draft_s=draw(SECONDS), t_sys_s=draw(SECONDS))


def test_a_step_takes_verification_drafting_and_system_time() -> None:
    assert StepTimes(t_verif_s=4.0, t_draft_s=2.0, t_sys_s=1.0).t_step_s == 7.0


def test_the_formula_gives_a_worked_example() -> None:
    plain = StepTimes(t_verif_s=0.010, t_draft_s=0.0, t_sys_s=0.002)
    drafted = StepTimes(t_verif_s=0.013, t_draft_s=0.003, t_sys_s=0.002)
    assert speedup(2.4, plain, drafted) == pytest.approx(1.6)
    assert break_even_AL(plain, drafted) == pytest.approx(1.5)


@given(step_times())
def test_plain_decoding_has_speedup_1(plain: StepTimes) -> None:
    assert speedup(1.0, plain, plain) == 1
    assert break_even_AL(plain, plain) == 1


@given(step_times(), step_times())
def test_speedup_at_the_break_even_AL_is_1(plain: StepTimes, drafted: StepTimes) -> None:
    AL = break_even_AL(plain, drafted)
    if AL >= 1:
        assert speedup(AL, plain, drafted) == pytest.approx(1)


@given(step_times(), step_times(), ALS, st.floats(1e-3, 1.0))
def test_speedup_grows_with_AL_and_falls_with_drafting_time(
    plain: StepTimes, drafted: StepTimes, AL: float, more: float
) -> None:
    slower = StepTimes(t_verif_s=drafted.t_verif_s, t_draft_s=drafted.t_draft_s + more, t_sys_s=drafted.t_sys_s)
    assert speedup(AL + more, plain, drafted) > speedup(AL, plain, drafted) > speedup(AL, plain, slower)


def test_an_AL_without_its_bonus_token_is_refused() -> None:
    one = StepTimes(t_verif_s=1.0, t_draft_s=0.0, t_sys_s=0.0)
    with pytest.raises(ValueError, match="AL counts the bonus token"):
        speedup(0.99, one, one)


POINTS = {
    0: timing(0, 10.0, sys=1.0),
    1: timing(1, 12.0, sys=1.5, ngram=0.25, external=3.0),
    2: timing(2, 20.0, sys=2.0, ngram=0.5, external=6.0),
}


def test_plain_decoding_pays_no_drafting() -> None:
    assert times_at(POINTS, None, 0, [1.0]) == StepTimes(t_verif_s=10.0, t_draft_s=0.0, t_sys_s=1.0)
    assert times_at(POINTS, "ngram", 0, [1.0]).t_draft_s == 0


def test_a_drafter_that_always_fills_pays_the_pass_of_its_D() -> None:
    assert times_at(POINTS, "external", 2, [0.0, 0.0, 1.0]) == StepTimes(t_verif_s=20.0, t_draft_s=6.0, t_sys_s=2.0)


def test_short_drafts_pay_for_the_passes_they_really_ask_for() -> None:
    # Half of the steps draft nothing, a quarter one token, a quarter two; looking up costs the same in each.
    times = times_at(POINTS, "ngram", 2, [0.5, 0.25, 0.25])
    assert times == StepTimes(t_verif_s=13.0, t_draft_s=0.5, t_sys_s=1.375)


@given(st.lists(st.floats(0.01, 1.0), min_size=3, max_size=3))
def test_the_average_pass_lies_between_the_shortest_and_the_longest(weights: list[float]) -> None:
    times = times_at(POINTS, "ngram", 2, [weight / sum(weights) for weight in weights])
    assert 10 <= times.t_verif_s <= 20
    assert 1 <= times.t_sys_s <= 2


def test_a_length_between_two_timed_D_is_interpolated() -> None:
    untimed = {D: POINTS[D] for D in (0, 2)}
    assert times_at(untimed, "ngram", 2, [0.0, 1.0, 0.0]).t_verif_s == 15.0
    assert times_at(POINTS, "ngram", 2, [0.0, 1.0, 0.0]).t_verif_s == 12.0


def test_without_plain_decoding_there_is_no_measure() -> None:
    with pytest.raises(SpecError, match=r"no timing at D = 0 \(timed: \[1, 2\]\)"):
        times_at({D: POINTS[D] for D in (1, 2)}, "ngram", 2, [0.0, 0.0, 1.0])


def test_a_D_that_was_not_timed_is_named_even_where_no_draft_filled_it() -> None:
    with pytest.raises(SpecError, match="no timing at D = 3"):
        times_at(POINTS, "ngram", 3, [0.5, 0.5, 0.0, 0.0])


def test_a_drafter_that_was_not_timed_is_named_with_those_that_were() -> None:
    with pytest.raises(SpecError, match=r"no drafting time of 'eagle3' at D = 1 \(timed: \['external', 'ngram'\]\)"):
        times_at(POINTS, "eagle3", 1, [0.0, 1.0])


def test_times_without_any_drafters_hold_whole_steps() -> None:
    whole = {D: replace(point, t_draft_s={}) for D, point in POINTS.items()}
    assert drafting_time(whole, "ngram", 2) == 0
    assert drafting_time({**whole, 1: POINTS[1]}, "ngram", 1) == 0.25
    with pytest.raises(SpecError, match=r"no drafting time of 'ngram' at D = 2 \(timed: \[\]\)"):
        drafting_time({**whole, 1: POINTS[1]}, "ngram", 2)


LENGTHS = st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(any)


def shares_of(weights: list[int]) -> list[float]:
    """Weights as shares of all steps."""
    return [weight / sum(weights) for weight in weights]


def by_enumeration(shares: list[float], B: int, ragged: Ragged) -> dict[float, float]:
    """Chance of every width of a pass, over all ways in which B sequences can draft."""
    chances: dict[float, float] = defaultdict(float)
    for drafts in itertools.product(range(len(shares)), repeat=B):
        width = max(drafts) if ragged == "padded" else sum(drafts) / B
        chances[width] += math.prod(shares[k] for k in drafts)
    return chances


RAGGED: list[Ragged] = ["padded", "packed"]
each_ragged = pytest.mark.parametrize("ragged", RAGGED)


@each_ragged
@given(LENGTHS, st.integers(1, 5))
def test_the_widths_of_a_batch_are_those_of_all_ways_to_draft(ragged: Ragged, weights: list[int], B: int) -> None:
    shares = shares_of(weights)
    expected = by_enumeration(shares, B, ragged)
    widths, chances = pass_widths(shares, B, ragged)
    assert widths.tolist() == sorted(set(widths.tolist()))
    for width, chance in zip(widths.tolist(), chances.tolist(), strict=True):
        assert chance == pytest.approx(expected.pop(width, 0.0), abs=1e-12)
    assert sum(expected.values()) == 0


@each_ragged
@given(LENGTHS)
def test_a_single_sequence_is_as_wide_as_its_draft(ragged: Ragged, weights: list[int]) -> None:
    widths, chances = pass_widths(shares_of(weights), 1, ragged)
    assert (widths.tolist(), chances.tolist()) == ([float(k) for k in range(len(weights))], shares_of(weights))


@each_ragged
@given(LENGTHS, st.integers(1, 3000))
def test_chances_of_widths_sum_to_1_however_large_the_batch(ragged: Ragged, weights: list[int], B: int) -> None:
    widths, chances = pass_widths(shares_of(weights), B, ragged)
    assert chances.min() >= 0
    assert chances.sum() == pytest.approx(1)
    if ragged == "packed":
        assert widths @ chances == pytest.approx(np.arange(len(weights)) @ shares_of(weights), abs=1e-9)


@given(LENGTHS, st.integers(1, 50))
def test_a_padded_pass_is_never_narrower_than_a_packed_one(weights: list[int], B: int) -> None:
    (wide, p), (narrow, q) = (pass_widths(shares_of(weights), B, ragged) for ragged in RAGGED)
    assert wide @ p >= narrow @ q - 1e-9


def test_a_batch_is_priced_by_the_histogram_of_its_width_and_not_at_the_mean_width() -> None:
    pair = {D: replace(point, B=2) for D, point in POINTS.items()}
    # Each of two sequences drafts nothing or two tokens: mean widths 0, 1, 2 at 1/4, 1/2, 1/4; longest 0 or 2.
    lengths = [0.5, 0.0, 0.5]
    assert times_at(pair, None, 2, lengths, "packed").t_verif_s == pytest.approx(10 / 4 + 12 / 2 + 20 / 4)
    assert times_at(pair, None, 2, lengths, "padded").t_verif_s == pytest.approx(10 / 4 + 20 * 3 / 4)
    assert times_at(pair, None, 2, lengths, "padded").t_sys_s == pytest.approx(1 / 4 + 2 * 3 / 4)
    assert times_at(pair, None, 2, lengths) == times_at(pair, None, 2, lengths, "padded")
    assert times_at(POINTS, None, 2, lengths, "padded").t_verif_s == pytest.approx(15)
