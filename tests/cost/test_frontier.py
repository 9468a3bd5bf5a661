"""Throughput against interactivity: both speeds of every way to run, and who is beaten by nobody."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.schema import DecisionPoint, FrontierPoint
from codraft.cost.choose import decide
from codraft.cost.frontier import frontier, undominated

from tests.build import candidate
from tests.cost import tables


def decision(B: int, S: int, plain_s: float, *ways: tuple[str, int, float, float]) -> DecisionPoint:
    """A decision with candidates of (drafter, D, AL, T_step)."""
    candidates = [replace(candidate(name, D, AL, 1.0), t_step_s=t) for name, D, AL, t in ways]
    return DecisionPoint(
        B=B,
        S=S,
        plain={"t_step_s": plain_s},
        best=None,
        verdict="",
        warnings=[],
        candidates=candidates,
        guidelines=[],
    )


def test_a_user_gets_AL_tokens_a_step_and_the_machine_gives_that_to_every_sequence() -> None:
    plain, drafted = frontier([decision(4, 256, 0.1, ("a", 3, 2.5, 0.125))])
    assert (plain.drafter, plain.D, plain.AL) == (None, 0, 1.0)
    assert (plain.tokens_per_s_user, plain.tokens_per_s) == pytest.approx((10, 40))
    assert (drafted.B, drafted.S, drafted.drafter, drafted.D, drafted.AL) == (4, 256, "a", 3, 2.5)
    assert (drafted.tokens_per_s_user, drafted.tokens_per_s) == pytest.approx((20, 80))


def test_a_way_that_is_beaten_in_both_speeds_is_off_the_frontier() -> None:
    # Plain: 10 and 10 at B = 1, 8 and 32 at B = 4. Drafted at B = 1: 20 and 20. Drafted at B = 4: 5 and 20.
    points = frontier([decision(1, 256, 0.1, ("a", 1, 2.0, 0.1)), decision(4, 256, 0.125, ("a", 1, 1.5, 0.3))])
    assert [(p.B, p.drafter, p.frontier, p.plain_frontier) for p in points] == [
        (1, None, False, True),
        (1, "a", True, False),
        (4, None, True, True),
        (4, "a", False, False),
    ]


def test_contexts_are_not_compared_with_each_other() -> None:
    points = frontier([decision(1, 256, 0.1), decision(1, 4096, 0.4)])
    assert [(p.S, p.frontier, p.plain_frontier) for p in points] == [(256, True, True), (4096, True, True)]


def test_no_load_gives_no_frontier() -> None:
    assert frontier([]) == []


SPEEDS = st.sampled_from([1.0, 2.0, 3.0, 4.0])


@st.composite
def frontier_point(draw: st.DrawFn) -> FrontierPoint:
    """Any two speeds at one of two contexts; ties are frequent."""
    return FrontierPoint(
        B=draw(st.integers(1, 3)),
        S=draw(st.sampled_from([256, 512])),
        drafter=draw(st.sampled_from([None, "a"])),
        D=0,
        AL=1.0,
        tokens_per_s_user=draw(SPEEDS),
        tokens_per_s=draw(SPEEDS),
        frontier=False,
        plain_frontier=False,
    )


def beaten(point: FrontierPoint, others: list[FrontierPoint]) -> bool:
    """Whether another of the same S is better in one speed and no worse in the other."""
    return any(
        o.S == point.S
        and o.tokens_per_s_user >= point.tokens_per_s_user
        and o.tokens_per_s >= point.tokens_per_s
        and (o.tokens_per_s_user, o.tokens_per_s) != (point.tokens_per_s_user, point.tokens_per_s)
        for o in others
    )


@given(st.lists(frontier_point(), max_size=12))
def test_the_undominated_are_those_that_a_comparison_of_all_pairs_leaves(points: list[FrontierPoint]) -> None:
    kept = undominated(points)
    assert [id(point) in kept for point in points] == [not beaten(point, points) for point in points]


@given(st.data())
def test_a_decisions_frontier_is_that_of_all_its_ways_and_of_plain_decoding_alone(data: st.DataObject) -> None:
    loads = [(1, 256), (2, 256), (5, 256), (2, 512)]
    timed = [point for B, S in loads for point in data.draw(tables.times(B, S))]
    curves = data.draw(tables.curves())
    points = frontier(decide(curves, timed, None)[0])
    assert len(points) == len(loads) * (1 + sum(len(curve.points) for curve in curves))
    plain = [point for point in points if point.drafter is None]
    for point in points:
        assert point.frontier == (not beaten(point, points))
        assert point.plain_frontier == (point.drafter is None and not beaten(point, plain))
