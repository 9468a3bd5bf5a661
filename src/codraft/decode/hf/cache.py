"""Two caches behind one seam.

`SlotCache` holds standard keys and values in slots: slot = position, for every sequence, always. Rolling back is
forgetting a length, so ragged rollbacks leave no holes and cost nothing, and a sliding window is a matter of the mask.
`SnapshotCache` serves everything else (recurrent states, compressed keys): it copies the model's own cache before
drafts enter it and, after a rejection, restores the copy and feeds the tokens that stand once more.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache as HFCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer


class Plan:
    """Which rows the running pass covers, where each starts, and how many slots it can see."""

    def __init__(self) -> None:
        self.rows: slice | None = None
        self.starts: list[int] = []
        self.width = 0

    def set(self, rows: slice, starts: list[int], width: int) -> None:
        """Rows `rows`, `width` new tokens each, row i from slot starts[i]."""
        self.rows, self.starts, self.width = rows, starts, width

    @property
    def end(self) -> int:
        """One past the last slot any row of the pass uses."""
        return max(self.starts) + self.width


class SlotLayer(CacheLayerMixin):
    """Keys and values of one layer, [B, K, capacity, H], written at each row's own slots."""

    is_sliding = False

    def __init__(self, plan: Plan, num_sequences: int, capacity: int) -> None:
        super().__init__()
        self.plan, self.num_sequences, self.capacity = plan, num_sequences, capacity

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate at the first write, when head counts, dtype and device are known."""
        for name, states in (("keys", key_states), ("values", value_states)):
            shape = (self.num_sequences, states.shape[1], self.capacity, states.shape[3])
            setattr(self, name, states.new_zeros(shape))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the pass's keys and values; return all that its rows can see."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        plan = self.plan
        keys, values = self.keys[plan.rows], self.values[plan.rows]
        if min(plan.starts) == max(plan.starts):
            start = plan.starts[0]
            keys[:, :, start : start + plan.width] = key_states
            values[:, :, start : start + plan.width] = value_states
        else:
            rows_B1 = torch.arange(len(plan.starts), device=keys.device)[:, None]
            starts_B1 = torch.tensor(plan.starts, device=keys.device)[:, None]
            slots_BQ = starts_B1 + torch.arange(plan.width, device=keys.device)
            keys[rows_B1, :, slots_BQ] = key_states.transpose(1, 2)
            values[rows_B1, :, slots_BQ] = value_states.transpose(1, 2)
        return keys[:, :, : plan.end], values[:, :, : plan.end]

    def get_seq_length(self) -> int:
        """Slots before the running pass (its longest row)."""
        return max(self.plan.starts, default=0)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Slots visible to the running pass, from slot 0."""
        return self.get_seq_length() + query_length, 0

    def get_max_length(self) -> int:
        """Slots there are."""
        return self.capacity


class SlotCache:
    """Cache of B sequences in slots; see the module's docstring."""

    def __init__(self, num_layers: int, num_sequences: int, capacity: int) -> None:
        self.plan = Plan()
        self.layers = [SlotLayer(self.plan, num_sequences, capacity) for _ in range(num_layers)]
        self.hf = HFCache(layers=self.layers)
        self._lengths = [0] * num_sequences
        self.capacity = capacity

    @property
    def lengths(self) -> list[int]:
        """Tokens held for each sequence."""
        return list(self._lengths)

    def begin(self, rows: slice, width: int) -> None:
        """Prepare a pass of `width` new tokens for `rows`."""
        starts = self._lengths[rows]
        if max(starts) + width > self.capacity:
            raise ValueError(f"cache of {self.capacity} slots cannot take {width} tokens after {max(starts)}")
        self.plan.set(rows, starts, width)

    def advance(self, rows: slice, counts: Sequence[int]) -> None:
        """The pass is over: row i of `rows` holds counts[i] more tokens (padding is forgotten at once)."""
        self._lengths[rows] = [n + c for n, c in zip(self._lengths[rows], counts, strict=True)]

    def rollback(self, lengths: Sequence[int]) -> None:
        """Forget what lies beyond."""
        if any(new > old or new < 0 for new, old in zip(lengths, self._lengths, strict=True)):
            raise ValueError(f"cannot roll back from {self._lengths} to {list(lengths)}")
        self._lengths = list(lengths)

    def keep(self, rows: Sequence[int]) -> None:
        """Compact the batch to these rows."""
        self._lengths = [self._lengths[row] for row in rows]
        for layer in self.layers:
            if layer.is_initialized:
                index = torch.tensor(rows, device=layer.keys.device)
                layer.keys = layer.keys.index_select(0, index)
                layer.values = layer.values.index_select(0, index)
            layer.num_sequences = len(rows)


class Snapshot:
    """One sequence in a cache of the model's own kind, with the means to go back to its last rollback.

    A rollback settles what is held. The first token after it always stays (it is the anchor), so plain decoding, one
    token a pass, never pays for a copy.
    """

    def __init__(self, new_cache: Callable[[], Any]) -> None:
        self.cache = new_cache()
        self.length = 0
        self._copy: Any = None
        self._copy_length = 0
        self._fed: list[int] = []
        self._settled = 0

    def begin(self, tokens: Sequence[int]) -> None:
        """Before a pass over `tokens`: copy the state if some of what follows may not stand."""
        unsettled = self.length - self._settled + len(tokens)
        if self._copy is None and self.length > 0 and unsettled > 1:
            self._copy, self._copy_length, self._fed = copy.deepcopy(self.cache), self.length, []
        self._fed += tokens

    def rollback(self, length: int, feed: Callable[[Any, int, list[int]], None]) -> None:
        """Settle on `length`; `feed(cache, start, tokens)` reruns what stands after the copy."""
        if length < self.length:
            if self._copy is None or length < self._copy_length:
                raise ValueError(f"cannot roll back from {self.length} to {length}: settled at {self._settled}")
            self.cache, kept = self._copy, self._fed[: length - self._copy_length]
            if kept:
                feed(self.cache, self._copy_length, kept)
        elif length > self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length}")
        self.length = self._settled = length
        self._copy, self._fed = None, []


class SnapshotCache:
    """Cache of B sequences, each in the model's own kind of cache."""

    def __init__(
        self, num_sequences: int, new_cache: Callable[[], Any], feed: Callable[[Any, int, list[int]], None]
    ) -> None:
        self.sequences = [Snapshot(new_cache) for _ in range(num_sequences)]
        self._feed = feed

    @property
    def lengths(self) -> list[int]:
        """Tokens held for each sequence."""
        return [sequence.length for sequence in self.sequences]

    def rollback(self, lengths: Sequence[int]) -> None:
        """Restore and feed again, sequence by sequence."""
        for sequence, length in zip(self.sequences, lengths, strict=True):
            sequence.rollback(length, self._feed)

    def keep(self, rows: Sequence[int]) -> None:
        """Compact the batch to these rows."""
        self.sequences = [self.sequences[row] for row in rows]


def windows_of(native: Any) -> list[int | None] | None:
    """Sliding window of each layer (None: full attention), or None where slots cannot serve."""
    windows: list[int | None] = []
    for layer in native.layers:
        if type(layer) is DynamicLayer:
            windows.append(None)
        elif type(layer) is DynamicSlidingWindowLayer:
            windows.append(int(layer.sliding_window))
        else:
            return None
    # One mask serves all sliding layers, so they must agree on the window.
    return windows if windows and len({w for w in windows if w is not None}) <= 1 else None
