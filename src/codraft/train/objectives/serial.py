"""EAGLE-3 and MTP: training-time test, the roll-out that replay reads, with gradients [EAGLE-3].

Anchors are the tokens that the target wrote: those from which decoding really drafts. Prompts are context only, so
their rows stop after the first step. Where it follows hits alone, so do anchors whose draft missed: decoding never
drafts behind a miss, and a row that goes on costs as much as one that counts.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from codraft.decode.target import Tap
from codraft.drafters.rollout import Rollout, SerialHead
from codraft.train.objectives.drafts import Batch, Drafts, Stages
from codraft.train.readout import Columns, Readout

# Features of a batch as a head is to see them in training.
Noise = Callable[[Batch], Mapping[Tap, Tensor]]


class SerialLesson(nn.Module):
    """`steps` drafts behind every anchor, of a head whose `readouts` give the logits of each of its modules."""

    def __init__(
        self,
        head: SerialHead,
        readouts: list[Readout],
        steps: int,
        noise: Noise | None,
        *,
        hits_alone: bool = False,
    ) -> None:
        super().__init__()
        assert isinstance(head, nn.Module)
        self.head, self.num_drafts, self._readouts = head, steps, readouts
        self._noise, self.hits_alone = noise, hits_alone
        self._step = 0

    def num_anchors(self, batch: Batch) -> int:
        """Tokens that the target wrote and that have one behind them that it wrote too."""
        return int(anchors_of(batch).sum())

    def stages(self, batch: Batch) -> Stages:
        """See `Lesson.stages`: one draft behind every anchor that goes on."""
        head: SerialHead = self.head
        tokens_T, device = batch.tokens_T, batch.tokens_T.device
        features = batch.features if self._noise is None or not self.training else self._noise(batch)
        fused_TH = head.fuse(features)
        rollout = Rollout(head, fused_TH, tokens_T, batch.bounds)
        # Row t stands for the anchor t + 1.
        alive_T = torch.cat((anchors_of(batch)[1:], torch.zeros(1, dtype=torch.bool, device=device)))
        for k in range(self.num_drafts):
            readable_NH = rollout.step()
            at_N = rollout.rows_N + 2 + k
            # One token further than it takes in: the last row of a stream has none to predict.
            alive_N = alive_T[rollout.rows_N] & (at_N < rollout.end_T[rollout.rows_N])
            rows_A = rollout.rows_N[alive_N]
            alive_T = torch.zeros_like(alive_T)
            at_A = rows_A + 2 + k
            written_A = batch.mask_T[at_A] if len(at_A) else at_A.bool()
            self._step = k
            hits_A1 = yield Drafts(readable_NH[alive_N][:, None], at_A[:, None], written_A[:, None], first=k)
            going_A = written_A & hits_A1[:, 0] if self.hits_alone else written_A
            alive_T[rows_A[going_A]] = True
            if not bool(alive_T.any()):
                return
            rollout.retain(alive_T[rollout.rows_N])

    def leaves(self, batch: Batch, columns: Columns) -> list[Tensor]:
        """See `Lesson.leaves`."""
        return self._readouts[self._step % len(self._readouts)].leaves()

    def logits(
        self, hidden_nKH: Tensor, tokens_nK: Tensor, columns: Columns, leaves: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """See `Lesson.logits`; each module has its own output head, or all have one."""
        readout = self._readouts[self._step % len(self._readouts)]
        return torch.unflatten(readout(hidden_nKH.flatten(0, 1), columns, leaves), 0, hidden_nKH.shape[:2]), None


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
