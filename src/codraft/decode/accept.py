"""Acceptance rules as pure functions. Each is lossless: the committed token follows the target's distribution exactly.

* Greedy and one-hot drafts: compare with the token the target itself would have taken (`accept_matching`). For a
  sampled target this is the exact-match form of rejection sampling with a point-mass draft: accept with p_target(x),
  else draw from p_target without x [Leviathan23].
* Drafts drawn from a distribution: accept with min(1, p_target / p_draft), else draw from the residual
  [Leviathan23, Chen23].
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Verdict:
    """How many drafted tokens stand, and the token the target adds after them."""

    accepted: int
    bonus: int


def accept_matching(draft: Sequence[int], target_token: Callable[[int], int]) -> Verdict:
    """Accept while the draft equals the target's own token; `target_token(i)` is asked only as far as needed."""
    for i, drafted in enumerate(draft):
        token = target_token(i)
        if token != drafted:
            return Verdict(i, token)
    return Verdict(len(draft), target_token(len(draft)))


def accept_prob(p_target: Tensor, p_draft: Tensor) -> Tensor:
    """min(1, p_target / p_draft), elementwise; a token that the draft could not have drawn counts as accepted."""
    ratio = torch.where(p_draft > 0, p_target / p_draft, torch.ones_like(p_target))
    return ratio.clamp(max=1.0)


def residual(p_target_V: Tensor, p_draft_V: Tensor) -> Tensor:
    """norm(max(p_target - p_draft, 0)): what is left of the target after the accepted mass.

    Where the two are equal nothing is ever rejected; the target itself is returned so that rounding cannot divide by 0.
    """
    left_V = (p_target_V - p_draft_V).clamp(min=0)
    mass = left_V.sum()
    return left_V / mass if mass > 0 else p_target_V


def accept_rejection(
    draft: Sequence[int],
    p_draft_KV: Tensor,
    p_target: Callable[[int], Tensor],
    coin: Callable[[int], float],
    draw_residual: Callable[[int, Tensor], int],
    draw_bonus: Callable[[int, Tensor], int],
) -> Verdict:
    """Rejection sampling along a chain of k drafts drawn from p_draft_KV; p_target(i) is the target at draft i.

    Randomness comes in through `coin` (uniform in (0, 1)) and the two draws, each asked with the draft's index.
    """
    for i, drafted in enumerate(draft):
        p_target_V = p_target(i)
        if coin(i) >= float(accept_prob(p_target_V[drafted], p_draft_KV[i, drafted])):
            return Verdict(i, draw_residual(i, residual(p_target_V, p_draft_KV[i])))
    return Verdict(len(draft), draw_bonus(len(draft), p_target(len(draft))))
