"""The walk against live decoding and against full enumeration."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.acceptance import Acceptance
from codraft.core.spec import NgramSpec, Sampling
from codraft.decode.accept import accept_prob, residual
from codraft.decode.drafter import Drafter, Unrolled
from codraft.decode.loop import decode
from codraft.decode.sampling import probabilities
from codraft.drafters.ngram import NgramDrafter
from codraft.replay.measure import replay
from codraft.replay.streams import TokenStream
from codraft.replay.walk import expect, runs, walk

from tests.drafters.heads import streams_of
from tests.toy import RULES, RuleDrafter, SamplingDrafter, ToyTarget

DEPTHS = (1, 2, 3, 6)
MAX_D = max(DEPTHS)
LIMIT = 17


def plain_streams(target: ToyTarget, sampling: Sampling, count: int = 12, limit: int = LIMIT) -> list[TokenStream]:
    """Plain streams, MAX_D tokens longer than asked."""
    prompts = [[1 + (3 * i + j) % (target.vocab_size - 1) for j in range(1 + i % 4)] for i in range(count)]
    return streams_of(target, prompts, sampling, limit, MAX_D)


def drafters_of(target: ToyTarget) -> list[Drafter]:
    ngrams: list[Drafter] = [
        NgramDrafter(NgramSpec(n_min=1, n_max=3, occurrence="earliest")),
        NgramDrafter(NgramSpec(n_min=2, n_max=2)),
    ]
    # Rules that do not look at the number of the step can be unrolled.
    return ngrams + [RuleDrafter(RULES[name](target)) for name in RULES if name != "changing_depth"]


@pytest.mark.parametrize("seed", [0, 3, 5])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, seed=3)])
def test_replay_takes_the_very_steps_of_live_decoding(seed: int, sampling: Sampling) -> None:
    """Every one-hot drafter; streams that end by EOS, by the limit, and by an EOS in the tail."""
    target = ToyTarget(6, seed=seed, scale=1.5)
    streams = plain_streams(target, sampling)
    for drafter in drafters_of(target):
        # The rule drafters look at the token ids, so replay must hand the prompt's features over too.
        logs = replay(target, drafter, streams, sampling, target.eos_ids, DEPTHS)
        for D in DEPTHS:
            for stream, log in zip(streams, logs.by_depth[D], strict=True):
                live = decode(target, drafter, [stream.request(LIMIT)], sampling, D)[0]
                rows = zip(log.anchor_N, log.drafted_N, log.accepted_N, log.cut_N, strict=True)
                assert [(int(p), int(k), int(a), bool(c)) for p, k, a, c in rows] == live.steps


bools = st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=20)


@given(bools, st.integers(1, 4), st.data())
def test_certain_acceptance_makes_the_expectation_the_walk(hits: list[list[bool]], D: int, data: st.DataObject) -> None:
    anchors = len(hits)
    drafted_A = np.array(data.draw(st.lists(st.integers(0, 4), min_size=anchors, max_size=anchors)), dtype=np.int64)
    end = data.draw(st.one_of(st.none(), st.just(anchors)))
    unrolled = Unrolled(drafted_A, np.array(hits))
    stepped = Acceptance.from_log(walk(drafted_A, runs(unrolled), D, anchors, end), D)
    accept_AD = np.array(hits, dtype=np.float64)
    expected = Acceptance.from_log(expect(drafted_A, accept_AD, D, anchors, end), D)
    assert np.array_equal(stepped.counts, expected.counts)
    assert stepped.cut_steps == expected.cut_steps


@given(bools, st.integers(1, 4))
def test_steps_tile_the_stream(hits: list[list[bool]], D: int) -> None:
    unrolled = Unrolled(np.full(len(hits), 4, dtype=np.int64), np.array(hits))
    log = walk(unrolled.drafted_A, runs(unrolled), D, len(hits), None)
    assert log.anchor_N[0] == 0
    assert np.array_equal(log.anchor_N[1:], (log.anchor_N + log.accepted_N + 1)[:-1])
    assert log.anchor_N[-1] < len(hits) <= log.anchor_N[-1] + log.accepted_N[-1] + 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("D", [1, 2])
def test_drawn_drafts_are_replayed_exactly_as_full_enumeration_counts_them(seed: int, D: int) -> None:
    """V = 3: expected steps and accepted tokens given the text, over all drafts, coins and residual draws.

    The text is asked for one token less than it holds plus a tail of D, so that every count lies within it.
    """
    sampling = Sampling(temperature=1.0)
    target, model = (
        ToyTarget(3, seed=seed, scale=1.0, eos=False),
        ToyTarget(3, seed=seed + 50, scale=1.0, eos=False),
    )
    drafter = SamplingDrafter(model, sampling)
    prompt, asked = [1, 2], 3
    text_law = torch.Generator().manual_seed(seed)
    output = torch.randint(0, 3, (asked + D,), generator=text_law).tolist()
    stream = TokenStream(
        index=0, conversation="0", turn=0, category=None, prompt_ids=prompt, output_ids=output, asked=asked
    )
    log = replay(target, drafter, [stream], sampling, frozenset(), [D]).by_depth[D][0]
    found = Acceptance.from_log(log, D)
    mass, steps, accepted = counted(target, drafter, prompt, output, D, asked)
    p_text = 1.0
    for i, token in enumerate(output):
        p_text *= float(probabilities(target.logits([*prompt, *output[:i]])[None], sampling)[0][token])
    assert abs(mass - p_text) < 1e-12, "all ways of emitting the text add up to the target's own probability of it"
    assert abs(found.steps - steps) < 1e-10
    assert abs(found.accepted - accepted) < 1e-10


def counted(
    target: ToyTarget, drafter: SamplingDrafter, prompt: list[int], output: list[int], D: int, asked: int
) -> tuple[float, float, float]:
    """(chance of emitting `output`, expected steps, expected accepted) by walking every draft and every verdict.

    Only steps whose anchor lies before the last asked token count; beyond the stream's end any token will do.
    """
    total = [0.0, 0.0, 0.0]

    def p_target(history: list[int]) -> torch.Tensor:
        return probabilities(target.logits(history)[None], drafter.sampling)[0]

    def go(position: int, p: float, steps: int, accepted: int) -> None:
        if position >= len(output):
            total[0] += p
            total[1] += p * steps
            total[2] += p * accepted
            return
        counts = position - 1 < asked - 1
        history = [*prompt, *output[:position]]
        for draft in itertools.product(range(target.vocab_size), repeat=D):
            p_draft = [drafter.p_draft([*history, *draft[:i]]) for i in range(D)]
            branch = p
            for i in range(D):
                branch *= float(p_draft[i][draft[i]])
            for a in range(D + 1):
                law = p_target([*history, *draft[:a]])
                keep = float(accept_prob(law, p_draft[a])[draft[a]]) if a < D else 0.0
                final = residual(law, p_draft[a]) if a < D else law
                weight = branch * (1 - keep)
                if (
                    all(position + j >= len(output) or draft[j] == output[position + j] for j in range(a))
                    and weight > 0
                ):
                    if position + a < len(output):
                        weight *= float(final[output[position + a]])
                    go(position + a + 1, weight, steps + counts, accepted + a * counts)
                branch *= keep

    go(1, float(p_target(prompt)[output[0]]), 0, 0)
    return total[0], total[1] / total[0], total[2] / total[0]


def test_drawn_drafts_replay_within_three_standard_errors_of_live() -> None:
    """300 streams each: AL by expectation on plain streams, AL by counting live; the seed is fixed."""
    target, model = ToyTarget(8, seed=1, scale=1.2, eos=False), ToyTarget(8, seed=2, scale=0.6, eos=False)
    sampling = Sampling(temperature=0.9, seed=17)
    drafter = SamplingDrafter(model, sampling)
    D, limit = 3, 12
    streams = plain_streams(target, sampling, 300, limit)
    logs = replay(target, drafter, streams, sampling, target.eos_ids, [D]).by_depth[D]
    expected = [Acceptance.from_log(log, D) for log in logs]
    steps = [decode(target, drafter, [s.request(limit)], sampling, D)[0].steps for s in streams]
    live = np.array([[sum(a for _, _, a, _ in run), len(run)] for run in steps], dtype=float)
    replayed = np.array([[part.accepted, part.steps] for part in expected])
    difference = live[:, 0].sum() / live[:, 1].sum() - replayed[:, 0].sum() / replayed[:, 1].sum()
    variance = sum(
        float(np.var(x[:, 0] - x[:, 0].sum() / x[:, 1].sum() * x[:, 1])) * len(x) / x[:, 1].sum() ** 2
        for x in (live, replayed)
    )
    assert abs(difference) < 3 * variance**0.5
    assert 0.2 < replayed[:, 0].sum() / replayed[:, 1].sum() < 2.5, "neither trivial nor perfect"
