"""From AL(D) and step times to the choice, "off" included."""

import pytest

from codraft.core.schema import Candidate, DecisionPoint, ScheduleEntry, TimingPoint
from codraft.cost.choose import LEAST_GAIN, decide, schedule
from codraft.models.shape import Shape

from tests.build import Step, candidate, point, result, timing

# One conversation each: three of four steps accept both drafts. AL(1) = 1.75, AL(2) = 2.5.
AT_1: list[Step] = [(1, 1), (1, 1), (1, 1), (1, 0)]
AT_2: list[Step] = [(2, 2), (2, 2), (2, 2), (2, 0)]
GOOD = result("good", point(1, AT_1), point(2, AT_2))
POOR = result("poor", point(1, [(1, 0), (1, 0)]))


def times(B: int = 1, S: int = 256, *, slow: float = 1.0) -> list[TimingPoint]:
    """D = 0, 1, 2; verification of `slow` times 10, 11 and 16 with drafts, 1 for drafting."""
    return [
        timing(0, 10.0, B=B, S=S),
        timing(1, 11.0 * slow, B=B, S=S, good=1.0, poor=0.0),
        timing(2, 16.0 * slow, B=B, S=S, good=4.0, poor=0.0),
    ]


def only(decisions: list[DecisionPoint]) -> DecisionPoint:
    """The one decision there is."""
    assert len(decisions) == 1
    return decisions[0]


def test_every_drafter_and_D_is_a_candidate_and_the_fastest_stands_first() -> None:
    made = only(decide([POOR, GOOD], times(), None)[0])
    assert [(c.drafter, c.D) for c in made.candidates] == [("good", 1), ("good", 2), ("poor", 1)]
    assert [c.speedup for c in made.candidates] == pytest.approx([1.75 * 10 / 12, 2.5 * 10 / 20, 10 / 11])
    assert made.best == made.candidates[0]


def test_a_candidate_carries_AL_step_time_and_break_even() -> None:
    best = only(decide([GOOD], times(), None)[0]).candidates[0]
    assert [best.AL, best.t_step_s, best.break_even_AL] == pytest.approx([1.75, 12.0, 1.2])
    assert (best.AL_ci95, best.speedup_ci95) == (None, None)


def test_the_interval_of_AL_becomes_the_interval_of_the_speedup() -> None:
    curve = point(1, AT_1, [(1, 0)] * 4)
    assert curve.AL_ci95 == (1.0, 1.75)
    best = only(decide([result("good", curve)], times(), None)[0]).candidates[0]
    assert best.speedup_ci95 is not None
    assert list(best.speedup_ci95) == pytest.approx([10 / 12, 1.75 * 10 / 12])


def test_nothing_is_best_where_nothing_gains() -> None:
    made = only(decide([GOOD, POOR], times(slow=2.0), None)[0])
    assert made.best is None
    assert max(c.speedup for c in made.candidates) < 1


@pytest.mark.parametrize(("gain", "chosen"), [(LEAST_GAIN - 0.005, False), (LEAST_GAIN + 0.005, True)])
def test_a_gain_that_drowns_in_noise_is_no_gain(gain: float, chosen: bool) -> None:
    points = [timing(0, 10.0), timing(1, 17.5 / gain, good=0.0)]
    made = only(decide([result("good", point(1, AT_1))], points, None)[0])
    assert made.candidates[0].speedup == pytest.approx(gain)
    assert (made.best is not None) == chosen


def test_steps_without_a_draft_are_charged_as_plain_passes() -> None:
    sparse = result("good", point(1, [(1, 1), (0, 0), (0, 0), (0, 0)]))
    made = only(decide([sparse], [timing(0, 10.0), timing(1, 30.0, good=0.0)], None)[0])
    assert made.candidates[0].t_step_s == 15.0
    assert made.candidates[0].AL == 1.25


def test_a_D_that_was_not_timed_is_no_candidate() -> None:
    made = only(decide([GOOD], times()[:2], None)[0])
    assert [c.D for c in made.candidates] == [1]


def test_without_candidates_the_choice_is_off() -> None:
    decisions, plan = decide([], times(), None)
    assert (only(decisions).candidates, only(decisions).best) == ([], None)
    assert plan == [ScheduleEntry(max_batch=1, drafter=None, D=0)]


def test_plain_decoding_is_told_in_tokens_of_the_whole_batch() -> None:
    made = only(decide([GOOD], times(B=4), None)[0])
    assert made.plain == {"t_step_s": 10.0, "tokens_per_s": 0.4}


def test_every_timed_load_is_decided_on_its_own_times() -> None:
    decisions, _ = decide([GOOD], [*times(8, 512, slow=2.0), *times(1, 512), *times(1, 256)], None)
    assert [(d.B, d.S, d.best is None) for d in decisions] == [
        (1, 256, False),
        (1, 512, False),
        (8, 512, True),
    ]


def test_every_load_carries_the_five_guidelines_of_its_shape() -> None:
    shape = Shape(G=4, ffn_params=6, other_params=4, kv_elements_per_token=10, tile=128)
    made = only(decide([GOOD], times(), shape)[0])
    assert [g.id for g in made.guidelines] == [1, 2, 3, 4, 5]
    assert made.guidelines[1].value == 31


def test_the_schedule_is_that_of_the_smallest_context() -> None:
    _, plan = decide([GOOD], [*times(1, 256), *times(8, 256, slow=2.0), *times(8, 512)], None)
    assert plan == [
        ScheduleEntry(max_batch=1, drafter="good", D=1),
        ScheduleEntry(max_batch=8, drafter=None, D=0),
    ]


def decision(B: int, best: Candidate | None) -> DecisionPoint:
    """A decision for B with this choice."""
    return DecisionPoint(B=B, S=256, plain={}, best=best, candidates=[], guidelines=[])


def test_neighbouring_loads_with_the_same_choice_are_one_entry() -> None:
    two, three = candidate("a", 2, 2.0, 1.5), candidate("a", 3, 2.0, 1.4)
    plan = schedule([decision(B, best) for B, best in ((1, three), (2, three), (4, two), (8, None), (16, None))])
    assert plan == [
        ScheduleEntry(max_batch=2, drafter="a", D=3),
        ScheduleEntry(max_batch=4, drafter="a", D=2),
        ScheduleEntry(max_batch=16, drafter=None, D=0),
    ]


def test_the_same_choice_on_both_sides_of_another_stays_two_entries() -> None:
    on = candidate("a", 2, 2.0, 1.5)
    plan = schedule([decision(4, on), decision(1, on), decision(2, None)])
    assert [(entry.max_batch, entry.drafter) for entry in plan] == [(1, "a"), (2, None), (4, "a")]


def test_two_drafters_at_the_same_D_are_not_merged() -> None:
    plan = schedule([decision(1, candidate("a", 2, 2.0, 1.5)), decision(2, candidate("b", 2, 2.0, 1.5))])
    assert [entry.drafter for entry in plan] == ["a", "b"]
