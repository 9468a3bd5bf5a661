"""The decision in sentences: what to run, what was nearest, and who slows the user down."""

from dataclasses import replace

import pytest
from hypothesis import given

from codraft.core.constants import LEAST_GAIN
from codraft.core.schema import Candidate, TimingPoint
from codraft.cost.choose import decide
from codraft.cost.curves import DrafterCurve
from codraft.cost.verdict import GOOD_AL, verdict, warnings

from tests.build import candidate
from tests.cost import tables

ON = replace(candidate("ngram", 3, 1.5, 1.25), break_even_AL=1.2)


def test_a_choice_is_told_with_its_gain_AL_and_break_even() -> None:
    assert verdict(ON, [ON]) == ("ngram with D = 3, predicted 1.25 times plain decoding (AL 1.50, break-even 1.20)")


@pytest.mark.parametrize(("low", "doubted"), [(0.99, True), (1.0, False), (1.2, False)])
def test_an_interval_that_reaches_below_1_is_a_doubt(low: float, doubted: bool) -> None:
    sentence = verdict(replace(ON, speedup_ci95=(low, 1.5)), [ON])
    assert ("its interval reaches below 1" in sentence) == doubted


def test_off_is_told_with_the_nearest_miss() -> None:
    miss = candidate("external", 2, 3.0, 0.95)
    assert verdict(None, [miss, candidate("external", 4, 4.0, 0.5)]) == (
        "off: no candidate gains 2% or more over plain decoding (closest: external at D = 2, 0.95 times)"
    )
    assert LEAST_GAIN == 1.02


def test_off_for_want_of_a_candidate_says_so() -> None:
    assert verdict(None, []).startswith("off: no drafter has a D with both an AL and a step time")


def test_a_drafter_that_always_loses_is_named_with_its_best_figure_and_its_longest_AL() -> None:
    own = [candidate("x", 2, 2.0, 0.8), candidate("x", 1, 1.5, 0.7), candidate("x", 8, 4.5, 0.3)]
    assert warnings([ON, *own]) == [
        "x makes decoding slower at every D here: at best 0.80 times (D = 2), although its AL reaches 4.50"
    ]


@pytest.mark.parametrize(
    ("AL", "words"), [(GOOD_AL, "although its AL reaches 1.20"), (GOOD_AL - 0.01, "its AL stays at 1.19")]
)
def test_only_an_AL_that_would_raise_hopes_is_set_against_the_loss(AL: float, words: str) -> None:
    (line,) = warnings([candidate("x", 1, 1.0, 0.8), candidate("x", 2, AL, 0.7)])
    assert line.endswith(f"at best 0.80 times (D = 1), {words}")


def test_a_drafter_that_loses_at_some_D_is_named_with_them_and_the_worst_figure() -> None:
    own = [candidate("x", 2, 2.0, 1.1), candidate("x", 8, 4.0, 0.9), candidate("x", 5, 3.0, 0.85)]
    assert warnings(own) == ["x makes decoding slower at D = 5, 8: down to 0.85 times at D = 5"]


def test_drafters_are_warned_of_in_the_order_of_their_best() -> None:
    lines = warnings([candidate("x", 1, 1.0, 0.9), candidate("y", 1, 1.0, 0.8), candidate("x", 2, 1.0, 0.7)])
    assert [line.split()[0] for line in lines] == ["x", "y"]


@pytest.mark.parametrize("speedup", [1.0, 1.5])
def test_a_drafter_that_never_loses_is_not_warned_of(speedup: float) -> None:
    assert warnings([candidate("x", 1, 2.0, speedup)]) == []
    assert warnings([]) == []


def slow(candidates: list[Candidate]) -> dict[str, list[int]]:
    """Losing D by drafter."""
    losing: dict[str, list[int]] = {}
    for c in candidates:
        if c.speedup < 1:
            losing.setdefault(c.drafter, []).append(c.D)
    return losing


@given(tables.curves(), tables.times())
def test_whoever_slows_the_user_down_is_named_once_with_a_figure_below_1(
    curves: list[DrafterCurve], points: list[TimingPoint]
) -> None:
    (made,), _ = decide(curves, points, None)
    losing = slow(made.candidates)
    lines = [line for line in made.warnings if "makes decoding slower" in line]
    assert {line.split()[0] for line in lines} == set(losing)
    assert len(lines) == len(losing)
    for line in lines:
        name = line.split()[0]
        speeds = [c.speedup for c in made.candidates if c.drafter == name]
        shown = max(speeds) if max(speeds) < 1 else min(speeds)
        assert f"{shown:.2f} times" in line
        assert ("at every D" in line) == (len(losing[name]) == len(speeds))
