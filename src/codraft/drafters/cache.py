"""Keys and values of learned drafters while decoding: slot = row, in every sequence and every layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from codraft.drafters.layers.attention import attend, causal

# Room for so many rows more, or an eighth of those there are.
LEAST_ROOM = 64


class Pages:
    """One growing array [room, ...] for each sequence; rows beyond what was written are never read."""

    def __init__(self, num_sequences: int) -> None:
        self.arrays: list[Tensor | None] = [None] * num_sequences

    def write(self, sequence: int, start: int, rows: Tensor) -> None:
        """Rows `start`.. of one sequence."""
        held = self.arrays[sequence]
        end = start + len(rows)
        if held is None or len(held) < end:
            grown = rows.new_zeros((end + max(LEAST_ROOM, end // 8), *rows.shape[1:]))
            if held is not None:
                grown[:start] = held[:start]
            self.arrays[sequence] = held = grown
        held[start:end] = rows

    def read(self, sequence: int, end: int) -> Tensor:
        """The first `end` rows of one sequence."""
        held = self.arrays[sequence]
        assert held is not None
        return held[:end]


class KeyValueCache:
    """Keys and values of `num_layers` layers. A pass writes behind `lengths`, then `advance` counts what it wrote."""

    def __init__(self, num_layers: int, num_sequences: int) -> None:
        self.keys = [Pages(num_sequences) for _ in range(num_layers)]
        self.values = [Pages(num_sequences) for _ in range(num_layers)]
        self.lengths = [0] * num_sequences

    def write(self, layer: int, sequence: int, k_MgD: Tensor, v_MgE: Tensor) -> tuple[Tensor, Tensor]:
        """Put new rows behind what is held; all rows of that sequence, the new ones included."""
        start = self.lengths[sequence]
        self.keys[layer].write(sequence, start, k_MgD)
        self.values[layer].write(sequence, start, v_MgE)
        end = start + len(k_MgD)
        return self.keys[layer].read(sequence, end), self.values[layer].read(sequence, end)

    def held(self, layer: int, sequence: int) -> tuple[Tensor, Tensor]:
        """All rows of one sequence; it must hold some."""
        end = self.lengths[sequence]
        return self.keys[layer].read(sequence, end), self.values[layer].read(sequence, end)

    def advance(self, counts: Sequence[int]) -> None:
        """Every layer wrote these many rows."""
        self.lengths = [n + c for n, c in zip(self.lengths, counts, strict=True)]

    def rollback(self, lengths: Sequence[int]) -> None:
        """Forget what lies beyond."""
        if any(not 0 <= new <= old for new, old in zip(lengths, self.lengths, strict=True)):
            raise ValueError(f"cannot roll back from {self.lengths} to {list(lengths)}")
        self.lengths = list(lengths)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all sequences but these."""
        self.lengths = [self.lengths[row] for row in rows]
        for pages in (*self.keys, *self.values):
            pages.arrays = [pages.arrays[row] for row in rows]


class Continued:
    """Sight of new rows behind a cache: each sees its own sequence up to itself. Writes them into the cache."""

    def __init__(self, cache: KeyValueCache, counts: Sequence[int]) -> None:
        self.cache, self.counts = cache, counts
        self.layer = 0

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`; rows of a sequence stand together, in the order of the sequences."""
        seen, start = [], 0
        for sequence, count in enumerate(self.counts):
            if count == 0:
                continue
            rows = slice(start, start + count)
            start += count
            keys, values = self.cache.write(self.layer, sequence, k_NgD[rows], v_NgE[rows])
            slots_M = torch.arange(len(keys), device=keys.device)
            alone = count == 1 and (window is None or len(keys) <= window)
            mask_QM = None if alone else causal(slots_M[-count:], slots_M, window)
            seen.append(attend(q_NhD[rows], keys, values, mask_QM, scale=scale, sinks_h=sinks_h))
        self.layer += 1
        return torch.cat(seen)
