"""Acceptance arithmetic: published figures, and the identities that hold for every log of steps."""

import json
import tomllib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.acceptance import Acceptance, StepLog, curve_point, whole

from tests.build import Step, acceptance, point

GOLDEN: dict[str, Any] = tomllib.loads((Path(__file__).parents[1] / "golden" / "acceptance.toml").read_text())
MOST = 6


@st.composite
def logs(draw: st.DrawFn, *, full: bool = False) -> tuple[list[Step], int]:
    """(drafted, accepted) of some steps, and a D that holds them; `full`: every step drafts D."""
    D = draw(st.integers(1, MOST))
    steps = [(k, a) for k in range(D if full else 0, D + 1) for a in range(k + 1)]
    return draw(st.lists(st.sampled_from(steps), min_size=1, max_size=12)), D


def test_a_chunk_length_histogram_gives_the_published_AL_and_rates() -> None:
    golden = GOLDEN["specdec_bench"]
    counts = np.zeros((golden["D"] + 1, golden["D"] + 1))
    for length, number in golden["chunks"].items():
        counts[golden["D"], int(length) - 1] = number
    pooled = Acceptance(counts, 0)
    AL, joint, conditional = golden["AL"], golden["joint"], golden["conditional"]
    assert pytest.approx(AL["value"], abs=AL["tolerance"]) == pooled.AL
    assert pooled.joint() == pytest.approx(joint["value"], abs=joint["tolerance"])
    assert pooled.conditional() == pytest.approx(conditional["value"], abs=conditional["tolerance"])


def test_steps_and_accepted_tokens_give_the_AL_that_vllm_prints() -> None:
    golden = GOLDEN["vllm_pull_26498"]
    counts = np.zeros((4, 4))
    threes, rest = divmod(golden["accepted"], 3)
    counts[3, 3], counts[3, rest] = threes, 1
    counts[3, 0] = golden["steps"] - threes - 1
    pooled = Acceptance(counts, 0)
    assert (pooled.steps, pooled.accepted) == (golden["steps"], golden["accepted"])
    assert pytest.approx(golden["AL"]["value"], abs=golden["AL"]["tolerance"]) == pooled.AL


@given(logs())
def test_joint_rates_sum_to_AL_minus_one(log: tuple[list[Step], int]) -> None:
    pooled = acceptance(*log)
    assert sum(pooled.joint()) == pytest.approx(pooled.AL - 1)


@given(logs())
def test_AL_lies_between_1_and_1_plus_D(log: tuple[list[Step], int]) -> None:
    pooled = acceptance(*log)
    assert 1 <= pooled.AL <= 1 + pooled.D


@given(logs(full=True))
def test_joint_is_the_product_of_conditionals_when_every_step_drafts_D(log: tuple[list[Step], int]) -> None:
    pooled = acceptance(*log)
    product = 1.0
    for joint, conditional in zip(pooled.joint(), pooled.conditional(), strict=True):
        product *= conditional if conditional is not None else 0.0
        assert joint == pytest.approx(product)


@given(logs())
def test_counts_are_sums_over_the_log(log: tuple[list[Step], int]) -> None:
    steps, D = log
    pooled = acceptance(steps, D)
    assert pooled.steps == len(steps)
    assert pooled.drafted == sum(k for k, _ in steps)
    assert pooled.accepted == sum(a for _, a in steps)
    assert pooled.drafted_steps == sum(k > 0 for k, _ in steps)
    assert pooled.coverage == pytest.approx(sum(k > 0 for k, _ in steps) / len(steps))


@given(logs())
def test_proposal_lengths_are_the_shares_of_steps_by_tokens_drafted(log: tuple[list[Step], int]) -> None:
    steps, D = log
    shares = acceptance(steps, D).proposal_lengths()
    assert shares.tolist() == pytest.approx([sum(k == d for k, _ in steps) / len(steps) for d in range(D + 1)])


def test_steps_without_a_draft_lower_AL_but_not_the_conditional_rate() -> None:
    drafting = [(2, 2), (2, 2)]
    idle = [(0, 0), (0, 0)]
    assert acceptance(drafting, 2).AL == 3
    with_idle = acceptance(drafting + idle, 2)
    assert with_idle.AL == 2
    assert with_idle.coverage == 0.5
    assert with_idle.conditional() == [1.0, 1.0]
    assert with_idle.joint() == [0.5, 0.5]


def test_a_short_draft_is_no_failure_of_the_position_it_did_not_reach() -> None:
    pooled = acceptance([(1, 1), (2, 2), (2, 1), (2, 0)], 2)
    assert pooled.joint() == [0.75, 0.25]
    assert pooled.conditional() == [0.75, 0.5]


def test_a_position_that_no_step_reached_has_no_conditional_rate() -> None:
    assert acceptance([(3, 0), (1, 1)], 3).conditional() == [0.5, None, None]


def test_a_cut_step_counts_as_step_and_as_cut() -> None:
    log = StepLog.of([(0, 3, 1, False), (2, 2, 2, True)])
    counted = Acceptance.from_log(log, 3)
    assert (counted.steps, counted.accepted, counted.cut_steps) == (2, 3, 1)


