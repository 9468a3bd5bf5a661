"""Timing sessions on a toy: what is timed, not how long it takes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.core.spec import NgramSpec, Sampling, SuffixSpec
from codraft.decode.drafter import Drafter, Proposal
from codraft.decode.hf.load import load_model
from codraft.drafters.ngram import NgramDrafter
from codraft.drafters.suffix import SuffixDrafter
from codraft.measure.clock import Laps
from codraft.measure.steps import (
    EndlessTarget,
    Lap,
    WrongDrafter,
    contexts,
    largest_context,
    negligible_drafting,
    session,
    texts_of,
    time_steps,
    timing_point,
    typical_context,
)
from codraft.replay.streams import TokenStream

from tests.toy import RULES, RuleDrafter, ToyTarget


def stream(prompt: int, output: int, asked: int) -> TokenStream:
    return TokenStream(
        index=0, conversation="a", turn=0, category=None, prompt_ids=[1] * prompt, output_ids=[2] * output, asked=asked
    )


def test_typical_context_is_the_mean_number_of_tokens_before_an_anchor() -> None:
    # Anchors at 10, 11, 12 and at 100, each anchor counted once.
    assert typical_context([stream(10, 4, 4), stream(100, 2, 2)]) == round((10 + 11 + 12 + 100) / 4)


def test_texts_are_prompt_and_answer() -> None:
    assert texts_of([stream(3, 2, 2), stream(1, 1, 1)]) == [[1, 1, 1, 2, 2], [1, 2]]


def test_contexts_have_exactly_the_asked_length_and_texts_take_turns() -> None:
    rows = contexts([[1, 1, 1, 2, 2], [7] * 59], B=3, S=17)
    assert rows == [[1, 1, 1, 2, 2] * 3 + [1, 1], [7] * 17, rows[0]]
    assert contexts([[1, 2]], B=1, S=4) == [[1, 2, 1, 2]]


@pytest.mark.parametrize("S", [1, 5])
def test_contexts_refuse_to_work_from_nothing(S: int) -> None:
    with pytest.raises(SpecError, match="no text to take a context from"):
        contexts([], 1, S)


class Narrow(ToyTarget):
    """A toy with a window of 40 that holds on to it."""

    window: int | None = 40

    def forward(self, tokens, cache, **kwargs):  # type: ignore[no-untyped-def]
        assert all(held + len(new) <= 40 for held, new in zip(cache.lengths, tokens, strict=True))
        return super().forward(tokens, cache, **kwargs)


def test_a_context_makes_room_for_what_a_timing_run_may_commit() -> None:
    """D = 0 and 2 in 2 rounds and one to warm up: 3 (1 + 3) tokens, the first anchor, and a last pass of 3."""
    assert largest_context(40, [0, 2], 2) == 40 - (3 * 4 + 1 + 3)
    assert largest_context(None, [0, 2], 2) is None, "no window, no limit"
    assert largest_context(40, [0, 1, 4], 3) == 2
    with pytest.raises(SpecError, match=r"in 4 rounds takes 46 tokens, and the window is 40; ask for fewer D"):
        largest_context(40, [0, 1, 4], 4)


def test_a_timing_run_keeps_within_the_window_though_every_draft_may_be_right() -> None:
    target = Narrow(9, seed=1)
    drafter = RuleDrafter(RULES["oracle"](target))
    points = time_steps(target, [drafter], [[1, 2, 3]], Sampling(), B=2, S=24, depths=[0, 2], rounds=2)
    assert [(p.S, p.D) for p in points] == [(24, 0), (24, 2)]


@pytest.mark.parametrize(("window", "S", "most"), [(None, 25, 24), (30, 15, 14)])
def test_a_context_that_leaves_no_room_is_refused_before_anything_runs(window: int | None, S: int, most: int) -> None:
    """The drafters' window counts where it is shorter than the target's."""
    target = Narrow(9)
    with pytest.raises(SpecError, match=rf"context S = {S} leaves no room to time D up to 2; at most {most} fit"):
        time_steps(target, [], [[1]], Sampling(), B=1, S=S, depths=[0, 2], rounds=2, window=window)
    assert target.passes == 0


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


def test_points_hold_each_drafters_time_and_none_at_depth_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codraft.measure.steps.NEGLIGIBLE", -1.0)
    target = ToyTarget(9, seed=1)
    drafters: list[Drafter] = [NgramDrafter(NgramSpec(name="mine")), SuffixDrafter(SuffixSpec(name="other"))]
    seen: list[tuple[int, int]] = []
    points = time_steps(
        target,
        drafters,
        [[1] * 12 + [2] * 5],
        Sampling(),
        B=2,
        S=10,
        depths=[0, 2],
        rounds=3,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [(p.B, p.S, p.D, p.x, p.num_samples, list(p.t_draft_s)) for p in points] == [
        (2, 10, 0, 2, 3, []),
        (2, 10, 2, 6, 3, ["mine", "other"]),
    ]
    for p in points:
        assert 0 < p.p10 <= p.t_verif_s <= p.p90
        assert p.t_sys_spread_s is not None
        assert p.t_sys_spread_s[0] <= p.t_sys_s <= p.t_sys_spread_s[1]
        assert p.t_draft_spread_s is not None
        assert list(p.t_draft_spread_s) == list(p.t_draft_s)
        assert p.shares is None, "a toy has no kinds of modules"
    assert len(seen) == 4 * 3, "a tick for each round of each session, the first round included"
    assert isinstance(drafters[1], SuffixDrafter)
    assert drafters[1].memory.tree.num_nodes == 0, "a drafter that remembers is timed afresh"


@pytest.mark.parametrize(("enough", "rounds"), [(lambda laps: True, 2), (lambda laps: len(laps[3]) >= 4, 4), (None, 5)])
def test_a_session_ends_when_it_is_told_that_it_has_enough_but_not_after_one_round(
    enough: Callable[[Mapping[int, Sequence[Lap]]], bool] | None, rounds: int
) -> None:
    target = ToyTarget(9, seed=1)
    laps = session(target, WrongDrafter(9), [[1, 2]], Sampling(), [0, 3], 5, lambda: None, enough=enough)
    assert {D: len(kept) for D, kept in laps.items()} == {0: rounds, 3: rounds}


def test_drafting_is_negligible_where_it_never_took_a_hundredth_of_its_pass() -> None:
    def lap(draft: float) -> Lap:
        return {"draft": draft, "verify": 1.0, "step": 1.0 + draft}

    assert negligible_drafting({0: [lap(0.0)], 2: [lap(0.01), lap(0.002)]})
    assert not negligible_drafting({0: [lap(0.0)], 2: [lap(0.002), lap(0.011)]})


def test_verification_is_timed_in_every_round_though_drafting_is_negligible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codraft.measure.steps.NEGLIGIBLE", 1e9)
    target = ToyTarget(9, seed=1)
    drafted: list[int] = []

    class Counting(NgramDrafter):
        def propose(self, anchors: Sequence[int], D: int) -> Proposal:
            drafted.append(D)
            return super().propose(anchors, D)

    [_, point] = time_steps(target, [Counting(NgramSpec())], [[1, 2]], Sampling(), B=1, S=9, depths=[0, 2], rounds=5)
    assert point.num_samples == 5
    assert point.t_draft_num_samples == {"ngram": 2}
    assert drafted == [2] * 3, "the round that warms up, and two"


def test_a_point_is_the_medians_and_the_spread_of_its_laps() -> None:
    verify = [{"verify": v, "draft": 1.0, "step": v + 1.0 + s} for v, s in ((4.0, 2.0), (6.0, 1.0), (11.0, 9.0))]
    draft = {"a": [{"verify": 0.0, "draft": t, "step": t} for t in (3.0, 1.0, 2.0)]}
    point = timing_point(2, 70, 3, verify, draft, {"ffn": 1.0})
    assert (point.B, point.S, point.D, point.x, point.num_samples) == (2, 70, 3, 8, 3)
    assert (point.p10, point.t_verif_s, point.p90) == pytest.approx((4.4, 6.0, 10.0))
    assert point.t_sys_s == 2.0
    assert point.t_sys_spread_s == pytest.approx((1.2, 7.6))
    assert point.t_draft_s == {"a": 2.0}
    assert point.t_draft_num_samples == {"a": 3}
    assert point.t_draft_spread_s is not None
    assert point.t_draft_spread_s["a"] == pytest.approx((1.2, 2.8))
    assert point.shares == {"ffn": 1.0}


def test_a_model_whose_parts_we_do_not_know_has_no_shares(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(tiny_model_dir), "float32")
    monkeypatch.setattr(model, "modules_by_kind", lambda: None)
    [point] = time_steps(model, [], [[5] * 30], Sampling(), B=1, S=9, depths=[0], rounds=1)
    assert point.shares is None


@pytest.mark.parametrize("rounds", [2, 3])
def test_the_shares_of_a_pass_add_up_at_every_depth(
    rounds: int, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("codraft.measure.steps.SHARE_ROUNDS", rounds)
    model = load_model(str(tiny_model_dir), "float32")
    seen: list[tuple[int, int]] = []
    points = time_steps(
        model,
        [],
        [[5] * 30],
        Sampling(),
        B=2,
        S=20,
        depths=[0, 3],
        rounds=1,
        progress=lambda done, total: seen.append((done, total)),
    )
    for point in points:
        assert point.shares is not None
        assert set(point.shares) == {"ffn", "projections", "attention", "head", "other"}
        assert sum(point.shares.values()) == pytest.approx(1, abs=1e-9)
        assert min(point.shares.values()) > 0
    assert seen[-1] == (2 + rounds + 1, 2 + rounds + 1)


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
