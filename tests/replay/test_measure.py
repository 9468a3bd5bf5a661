"""From step logs to AL(D): pooling, domains, drawn drafts, and streams that cannot be what they claim."""

import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from codraft.core.acceptance import StepLog
from codraft.core.errors import SpecError
from codraft.core.spec import NgramSpec, Sampling, SuffixSpec
from codraft.decode.drafter import Drafter, Unrolled
from codraft.decode.loop import decode
from codraft.drafters.ngram import NgramDrafter
from codraft.drafters.suffix import SuffixDrafter
from codraft.replay.measure import (
    Logs,
    acceptance_probability,
    check_possible,
    curve,
    live,
    replay,
    replay_together,
    result,
)
from codraft.replay.streams import TokenStream

from tests.drafters.heads import streams_of
from tests.drafters.suffixes import paths
from tests.toy import EOS, RuleDrafter, SamplingDrafter, ToyTarget, oracle

DEPTHS = [1, 2, 3, 6]
MAX_D = max(DEPTHS)


def stream(
    index: int, conversation: str, category: str | None, prompt: int, output: list[int], asked: int
) -> TokenStream:
    return TokenStream(
        index=index,
        conversation=conversation,
        turn=0,
        category=category,
        prompt_ids=[1] * prompt,
        output_ids=output,
        asked=asked,
    )


def test_al_is_pooled_over_streams_and_domains_split_it() -> None:
    streams = [stream(0, "a", "code", 10, [1] * 20, 12), stream(1, "b", "chat", 300, [1] * 20, 12)]
    logs = Logs(
        {2: [StepLog.of([(0, 2, 2, False), (3, 2, 1, False)]), StepLog.of([(0, 0, 0, False), (1, 2, 0, False)])]}, False
    )
    found = result(NgramDrafter(NgramSpec()), logs, streams, domains=True)
    assert [point.AL for point in found.curve] == [1 + 3 / 4]
    assert found.curve[0].AL_macro == (2.5 + 1.0) / 2
    assert {name: (d.num_prompts, d.curve[0].AL) for name, d in found.domains.items()} == {
        "code": (1, 2.5),
        "chat": (1, 1.0),
        "context 0..255": (1, 2.5),
        "context 256..511": (1, 1.0),
    }


def test_a_stream_that_crosses_a_context_edge_counts_its_steps_on_both_sides() -> None:
    streams = [stream(0, "a", None, 254, [1] * 20, 12)]
    logs = Logs({1: [StepLog.of([(0, 1, 1, False), (2, 1, 0, False), (3, 1, 1, False)])]}, False)
    domains = result(NgramDrafter(NgramSpec()), logs, streams, domains=True).domains
    assert {name: d.curve[0].steps for name, d in domains.items()} == {"context 0..255": 1, "context 256..511": 2}


