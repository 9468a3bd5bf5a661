"""The drafter seam. A drafter proposes and never decides: whatever it returns, the output law stays the target's.

One mechanism offers two views of the same function. `propose` is incremental and serves live decoding. `unroll` is
teacher-forced over a whole stream and serves replay and training. A property test holds them equal at every position.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.decode.target import Tap

DraftKind = Literal["one_hot", "dense"]
Features = Mapping[Tap, list[Tensor]]


@dataclass(frozen=True, slots=True)
class Request:
    """One stream to be written: its index keys the noise."""

    index: int
    prompt_ids: Sequence[int]
    max_new_tokens: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts for one step: `tokens[b]` is a chain of at most D; `p_draft[b]` is [k, V], or None for point masses.

    A tree of drafts would add a parents array here; chains need none.
    """

    tokens: list[list[int]]
    p_draft: list[Tensor | None]

    @classmethod
    def point_masses(cls, tokens: list[list[int]]) -> "Proposal":
        """Deterministic drafts."""
        return cls(tokens, [None] * len(tokens))


@dataclass(frozen=True, slots=True)
class Unrolled:
    """Drafts from every anchor of a stream, reduced to what acceptance needs.

    For each anchor p = 0..A-1 (output positions) `drafted_A` is the length of the draft. `hit_AD` says how the i-th
    draft fares against the stream's own token p + i: a bool for one-hot drafts (equal or not), else p_draft(token).
    """

    drafted_A: NDArray[np.int64]
    hit_AD: NDArray[np.bool_] | NDArray[np.float64]


class Drafter(Protocol):
    """Seven mechanisms, one shape. `taps` are the target features it wants; `draft_kind` what its drafts are.

    `prefix_stable` says that the draft at D is a prefix of the draft at D + 1, so one unroll serves every D.
    """

    info: DrafterInfo

    @property
    def taps(self) -> tuple[Tap, ...]:
        """Features wanted: layers 0..L - 1, -1 for the embeddings, `final` after the last norm."""
        ...

    @property
    def prefix_stable(self) -> bool:
        """Whether one unroll at the largest D serves every D."""
        ...

    @property
    def draft_kind(self) -> DraftKind:
        """Whether drafts are point masses or drawn from a distribution."""
        ...

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """Drafts from anchors 0..len(output_ids) - 2, fed with the stream's own tokens, never the drafter's."""
        ...

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Start a batch: prompts, the first anchor of each, and the target's features of the prompts."""
        ...

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """At most D tokens to follow each anchor; called at most once between two commits."""
        ...

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Take in what the step committed: accepted tokens, then the last one, which is the next anchor.

        Features are those of the old anchor and the accepted tokens.
        """
        ...

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all sequences but these."""
        ...

    def device_bytes(self, B: int, S: int) -> int:
        """Bytes it takes on the device beside the target, for B sequences of S tokens."""
        ...


@runtime_checkable
class Remembering(Drafter, Protocol):
    """A drafter that draws on other streams too: what it drafts depends on what it has seen, in order.

    Replay gives it the streams one at a time; every measurement starts from a `fresh` one.
    """

    def fresh(self) -> Self:
        """The same drafter, remembering nothing."""
        ...

    def unroll_each(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int], depths: Sequence[int], asked: int
    ) -> list[Unrolled]:
        """As `unroll`, for several D at once, after what it remembers; then it remembers `output_ids[:asked]` too.

        Only anchors 0..asked - 2 need drafts.
        """
        ...


def fresh(drafter: "Drafter") -> "Drafter":
    """The drafter as it is before its first stream."""
    return drafter.fresh() if isinstance(drafter, Remembering) else drafter
