"""From logits to tokens, over the whole vocabulary and over a part of it."""

from dataclasses import dataclass
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from codraft.core.spec import Sampling
from codraft.decode.sampling import probabilities
from codraft.drafters.pick import Drafts, Picker

V = 9
WARM = Sampling(temperature=0.8, top_p=0.9, top_k=6)


@dataclass(frozen=True)
class Case:
    """Logits [N, V'] of a drafter that knows `ids`, in this order; None: the first of all, or
    all and some columns of padding."""

    ids: list[int] | None
    logits_NV: Tensor

    def picker(self, draft: Literal["greedy", "sample"], sampling: Sampling = WARM) -> Picker:
        return Picker(draft, sampling, V, None if self.ids is None else torch.tensor(self.ids))

    def meaning(self, column: int) -> int:
        """Target id of a column."""
        return column if self.ids is None else self.ids[column]

    @property
    def known(self) -> int:
        """Columns that stand for a token."""
        return min(V, self.logits_NV.shape[1])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    # Heads of a reduced vocabulary need not have it in ascending order.
    ids = draw(st.none() | st.lists(st.integers(0, V - 1), min_size=1, max_size=V, unique=True))
    columns = V + draw(st.integers(-2, 3)) if ids is None else len(ids)
    seed, rows = draw(st.integers(0, 999)), draw(st.integers(1, 4))
    logits_NV = 3 * torch.randn((rows, columns), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if ids is None:
        # What stands in columns of padding is anything, and often the largest.
        logits_NV[:, V:] = 50.0
    return Case(ids, logits_NV)


def by_hand(case: Case, sampling: Sampling = WARM) -> Tensor:
    """[N, V]: each known column's probability, put where its token is."""
    found = torch.zeros((len(case.logits_NV), V), dtype=torch.float64)
    for n, logits_V in enumerate(case.logits_NV):
        p_V = probabilities(logits_V[None, : case.known], sampling)[0]
        for column in range(case.known):
            found[n, case.meaning(column)] += p_V[column]
    return found


@given(cases())
def test_the_distribution_is_each_known_tokens_own_and_nothing_elsewhere(case: Case) -> None:
    p_NV = case.picker("sample").distribution(case.logits_NV)
    assert p_NV.dtype == torch.float64
    assert torch.equal(p_NV, by_hand(case))
    torch.testing.assert_close(p_NV.sum(-1), torch.ones(len(p_NV), dtype=torch.float64), rtol=0, atol=1e-12)


@given(cases())
def test_a_drawn_drafts_score_is_its_place_in_the_distribution(case: Case) -> None:
    """Of every token of the target, known or not."""
    picker, expected = case.picker("sample"), by_hand(case)
    assert picker.draft_kind == "dense"
    for token in range(V):
        scores = picker.score(case.logits_NV, torch.full((len(case.logits_NV),), token))
        assert scores.dtype == torch.float64
        assert torch.equal(scores, expected[:, token])


@given(cases())
def test_the_best_token_is_the_likeliest_and_alone_hits(case: Case) -> None:
    picker = case.picker("greedy")
    assert picker.draft_kind == "one_hot"
    best_N = picker.best(case.logits_NV)
    assert torch.equal(best_N, by_hand(case, Sampling(temperature=1.0)).argmax(-1))
    for token in range(V):
        hits = picker.score(case.logits_NV, torch.full((len(best_N),), token))
        assert hits.dtype == torch.bool
        assert torch.equal(hits, best_N == token)


@given(cases(), st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_a_chain_is_drawn_from_the_distributions_that_it_hands_over(case: Case, lengths: list[int]) -> None:
    """Three sequences or fewer, two tokens, cut to any length."""
    rows = len(case.logits_NV)
    drafts = Drafts(case.picker("sample"), list(range(rows)), [5] * rows)
    picked = [drafts.extend(case.logits_NV), drafts.extend(case.logits_NV.flip(0))]
    cut = lengths[:rows]
    proposal = drafts.proposal(cut)
    expected = by_hand(case)
    for row, n in enumerate(cut):
        assert proposal.tokens[row] == [tokens[row] for tokens in picked][:n]
        p_draft_KV = proposal.p_draft[row]
        if n == 0:
            assert p_draft_KV is None
            continue
        assert p_draft_KV is not None
        assert torch.equal(p_draft_KV, torch.stack([expected[row], expected[rows - 1 - row]])[:n])
        assert all(float(p_V[token]) > 0 for p_V, token in zip(p_draft_KV, proposal.tokens[row], strict=True))


@pytest.mark.parametrize("draft", ["greedy", "sample"])
def test_columns_of_padding_are_never_picked(draft: Literal["greedy", "sample"]) -> None:
    """Padding of the head's own: 50 is the largest logit and beyond the vocabulary."""
    logits = torch.zeros((1, V + 1), dtype=torch.float64)
    logits[0, V] = 50.0
    picker = Picker(draft, Sampling(temperature=1.0), V)
    assert float(picker.score(logits, torch.tensor([0]))) > 0
    assert int(picker.best(logits)) == 0
