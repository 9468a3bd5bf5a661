"""The five guidelines: premise, value, exact optimum, loss and reason at a load."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given

from codraft.core.constants import LEAST_GAIN
from codraft.core.schema import Candidate, Guideline, TimingPoint
from codraft.cost.choose import decide
from codraft.cost.curves import DrafterCurve
from codraft.cost.guidelines import PLATEAU, guidelines
from codraft.models.shape import Shape

from tests.build import candidate, timing
from tests.cost import tables

# At B = 1, S = 100 attention reads half of the bytes; below that the weights do.
SHAPE = Shape(G=4, ffn_params=600, other_params=400, kv_elements_per_token=10, tile=128)
CANDIDATES = [candidate("fast", 2, 2.0, 1.6), candidate("fast", 1, 1.5, 1.4), candidate("long", 4, 3.0, 1.2)]


def at(
    B: int = 1,
    S: int = 256,
    *,
    verify: Sequence[float] = (10.0, 11.0, 12.0),
    candidates: Sequence[Candidate] = CANDIDATES,
    shape: Shape | None = SHAPE,
    shares: Mapping[str, float] | None = None,
) -> dict[int, Guideline]:
    """The guidelines by id, with T_verif at D = 0, 1, 2, ... and measured shares of the plain pass."""
    by_depth = {D: timing(D, seconds) for D, seconds in enumerate(verify)}
    if shares is not None:
        by_depth[0] = replace(by_depth[0], shares=dict(shares))
    return {g.id: g for g in guidelines(B, S, by_depth, candidates, shape)}


def shares(attention: float) -> dict[str, float]:
    """Measured shares of a pass; attention's own is as given."""
    rest = 1 - attention
    return {"ffn": rest / 2, "projections": rest / 4, "attention": attention, "head": rest / 8, "other": rest / 8}


def verdict(rule: Guideline) -> tuple[object, object, object]:
    """What the rule says, what is best, and what following it costs."""
    return rule.value, rule.optimum, None if rule.loss is None else pytest.approx(rule.loss)


@pytest.mark.parametrize("shape", [SHAPE, None])
@pytest.mark.parametrize("candidates", [CANDIDATES, []])
def test_there_are_always_five_with_ids_1_to_5(shape: Shape | None, candidates: list[Candidate]) -> None:
    made = guidelines(1, 256, {0: timing(0, 1.0)}, candidates, shape)
    assert [g.id for g in made] == [1, 2, 3, 4, 5]


def test_every_reason_names_the_shares_of_FFN_and_attention() -> None:
    for guideline in at(1, 100).values():
        assert guideline.reason.endswith("bytes read: FFN 30%, attention 50%, the rest 20%")


def test_without_a_shape_every_reason_says_that_the_shares_are_unknown() -> None:
    for guideline in at(shape=None).values():
        assert "FFN and attention shares are unknown" in guideline.reason


def test_measured_shares_are_told_instead_of_bytes_read() -> None:
    for guideline in at(1, 100, shares=shares(0.2)).values():
        assert guideline.reason.endswith(
            "; time of a plain pass: FFN 40%, attention's linear layers 20%, the rest of attention 20%, "
            "head 10%, other 10%"
        )


@pytest.mark.parametrize(("S", "attention", "dominant"), [(1, 0.5, True), (10**6, 0.4, False)])
def test_measured_shares_decide_against_the_bytes_read(S: int, attention: float, dominant: bool) -> None:
    made = at(1, S, shares=shares(attention))
    assert [made[i].applies for i in (1, 2)] == [not dominant, dominant]
    assert at(1, S)[2].applies != dominant


def test_measured_shares_will_do_without_a_shape() -> None:
    made = at(shape=None, shares=shares(0.1))
    assert (made[1].applies, made[2].applies, made[2].value) == (True, False, None)


def test_1_counts_the_head_among_the_linear_layers() -> None:
    parts = {"ffn": 0.2, "projections": 0.1, "attention": 0.1, "other": 0.4}
    assert at(shares={**parts, "head": 0.2})[1].applies
    assert not at(shares={**parts, "head": 0.1, "other": 0.5})[1].applies


def test_every_guideline_states_its_premise() -> None:
    premises = [g.premise for g in at().values()]
    assert all(premises)
    assert premises[1:3] == [
        "attention takes most of a pass, and its kernel works in tiles of query rows",
        "attention takes most of a pass, and its kernel works in tiles of query rows, and more than one tile pays",
    ]


def test_1_names_the_last_D_on_the_memory_bound_plateau() -> None:
    edge = 10 * PLATEAU
    assert at(verify=[10, 11, edge, edge + 0.1])[1].value == 2
    assert at(verify=[10, 20, 30])[1].value == 0


