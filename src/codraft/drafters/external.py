"""External drafting: a causal language model of its own, sharing the target's vocabulary.

Replay needs one ordinary causal pass: fed with the stream's own tokens, the draft at distance i from any anchor is the
model's prediction at that position, whatever the anchor. Live, the cache only crops: what it wrote for accepted drafts
is already right. Where two embeddings are padded to different sizes, only the ids both know can be drafted.
"""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.core.spec import MAX_DEPTH, ExternalSpec, Sampling, options_of
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.forced import forced_pass
from codraft.decode.noise import Purpose
from codraft.decode.sampling import draw, probabilities
from codraft.decode.target import Cache, Tap, Target


class ExternalDrafter:
    """State is the drafter's cache and the tokens committed to each sequence."""

    taps: ClassVar[tuple[Tap, ...]] = ()
    prefix_stable: ClassVar[bool] = True

    def __init__(self, spec: ExternalSpec, model: Target, vocab_size: int, sampling: Sampling) -> None:
        self.spec, self.model, self.sampling = spec, model, sampling
        self.info = DrafterInfo(name=spec.name, mechanism="external", id=spec.path, options=options_of(spec))
        self.vocab_size = vocab_size
        self._shared = min(vocab_size, model.vocab_size)
        self._cache: Cache | None = None
        self._streams: list[int] = []
        self._prompt_lengths: list[int] = []
        self._committed: list[list[int]] = []
        self._fed: list[list[int]] = []
        self._agreed: list[int] = []

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses, or the distribution that drafts are drawn from."""
        return "dense" if self.spec.draft == "sample" else "one_hot"

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """One causal pass over prompt and output; every draft of every D falls out of it."""
        anchors = len(output_ids) - 1
        if anchors < 1:
            return Unrolled(np.zeros(0, dtype=np.int64), np.zeros((0, D), dtype=bool))
        hit_T = self._score(prompt_ids, output_ids)
        # Row p, column i: how output token p + 1 + i fares; beyond the stream's end nothing hits.
        padded = np.concatenate([hit_T, np.zeros(D, dtype=hit_T.dtype)])
        hit_AD = np.lib.stride_tricks.sliding_window_view(padded, D)[:anchors]
        return Unrolled(np.full(anchors, D, dtype=np.int64), hit_AD)

    def _score(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> NDArray[np.bool_] | NDArray[np.float64]:
        """For output tokens 1..n-1: is it the drafter's argmax (bool), or how likely would it be drawn (float64)?"""
        inputs = self._known([*prompt_ids, *output_ids[:-1]])
        hit_T, _ = forced_pass(self.model, inputs, output_ids[1:], self._reduce)
        assert hit_T is not None
        return hit_T.cpu().numpy()

    def _known(self, tokens: Sequence[int]) -> list[int]:
        """Tokens as the drafter can read them: an id from the target's padding becomes 0; only drafts suffer."""
        size = self.model.vocab_size
        return [token if token < size else 0 for token in tokens]

    def _reduce(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        """[N] hits of the tokens, from a chunk's logits."""
        if self.draft_kind == "one_hot":
            return logits_NV[:, : self._shared].argmax(-1) == tokens_N
        return self._distribution(logits_NV).gather(1, tokens_N[:, None])[:, 0]

    def _distribution(self, logits_NV: Tensor) -> Tensor:
        """[N, V] over the target's vocabulary, float64; ids the drafter does not know have probability 0."""
        p_NV = probabilities(logits_NV[:, : self._shared], self.sampling)
        return torch.nn.functional.pad(p_NV, (0, self.vocab_size - self._shared))

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Read the prompts; the anchor is fed with the first proposal."""
        room = max(len(r.prompt_ids) + r.max_new_tokens for r in requests) + 2 * MAX_DEPTH
        self._cache = self.model.new_cache(len(requests), room)
        self.model.forward([self._known(r.prompt_ids) for r in requests], self._cache, num_logits=1)
        self._streams = [r.index for r in requests]
        self._prompt_lengths = [len(r.prompt_ids) for r in requests]
        self._fed = [list(r.prompt_ids) for r in requests]
        self._agreed = list(self._prompt_lengths)
        self._committed = [[*r.prompt_ids, anchor] for r, anchor in zip(requests, anchors, strict=True)]

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """Catch up to the anchor, then draft one token a pass."""
        assert self._cache is not None
        self._rewind()
        feed = [done[len(fed) :] for done, fed in zip(self._committed, self._fed, strict=True)]
        drafts: list[list[int]] = [[] for _ in anchors]
        p_draft: list[list[Tensor]] = [[] for _ in anchors]
        for _ in range(D):
            logits = self.model.forward([self._known(tokens) for tokens in feed], self._cache, num_logits=1).logits
            for fed, tokens in zip(self._fed, feed, strict=True):
                fed += tokens
            feed = []
            for row, logits_1V in enumerate(logits):
                token = self._pick(row, logits_1V, len(drafts[row]), p_draft[row])
                drafts[row].append(token)
                feed.append([token])
        if self.draft_kind == "one_hot":
            return Proposal.point_masses(drafts)
        return Proposal(drafts, [torch.stack(rows) for rows in p_draft])

    def _pick(self, row: int, logits_1V: Tensor, i: int, p_draft: list[Tensor]) -> int:
        """The next drafted token of one sequence; a drawn one leaves its distribution in `p_draft`."""
        if self.draft_kind == "one_hot":
            return int(logits_1V[-1, : self._shared].argmax())
        p_V = self._distribution(logits_1V[-1:])[0]
        p_draft.append(p_V)
        position = len(self._committed[row]) - self._prompt_lengths[row] + i
        return draw(p_V, self.sampling.seed, self._streams[row], position, Purpose.DRAFT)

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Append what was decided; the cache keeps what it wrote for drafts that stand."""
        for done, tokens, last in zip(self._committed, accepted, bonus, strict=True):
            done += [*tokens, last]
        self._rewind()

    def _rewind(self) -> None:
        """Crop the cache to what is committed, the anchor at least still to be fed."""
        assert self._cache is not None
        for row, (done, fed) in enumerate(zip(self._committed, self._fed, strict=True)):
            self._agreed[row] = agreement(done, fed, self._agreed[row])
            del fed[self._agreed[row] :]
        self._cache.rollback(self._agreed)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the rest."""
        assert self._cache is not None
        self._cache.keep(rows)
        for name in ("_streams", "_prompt_lengths", "_committed", "_fed", "_agreed"):
            values = getattr(self, name)
            setattr(self, name, [values[row] for row in rows])

    def device_bytes(self, B: int, S: int) -> int:
        """Its weights and its own cache."""
        return self.model.device_bytes(B, S)


def agreement(done: Sequence[int], fed: Sequence[int], start: int) -> int:
    """Length of the common prefix of committed and fed tokens, short of the anchor; they agree up to `start`."""
    limit = min(len(done) - 1, len(fed))
    n = start
    while n < limit and done[n] == fed[n]:
        n += 1
    return n
