"""The seam behind which the target lives: a pass over new tokens of several sequences, and a cache that rolls back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

# Output of decoder layer 0..L-1, -1 for the embeddings as `Ends.embed` gives them, or "final": after the last norm.
Tap = int | Literal["final"]


@dataclass(frozen=True, slots=True)
class PassOutput:
    """What one pass gives, a tensor per sequence.

    `logits[b]` is [m, V]: the last m = min(num_logits, new tokens) positions. `features[tap][b]` is [n_b, C]: every
    new position.
    """

    logits: list[Tensor]
    features: Mapping[Tap, list[Tensor]]


class Cache(Protocol):
    """Keys and values (or states) of a batch of sequences. Slot = position: no holes, whatever was rolled back."""

    @property
    def lengths(self) -> list[int]:
        """Tokens held for each sequence."""
        ...

    def rollback(self, lengths: Sequence[int]) -> None:
        """Settle on these lengths and forget what lies beyond. The first token fed after a rollback always stays."""
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all sequences but these, in this order."""
        ...


class Target(Protocol):
    """A causal language model. Everything it knows of a sequence is in the cache."""

    id: str
    vocab_size: int
    window: int | None
    eos_ids: frozenset[int]
    device: str

    def new_cache(self, num_sequences: int, capacity: int) -> Cache:
        """An empty cache with room for `capacity` tokens of each sequence."""
        ...

    def forward(
        self,
        tokens: Sequence[Sequence[int]],
        cache: Cache,
        *,
        num_logits: int | None = None,
        taps: Sequence[Tap] = (),
    ) -> PassOutput:
        """Append `tokens[b]` (ragged, at least one each); logits of the last `num_logits` of each (None: all)."""
        ...

    def device_bytes(self, B: int, S: int) -> int:
        """Bytes of the weights and of the cache of B sequences of S tokens."""
        ...


class Ends(Protocol):
    """The two ends of a target, which heads may borrow: its embedding, scaled as it scales it in its module or behind
    it, without positions that some add; and its output head."""

    def embed(self, tokens_N: Tensor) -> Tensor:
        """[N, H] embeddings of token ids."""
        ...

    def read_out(self, hidden_NH: Tensor) -> Tensor:
        """[N, V] logits of hidden states after the last norm."""
        ...


def slice_features(features: Mapping[Tap, list[Tensor]], counts: Sequence[int]) -> dict[Tap, list[Tensor]]:
    """The first `counts[b]` positions of every sequence."""
    return {tap: [rows[:n] for rows, n in zip(parts, counts, strict=True)] for tap, parts in features.items()}
