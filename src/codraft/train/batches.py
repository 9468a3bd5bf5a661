"""Which rows make which step: a function of (seed, epoch), so that a resumed run sees what it would have seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

# Rows of similar length go together, within so many batches; beyond that order is chance.
POOL = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """Batches of at most `batch_tokens` tokens of rows with these lengths [N]."""

    lengths: NDArray[np.int64]
    batch_tokens: int
    seed: int

    def epoch(self, number: int) -> list[list[int]]:
        """Batches of row numbers; every row once. A row longer than a batch stands alone."""
        chance = np.random.default_rng((self.seed, number))
        order = chance.permutation(len(self.lengths))
        per_pool = max(1, int(POOL * self.batch_tokens / max(1.0, float(self.lengths.mean()))))
        batches: list[list[int]] = []
        for start in range(0, len(order), per_pool):
            pool = order[start : start + per_pool]
            batches += self._fill(pool[np.argsort(self.lengths[pool], kind="stable")])
        return [batches[i] for i in chance.permutation(len(batches))]

    def _fill(self, rows: Sequence[int] | NDArray[np.int64]) -> list[list[int]]:
        batches: list[list[int]] = []
        held = 0
        for row in rows:
            length = int(self.lengths[row])
            if not batches or held + length > self.batch_tokens:
                batches.append([])
                held = 0
            batches[-1].append(int(row))
            held += length
        return batches


class Epochs(Protocol):
    """Batches of every epoch."""

    def epoch(self, number: int) -> list[list[int]]:
        """Row numbers, a batch each."""
        ...


class Schedule:
    """Micro-batches of one process: step s takes `accumulate` of them, and so does every other process."""

    def __init__(self, plan: Epochs, accumulate: int, rank: int, world: int) -> None:
        self.plan, self.accumulate, self.rank, self.world = plan, accumulate, rank, world
        self._epochs: dict[int, list[list[int]]] = {}
        self._sizes: list[int] = []

    def step(self, number: int) -> list[list[int]]:
        """The micro-batches of this process in a step; all processes together take consecutive ones."""
        first = number * self.accumulate * self.world
        return [self._batch(first + i * self.world + self.rank) for i in range(self.accumulate)]

    def _batch(self, index: int) -> list[int]:
        epoch = 0
        while index >= self._size(epoch):
            index -= self._size(epoch)
            epoch += 1
        if epoch not in self._epochs:
            # Two lie side by side where an epoch ends within a step.
            self._epochs = {e: batches for e, batches in self._epochs.items() if e == epoch - 1}
            self._epochs[epoch] = self.plan.epoch(epoch)
        return self._epochs[epoch][index]

    def _size(self, epoch: int) -> int:
        while len(self._sizes) <= epoch:
            self._sizes.append(len(self.plan.epoch(len(self._sizes))))
        return self._sizes[epoch]

    def steps(self, epochs: float) -> int:
        """Whole steps in so many epochs, at least one."""
        whole = sum(self._size(epoch) for epoch in range(int(epochs)))
        part = int((epochs - int(epochs)) * self._size(int(epochs))) if epochs != int(epochs) else 0
        return max(1, (whole + part) // (self.accumulate * self.world))
