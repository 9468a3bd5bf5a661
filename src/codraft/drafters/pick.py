"""From a drafter's logits to drafted tokens, the same way for every mechanism that has logits.

A drafter may know a part of the target's vocabulary only: `target_ids` says what its own ids mean. What it does not
know it cannot draft, and p_draft of that is 0.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from codraft.core.spec import Sampling
from codraft.decode.drafter import DraftKind, Proposal
from codraft.decode.noise import Purpose
from codraft.decode.sampling import draw, probabilities

# Rows whose logits over a vocabulary are held at once: [512, V] in float32 is 100 MB for a vocabulary of 50K.
ROWS_AT_ONCE = 512


class Picker:
    """Scores and picks tokens of the target's vocabulary from logits [N, V'] of a drafter's own."""

    def __init__(
        self,
        draft: Literal["greedy", "sample"],
        sampling: Sampling,
        vocab_size: int,
        target_ids: Tensor | None = None,
    ) -> None:
        self.draft, self.sampling, self.vocab_size = draft, sampling, vocab_size
        self.target_ids = target_ids
        self._own_ids: Tensor | None = None
        if target_ids is not None:
            self._own_ids = target_ids.new_full((vocab_size,), -1)
            self._own_ids[target_ids] = torch.arange(len(target_ids), device=target_ids.device)

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses, or the distribution that drafts are drawn from."""
        return "dense" if self.draft == "sample" else "one_hot"

    def best(self, logits_NV: Tensor) -> Tensor:
        """[N] likeliest tokens."""
        best_N = self._known(logits_NV).argmax(-1)
        return best_N if self.target_ids is None else self.target_ids[best_N]

    def score(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        """[N] how the stream's tokens fare: whether each is the likeliest (bool), or p_draft of it (float64)."""
        if self.draft == "greedy":
            return self.best(logits_NV) == tokens_N
        p_NV = probabilities(self._known(logits_NV), self.sampling)
        own_N = tokens_N if self._own_ids is None else self._own_ids[tokens_N]
        unknown_N = (own_N < 0) | (own_N >= p_NV.shape[1])
        return p_NV.gather(1, own_N.masked_fill(unknown_N, 0)[:, None])[:, 0].masked_fill(unknown_N, 0.0)

    def distribution(self, logits_NV: Tensor) -> Tensor:
        """[N, V] p_draft over the target's vocabulary, float64."""
        p_NV = probabilities(self._known(logits_NV), self.sampling)
        spread_NV = p_NV.new_zeros((len(p_NV), self.vocab_size))
        if self.target_ids is None:
            spread_NV[:, : p_NV.shape[1]] = p_NV
        else:
            spread_NV[:, self.target_ids] = p_NV
        return spread_NV

    def _known(self, logits_NV: Tensor) -> Tensor:
        """Without the columns of padding that the target does not have."""
        return logits_NV[:, : self.vocab_size] if self.target_ids is None else logits_NV


class Drafts:
    """Chains of one step in the making, one for each sequence."""

    def __init__(self, picker: Picker, streams: Sequence[int], positions: Sequence[int]) -> None:
        """`positions` are the output positions of the first drafted token of each sequence; they key the noise."""
        self.picker, self.streams, self.positions = picker, streams, positions
        self.tokens: list[list[int]] = [[] for _ in streams]
        self._p_draft: list[list[Tensor]] = [[] for _ in streams]

    def extend(self, logits_BV: Tensor) -> list[int]:
        """Append one token to every chain; returns them."""
        if self.picker.draft_kind == "one_hot":
            picked = self.picker.best(logits_BV).tolist()
        else:
            picked = []
            for row, p_V in enumerate(self.picker.distribution(logits_BV)):
                position = self.positions[row] + len(self.tokens[row])
                picked.append(draw(p_V, self.picker.sampling.seed, self.streams[row], position, Purpose.DRAFT))
                self._p_draft[row].append(p_V)
        for chain, token in zip(self.tokens, picked, strict=True):
            chain.append(token)
        return picked

    def proposal(self, lengths: Sequence[int] | None = None) -> Proposal:
        """The chains, cut to `lengths` where given."""
        counts = [len(chain) for chain in self.tokens] if lengths is None else lengths
        tokens = [chain[:n] for chain, n in zip(self.tokens, counts, strict=True)]
        if self.picker.draft_kind == "one_hot":
            return Proposal.point_masses(tokens)
        p_draft = [torch.stack(rows[:n]) if n else None for rows, n in zip(self._p_draft, counts, strict=True)]
        return Proposal(tokens, p_draft)
