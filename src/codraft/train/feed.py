"""From row numbers to a batch of rows and what a drafter reads of the target there."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from codraft.train.features import FeatureSource
from codraft.train.objectives.drafts import Batch
from codraft.train.tokens import TokenFile


@dataclass(frozen=True, slots=True)
class Feed:
    """From row numbers to a batch; `kept` [N] is how much of each row there is."""

    data: TokenFile
    source: FeatureSource | None
    kept: NDArray[np.int64]
    device: str

    def batch(self, rows: Sequence[int], step: int) -> Batch:
        """Rows one after the other, with their features."""
        found = [self.data.row(row) for row in rows]
        lengths = self.kept[rows].tolist()
        ids = [torch.from_numpy(row.ids[:length]) for row, length in zip(found, lengths, strict=True)]
        masks = [torch.from_numpy(row.mask[:length]) for row, length in zip(found, lengths, strict=True)]
        bounds = torch.tensor([0, *(len(one) for one in ids)]).cumsum(0).tolist()
        features = {} if self.source is None else self.source.features(rows, lengths)
        return Batch(torch.cat(ids).to(self.device), torch.cat(masks).to(self.device), bounds, features, rows, step)
