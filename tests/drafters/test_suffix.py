"""The suffix drafter: ArcticInference's own drafts, `propose` against `unroll_each`, its limits, what it remembers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.spec import Sampling, SuffixSpec
from codraft.decode.drafter import Remembering, Request, fresh
from codraft.decode.loop import decode
from codraft.drafters.suffix import Limits, Memory, Running, SuffixDrafter, common_prefix, float32
from codraft.drafters.suffix_tree import Node

from tests.drafters.suffixes import Naive, paths, texts_of
from tests.toy import EOS, ToyTarget, follower

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "suffix_arctic.json").read_text(encoding="utf-8"))
DEPTHS = [1, 2, 3, 5, 9]


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=range(len(GOLDEN["runs"])))
def test_drafts_and_scores_are_arctic_inferences(run: dict[str, Any]) -> None:
    spec = SuffixSpec(**run["settings"])
    limits, memory = Limits(spec), Memory(spec.max_tree_depth, spec.max_cached_requests)
    running: dict[int, Running] = {}
    for kind, which, *rest in run["events"]:
        match kind:
            case "start":
                running[which] = Running(digits(rest[0]), 99, memory, spec.max_tree_depth)
            case "add":
                running[which].extend(digits(rest[0]))
            case "stop":
                del running[which]
            case "draft":
                D, tokens, score = rest
                # Beside other D, as in replay, and alone, as in live decoding.
                for depths in ([D], [16, D, 1]):
                    draft = running[which].drafts(limits, depths)[depths.index(D)]
                    assert (draft.tokens[: draft.length], draft.score) == (digits(tokens), score)


def test_the_golden_drafts_reach_into_every_rule() -> None:
    drafts = [event for run in GOLDEN["runs"] for event in run["events"] if event[0] == "draft"]
    assert len(drafts) > 500
    assert sum(len(tokens) > 1 for _, _, _, tokens, _ in drafts) > 100
    assert sum(score != int(score) for *_, score in drafts) > 100


def digits(text: str) -> list[int]:
    return [int(c) for c in text]


tokens = st.integers(0, 2)
specs = st.builds(
    SuffixSpec,
    max_tree_depth=st.integers(2, 8),
    max_cached_requests=st.sampled_from([0, 1, 2, 100]),
    max_spec_factor=st.sampled_from([0.4, 1.0, 3.0]),
    min_token_prob=st.sampled_from([0.0, 0.1, 0.5]),
)


def remembering(spec: SuffixSpec, streams: Sequence[tuple[list[int], list[int]]]) -> SuffixDrafter:
    """A drafter that saw these streams go by, live."""
    drafter = SuffixDrafter(spec)
    for prompt, output in streams:
        drafter.prefill([Request(0, prompt, len(output))], output[:1], {})
        if output[1:]:
            drafter.commit([output[1:-1]], output[-1:], {})
    return drafter


streams_before = st.lists(
    st.tuples(st.lists(tokens, min_size=1, max_size=8), st.lists(tokens, min_size=1, max_size=14)), max_size=3
)


@given(
    specs,
    streams_before,
    st.lists(tokens, min_size=1, max_size=10),
    st.lists(tokens, min_size=2, max_size=16),
    st.data(),
)
def test_propose_on_every_prefix_equals_unroll_each(
    spec: SuffixSpec,
    before: list[tuple[list[int], list[int]]],
    prompt: list[int],
    output: list[int],
    data: st.DataObject,
) -> None:
    """For every D; warm after other streams, cold after none; the tail of a stream starts no draft."""
    asked = data.draw(st.integers(1, len(output) + 2))
    replayed, live = SuffixDrafter(spec), remembering(spec, before)
    for past in before:
        replayed.unroll_each(*past, DEPTHS, len(past[1]))
    unrolled = replayed.unroll_each(prompt, output, DEPTHS, asked)
    live.prefill([Request(0, prompt, min(asked, len(output)))], output[:1], {})
    for p in range(len(output) - 1):
        for D, one in zip(DEPTHS, unrolled, strict=True):
            draft = live.propose([output[p]], D).tokens[0]
            assert draft == live.propose([output[p]], D).tokens[0], "proposing changes nothing"
            assert len(draft) <= D
            assert one.hit_AD.shape == (len(output) - 1, D)
            if p < asked - 1:
                assert len(draft) == one.drafted_A[p]
                run = common_prefix(draft, output[p + 1 :])
                assert one.hit_AD[p].tolist() == [i < run for i in range(D)]
            else:
                assert one.drafted_A[p] == 0
        live.commit([[]], [output[p + 1]], {})
    assert paths(replayed.memory.tree) == paths(live.memory.tree)


@given(specs, st.lists(tokens, min_size=1, max_size=8), st.lists(tokens, min_size=2, max_size=12))
def test_unroll_is_cold_and_leaves_no_trace(spec: SuffixSpec, prompt: list[int], output: list[int]) -> None:
    drafter = remembering(spec, [([1, 2], [0, 1, 2, 0, 1])])
    before = paths(drafter.memory.tree)
    cold = drafter.unroll(prompt, output, {}, 4)
    [expected] = SuffixDrafter(spec).unroll_each(prompt, output, [4], len(output))
    assert np.array_equal(cold.drafted_A, expected.drafted_A)
    assert np.array_equal(cold.hit_AD, expected.hit_AD)
    assert paths(drafter.memory.tree) == before


def test_a_fresh_drafter_remembers_nothing_and_is_the_same_otherwise() -> None:
    spec = SuffixSpec(name="mine", max_spec_factor=2.0)
    drafter = remembering(spec, [([1], [2, 3, 4])])
    assert isinstance(drafter, Remembering)
    again = fresh(drafter)
    assert isinstance(again, SuffixDrafter)
    assert (again.spec, again.info) == (spec, drafter.info)
    assert again.memory.tree.num_nodes == 0
    assert drafter.memory.tree.num_nodes > 0


def test_the_drafter_says_what_it_is() -> None:
    drafter = SuffixDrafter(SuffixSpec())
    assert (drafter.draft_kind, drafter.prefix_stable, drafter.taps, drafter.device_bytes(4, 100)) == (
        "one_hot",
        False,
        (),
        0,
    )
    assert drafter.info.options == {
        "max_tree_depth": 24,
        "max_cached_requests": 10_000,
        "max_spec_factor": 1.0,
        "min_token_prob": 0.1,
    }


def draft_after(prompt: list[int], D: int, **options: Any) -> list[int]:
    """The draft behind a prompt whose last token is the anchor, with nothing remembered."""
    drafter = SuffixDrafter(SuffixSpec(**options))
    drafter.prefill([Request(0, prompt[:-1], 99)], prompt[-1:], {})
    return drafter.propose(prompt[-1:], D).tokens[0]


def test_the_budget_is_the_length_of_the_match_times_the_factor() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3]
    assert draft_after(prompt, 9) == [4, 5, 6]
    assert draft_after(prompt, 2) == [4, 5]
    assert draft_after(prompt, 9, max_spec_factor=0.67) == [4, 5]
    assert draft_after(prompt, 9, max_spec_factor=2.0) == [4, 5, 6, 7, 8, 9]
    assert draft_after(prompt, 9, max_spec_factor=0.33) == []


def test_a_factor_that_rounds_below_a_whole_number_still_gives_it() -> None:
    """0.7 in single precision is a little less, so 10 x 0.7 must be rounded up, and 100 x 0.7 in single precision."""
    assert Limits(SuffixSpec(max_spec_factor=0.7)).budget[10] == 7
    assert Limits(SuffixSpec(max_spec_factor=0.7, max_tree_depth=512)).budget[100] == 70
    assert Limits(SuffixSpec(max_spec_factor=0.3)).budget[9] == 2
    assert Limits(SuffixSpec(max_spec_factor=0.1)).budget[10] == 1


def test_a_match_and_its_draft_are_together_no_longer_than_the_tree_is_deep() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4]
    assert draft_after(prompt, 9, max_tree_depth=2) == [5]
    assert draft_after(prompt, 9, max_tree_depth=4) == [5, 6]
    assert draft_after(prompt, 9, max_tree_depth=6) == [5, 6, 7]
    assert draft_after(prompt, 9, max_tree_depth=8) == [5, 6, 7, 8]


def test_a_match_is_shorter_than_the_text() -> None:
    """1 2 is all there is, and only its last token is looked for, as in the original."""
    drafter = remembering(SuffixSpec(), [([9], [1, 2, 3, 4])])
    drafter.prefill([Request(0, [1], 99)], [2], {})
    assert drafter.propose([2], 2).tokens == [[3]]
    drafter.prefill([Request(0, [8, 1], 99)], [2], {})
    assert drafter.propose([2], 2).tokens == [[3, 4]]


def test_a_draft_ends_before_a_path_gets_less_likely_than_asked() -> None:
    """1 is there five times with the anchor, before 2 in three; 1 2 is there thrice, before 3 in two."""
    prompt = [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 9, 5, 1]
    assert draft_after(prompt, 2, max_spec_factor=2.0, min_token_prob=0.61) == []
    assert draft_after(prompt, 2, max_spec_factor=2.0, min_token_prob=0.6) == [2]
    assert draft_after(prompt, 2, max_spec_factor=2.0, min_token_prob=0.41) == [2]
    assert draft_after(prompt, 2, max_spec_factor=2.0, min_token_prob=0.4) == [2, 3]
    assert draft_after(prompt, 2, max_spec_factor=2.0, min_token_prob=0.0) == [2, 3]


def test_probabilities_are_compared_in_single_precision() -> None:
    """A path of probability 7/10 stands where 0.7 is asked: both round to the same number."""
    prompt = [token for i in range(9) for token in (1, 2 if i < 7 else 3 + i)] + [1]
    assert draft_after(prompt, 1, min_token_prob=0.7) == [2]
    assert draft_after(prompt, 1, min_token_prob=float(np.nextafter(np.float32(0.7), np.float32(1)))) == []
    assert float32(0.7) != 0.7


def test_the_best_score_wins_whatever_the_match() -> None:
    """The anchor's own 2 counts too. 2 is followed by 4 in three of six, 1 2 by 3 in two of three, and the reverse."""
    assert draft_after([1, 2, 3, 0, 1, 2, 3, 0, 2, 4, 0, 2, 4, 0, 2, 4, 0, 1, 2], 1) == [3]
    assert draft_after([1, 2, 3, 0, 2, 4, 0, 2, 4, 0, 2, 4, 0, 1, 2], 1) == [4]


