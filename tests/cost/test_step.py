"""The one formula: speed-up, break-even, and what a step's time is made of."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.cost.step import StepTimes, break_even_AL, speedup, times_at

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


def test_a_proposal_length_that_was_not_timed_is_named() -> None:
    untimed = {D: POINTS[D] for D in (0, 2)}
    assert times_at(untimed, "ngram", 2, [0.5, 0.0, 0.5]).t_verif_s == 15.0
    with pytest.raises(SpecError, match=r"no timing at D = 1 \(timed: \[0, 2\]\)"):
        times_at(untimed, "ngram", 2, [0.5, 0.25, 0.25])


def test_a_D_that_was_not_timed_is_named_even_where_no_draft_filled_it() -> None:
    with pytest.raises(SpecError, match="no timing at D = 3"):
        times_at(POINTS, "ngram", 3, [0.5, 0.5, 0.0, 0.0])


def test_a_drafter_that_was_not_timed_is_named_with_those_that_were() -> None:
    with pytest.raises(SpecError, match=r"no drafting time of 'eagle3' at D = 1 \(timed: \['external', 'ngram'\]\)"):
        times_at(POINTS, "eagle3", 1, [0.0, 1.0])
