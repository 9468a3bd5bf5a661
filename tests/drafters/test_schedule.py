"""Where a draft ends: the paper's algorithm on lists, costs from timing records, thresholds."""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.schema import TimingPoint
from codraft.drafters.schedule import CostTable, Schedule, Threshold, admit


def point(
    x: int, seconds: float, *, D: int = 1, t_sys: float = 0.0, draft: dict[str, float] | None = None
) -> TimingPoint:
    return TimingPoint(
        B=x // (1 + D),
        S=64,
        D=D,
        x=x,
        t_verif_s=seconds,
        t_sys_s=t_sys,
        t_draft_s=draft or {},
        num_samples=9,
        p10=seconds,
        p90=seconds,
    )


confidences = st.lists(st.lists(st.floats(0.0, 1.0), max_size=5), min_size=1, max_size=4)
costs = st.lists(st.floats(0.05, 1.0), min_size=25, max_size=25).map(lambda steps: list(accumulate(steps)))


def survivals(confidence: Sequence[Sequence[float]]) -> list[list[float]]:
    return [list(accumulate(row, mul)) for row in confidence]


def test_tokens_are_admitted_while_the_rate_grows() -> None:
    """Two sequences, one confident: rates 2/1, 2.9/1.2, 3.71/1.4, 4.21/1.5, and 4.31/2.6, which does not pay."""
    cost = {2: 1.0, 3: 1.2, 4: 1.4, 5: 1.5, 6: 2.6}
    assert admit([[0.9, 0.81], [0.5, 0.1]], cost.__getitem__) == [2, 1]


def test_the_first_that_does_not_pay_ends_the_search() -> None:
    """The third token would be free: a global search would take both, and the second's confidence would decide about
    the first."""
    cost = {1: 1.0, 2: 2.0, 3: 2.0}
    assert (1 + 0.9 + 0.81) / 2.0 > 1
    assert admit([[0.9, 0.81]], cost.__getitem__) == [0]


def test_a_rate_that_stays_the_same_does_not_pay() -> None:
    assert admit([[1.0]], lambda x: float(x)) == [0]
    assert admit([[0.0]], lambda x: 1.0) == [0]


def test_ties_go_by_position_then_by_sequence() -> None:
    """Room for three tokens beside the two anchors: both firsts, then the second of the first sequence."""
    survival = [[0.5, 0.5], [0.5, 0.5]]
    assert admit(survival, lambda x: 1.0 if x <= 5 else 9.0) == [2, 1]
    assert admit(survival, lambda x: 1.0 if x <= 3 else 9.0) == [1, 0]


def test_nothing_to_admit() -> None:
    assert admit([], lambda x: 1.0) == []
    assert admit([[], []], lambda x: 1.0) == [0, 0]


@given(confidences, costs)
def test_a_length_is_decided_by_what_is_known_before_the_next_draft(
    confidence: list[list[float]], cost: list[float]
) -> None:
    """Change everything that comes after what was admitted and the one that was not: the same drafts are admitted."""
    lengths = admit(survivals(confidence), lambda x: cost[x])
    assert all(n <= len(row) for n, row in zip(lengths, confidence, strict=True))
    for later in (0.0, 0.5, 1.0):
        changed = [[*row[: n + 1], *[later] * len(row[n + 1 :])] for row, n in zip(confidence, lengths, strict=True)]
        assert admit(survivals(changed), lambda x: cost[x]) == lengths


@given(st.lists(st.floats(0.01, 1.0), max_size=6), costs)
def test_alone_a_sequence_stops_before_its_first_draft_that_does_not_pay(row: list[float], cost: list[float]) -> None:
    [n] = Schedule(lambda x: cost[x]).lengths([row])
    rates = [(1 + sum(accumulate(row[:j], mul))) / cost[1 + j] for j in range(len(row) + 1)]
    assert all(rates[j] > rates[j - 1] for j in range(1, n + 1))
    assert n == len(row) or rates[n + 1] <= rates[n]


def test_a_threshold_keeps_what_comes_before_the_first_doubt() -> None:
    cut = Threshold(0.6)
    assert cut.lengths([[0.9, 0.6, 0.59, 0.9], [0.1, 0.9], [0.7], []]) == [2, 0, 1, 0]
    assert Threshold(0.0).lengths([[0.0, 0.1]]) == [2]


def test_costs_are_medians_at_each_length_with_drafting_and_system_time() -> None:
    points = [
        point(1, 1.0, D=0, t_sys=0.5),
        point(4, 2.0, D=3, draft={"dspark": 0.25, "other": 9.0}),
        point(4, 4.0, D=1, draft={"dspark": 0.25}),
        point(4, 9.0, D=1, draft={"dspark": 0.75}),
    ]
    assert CostTable.from_record(points, "dspark") == CostTable((1, 4), (1.75, 4.25))
    assert CostTable.from_record(points, "not timed") == CostTable((1, 4), (1.5, 4.0))


def test_costs_between_and_beyond_what_was_timed() -> None:
    table = CostTable((2, 4, 8), (1.0, 3.0, 4.0))
    assert [table(x) for x in (1, 2, 3, 4, 6, 8, 12)] == [1.0, 1.0, 2.0, 3.0, 3.5, 4.0, 5.0]
    assert CostTable((2, 4), (3.0, 1.0))(9) == 1.0, "never cheaper than the last"


def test_one_length_is_no_table() -> None:
    with pytest.raises(SpecError, match=r"of 1 length, .*profile several D"):
        CostTable.from_record([point(4, 1.0), point(4, 2.0)])
