"""Features of the target as a head joins them, a bounded number of rows at a time."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from codraft.decode.drafter import Features
from codraft.decode.target import Tap

# Rows whose features are joined at once: of a long prompt they would be held twice.
ROWS_AT_ONCE = 2048
Fuse = Callable[[Mapping[Tap, Tensor]], Tensor]


def fused(fuse: Fuse, features: Features, taps: Sequence[Tap]) -> list[Tensor]:
    """[n_b, H] of every sequence; short ones together, long ones in chunks."""
    counts = [len(rows) for rows in features[taps[0]]]
    if sum(counts) <= ROWS_AT_ONCE:
        joined = fuse({tap: torch.cat(features[tap]) for tap in taps})
        return list(torch.split(joined, counts))
    return [fused_rows(fuse, {tap: features[tap][b] for tap in taps}) for b in range(len(counts))]


def fused_rows(fuse: Fuse, states: Mapping[Tap, Tensor]) -> Tensor:
    """[n, H] of one sequence whose features are [n, C] each."""
    count = max(len(rows) for rows in states.values())
    starts = range(0, max(count, 1), ROWS_AT_ONCE)
    return torch.cat([fuse({tap: rows[at : at + ROWS_AT_ONCE] for tap, rows in states.items()}) for at in starts])
