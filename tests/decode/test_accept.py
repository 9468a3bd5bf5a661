"""Lossless as a theorem: identities between distributions, no sampling."""

import itertools

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from codraft.decode.accept import Verdict, accept_matching, accept_prob, accept_rejection, residual

V = 4
weights = st.lists(st.integers(0, 9), min_size=V, max_size=V).filter(any)


def distribution(parts: list[int]) -> Tensor:
    p = torch.tensor(parts, dtype=torch.float64)
    return p / p.sum()


@given(weights, weights)
def test_kept_mass_and_residual_mass_rebuild_the_target(w_target: list[int], w_draft: list[int]) -> None:
    p_target_V, p_draft_V = distribution(w_target), distribution(w_draft)
    kept_V = p_draft_V * accept_prob(p_target_V, p_draft_V)
    committed_V = kept_V + (1 - kept_V.sum()) * residual(p_target_V, p_draft_V)
    torch.testing.assert_close(committed_V, p_target_V, rtol=0, atol=1e-12)


@given(weights, weights)
def test_acceptance_is_one_minus_total_variation(w_target: list[int], w_draft: list[int]) -> None:
    p_target_V, p_draft_V = distribution(w_target), distribution(w_draft)
    accepted = (p_draft_V * accept_prob(p_target_V, p_draft_V)).sum()
    total_variation = (p_target_V - p_draft_V).abs().sum() / 2
    torch.testing.assert_close(accepted, 1 - total_variation, rtol=0, atol=1e-12)


@given(weights, weights)
def test_acceptance_given_the_emitted_token_is_the_ratio_that_replay_uses(
    w_target: list[int], w_draft: list[int]
) -> None:
    p_target_V, p_draft_V = distribution(w_target), distribution(w_draft)
    kept_V = p_draft_V * accept_prob(p_target_V, p_draft_V)
    for y in range(V):
        if p_target_V[y] > 0:
            expected = min(1.0, float(p_draft_V[y] / p_target_V[y]))
            assert abs(float(kept_V[y] / p_target_V[y]) - expected) < 1e-12


@given(weights, st.integers(0, V - 1))
def test_a_point_mass_draft_is_accepted_as_often_as_the_target_draws_it(w_target: list[int], drafted: int) -> None:
    p_target_V = distribution(w_target)
    one_hot_V = torch.zeros(V, dtype=torch.float64)
    one_hot_V[drafted] = 1
    assert float(accept_prob(p_target_V, one_hot_V)[drafted]) == float(p_target_V[drafted])
    if p_target_V[drafted] < 1:
        assert float(residual(p_target_V, one_hot_V)[drafted]) == 0


def test_equal_distributions_leave_no_residual_to_divide_by() -> None:
    p = distribution([1, 2, 3, 4])
    torch.testing.assert_close(residual(p, p), p)
    assert bool((accept_prob(p, p) == 1).all())


class Law:
    """Random tables: target and draft distributions after every prefix, on an alphabet of three."""

    def __init__(self, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.target = torch.rand(4, 4, 3, generator=generator, dtype=torch.float64)
        self.draft = torch.rand(4, 4, 3, generator=generator, dtype=torch.float64) ** 2

    @staticmethod
    def _row(table: Tensor, prefix: tuple[int, ...]) -> Tensor:
        padded = (3, 3, *prefix)
        row: Tensor = table[padded[-2], padded[-1]]
        return row / row.sum()

    def p_target(self, prefix: tuple[int, ...]) -> Tensor:
        return self._row(self.target, prefix)

    def p_draft(self, prefix: tuple[int, ...]) -> Tensor:
        return self._row(self.draft, prefix)


def committed_law(law: Law, D: int) -> dict[tuple[int, ...], float]:
    """Exact distribution of one step's committed tokens, through `accept_rejection` itself.

    Coins and draws are enumerated: a coin falls on the accepting or the rejecting side with its exact probability.
    """
    out: dict[tuple[int, ...], float] = {}
    for draft in itertools.product(range(3), repeat=D):
        p_draft_KV = torch.stack([law.p_draft(draft[:i]) for i in range(D)])
        drawn = float(torch.stack([p_draft_KV[i, t] for i, t in enumerate(draft)]).prod())
        for rejected_at in range(D + 1):
            p_path = drawn
            for i in range(min(rejected_at + 1, D)):
                keep = float(accept_prob(law.p_target(draft[:i]), p_draft_KV[i])[draft[i]])
                p_path *= keep if i < rejected_at else 1 - keep
            final: list[Tensor] = []

            def remember(_: int, p_V: Tensor, seen: list[Tensor] = final) -> int:
                seen.append(p_V)
                return 0

            if p_path == 0:
                continue
            verdict = accept_rejection(
                draft,
                p_draft_KV,
                p_target=lambda i, draft=draft: law.p_target(draft[:i]),  # type: ignore[misc]
                coin=lambda i, at=rejected_at: 0.0 if i < at else 1.0 - 1e-16,  # type: ignore[misc]
                draw_residual=remember,
                draw_bonus=remember,
            )
            assert verdict.accepted == rejected_at
            for token in range(3):
                tokens = (*draft[: verdict.accepted], token)
                out[tokens] = out.get(tokens, 0.0) + p_path * float(final[0][token])
    return out


def test_a_chain_of_drafts_commits_tokens_by_the_targets_law_exactly() -> None:
    """Whatever a step commits, filled up by plain decoding, is distributed as three tokens of the target."""
    for seed in range(5):
        law = Law(seed)
        for D in (1, 2):
            whole: dict[tuple[int, ...], float] = {}
            for tokens, p in committed_law(law, D).items():
                for rest in itertools.product(range(3), repeat=3 - len(tokens)):
                    text, p_text = tokens, p
                    for token in rest:
                        p_text *= float(law.p_target(text)[token])
                        text = (*text, token)
                    whole[text] = whole.get(text, 0.0) + p_text
            for text in itertools.product(range(3), repeat=3):
                expected = 1.0
                for i in range(3):
                    expected *= float(law.p_target(text[:i])[text[i]])
                assert abs(whole[text] - expected) < 1e-12


@given(st.lists(st.integers(0, 3), max_size=5), st.lists(st.integers(0, 3), min_size=6, max_size=6))
def test_matching_accepts_the_common_prefix_and_adds_the_targets_next(draft: list[int], own: list[int]) -> None:
    asked: list[int] = []

    def target_token(i: int) -> int:
        asked.append(i)
        return own[i]

    verdict = accept_matching(draft, target_token)
    common = next((i for i, (a, b) in enumerate(zip(draft, own, strict=False)) if a != b), len(draft))
    assert verdict == Verdict(common, own[common])
    assert asked == list(range(common + 1)), "no token is asked for beyond the first mismatch"
