"""Curves of a record as the decision needs them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.cost.curves import CurveAt, curves_of, full_drafts

from tests.build import Step, acceptance, point, result

STEPS: list[Step] = [(2, 2), (2, 1), (0, 0), (1, 0)]


def test_a_curve_keeps_AL_interval_and_the_lengths_that_were_really_drafted() -> None:
    made = point(2, STEPS, [(2, 0)] * 4)
    (curve,) = curves_of([result("a", made)])
    assert curve.name == "a"
    assert curve.points == [CurveAt(D=2, AL=1 + 3 / 8, AL_ci95=made.AL_ci95, lengths=[1 / 8, 1 / 8, 6 / 8])]
    assert made.AL_ci95 is not None


@given(st.lists(st.sampled_from([(k, a) for k in range(5) for a in range(k + 1)]), min_size=1, max_size=20))
def test_the_lengths_are_the_proposal_lengths_of_the_counts(steps: list[Step]) -> None:
    (curve,) = curves_of([result("a", point(4, steps))])
    assert curve.points[0].lengths == pytest.approx(acceptance(steps, 4).proposal_lengths().tolist())
    assert sum(curve.points[0].lengths) == pytest.approx(1)


def test_the_decision_rests_on_the_warm_curve() -> None:
    warm = result("a", point(1, [(1, 1)]))
    assert curves_of([replace(warm, cold=[point(1, [(1, 0)])])]) == curves_of([warm])


def test_a_drafter_without_any_step_has_no_points() -> None:
    assert [curve.points for curve in curves_of([result("a")])] == [[]]


@pytest.mark.parametrize("D", [0, 1, 5])
def test_full_drafts_are_of_length_D_every_time(D: int) -> None:
    assert full_drafts(D) == [0.0] * D + [1.0]
