"""The n-gram drafter: the rule written naively, vLLM's own answers, and `propose` against `unroll`."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.spec import NgramSpec
from codraft.decode.drafter import Request
from codraft.drafters.ngram import NgramDrafter, NgramIndex

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "ngram_vllm.json").read_text())
tokens = st.lists(st.integers(0, 3), max_size=40)
specs = st.builds(
    lambda a, b, occurrence: NgramSpec(n_min=min(a, b), n_max=max(a, b), occurrence=occurrence),
    st.integers(1, 5),
    st.integers(1, 5),
    st.sampled_from(["earliest", "latest"]),
)


def naive(history: list[int], D: int, spec: NgramSpec) -> list[int]:
    """The rule as one would say it: longest suffix first, then the first or last earlier copy of it."""
    for n in range(min(spec.n_max, len(history) - 1), spec.n_min - 1, -1):
        starts = [s for s in range(len(history) - n) if history[s : s + n] == history[-n:]]
        if starts:
            start = starts[0] if spec.occurrence == "earliest" else starts[-1]
            return history[start + n : start + n + D]
    return []


def drafts(history: list[int], D: int, spec: NgramSpec) -> list[int]:
    index = NgramIndex(spec)
    for token in history:
        index.push(token)
    return index.draft(D)


@given(tokens, st.integers(1, 9), specs)
def test_the_index_drafts_what_the_naive_search_finds(history: list[int], D: int, spec: NgramSpec) -> None:
    assert drafts(history, D, spec) == naive(history, D, spec)


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=range(len(GOLDEN["cases"])))
def test_earliest_is_vllms_choice(case: dict[str, list[int]]) -> None:
    spec = NgramSpec(n_min=int(case["n_min"]), n_max=int(case["n_max"]), occurrence="earliest")  # type: ignore[call-overload]
    assert drafts(case["tokens"], int(case["k"]), spec) == case["draft"]  # type: ignore[call-overload]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=12),
    st.lists(st.integers(0, 3), min_size=2, max_size=20),
    specs,
)
def test_propose_on_every_prefix_equals_unroll(prompt: list[int], output: list[int], spec: NgramSpec) -> None:
    D = 4
    unrolled = NgramDrafter(spec).unroll(prompt, output, {}, D)
    live = NgramDrafter(spec)
    live.prefill([Request(0, prompt, 99)], [output[0]], {})
    for p in range(len(output) - 1):
        draft = live.propose([output[p]], D).tokens[0]
        assert draft == live.propose([output[p]], D).tokens[0], "proposing changes nothing"
        assert len(draft) == unrolled.drafted_A[p]
        run = 0
        while run < len(draft) and p + 1 + run < len(output) and draft[run] == output[p + 1 + run]:
            run += 1
        assert unrolled.hit_AD[p].tolist() == [i < run for i in range(D)]
        live.commit([[]], [output[p + 1]], {})


@given(tokens, specs)
def test_a_shorter_draft_is_the_beginning_of_a_longer_one(history: list[int], spec: NgramSpec) -> None:
    assert drafts(history, 8, spec)[:3] == drafts(history, 3, spec)


def test_rows_that_stay_keep_their_own_history() -> None:
    drafter = NgramDrafter(NgramSpec(n_min=1, n_max=2))
    drafter.prefill([Request(i, [i, 9, i], 9) for i in range(3)], [7, 7, 7], {})
    drafter.commit([[], [], []], [9, 9, 9], {})
    drafter.keep([2, 0])
    assert drafter.propose([9, 9], 3).tokens == [[2, 7, 9], [0, 7, 9]]