def test_equal_scores_go_to_the_longer_match() -> None:
    """2 is followed by 4 in two of four, 1 2 by 3 in one of two."""
    assert draft_after([1, 2, 3, 0, 2, 4, 0, 2, 4, 0, 1, 2], 1) == [3]


def test_equal_scores_go_to_the_requests_own_tree() -> None:
    drafter = remembering(SuffixSpec(), [([9], [2, 3, 4])])
    drafter.prefill([Request(0, [2, 7, 0], 99)], [2], {})
    assert drafter.propose([2], 1).tokens == [[7]]
    drafter = remembering(SuffixSpec(), [([9], [1, 2, 3, 4])])
    drafter.prefill([Request(0, [2, 7, 0, 1], 99)], [2], {})
    assert drafter.propose([2], 2).tokens == [[3, 4]], (
        "the memory holds a longer match, never followed by anything else"
    )


def test_a_drafter_without_memory_draws_on_its_own_request_alone() -> None:
    spec = SuffixSpec(max_cached_requests=0)
    drafter = remembering(spec, [([9], [1, 2, 3, 4])])
    drafter.prefill([Request(0, [1], 99)], [2], {})
    assert drafter.propose([2], 3).tokens == [[]]
    assert drafter.memory.tree.num_nodes == drafter.memory.num_requests == 0
    drafter.commit([[5, 1]], [2], {})
    assert drafter.propose([2], 3).tokens == [[5, 1]]


