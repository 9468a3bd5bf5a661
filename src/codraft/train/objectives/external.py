"""External drafters: an ordinary causal pass over whole rows, every position distilled from the target's own.

A stream's own tokens are fed, so the draft at any distance from any anchor is the model's prediction at that place:
one draft behind each anchor says it all, as in replay.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from codraft.decode.hf.model import HFModel
from codraft.train.objectives.drafts import Batch, Drafts, Stages
from codraft.train.objectives.serial import anchors_of
from codraft.train.readout import BorrowedReadout, Columns


class ExternalLesson(nn.Module):
    """One draft behind each anchor, by a language model whose `readout` gives the logits."""

    num_drafts = 1

    def __init__(self, model: HFModel, readout: BorrowedReadout) -> None:
        super().__init__()
        self.model, self._target, self._readout = model.model, model, readout

    def num_anchors(self, batch: Batch) -> int:
        """See `Lesson.num_anchors`."""
        return int(anchors_of(batch).sum())

    def stages(self, batch: Batch) -> Stages:
        """See `Lesson.stages`: one draft behind every anchor."""
        spans = list(zip(batch.bounds, batch.bounds[1:], strict=False))
        rows = [batch.tokens_T[first:last].tolist() for first, last in spans]
        hidden_TH = torch.cat(self._target.whole_rows(rows, ("final",))["final"])
        anchor_A = torch.nonzero(anchors_of(batch))[:, 0]
        at_A1 = anchor_A[:, None] + 1
        yield Drafts(hidden_TH[anchor_A][:, None], at_A1, torch.ones_like(at_A1, dtype=torch.bool))

    def leaves(self, batch: Batch, columns: Columns) -> list[Tensor]:
        """None: both ends stay the target's."""
        return []

    def logits(
        self, hidden_nKH: Tensor, tokens_nK: Tensor, columns: Columns, leaves: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """See `Lesson.logits`."""
        return torch.unflatten(self._readout(hidden_nKH.flatten(0, 1), columns), 0, hidden_nKH.shape[:2]), None
