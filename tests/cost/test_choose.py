"""From AL(D) and step times to the choice, "off" included."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.constants import LEAST_GAIN
from codraft.core.errors import SpecError
from codraft.core.schema import (
    AcceptanceResult,
    Candidate,
    DecisionPoint,
    Ragged,
    ScheduleEntry,
    TimingPoint,
)
from codraft.cost.choose import DrafterBytes, decide, schedule, unknown_bytes
from codraft.cost.curves import CurveAt, DrafterCurve, curves_of
from codraft.cost.step import times_at
from codraft.models.shape import Shape

from tests.build import Step, candidate, point, result, timing
from tests.cost import tables

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


def plan(
    results: list[AcceptanceResult], points: list[TimingPoint], shape: Shape | None = None
) -> tuple[list[DecisionPoint], list[ScheduleEntry]]:
    """Decisions and schedule from records."""
    return decide(curves_of(results), points, shape)


def only(results: list[AcceptanceResult], points: list[TimingPoint], shape: Shape | None = None) -> DecisionPoint:
    """The decision at the one load there is."""
    return at_one_load(curves_of(results), points, shape)


def at_one_load(
    curves: list[DrafterCurve],
    points: list[TimingPoint],
    shape: Shape | None = None,
    ragged: Ragged = "padded",
    bytes_of: DrafterBytes = unknown_bytes,
) -> DecisionPoint:
    """The decision at the one load there is."""
    (made,), _ = decide(curves, points, shape, ragged, bytes_of)
    return made


def test_every_drafter_and_D_is_a_candidate_and_the_fastest_stands_first() -> None:
    made = only([POOR, GOOD], times())
    assert [(c.drafter, c.D) for c in made.candidates] == [("good", 1), ("good", 2), ("poor", 1)]
    assert [c.speedup for c in made.candidates] == pytest.approx([1.75 * 10 / 12, 2.5 * 10 / 20, 10 / 11])
    assert made.best == made.candidates[0]


def test_a_candidate_carries_AL_step_time_and_break_even() -> None:
    best = only([GOOD], times()).candidates[0]
    assert [best.AL, best.t_step_s, best.break_even_AL] == pytest.approx([1.75, 12.0, 1.2])
    assert (best.AL_ci95, best.speedup_ci95) == (None, None)


def test_a_candidate_carries_the_parts_of_its_step_and_the_width_of_its_pass() -> None:
    points = [timing(0, 10.0, sys=1.0, B=4), timing(1, 20.0, sys=2.0, B=4, good=3.0)]
    # Three of four sequences draft in a step: 4 (1 + 3/4) tokens; all four stay idle in 1 of 256 padded steps.
    made = only([result("good", point(1, [(1, 1), (1, 0), (1, 0), (0, 0)]))], points).candidates[0]
    idle = 1 / 4**4
    parts = [made.x, made.t_verif_s, made.t_sys_s, made.t_draft_s]
    assert parts == pytest.approx([7.0, 20 - 10 * idle, 2 - idle, 3.0])
    assert made.t_step_s == pytest.approx(sum(part for part in parts[1:] if part is not None))


def test_a_candidate_carries_the_bytes_of_its_drafter_at_its_load() -> None:
    def bytes_of(name: str, B: int, S: int) -> int | None:
        return 1000 * B + S if name == "good" else None

    made = at_one_load(curves_of([GOOD, POOR]), times(4, 512), bytes_of=bytes_of)
    assert {(c.drafter, c.bytes) for c in made.candidates} == {("good", 4512), ("poor", None)}
    assert {c.bytes for c in only([GOOD], times()).candidates} == {None}


def test_the_interval_of_AL_becomes_the_interval_of_the_speedup() -> None:
    curve = point(1, AT_1, [(1, 0)] * 4)
    assert curve.AL_ci95 == (1.0, 1.75)
    best = only([result("good", curve)], times()).candidates[0]
    assert best.speedup_ci95 is not None
    assert list(best.speedup_ci95) == pytest.approx([10 / 12, 1.75 * 10 / 12])


def test_nothing_is_best_where_nothing_gains() -> None:
    made = only([GOOD, POOR], times(slow=2.0))
    assert made.best is None
    assert made.verdict.startswith("off: no candidate gains 2% or more")
    assert max(c.speedup for c in made.candidates) < 1


@pytest.mark.parametrize(("gain", "chosen"), [(LEAST_GAIN - 0.005, False), (LEAST_GAIN + 0.005, True)])
def test_a_gain_that_drowns_in_noise_is_no_gain(gain: float, chosen: bool) -> None:
    points = [timing(0, 10.0), timing(1, 17.5 / gain, good=0.0)]
    made = only([result("good", point(1, AT_1))], points)
    assert made.candidates[0].speedup == pytest.approx(gain)
    assert (made.best is not None) == chosen


def test_steps_without_a_draft_are_charged_as_plain_passes() -> None:
    sparse = result("good", point(1, [(1, 1), (0, 0), (0, 0), (0, 0)]))
    made = only([sparse], [timing(0, 10.0), timing(1, 30.0, good=0.0)])
    assert made.candidates[0].t_step_s == 15.0
    assert made.candidates[0].AL == 1.25


def test_a_D_that_was_not_timed_is_no_candidate() -> None:
    assert [c.D for c in only([GOOD], times()[:2]).candidates] == [1]


def test_a_D_that_was_timed_for_other_drafters_alone_is_no_candidate_of_this_one() -> None:
    points = [timing(0, 10.0), timing(1, 11.0, poor=0.0), timing(2, 16.0, good=4.0)]
    assert {(c.drafter, c.D) for c in only([GOOD, POOR], points).candidates} == {("good", 2), ("poor", 1)}


def test_a_drafter_that_was_timed_nowhere_is_refused_by_name() -> None:
    points = [timing(0, 10.0), timing(1, 11.0, poor=0.0)]
    with pytest.raises(SpecError, match=r"no drafting time of 'good' at D = 1 \(timed: \['poor'\]\)"):
        only([GOOD, POOR], points)


def test_times_that_name_no_drafter_are_whole_steps_of_every_one() -> None:
    made = only([GOOD, POOR], [timing(0, 10.0), timing(1, 12.0)])
    assert [(c.drafter, c.t_draft_s, c.t_step_s) for c in made.candidates] == [("good", None, 12), ("poor", None, 12)]
    assert {c.t_verif_s for c in made.candidates} == {None}, "the parts of a whole step are not known"


def test_without_candidates_the_choice_is_off() -> None:
    (made,), entries = plan([], times())
    assert (made.candidates, made.best, made.warnings) == ([], None, [])
    assert made.verdict.startswith("off: no drafter has a D with both an AL and a step time")
    assert entries == [ScheduleEntry(max_batch=1, drafter=None, D=0)]


def test_plain_decoding_is_told_in_tokens_of_the_whole_batch() -> None:
    made = only([GOOD], times(B=4))
    assert made.plain == {"t_step_s": 10.0, "tokens_per_s": 0.4}


def test_every_timed_load_is_decided_on_its_own_times() -> None:
    decisions, _ = plan([GOOD], [*times(8, 512, slow=2.0), *times(1, 512), *times(1, 256)])
    assert [(d.B, d.S, d.best is None) for d in decisions] == [
        (1, 256, False),
        (1, 512, False),
        (8, 512, True),
    ]


def test_every_load_carries_the_five_guidelines_of_its_shape() -> None:
    shape = Shape(G=4, ffn_params=6, other_params=4, kv_elements_per_token=10, tile=128)
    made = only([GOOD], times(), shape)
    assert [g.id for g in made.guidelines] == [1, 2, 3, 4, 5]
    assert made.guidelines[1].value == 31


def test_the_schedule_is_that_of_the_smallest_context() -> None:
    _, entries = plan([GOOD], [*times(1, 256), *times(8, 256, slow=2.0), *times(8, 512)])
    assert entries == [
        ScheduleEntry(max_batch=1, drafter="good", D=1),
        ScheduleEntry(max_batch=8, drafter=None, D=0),
    ]


def decision(B: int, best: Candidate | None) -> DecisionPoint:
    """A decision for B with this choice."""
    return DecisionPoint(B=B, S=256, plain={}, best=best, verdict="", warnings=[], candidates=[], guidelines=[])


def test_neighbouring_loads_with_the_same_choice_are_one_entry() -> None:
    two, three = candidate("a", 2, 2.0, 1.5), candidate("a", 3, 2.0, 1.4)
    loads = ((1, three), (2, three), (4, two), (8, None), (16, None))
    assert schedule([decision(B, best) for B, best in loads]) == [
        ScheduleEntry(max_batch=2, drafter="a", D=3),
        ScheduleEntry(max_batch=4, drafter="a", D=2),
        ScheduleEntry(max_batch=16, drafter=None, D=0),
    ]


def test_the_same_choice_on_both_sides_of_another_stays_two_entries() -> None:
    on = candidate("a", 2, 2.0, 1.5)
    entries = schedule([decision(4, on), decision(1, on), decision(2, None)])
    assert [(entry.max_batch, entry.drafter) for entry in entries] == [(1, "a"), (2, None), (4, "a")]


def test_two_drafters_at_the_same_D_are_not_merged() -> None:
    entries = schedule([decision(1, candidate("a", 2, 2.0, 1.5)), decision(2, candidate("b", 2, 2.0, 1.5))])
    assert [entry.drafter for entry in entries] == ["a", "b"]


# The decision itself, over many made-up tables.

RAGGED: list[Ragged] = ["padded", "packed"]
each_ragged = pytest.mark.parametrize("ragged", RAGGED)


@given(tables.growing(least=0.03), st.integers(1, 64), st.floats(1e-4, 10), st.floats(0, 1))
def test_where_a_pass_costs_the_same_at_every_width_the_longest_draft_wins(
    curve: DrafterCurve, B: int, pass_s: float, sys_s: float
) -> None:
    top = curve.points[-1]
    made = at_one_load([curve], [timing(D, pass_s, sys=sys_s, B=B) for D in range(top.D + 1)])
    assert made.best is not None
    assert made.best.D == top.D
    assert made.best.speedup == pytest.approx(top.AL)


@each_ragged
@given(st.lists(tables.growing() | tables.ragged_curve(), max_size=3), st.integers(1, 5), st.floats(1e-4, 10))
def test_where_a_pass_costs_as_much_as_it_has_tokens_drafting_never_pays(
    ragged: Ragged, curves: list[DrafterCurve], B: int, token_s: float
) -> None:
    deepest = max((point.D for curve in curves for point in curve.points), default=0)
    points = [timing(D, token_s * B * (1 + D), B=B) for D in range(deepest + 1)]
    (made,), entries = decide(curves, points, None, ragged)
    assert made.best is None
    assert made.verdict.startswith("off")
    assert max((c.speedup for c in made.candidates), default=0) <= 1 + 1e-9
    assert entries == [ScheduleEntry(max_batch=B, drafter=None, D=0)]


@each_ragged
@given(tables.curves(), tables.times())
def test_at_its_break_even_AL_every_candidate_has_speedup_1(
    ragged: Ragged, curves: list[DrafterCurve], points: list[TimingPoint]
) -> None:
    first = at_one_load(curves, points, ragged=ragged)
    even = {(c.drafter, c.D): c.break_even_AL for c in first.candidates if c.break_even_AL >= 1}
    moved = [
        replace(
            curve,
            points=[
                replace(p, AL=even[curve.name, p.D], AL_ci95=None) for p in curve.points if (curve.name, p.D) in even
            ],
        )
        for curve in curves
    ]
    again = at_one_load(moved, points, ragged=ragged)
    assert len(again.candidates) == len(even)
    for c in again.candidates:
        assert c.speedup == pytest.approx(1, abs=1e-9)
    assert again.best is None


@each_ragged
@given(tables.times())
def test_drafting_nothing_is_plain_decoding(ragged: Ragged, points: list[TimingPoint]) -> None:
    nothing = [CurveAt(D=D, AL=1.0, lengths=[1.0] + [0.0] * D) for D in range(1, 7)]
    idle = [replace(point, t_draft_s={}) for point in points]
    made = at_one_load([DrafterCurve(name="a", points=nothing)], idle, ragged=ragged)
    assert [c.speedup for c in made.candidates] == pytest.approx([1.0] * 6)
    assert [c.break_even_AL for c in made.candidates] == pytest.approx([1.0] * 6)
    assert made.plain["t_step_s"] == points[0].t_verif_s + points[0].t_sys_s
    assert made.best is None


@each_ragged
@given(tables.curves(), tables.times())
def test_the_choice_is_the_fastest_of_all_drafters_and_D(
    ragged: Ragged, curves: list[DrafterCurve], points: list[TimingPoint]
) -> None:
    by_depth = {point.D: point for point in points}
    plain_s = points[0].t_verif_s + points[0].t_sys_s
    speeds = {
        (curve.name, p.D): p.AL * plain_s / times_at(by_depth, curve.name, p.D, p.lengths, ragged).t_step_s
        for curve in curves
        for p in curve.points
    }
    made = at_one_load(curves, points, ragged=ragged)
    assert {(c.drafter, c.D): c.speedup for c in made.candidates} == pytest.approx(speeds)
    assert [c.speedup for c in made.candidates] == sorted(speeds.values(), reverse=True)
    assert (made.best is not None) == (max(speeds.values()) >= LEAST_GAIN)
    assert made.best in (None, made.candidates[0])


def test_of_two_equally_fast_the_shorter_draft_is_chosen() -> None:
    made = at_one_load([tables.curve("a", 1.5, 2.0)], [timing(0, 4.0), timing(1, 3.0), timing(2, 4.0)])
    assert [c.speedup for c in made.candidates] == [2.0, 2.0]
    assert made.best is not None
    assert made.best.D == 1


def test_a_table_made_by_hand_gives_its_known_optimum_at_every_load() -> None:
    """The deep drafter wins alone, the look-up at B = 8, where drafting costs more, and nobody at B = 32."""
    curves = [tables.curve("look-up", 1.2, 1.3, 1.35, 1.4), tables.curve("deep", 1.8, 2.4, 2.7, 3.0)]
    verify = {1: (10, 10.5, 11, 11.5, 12), 8: (20, 22, 28, 34, 40), 32: (40, 70, 100, 130, 160)}
    draft = {1: 2.0, 8: 12.0, 32: 20.0}
    points = [
        replace(timing(D, seconds, B=B), t_draft_s={"look-up": 0.1, "deep": draft[B] * D} if D else {})
        for B, column in verify.items()
        for D, seconds in enumerate(column)
    ]
    decisions, entries = decide(curves, points, None, "packed")
    fastest = [d.candidates[0] for d in decisions]
    assert [(c.drafter, c.D) for c in fastest] == [("deep", 2), ("look-up", 1), ("deep", 1)]
    assert [c.speedup for c in fastest] == pytest.approx([2.4 * 10 / 15, 1.2 * 20 / 22.1, 1.8 * 40 / 90])
    assert entries == [
        ScheduleEntry(max_batch=1, drafter="deep", D=2),
        ScheduleEntry(max_batch=8, drafter="look-up", D=1),
        ScheduleEntry(max_batch=32, drafter=None, D=0),
    ]
    assert [line.split()[0] for line in decisions[2].warnings] == ["deep", "look-up"]
    assert "at best 0.80 times (D = 1), although its AL reaches 3.00" in decisions[2].warnings[0]
