"""From step logs to AL(D): pooling, domains, drawn drafts, and streams that cannot be what they claim."""

import numpy as np
import pytest

from codraft.core.acceptance import StepLog
from codraft.core.errors import SpecError
from codraft.core.spec import NgramSpec, Sampling
from codraft.decode.drafter import Unrolled
from codraft.drafters.ngram import NgramDrafter
from codraft.replay.measure import Logs, acceptance_probability, check_possible, curve, live, replay, result
from codraft.replay.streams import TokenStream

from tests.toy import SamplingDrafter, ToyTarget


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
    point = curve(logs, streams)[0]
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
    assert curve(logs, [stream(0, "a", None, 3, [1], 1)]) == []


def test_live_mode_counts_the_same_as_replay() -> None:
    target = ToyTarget(5, seed=4, eos=False)
    from codraft.decode.drafter import Request
    from codraft.decode.loop import decode

    streams = []
    for i in range(5):
        text = decode(target, None, [Request(i, [1, 2], 15)], Sampling(), 0)[0].text_ids
        streams.append(
            TokenStream(
                index=i, conversation=str(i), turn=0, category=None, prompt_ids=[1, 2], output_ids=text, asked=12
            )
        )
    drafter = NgramDrafter(NgramSpec(n_min=1, n_max=2))
    replayed = curve(replay(None, drafter, streams, Sampling(), frozenset(), [1, 3]), streams)
    assert curve(live(target, drafter, streams, Sampling(), [1, 3], 2), streams) == replayed
