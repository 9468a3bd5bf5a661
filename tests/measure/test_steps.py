"""Timing sessions on a toy: what is timed, not how long it takes."""

import pytest

from codraft.core.spec import NgramSpec, Sampling
from codraft.drafters.ngram import NgramDrafter
from codraft.measure.clock import Laps
from codraft.measure.steps import EndlessTarget, WrongDrafter, contexts, session, time_steps, typical_context
from codraft.replay.streams import TokenStream

from tests.toy import ToyTarget


def stream(prompt: int, output: int, asked: int) -> TokenStream:
    return TokenStream(
        index=0, conversation="a", turn=0, category=None, prompt_ids=[1] * prompt, output_ids=[2] * output, asked=asked
    )


def test_typical_context_is_the_mean_number_of_tokens_before_an_anchor() -> None:
    # Anchors at 10, 11, 12 and at 100, each anchor counted once.
    assert typical_context([stream(10, 4, 4), stream(100, 2, 2)]) == round((10 + 11 + 12 + 100) / 4)


def test_contexts_have_exactly_the_asked_length() -> None:
    rows = contexts([stream(3, 2, 2), stream(50, 9, 9)], B=3, S=17)
    assert [len(row) for row in rows] == [17, 17, 17]
    assert rows[0] == rows[2] == [1, 1, 1, 2, 2] * 3 + [1, 1]


def test_every_pass_of_a_session_is_as_wide_as_asked_and_the_first_round_is_not_kept() -> None:
    target = ToyTarget(9, seed=1)
    widths: list[int] = []
    forward = target.forward

    def recording(tokens, cache, **kwargs):  # type: ignore[no-untyped-def]
        widths.append(len(tokens[0]))
        return forward(tokens, cache, **kwargs)

    target.forward = recording  # type: ignore[method-assign]
    laps = session(target, WrongDrafter(9), [[1, 2, 3, 4]], Sampling(), [0, 1, 3], 2, lambda: None)
    assert widths == [4] + [1, 2, 4] * 3
    assert {D: len(kept) for D, kept in laps.items()} == {0: 2, 1: 2, 3: 2}


def test_points_hold_each_drafters_time_and_none_at_depth_zero() -> None:
    target = ToyTarget(9, seed=1)
    points = time_steps(
        target,
        [NgramDrafter(NgramSpec(name="mine"))],
        [stream(12, 5, 5)],
        Sampling(),
        B=2,
        S=10,
        depths=[0, 2],
        rounds=3,
    )
    assert [(p.B, p.S, p.D, p.x, p.num_samples, list(p.t_draft_s)) for p in points] == [
        (2, 10, 0, 2, 6 // 2, []),
        (2, 10, 2, 6, 6 // 2, ["mine"]),
    ]
    for p in points:
        assert 0 < p.p10 <= p.t_verif_s <= p.p90
        assert p.t_sys_s > 0


def test_a_timing_run_does_not_end_at_eos() -> None:
    assert EndlessTarget(ToyTarget(5)).eos_ids == frozenset()


def test_laps_split_a_step_into_its_phases() -> None:
    laps = Laps("cpu")
    with laps.phase("prefill"):
        pass
    for _ in range(2):
        with laps.phase("step"):
            with laps.phase("draft"):
                pass
            with laps.phase("verify"):
                pass
            with laps.phase("draft"):
                pass
    assert len(laps.steps) == 2
    assert set(laps.steps[0]) == {"draft", "verify", "step"}
    assert all(lap["draft"] + lap["verify"] <= lap["step"] for lap in laps.steps)


def test_a_wrong_draft_can_fill_any_depth_of_a_small_vocabulary() -> None:
    drafter = WrongDrafter(9)
    assert all(0 <= token < 9 for token in drafter.propose([1], 64).tokens[0])


@pytest.mark.parametrize("S", [1, 5])
def test_contexts_refuse_to_work_from_nothing(S: int) -> None:
    from codraft.core.errors import SpecError

    with pytest.raises(SpecError, match="no stream"):
        contexts([], 1, S)