def test_a_prompt_is_nobody_elses_business() -> None:
    drafter = remembering(SuffixSpec(), [([1, 2, 3, 4], [8, 9])])
    drafter.prefill([Request(0, [1], 99)], [2], {})
    assert drafter.propose([2], 3).tokens == [[]]


def test_what_passes_the_limit_of_a_request_is_not_remembered() -> None:
    drafter = SuffixDrafter(SuffixSpec())
    drafter.prefill([Request(0, [9], 3)], [1], {})
    drafter.commit([[2, 3, 4]], [5], {})
    assert paths(drafter.memory.tree) == Naive(24, {0: [1, 2, 3]}).counts()
    assert drafter.propose([5], 3).tokens == [[]]


def test_running_requests_see_each_others_output_at_once() -> None:
    drafter = SuffixDrafter(SuffixSpec())
    drafter.prefill([Request(0, [9], 99), Request(1, [8], 99)], [1, 3], {})
    drafter.commit([[2], []], [4, 1], {})
    assert drafter.propose([4, 1], 1).tokens == [[], [2]]


def test_rows_that_stay_keep_their_own_text_and_the_memory_stays_whole() -> None:
    drafter = SuffixDrafter(SuffixSpec(max_cached_requests=9))
    drafter.prefill([Request(i, [i, 9, i], 99) for i in range(3)], [7, 7, 7], {})
    drafter.keep([2, 0])
    drafter.commit([[], []], [2, 0], {})
    assert drafter.propose([2, 0], 2).tokens == [[9], [9]]
    drafter.commit([[], []], [9, 9], {})
    assert drafter.propose([9, 9], 2).tokens == [[2, 7], [0, 7]]
    assert paths(drafter.memory.tree) == Naive(24, {0: [7, 0, 9], 1: [7], 2: [7, 2, 9]}).counts()