def test_the_prompts_of_one_conversation_are_resampled_together() -> None:
    """Two conversations of two turns each: the interval comes from two draws, not four."""
    streams = [stream(i, "ab"[i // 2], None, 5, [1] * 20, 12) for i in range(4)]
    logs = Logs({1: [StepLog.of([(0, 1, i // 2, False)]) for i in range(4)]}, False)
    point = curve(logs.by_depth, streams)[0]
    assert point.AL == 1.5
    assert point.AL_ci95 == (1.0, 2.0)


def test_the_ratio_is_the_drafters_over_the_targets_and_never_above_one() -> None:
    unrolled = Unrolled(np.array([2, 2]), np.array([[0.2, 0.9], [0.9, 0.0]]))
    accept_AD = acceptance_probability(unrolled, np.array([0.4, 0.6]))
    assert accept_AD.tolist() == [[0.5, 1.0], [1.0, 0.0]]


def test_a_token_outside_the_targets_filter_makes_no_nan() -> None:
    unrolled = Unrolled(np.array([1, 1]), np.array([[0.0], [0.3]]))
    assert acceptance_probability(unrolled, np.array([0.0, 0.0])).tolist() == [[0.0], [1.0]]


def test_streams_drawn_with_other_settings_are_refused() -> None:
    check_possible([np.full(100, 0.5), np.array([0.0])])
    with pytest.raises(SpecError, match="cannot come from the sampling settings"):
        check_possible([np.array([0.5] * 9 + [0.0])])
    target = ToyTarget(8, seed=1, eos=False)
    greedyless = Sampling(temperature=1.0, top_k=1)
    drafter = SamplingDrafter(ToyTarget(8, seed=2), greedyless)
    with pytest.raises(SpecError, match="cannot come from"):
        replay(target, drafter, [stream(0, "a", None, 2, [2, 3, 4, 5, 6, 7, 2, 3], 6)], greedyless, frozenset(), [1])


def test_replay_without_a_step_gives_an_empty_curve() -> None:
    drafter = NgramDrafter(NgramSpec())
    logs = replay(None, drafter, [stream(0, "a", None, 3, [1], 1)], Sampling(), frozenset(), [1, 2])
    assert curve(logs.by_depth, [stream(0, "a", None, 3, [1], 1)]) == []


def plain_streams(target: ToyTarget, sampling: Sampling, limits: Sequence[int]) -> list[TokenStream]:
    """What the target writes for some prompts, MAX_D tokens longer than each limit."""
    prompts = [[(i + j * j) % target.vocab_size for j in range(1 + i % 7)] for i in range(len(limits))]
    return streams_of(target, prompts, sampling, limits, MAX_D)


def rows(log: StepLog) -> list[tuple[int, int, int, bool]]:
    """(anchor, drafted, accepted, cut) of every step."""
    columns = zip(log.anchor_N, log.drafted_N, log.accepted_N, log.cut_N, strict=True)
    return [(int(p), int(k), int(a), bool(c)) for p, k, a, c in columns]


def all_rows(by_depth: Mapping[int, list[StepLog]]) -> dict[int, list[list[tuple[int, int, int, bool]]]]:
    """The steps of every stream at every D."""
    return {D: [rows(log) for log in logs] for D, logs in by_depth.items()}


def test_live_mode_counts_the_same_as_replay() -> None:
    target = ToyTarget(5, seed=4, eos=False)
    streams = plain_streams(target, Sampling(), [12] * 5)
    drafter = NgramDrafter(NgramSpec(n_min=1, n_max=2))
    replayed = replay(None, drafter, streams, Sampling(), frozenset(), [1, 3])
    decoded = live(target, drafter, streams, Sampling(), [1, 3], 2)
    assert all_rows(decoded.by_depth) == all_rows(replayed.by_depth)
    assert curve(decoded.by_depth, streams) == curve(replayed.by_depth, streams)


SUFFIXES = [
    SuffixSpec(),
    SuffixSpec(max_cached_requests=0, max_spec_factor=3.0),
    SuffixSpec(max_cached_requests=2, max_tree_depth=5, max_spec_factor=2.0),
    SuffixSpec(min_token_prob=0.4, max_spec_factor=4.0, max_tree_depth=9),
]
SAMPLINGS = [Sampling(), Sampling(temperature=0.5, seed=3)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
@pytest.mark.parametrize("spec", SUFFIXES, ids=["default", "no memory", "small", "wide"])
def test_a_drafter_that_remembers_takes_the_very_steps_of_live_decoding(spec: SuffixSpec, sampling: Sampling) -> None:
    """One stream after the other, for every D: limits of all lengths, ends by EOS, and an EOS in the tail."""
    accepted = cut = tails = 0
    for seed in (10, 12, 18):
        target = ToyTarget(5, seed=seed, scale=1.5)
        limits = [17, 2, 9, 25, 3, 30, 12, 17, 4, 40, 5, 6, 7, 23, 31]
        streams = [s for s in plain_streams(target, sampling, limits) if s.num_anchors() > 0]
        replayed = replay(None, SuffixDrafter(spec), streams, sampling, target.eos_ids, DEPTHS)
        decoded = live(target, SuffixDrafter(spec), streams, sampling, DEPTHS, 1)
        assert all_rows(replayed.by_depth) == all_rows(decoded.by_depth)
        logs = [log for D in DEPTHS for log in replayed.by_depth[D]]
        accepted += sum(int(log.accepted_N.sum()) for log in logs)
        cut += sum(int(log.cut_N.sum()) for log in logs)
        tails += sum(EOS in s.output_ids[s.asked :] for s in streams)
    assert accepted > 100
    assert cut > 0
    assert tails > 0


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=["greedy", "sampled"])
def test_the_cold_curve_is_of_a_drafter_that_starts_anew_with_every_stream(sampling: Sampling) -> None:
    target = ToyTarget(5, seed=12, scale=1.5)
    streams = [s for s in plain_streams(target, sampling, [17, 9, 25, 30, 16, 8]) if s.num_anchors() > 0]
    drafter = SuffixDrafter(SuffixSpec(max_spec_factor=2.0))
    logs = replay(None, drafter, streams, sampling, target.eos_ids, DEPTHS)
    alone = {
        D: [decode(target, drafter.fresh(), [s.request(s.asked)], sampling, D)[0].steps for s in streams]
        for D in DEPTHS
    }
    assert logs.cold is not None
    assert all_rows(logs.cold) == alone
    assert all_rows(logs.cold) != all_rows(logs.by_depth)
    found = result(drafter, logs, streams, domains=True)
    assert found.cold == curve(logs.cold, streams)
    assert found.curve == curve(logs.by_depth, streams)
    assert found.domains["context 0..255"].curve == found.curve, "domains are of the warm curve"
    assert set(found.timings_s) == {"drafter_pass", "walk"}


def test_the_cold_pass_is_on_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that moves a second each time it is read: one for each warm pass, one for each warm walk."""
    ticks = itertools.count()
    monkeypatch.setattr("codraft.replay.measure.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    streams = [stream(i, "a", None, 3, [1] * 9, 6) for i in range(3)]
    logs = replay(None, SuffixDrafter(SuffixSpec()), streams, Sampling(), frozenset(), [1, 2])
    assert logs.timings_s == {"drafter_pass": 3.0, "walk": 3.0}


def test_a_drafter_without_a_memory_has_no_cold_curve() -> None:
    drafter = NgramDrafter(NgramSpec())
    streams = [stream(0, "a", None, 3, [1] * 9, 6)]
    logs = replay(None, drafter, streams, Sampling(), frozenset(), [1])
    assert result(drafter, logs, streams, domains=False).cold is None


def test_measuring_leaves_the_drafter_as_it_came() -> None:
    """And what it came with does not count: every measurement, and live every D, starts from nothing."""
    target = ToyTarget(5, seed=2, scale=1.5, eos=False)
    streams = plain_streams(target, Sampling(), [17, 9])
    drafter = SuffixDrafter(SuffixSpec())
    drafter.unroll_each([1, 2], [3, 4, 1, 2, 3], [2], 5)
    before = paths(drafter.memory.tree)
    for logs, cold in (
        (
            replay(None, drafter, streams, Sampling(), frozenset(), DEPTHS),
            replay(None, drafter.fresh(), streams, Sampling(), frozenset(), DEPTHS),
        ),
        (
            live(target, drafter, streams, Sampling(), DEPTHS, 1),
            live(target, drafter.fresh(), streams, Sampling(), DEPTHS, 1),
        ),
    ):
        assert all_rows(logs.by_depth) == all_rows(cold.by_depth)
        assert paths(drafter.memory.tree) == before


def test_progress_counts_streams_once() -> None:
    streams = [stream(i, "a", None, 3, [1] * 9, 6) for i in range(3)]
    for drafter in (NgramDrafter(NgramSpec()), SuffixDrafter(SuffixSpec())):
        seen: list[tuple[int, int]] = []
        replay(None, drafter, streams, Sampling(), frozenset(), [1, 2], lambda done, total: seen.append((done, total)))  # noqa: B023
        assert seen == [(1, 3), (2, 3), (3, 3)]


def test_drafters_share_the_targets_pass_and_count_as_apart() -> None:
    """One drafter of features, one that draws, one of neither: the steps of each by itself, in one pass a stream."""
    sampling = Sampling(temperature=0.9, seed=3)
    target = ToyTarget(6, seed=1)
    streams = plain_streams(target, sampling, [10, 4, 12])
    drafters: list[Drafter] = [
        RuleDrafter(oracle(target)),
        SamplingDrafter(ToyTarget(6, seed=2), sampling),
        NgramDrafter(NgramSpec()),
    ]
    target.passes = 0
    together = replay_together(target, drafters, streams, sampling, target.eos_ids, DEPTHS)
    assert target.passes == len(streams)
    assert [("target_pass" in logs.timings_s) for logs in together] == [True, False, False]
    for drafter, logs in zip(drafters, together, strict=True):
        alone = replay(target, drafter, streams, sampling, target.eos_ids, DEPTHS)
        assert alone.expected == logs.expected
        assert all_rows(alone.by_depth) == all_rows(logs.by_depth)
