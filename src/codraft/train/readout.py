"""From hidden states to logits over the columns of a vocabulary that training looks at, never all of them at once.

A head with a reduced vocabulary has columns of its own. One that borrows the target's output head is trained over a
shortlist of it: the softmax over 49 thousand rows costs more than the head, and nearly all text is made of a few
thousand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional


class TargetHead(Protocol):
    """The target's output head, row by row."""

    vocab_size: int

    def head_rows(self, ids_C: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows [C, H], and their biases [C] where it has some."""
        ...

    def scaled(self, logits_NV: Tensor) -> Tensor:
        """What the target makes of its output head's numbers."""
        ...

    def last_norm(self, hidden_NH: Tensor) -> Tensor:
        """[N, H] of the last layer's output, as the output head reads it."""
        ...


@dataclass(frozen=True, slots=True)
class Columns:
    """Tokens of the target's vocabulary, ascending: `ids_C`. `place_V` is a token's column, -1 for those left out."""

    ids_C: Tensor
    place_V: Tensor

    @classmethod
    def of(cls, ids_C: Tensor, vocab_size: int) -> "Columns":
        """These tokens of a vocabulary."""
        place_V = ids_C.new_full((vocab_size,), -1)
        place_V[ids_C] = torch.arange(len(ids_C), device=ids_C.device)
        return cls(ids_C, place_V)


class Readout:
    """Logits [N, C] of hidden states [N, H]. `weight` gives [C, H] when asked, since sharded parameters are whole only
    within a pass; `learns` says that it is a parameter."""

    def __init__(
        self,
        weight: Callable[[], Tensor],
        bias_C: Tensor | None,
        scaled: Callable[[Tensor], Tensor],
        *,
        learns: bool = False,
    ) -> None:
        self.weight, self._bias, self._scaled, self.learns = weight, bias_C, scaled, learns

    def __call__(self, hidden_NH: Tensor) -> Tensor:
        """[N, C]."""
        return self._scaled(functional.linear(hidden_NH, self.weight(), self._bias))


def borrowed(head: TargetHead, columns: Columns) -> Readout:
    """The target's own logits over these columns; nothing of it learns."""
    weight_CH, bias_C = head.head_rows(columns.ids_C)
    return Readout(lambda: weight_CH, bias_C, head.scaled)


def own(layer: nn.Linear) -> Readout:
    """A head's own output rows, one for each column."""
    return Readout(lambda: layer.weight, None, lambda logits: logits, learns=layer.weight.requires_grad)