def test_a_request_that_is_evicted_while_it_runs_goes_on_unremembered() -> None:
    """Three run, two are remembered: the first to come is the first to go, and what it says later is lost."""
    drafter = SuffixDrafter(SuffixSpec(max_cached_requests=2))
    drafter.prefill([Request(i, [9], 99) for i in range(3)], [1, 2, 3], {})
    assert drafter.memory.num_requests == 2
    drafter.commit([[4], [5], [6]], [1, 2, 3], {})
    assert paths(drafter.memory.tree) == Naive(24, {1: [2, 5, 2], 2: [3, 6, 3]}).counts()
    assert drafter.propose([1, 2, 3], 1).tokens == [[4], [5], [6]], "its own tree still serves it"
    assert drafter.memory.active(0) == []


@pytest.mark.parametrize("capacity", [1, 3])
def test_memory_stays_bounded_while_many_requests_stream_by(capacity: int) -> None:
    texts = texts_of(3, 60, 4)
    drafter = SuffixDrafter(SuffixSpec(max_tree_depth=8, max_cached_requests=capacity))
    for i, text in enumerate(texts):
        drafter.unroll_each([1, 2], text, [4], len(text))
        kept = texts[max(0, i + 1 - capacity) : i + 1]
        assert drafter.memory.num_requests == len(kept)
        assert drafter.memory.tree.num_nodes <= 2 * sum(map(len, kept))
    assert paths(drafter.memory.tree) == Naive(8, dict(enumerate(texts[-capacity:]))).counts()
    held = {id(node.text) for node in nodes(drafter)}
    assert len(held) <= capacity, "the text of what was evicted is let go"


def nodes(drafter: SuffixDrafter) -> list[Node]:
    pending: list[Node] = [drafter.memory.tree.root]
    found: list[Node] = []
    while pending:
        node = pending.pop()
        pending += node.children.values()
        found += node.children.values()
    return found


def test_an_accepted_eos_in_mid_draft_is_remembered_up_to_the_eos() -> None:
    """The prompt shows what follows an EOS, so the draft runs over it, and the target would go on just so."""
    target = follower(7, {1: 2, 2: 3, 3: EOS, EOS: 4, 4: 5, 5: 6})
    drafter = SuffixDrafter(SuffixSpec(max_spec_factor=3.0))
    [stream] = decode(target, drafter, [Request(0, [1, 2, 3, EOS, 4, 5, 1], 20)], Sampling(), 6)
    assert stream.steps == [(0, 2, 2, True)], "six were drafted; four of them lie behind the EOS"
    assert stream.output_ids == [2, 3, EOS]
    assert paths(drafter.memory.tree) == Naive(24, {0: [2, 3, EOS]}).counts()


PROMPTS = [[3], [1, 2, 3, 1], [2, 2, 2], [2, 1], [1], [3, 1, 3]]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.5, seed=11)])
@pytest.mark.parametrize("D", [1, 3, 9])
@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("capacity", [0, 2, 100])
def test_the_text_is_plain_decodings_and_all_of_it_is_remembered(
    sampling: Sampling, D: int, B: int, capacity: int
) -> None:
    """Warm from batch to batch; also where more run than are remembered."""
    accepted = 0
    for seed in range(3):
        target = ToyTarget(4, seed=seed, scale=1.5)
        requests = [Request(i, prompt, 23) for i, prompt in enumerate(PROMPTS)]
        plain = [decode(target, None, [r], sampling, 0)[0].text_ids for r in requests]
        spec = SuffixSpec(max_cached_requests=capacity, max_spec_factor=2.0, max_tree_depth=6)
        drafter = SuffixDrafter(spec)
        streams = [
            s for i in range(0, len(requests), B) for s in decode(target, drafter, requests[i : i + B], sampling, D)
        ]
        assert [stream.text_ids for stream in streams] == plain
        kept = dict(enumerate(plain[len(plain) - min(capacity, len(plain)) :]))
        assert paths(drafter.memory.tree) == Naive(6, kept).counts()
        accepted += sum(a for stream in streams for _, _, a, _ in stream.steps)
    assert accepted > 20
