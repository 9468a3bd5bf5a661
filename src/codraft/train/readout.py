"""From hidden states to logits over the columns of a vocabulary that training looks at, never all of them at once.

A head with a reduced vocabulary has columns of its own. One that borrows the target's output head is trained over a
shortlist of it: the softmax over 49 thousand rows costs more than the head, and nearly all text is made of a few
thousand. But decoding looks at all rows, and a softmax over some of them does not keep the others low. So every step
takes some of the others too, drawn anew, each of which stands for all that were left out for it [Bengio08].
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional


class OutputHead(Protocol):
    """The output head of a target, or a copy of one, row by row."""

    def head_rows(self, ids_C: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows [C, H], and their biases [C] where it has some."""
        ...

    def scaled(self, logits_NV: Tensor) -> Tensor:
        """What is made of its numbers."""
        ...


@dataclass(frozen=True, slots=True)
class CopiedHead:
    """A drafter's own copy [V, H] of an output head, frozen as the target's is."""

    rows_VH: Tensor

    def head_rows(self, ids_C: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `OutputHead`."""
        return self.rows_VH.detach()[ids_C], None

    def scaled(self, logits_NV: Tensor) -> Tensor:
        """As they are."""
        return logits_NV


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Tokens of the target's vocabulary, `ids_C`. `place_V` is a token's column, -1 for those left out. `shift_C` is
    the logarithm of how many tokens a column stands for, None where each stands for itself."""

    ids_C: Tensor
    place_V: Tensor
    shift_C: Tensor | None = None

    @classmethod
    def of(cls, ids_C: Tensor, vocab_size: int, shift_C: Tensor | None = None) -> "Columns":
        """These tokens of a vocabulary."""
        place_V = ids_C.new_full((vocab_size,), -1)
        place_V[ids_C] = torch.arange(len(ids_C), device=ids_C.device)
        return cls(ids_C, place_V, shift_C)


class Shortlist:
    """The columns of every step: `fixed` ones, and behind them `drawn` others, a function of (seed, step)."""

    def __init__(self, fixed: Columns, drawn: int = 0, seed: int = 0) -> None:
        self.fixed, self.seed = fixed, seed
        self._others = torch.nonzero(fixed.place_V.cpu() < 0)[:, 0]
        self.drawn = min(drawn, len(self._others))
        self._held = (-1, fixed)

    def at(self, step: int) -> Columns:
        """Those of one step."""
        if not self.drawn:
            return self.fixed
        if self._held[0] != step:
            chance = torch.Generator().manual_seed(hash((self.seed, step)) % (1 << 63))
            chosen = self._others[torch.randperm(len(self._others), generator=chance)[: self.drawn]]
            ids_C = torch.cat((self.fixed.ids_C, chosen.sort().values.to(self.fixed.ids_C.device)))
            shift_C = torch.zeros(len(ids_C), device=ids_C.device)
            shift_C[len(self.fixed.ids_C) :] = log(len(self._others) / self.drawn)
            self._held = (step, Columns.of(ids_C, len(self.fixed.place_V), shift_C))
        return self._held[1]


class Readout(Protocol):
    """Logits of hidden states over columns."""

    def leaves(self) -> list[Tensor]:
        """What of it learns."""
        ...

    def __call__(self, hidden_NH: Tensor, columns: Columns, leaves: Sequence[Tensor]) -> Tensor:
        """[N, C]; `leaves` stand in for those of its own."""
        ...


class BorrowedReadout:
    """Rows of an output head that is not the drafter's, or that stays as it is. In float32 at least."""

    def __init__(self, head: OutputHead) -> None:
        self._head = head
        self._held: tuple[Columns, Tensor, Tensor | None] | None = None

    def leaves(self) -> list[Tensor]:
        """None."""
        return []

    def __call__(self, hidden_NH: Tensor, columns: Columns, leaves: Sequence[Tensor] = ()) -> Tensor:
        """See `Readout`. Rows are gathered once for each choice of columns."""
        if self._held is None or self._held[0] is not columns:
            weight_CH, bias_C = self._head.head_rows(columns.ids_C)
            # Narrow once, where autocast would cast them for every part of a batch.
            narrow = narrow_type(weight_CH.device.type)
            held = weight_CH.to(narrow) if narrow else wide(weight_CH)
            self._held = (columns, held, None if bias_C is None else bias_C.to(held.dtype))
        _, weight_CH, bias_C = self._held
        return self._head.scaled(functional.linear(hidden_NH.to(weight_CH.dtype), weight_CH, bias_C))


class OwnReadout:
    """A head's own output rows, one for each column."""

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer

    def leaves(self) -> list[Tensor]:
        """Its rows, unless they are frozen. Asked for within a pass, since sharded ones are whole only there."""
        return [self._layer.weight] if self._layer.weight.requires_grad else []

    def __call__(self, hidden_NH: Tensor, columns: Columns, leaves: Sequence[Tensor] = ()) -> Tensor:
        """See `Readout`."""
        return functional.linear(hidden_NH, leaves[0] if leaves else self._layer.weight)


def narrow_type(device: str) -> torch.dtype | None:
    """What autocast computes in, None where it is off."""
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def wide(tensor: Tensor) -> Tensor:
    """In float32 at least."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))
