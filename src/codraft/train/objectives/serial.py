"""EAGLE-3 and MTP: training-time test, the roll-out that replay reads, with gradients [EAGLE-3].

Anchors are the tokens that the target wrote: those from which decoding really drafts. Prompts are context only, so
their rows stop after the first step.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from codraft.drafters.rollout import Rollout, SerialHead
from codraft.train.objectives.drafts import Batch, Drafts
from codraft.train.readout import Readout


class SerialLesson(nn.Module):
    """`steps` drafts behind every anchor, of a head whose `readouts` give the logits of each of its modules."""

    def __init__(
        self, head: SerialHead, readouts: list[Readout], steps: int, noise: Callable[[Tensor, Batch], Tensor] | None
    ) -> None:
        super().__init__()
        assert isinstance(head, nn.Module)
        self.head, self.num_drafts, self._readouts = head, steps, readouts
        self._noise = noise

    def num_anchors(self, batch: Batch) -> int:
        """Tokens that the target wrote and that have one behind them that it wrote too."""
        return int(anchors_of(batch).sum())

    def drafts(self, batch: Batch) -> Drafts:
        """See `Lesson.drafts`."""
        head: SerialHead = self.head
        tokens_T, K = batch.tokens_T, self.num_drafts
        fused_TH = head.fuse(batch.features)
        if self._noise is not None and self.training:
            fused_TH = self._noise(fused_TH, batch)
        rollout = Rollout(head, fused_TH, tokens_T, batch.bounds)
        # Row t stands for the anchor t + 1.
        asked_T = torch.cat((anchors_of(batch)[1:], tokens_T.new_zeros(1, dtype=torch.bool)))
        anchor_A = torch.nonzero(asked_T)[:, 0]
        place_T = tokens_T.new_full((len(tokens_T),), -1)
        place_T[anchor_A] = torch.arange(len(anchor_A), device=tokens_T.device)
        steps = []
        for _ in range(K):
            readable_NH = rollout.step()
            asked_N = asked_T[rollout.rows_N]
            place_N = place_T[rollout.rows_N[asked_N]]
            filled_AH = readable_NH.new_zeros(len(anchor_A), readable_NH.shape[1])
            steps.append(filled_AH.index_copy(0, place_N, readable_NH[asked_N]))
            rollout.retain(asked_N)
        at_AK = anchor_A[:, None] + 2 + torch.arange(K, device=tokens_T.device)
        valid_AK = written(batch, rollout.end_T[anchor_A], at_AK)
        return Drafts(torch.stack(steps, 1), at_AK.clamp(max=len(tokens_T) - 1), valid_AK)

    def logits(self, hidden_nKH: Tensor, tokens_nK: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `Lesson.logits`."""
        n = len(self._readouts)
        if n == 1:
            return torch.unflatten(self._readouts[0](hidden_nKH.flatten(0, 1)), 0, hidden_nKH.shape[:2]), None
        parts = [self._readouts[k % n](hidden_nKH[:, k]) for k in range(hidden_nKH.shape[1])]
        return torch.stack(parts, 1), None

    def output_parameters(self) -> list[Tensor]:
        """See `Lesson.output_parameters`."""
        return [readout.weight() for readout in dict.fromkeys(self._readouts) if readout.learns]


def anchors_of(batch: Batch) -> Tensor:
    """[T] whether a token is one that the target wrote, and so is the one after it in the same row."""
    mask_T = batch.mask_T
    after_T = torch.cat((mask_T[1:], mask_T.new_zeros(1)))
    found_T = mask_T & after_T
    found_T[torch.tensor(batch.bounds[1:], device=mask_T.device) - 1] = False
    return found_T


def written(batch: Batch, end_A: Tensor, at_AK: Tensor) -> Tensor:
    """[A, K] whether the tokens behind each anchor, up to this one, were all written by the target in one go."""
    inside_AK = at_AK < end_A[:, None]
    mask_AK = batch.mask_T[at_AK.clamp(max=len(batch.mask_T) - 1)] & inside_AK
    return mask_AK.cumprod(1).bool()
