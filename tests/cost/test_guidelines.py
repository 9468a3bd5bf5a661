"""The five guidelines: premise, value and reason at a load."""

from collections.abc import Sequence

import pytest

from codraft.core.schema import Candidate, Guideline
from codraft.cost.guidelines import PLATEAU, guidelines
from codraft.models.shape import Shape

from tests.build import candidate, timing

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
) -> dict[int, Guideline]:
    """The guidelines by id, with T_verif at D = 0, 1, 2, ..."""
    by_depth = {D: timing(D, seconds) for D, seconds in enumerate(verify)}
    return {g.id: g for g in guidelines(B, S, by_depth, candidates, shape)}


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


def test_1_names_the_last_D_on_the_memory_bound_plateau() -> None:
    edge = 10 * PLATEAU
    assert at(verify=[10, 11, edge, edge + 0.1])[1].value == 2
    assert at(verify=[10, 20, 30])[1].value == 0


def test_1_does_not_count_a_D_behind_one_that_left_the_plateau() -> None:
    assert at(verify=[10, 11, 15, 12])[1].value == 1


def test_1_tells_the_growth_at_the_largest_D() -> None:
    assert "T_verif at D = 2 is 1.50 times that at D = 0" in at(verify=[10, 11, 15])[1].reason


def test_1_applies_while_weights_are_most_of_the_bytes_and_2_and_3_from_then_on() -> None:
    below, above = at(1, 99), at(1, 100)
    assert [below[i].applies for i in (1, 2, 3)] == [True, False, False]
    assert [above[i].applies for i in (1, 2, 3)] == [False, True, True]


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


def test_2_and_3_do_not_apply_without_a_tile() -> None:
    made = at(1, 10_000, shape=Shape(G=4, ffn_params=1, other_params=0, kv_elements_per_token=10, tile=None))
    assert [(made[i].applies, made[i].value) for i in (2, 3)] == [(False, None), (False, None)]
    assert "no query tile" in made[2].reason


def test_4_raises_D_while_every_step_of_it_pays() -> None:
    curve = [
        candidate("a", 3, 2.2, 1.5),
        candidate("a", 1, 1.5, 1.2),
        candidate("a", 2, 1.8, 1.3),
        candidate("a", 4, 2.3, 1.4),
    ]
    made = at(candidates=curve)[4]
    assert made.value == 3
    assert "raising D of a one by one pays up to D = 3 (speed-up 1.50)" in made.reason


def test_4_stops_before_the_first_D_that_does_not_pay() -> None:
    curve = [candidate("a", 4, 3.0, 1.5), candidate("a", 1, 1.5, 1.2), candidate("a", 2, 1.6, 1.1)]
    assert at(candidates=curve)[4].value == 1


def test_4_does_not_raise_D_for_nothing() -> None:
    assert at(candidates=[candidate("a", 1, 1.5, 1.2), candidate("a", 2, 1.6, 1.2)])[4].value == 1


def test_4_looks_at_the_fastest_drafter_alone() -> None:
    assert at()[4].value == 2


def test_4_says_where_already_the_first_D_loses() -> None:
    made = at(candidates=[candidate("a", 2, 1.2, 0.9), candidate("a", 1, 1.1, 0.8)])[4]
    assert made.value == 0
    assert "already D = 1 of a loses (speed-up 0.80)" in made.reason


def test_4_applies_to_a_single_sequence_only() -> None:
    assert at(1)[4].applies
    assert not at(2)[4].applies


def test_5_names_the_fastest_mechanism_beside_the_one_with_the_longest_AL() -> None:
    made = at()[5]
    assert (made.applies, made.value) == (True, "fast")
    assert "fast at D = 2: AL 2.00, speed-up 1.60; the longest AL is long's 3.00 at D = 4, speed-up 1.20" in made.reason


def test_5_needs_two_mechanisms_to_compare() -> None:
    assert not at(candidates=CANDIDATES[:2])[5].applies


def test_4_and_5_do_not_apply_where_nothing_was_measured() -> None:
    made = at(candidates=[])
    assert [(made[i].applies, made[i].value) for i in (4, 5)] == [(False, None), (False, None)]