def test_weights_count_a_step_as_often_as_it_is_expected() -> None:
    log = StepLog(
        anchor_N=np.array([0, 0]),
        drafted_N=np.array([1, 1]),
        accepted_N=np.array([0, 1]),
        cut_N=np.array([False, True]),
        weight_N=np.array([0.75, 0.25]),
    )
    expected = Acceptance.from_log(log, 1)
    assert (expected.steps, expected.accepted, expected.cut_steps, expected.AL) == (1, 0.25, 0.25, 1.25)


def test_an_empty_log_has_no_steps() -> None:
    assert Acceptance.from_log(StepLog.of([]), 2).steps == 0


def test_selecting_keeps_every_column_of_the_marked_steps() -> None:
    log = StepLog.of([(0, 1, 0, False), (1, 2, 2, True), (4, 3, 1, False)])
    kept = log.select(np.array([False, True, True]))
    assert kept.anchor_N.tolist() == [1, 4]
    assert kept.drafted_N.tolist() == [2, 3]
    assert kept.accepted_N.tolist() == [2, 1]
    assert kept.cut_N.tolist() == [True, False]
    assert kept.weight_N.tolist() == [1, 1]


def test_the_pool_adds_counts_and_cut_steps() -> None:
    one = Acceptance.from_log(StepLog.of([(0, 1, 1, True)]), 1)
    two = Acceptance.from_log(StepLog.of([(0, 1, 0, False), (1, 1, 1, True)]), 1)
    pooled = Acceptance.pool([one, two])
    assert pooled.counts.tolist() == [[0, 0], [1, 2]]
    assert pooled.cut_steps == 2


def test_AL_pools_steps_while_AL_macro_averages_prompts() -> None:
    long, short = acceptance([(1, 0)] * 9, 1), acceptance([(1, 1)], 1)
    made = curve_point([[long], [short]])
    assert made is not None
    assert pytest.approx(1.1) == made.AL
    assert made.AL_macro == pytest.approx(1.5)


def test_a_prompt_without_steps_does_not_enter_the_macro_mean() -> None:
    made = curve_point([[acceptance([(1, 1)], 1), acceptance([], 1)]])
    assert made is not None
    assert made.AL_macro == 2


def test_no_step_at_all_gives_no_point() -> None:
    assert curve_point([]) is None
    assert curve_point([[acceptance([], 2)], []]) is None


def test_one_conversation_has_no_interval_however_many_prompts_it_has() -> None:
    prompts = [acceptance([(2, a)], 2) for a in (0, 1, 2)]
    made = curve_point([prompts])
    assert made is not None
    assert made.AL_ci95 is None


def test_a_conversation_without_steps_does_not_make_an_interval() -> None:
    assert point(2, [(2, 1), (2, 0)], []).AL_ci95 is None


def test_the_interval_resamples_conversations_not_prompts() -> None:
    prompts = [acceptance([(2, 0)], 2), acceptance([(2, 2)], 2)]
    made = curve_point([prompts, prompts])
    assert made is not None
    assert made.AL_ci95 == (2, 2)


def test_the_interval_spans_unequal_conversations_and_is_the_same_each_time() -> None:
    conversations = [[(3, a), (3, 3 - a), (3, a)] for a in (0, 1, 2, 3, 3, 0, 1, 2)]
    first, again = point(3, *conversations), point(3, *conversations)
    assert first.AL_ci95 == again.AL_ci95
    assert first.AL_ci95 is not None
    low, high = first.AL_ci95
    assert 1 <= low < first.AL < high <= 4


def test_a_longer_conversation_weighs_more_in_the_interval() -> None:
    # The mean of the conversations' own AL would often exceed 1.2; pooled, one long one keeps it near 1.
    made = point(1, *[[(1, 0)] * 1000] * 4, [(1, 1)])
    assert made.AL_ci95 is not None
    assert 1 < made.AL_ci95[1] < 1.01


def test_a_point_carries_the_pooled_counts_as_whole_numbers() -> None:
    made = point(2, [(2, 1), (0, 0)], [(2, 2)])
    assert made.counts == [[1, 0, 0], [0, 0, 0], [0, 1, 1]]
    assert (made.D, made.steps, made.drafted_steps, made.accepted, made.drafted, made.cut_steps) == (
        2,
        3,
        2,
        3,
        4,
        0,
    )
    assert json.dumps(made.counts) == "[[1, 0, 0], [0, 0, 0], [0, 1, 1]]"


@given(st.integers(1, MOST), st.lists(st.lists(st.lists(st.integers(0, 40), max_size=5), max_size=3), max_size=4))
def test_a_point_never_holds_NaN_or_infinity(D: int, conversations: list[list[list[int]]]) -> None:
    made = curve_point(
        [
            [acceptance([(c % (D + 1), c // 7 % (c % (D + 1) + 1)) for c in codes], D) for codes in prompts]
            for prompts in conversations
        ]
    )
    steps = sum(len(codes) for prompts in conversations for codes in prompts)
    assert (made is None) == (steps == 0)
    if made is not None:
        json.dumps(asdict(made), allow_nan=False)
        assert made.steps == steps


@given(st.integers(0, 10**9))
def test_a_whole_count_leaves_as_an_integer(count: int) -> None:
    made = whole(float(count))
    assert type(made) is int
    assert made == count


def test_a_fractional_count_keeps_its_fraction() -> None:
    assert whole(2.5) == 2.5