def test_1_does_not_count_a_D_behind_one_that_left_the_plateau() -> None:
    assert at(verify=[10, 11, 15, 12])[1].value == 1


def test_1_tells_the_growth_at_the_largest_D() -> None:
    assert "T_verif at D = 2 is 1.50 times that at D = 0" in at(verify=[10, 11, 15])[1].reason


def test_1_applies_while_weights_are_most_of_the_bytes_and_2_from_then_on() -> None:
    below, above = at(1, 99), at(1, 100)
    assert [below[i].applies for i in (1, 2)] == [True, False]
    assert [above[i].applies for i in (1, 2)] == [True, True], "half is most for both"
    assert not at(1, 101)[1].applies


def test_1_is_judged_by_the_fastest_drafter_at_each_D() -> None:
    other = candidate("long", 1, 1.2, 1.5)
    made = at(verify=[10, 11, 15], candidates=[*CANDIDATES, other])[1]
    assert verdict(made) == (1, 2, 1 - 1.5 / 1.6)


def test_a_value_that_nobody_measured_has_an_optimum_and_no_loss() -> None:
    made = at(verify=[10, 10, 10, 10])
    assert verdict(made[1]) == (3, 2, None)
    assert verdict(made[2]) == (31, 2, None)


def test_drafting_nothing_is_the_optimum_where_every_D_loses() -> None:
    made = at(verify=[10, 11], candidates=[candidate("a", 1, 1.2, 0.9)])
    assert verdict(made[1]) == (1, 0, 1 - 0.9)
    assert verdict(made[4]) == (0, 0, 0.0)


def test_of_two_equal_D_the_shorter_is_the_optimum() -> None:
    made = at(verify=[10, 11, 12], candidates=[candidate("a", 2, 2.0, 1.5), candidate("a", 1, 1.6, 1.5)])
    assert verdict(made[1]) == (2, 1, 0.0)


def test_1_to_3_do_not_apply_where_the_shares_are_unknown() -> None:
    made = at(1, 1, shape=None)
    assert [made[i].applies for i in (1, 2, 3)] == [False] * 3
    assert (made[1].value, made[2].value, made[3].value) == (2, None, None)


@pytest.mark.parametrize(("G", "first", "second"), [(1, 127, 255), (4, 31, 63), (5, 24, 50), (128, 0, 1), (200, 0, 0)])
def test_2_and_3_fill_one_and_two_tiles_of_query_rows(G: int, first: int, second: int) -> None:
    shape = Shape(G=G, ffn_params=600, other_params=400, kv_elements_per_token=10, tile=128)
    made = at(shape=shape)
    assert (made[2].value, made[3].value) == (first, second)
    assert f"G = {G}, tile 128" in made[2].reason


@pytest.mark.parametrize(("best", "pays"), [(3, False), (4, True)])
def test_3_applies_where_more_than_one_tile_pays(best: int, pays: bool) -> None:
    # G = 32 fills one tile with D = 3 and two with D = 7.
    shape = replace(SHAPE, G=32)
    made = at(1, 100, shape=shape, candidates=[candidate("a", best, 3.0, 2.0), candidate("a", 7, 3.5, 1.5)])
    assert (made[2].applies, made[3].applies) == (True, pays)
    assert verdict(made[3]) == (7, best, 1 - 1.5 / 2.0)
    assert not at(1, 99, shape=shape, candidates=[candidate("a", best, 3.0, 2.0)])[3].applies


@pytest.mark.parametrize(("tile", "why"), [(0, "no query tile"), (None, "tile is unknown")])
def test_2_and_3_do_not_apply_without_a_tile(tile: int | None, why: str) -> None:
    made = at(1, 10_000, shape=Shape(G=4, ffn_params=1, other_params=0, kv_elements_per_token=10, tile=tile))
    assert [(made[i].applies, made[i].value) for i in (2, 3)] == [(False, None), (False, None)]
    assert why in made[2].reason


def test_a_value_that_was_not_timed_is_said_to_be() -> None:
    made = at(1, 200, shape=replace(SHAPE, G=1))[2]
    assert made.loss is None
    assert f"; D = {made.value} was not timed" in made.reason


def test_below_the_least_gain_the_optimum_is_off() -> None:
    made = at(candidates=[candidate("a", 1, 1.5, LEAST_GAIN - 0.005), candidate("b", 1, 1.2, 0.9)])
    assert [made[i].optimum for i in (1, 4, 5)] == [0, 0, "off"]
    assert made[4].loss == 0


