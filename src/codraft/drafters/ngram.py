"""n-gram drafting (prompt lookup): the tokens that followed an earlier copy of the last n, longest n first.

With `occurrence=earliest` the choice is vLLM's own, token for token (checked against its 0.32 implementation). The
default `latest` follows the text's most recent habit instead.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from codraft.core.schema import DrafterInfo
from codraft.core.spec import NgramSpec, options_of
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.target import Tap


class NgramIndex:
    """Where each n-gram of a growing history ends, first or last. One push costs n_max - n_min + 1 dictionary visits.

    An n-gram is entered only when the token after it arrives, so that the suffix never finds itself.
    """

    def __init__(self, spec: NgramSpec) -> None:
        self.tokens: list[int] = []
        self._sizes = range(spec.n_max, spec.n_min - 1, -1)
        self._ends: dict[int, dict[tuple[int, ...], int]] = {n: {} for n in self._sizes}
        self._earliest = spec.occurrence == "earliest"

    def push(self, token: int) -> None:
        """Append one token."""
        tokens = self.tokens
        end = len(tokens)
        for n in self._sizes:
            if n <= end:
                key = tuple(tokens[end - n :])
                if self._earliest:
                    self._ends[n].setdefault(key, end)
                else:
                    self._ends[n][key] = end
        tokens.append(token)

    def source(self) -> int | None:
        """Index of the token that followed the chosen copy of the longest suffix, None where there is no copy."""
        tokens = self.tokens
        for n in self._sizes:
            if n < len(tokens):
                end = self._ends[n].get(tuple(tokens[-n:]))
                if end is not None:
                    return end
        return None

    def draft(self, D: int) -> list[int]:
        """At most D tokens; fewer where the copy lies close to the end."""
        source = self.source()
        return [] if source is None else self.tokens[source : source + D]


class NgramDrafter:
    """State is the committed tokens of each sequence, indexed, and nothing else."""

    taps: ClassVar[tuple[Tap, ...]] = ()
    prefix_stable: ClassVar[bool] = True

    def __init__(self, spec: NgramSpec) -> None:
        self.spec = spec
        self.info = DrafterInfo(name=spec.name, mechanism="ngram", options=options_of(spec))
        self._indices: list[NgramIndex] = []

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses."""
        return "one_hot"

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """Walk the matcher along the stream; costs the matches, not D."""
        index = NgramIndex(self.spec)
        for token in prompt_ids:
            index.push(token)
        anchors = len(output_ids) - 1
        drafted_A = np.zeros(anchors, dtype=np.int64)
        hit_AD = np.zeros((anchors, D), dtype=bool)
        for p in range(anchors):
            index.push(output_ids[p])
            draft = index.draft(D)
            drafted_A[p] = len(draft)
            for i, token in enumerate(draft, start=p + 1):
                if i > anchors or token != output_ids[i]:
                    break
                hit_AD[p, i - p - 1] = True
        return Unrolled(drafted_A, hit_AD)

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Index the prompts and first anchors."""
        self._indices = [NgramIndex(self.spec) for _ in requests]
        for index, request, anchor in zip(self._indices, requests, anchors, strict=True):
            for token in (*request.prompt_ids, anchor):
                index.push(token)

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """One lookup a sequence."""
        return Proposal.point_masses([index.draft(D) for index in self._indices])

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Append what was decided."""
        for index, tokens, last in zip(self._indices, accepted, bonus, strict=True):
            for token in (*tokens, last):
                index.push(token)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the rest."""
        self._indices = [self._indices[row] for row in rows]

    def device_bytes(self, B: int, S: int) -> int:
        """Nothing: it works on the host."""
        return 0