def test_4_raises_D_while_every_step_of_it_pays() -> None:
    curve = [
        candidate("a", 3, 2.2, 1.5),
        candidate("a", 1, 1.5, 1.2),
        candidate("a", 2, 1.8, 1.3),
        candidate("a", 4, 2.3, 1.4),
    ]
    made = at(candidates=curve)[4]
    assert verdict(made) == (3, 3, 0.0)
    assert "raising D of a one by one pays up to D = 3 (speed-up 1.50)" in made.reason


def test_4_stops_before_the_first_D_that_does_not_pay() -> None:
    curve = [candidate("a", 4, 3.0, 1.5), candidate("a", 1, 1.5, 1.2), candidate("a", 2, 1.6, 1.1)]
    assert verdict(at(candidates=curve)[4]) == (1, 4, 1 - 1.2 / 1.5)


def test_4_does_not_raise_D_for_nothing() -> None:
    assert at(candidates=[candidate("a", 1, 1.5, 1.2), candidate("a", 2, 1.6, 1.2)])[4].value == 1


def test_4_looks_at_the_fastest_drafter_alone() -> None:
    assert at()[4].value == 2
    # Another drafter is faster at D = 1; following the rule with this one loses all the same.
    ahead = [candidate("a", 3, 2.0, 1.6), candidate("b", 1, 1.6, 1.55)]
    behind = [candidate("a", 1, 1.5, 1.2), candidate("a", 2, 1.5, 1.1)]
    assert verdict(at(candidates=[*ahead, *behind])[4]) == (1, 3, 1 - 1.2 / 1.6)


def test_4_says_where_already_the_first_D_loses() -> None:
    made = at(candidates=[candidate("a", 2, 1.2, 0.9), candidate("a", 1, 1.1, 0.8)])[4]
    assert made.value == 0
    assert "already D = 1 of a loses (speed-up 0.80)" in made.reason


def test_4_applies_to_a_single_sequence_only() -> None:
    assert at(1)[4].applies
    assert not at(2)[4].applies


def test_5_balances_AL_against_drafting_and_pays_for_what_that_leaves_out() -> None:
    made = at()[5]
    assert made.applies
    assert verdict(made) == ("long", "fast", 1 - 1.2 / 1.6)
    assert made.reason.startswith(
        "by AL / (1 + O_d) it is long at D = 4 (AL 3.00), speed-up 1.20; by measured speed-up fast at D = 2 (AL 2.00), "
        "1.60; "
    )


def test_5_charges_a_drafter_its_drafting() -> None:
    # O_d = 10 / 10: an AL of 3.0 counts as 1.5.
    slow = replace(candidate("long", 4, 3.0, 1.2), t_draft_s=10.0)
    assert verdict(at(candidates=[CANDIDATES[0], slow])[5]) == ("fast", "fast", 0.0)


@pytest.mark.parametrize(("speedup", "value"), [(LEAST_GAIN - 0.001, "off"), (LEAST_GAIN, "fast")])
def test_5_says_off_where_the_fastest_mechanism_gains_too_little(speedup: float, value: str) -> None:
    made = at(candidates=[candidate("fast", 1, 1.5, speedup), candidate("long", 1, 2.0, 0.5)])[5]
    assert (made.value, made.optimum) == ("long", value)
    assert made.loss == pytest.approx(1 - 1 / max(1.0, speedup)), "the mechanism can still be switched off"


def test_5_needs_two_mechanisms_to_compare() -> None:
    assert not at(candidates=CANDIDATES[:2])[5].applies


def test_4_and_5_do_not_apply_where_nothing_was_measured() -> None:
    made = at(candidates=[])
    assert [(made[i].applies, made[i].value) for i in (4, 5)] == [(False, None), (False, None)]


@given(tables.curves(), tables.times())
def test_a_loss_is_a_share_of_the_best_speed_and_0_at_the_optimum(
    curves: list[DrafterCurve], points: list[TimingPoint]
) -> None:
    shape = replace(SHAPE, G=64)
    (made,), _ = decide(curves, points, shape)
    by_depth = {0: 1.0}
    for c in made.candidates:
        by_depth[c.D] = max(by_depth.get(c.D, 0.0), c.speedup)
    best = max(by_depth.values())
    off = best < LEAST_GAIN
    for rule in made.guidelines:
        if rule.loss is not None:
            assert 0 <= rule.loss <= 1
            assert rule.loss == 0 or rule.value != rule.optimum
            if rule.id <= 3:
                assert isinstance(rule.value, int)
                assert rule.loss == pytest.approx(max(0.0, 1 - by_depth[rule.value] / (1.0 if off else best)))
        else:
            assert rule.value not in by_depth
    optimum = 0 if off else max(by_depth, key=lambda D: (by_depth[D], -D))
    assert [rule.optimum for rule in made.guidelines[:3]] == [optimum] * 3
