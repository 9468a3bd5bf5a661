"""Drafting with a serial head, one token a step: EAGLE-3 and MTP.

Live, the head's cache holds keys of true features only. What it wrote while drafting came from its own guesses and is
dropped at once; the next proposal first takes in the features of all that was committed.

With several modules the one at step m can take in a row once the token m + 1 places on is known, so its cache ends m
rows before that of the first; these rows are computed again in every step, from drafts.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.target import Tap
from codraft.drafters.cache import Continued, KeyValueCache
from codraft.drafters.fusing import fused, fused_rows
from codraft.drafters.pick import ROWS_AT_ONCE, Drafts, Picker
from codraft.drafters.rollout import Rollout, SerialHead

# Rows of a prompt that are taken in at once.
PREFILL_ROWS = 512


class Line:
    """One sequence: its tokens, and what each module still has to take in.

    `inputs[m]` are inputs [w, H] of module m for its rows `start[m]`.. : of those that its cache has not yet.
    """

    def __init__(self, request: Request, anchor: int, fused_RH: Tensor, num_modules: int) -> None:
        self.index = request.index
        self.prompt_length = len(request.prompt_ids)
        self.tokens = [*request.prompt_ids, anchor]
        self.inputs = [fused_RH, *[fused_RH[:0]] * (num_modules - 1)]
        self.start = [0] * num_modules
        # Features of what was committed since the last proposal: plain steps may come between.
        self.committed: list[Tensor] = []

    @property
    def anchor_at(self) -> int:
        """Position of the anchor, which is the number of tokens that have features."""
        return len(self.tokens) - 1


class SerialDrafter:
    """A serial head behind the drafter seam."""

    prefix_stable = True

    def __init__(self, head: SerialHead, picker: Picker, taps: tuple[Tap, ...], info: DrafterInfo) -> None:
        self.head, self.picker, self.taps, self.info = head, picker, taps, info
        self._lines: list[Line] = []
        self._caches: list[KeyValueCache] = []

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses, or the distribution that drafts are drawn from."""
        return self.picker.draft_kind

    @torch.inference_mode()
    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """D steps from every anchor at once. An anchor goes on only while all its drafts hit: what comes after a miss
        never matters."""
        anchors, first = len(output_ids) - 1, len(prompt_ids) - 1
        dense = self.draft_kind == "dense"
        hit_AD = torch.zeros((max(anchors, 0), D), dtype=torch.float64 if dense else torch.bool)
        if anchors < 1:
            return Unrolled(np.zeros(0, dtype=np.int64), hit_AD.numpy())
        fused_RH = fused_rows(self.head.fuse, {tap: features[tap][0] for tap in self.taps})
        tokens_T = torch.tensor([*prompt_ids, *output_ids], device=fused_RH.device)
        rollout = Rollout(self.head, fused_RH, tokens_T)
        alive_R = torch.arange(len(rollout.rows_N), device=fused_RH.device) >= first
        for k in range(D):
            if not bool(alive_R.any()):
                break
            readable_NH = rollout.step()
            rows_N = rollout.rows_N
            asked_N = alive_R[rows_N] & (rows_N + 2 + k < len(tokens_T))
            asked = rows_N[asked_N]
            if not len(asked):
                break
            found = self._score(k % self.head.num_modules, readable_NH[asked_N], tokens_T[asked + 2 + k])
            hit_AD[(asked - first).cpu(), k] = found.cpu()
            alive_R = torch.zeros_like(alive_R)
            alive_R[asked] = found > 0
            rollout.retain(alive_R[rows_N])
        return Unrolled(np.full(anchors, D, dtype=np.int64), hit_AD.numpy())

    def _score(self, module: int, readable_NH: Tensor, tokens_N: Tensor) -> Tensor:
        """[N] how the stream's tokens fare, without ever holding all logits."""
        starts = range(0, len(tokens_N), ROWS_AT_ONCE)
        parts = [
            (readable_NH[start : start + ROWS_AT_ONCE], tokens_N[start : start + ROWS_AT_ONCE]) for start in starts
        ]
        return torch.cat([self.picker.score(self.head.logits(module, rows_NH), ids_N) for rows_NH, ids_N in parts])

    @torch.inference_mode()
    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Take in the prompts, all but the last rows, which the first proposal reads out."""
        n = self.head.num_modules
        rows = fused(self.head.fuse, features, self.taps)
        self._lines = [
            Line(request, anchor, rows_RH, n) for request, anchor, rows_RH in zip(requests, anchors, rows, strict=True)
        ]
        self._caches = [KeyValueCache(self.head.layers_per_module, len(requests)) for _ in range(n)]
        for m in range(n):
            while any(counts := [self._early(line, b, m) for b, line in enumerate(self._lines)]):
                self._take_in(m, counts, [line.tokens for line in self._lines])
        self._settle()

    def _early(self, line: Line, b: int, m: int) -> int:
        """Rows of a prompt that module m can take in before anything is drafted, a chunk at most."""
        return max(0, min(PREFILL_ROWS, line.anchor_at - 1 - m - self._caches[m].lengths[b]))

    @torch.inference_mode()
    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """Take in what was committed, then draft; the caches end as they began, with true rows."""
        n, lines = self.head.num_modules, self._lines
        positions = [len(line.tokens) - line.prompt_length for line in lines]
        drafts = Drafts(self.picker, [line.index for line in lines], positions)
        texts = [list(line.tokens) for line in lines]
        for line in lines:
            line.inputs[0] = torch.cat([line.inputs[0], *line.committed])
            line.committed = []
        hidden_BH = readable_BH = torch.empty(0)
        for k in range(D):
            if k < n:
                hidden_BH, readable_BH = self._take_in(k, self._waiting(k), texts)
            else:
                hidden_BH, readable_BH = self._go_on(k, hidden_BH, texts)
            for text, token in zip(texts, drafts.extend(self.head.logits(k % n, readable_BH)), strict=True):
                text.append(token)
        self._settle()
        return drafts.proposal()

    def _waiting(self, m: int) -> list[int]:
        """Rows that module m has inputs for and has not taken in."""
        held = self._caches[m].lengths
        return [line.start[m] + len(line.inputs[m]) - n for line, n in zip(self._lines, held, strict=True)]

    def _take_in(self, m: int, counts: Sequence[int], texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """Module m over the next `counts[b]` rows: ([B, H] fed on, [B, H] read out) of the last row of each.

        What it feeds on is input of the module after it.
        """
        hidden: list[Tensor] = []
        tokens: list[int] = []
        positions: list[int] = []
        for line, count, text, held in zip(self._lines, counts, texts, self._caches[m].lengths, strict=True):
            at = held - line.start[m]
            hidden.append(line.inputs[m][at : at + count])
            tokens += text[held + 1 + m : held + 1 + m + count]
            positions += range(held + m, held + m + count)
        fed_NH, readable_NH = self._run(m, torch.cat(hidden), tokens, positions, counts)
        if m + 1 < self.head.num_modules:
            for line, rows_NH in zip(self._lines, split(fed_NH, counts), strict=True):
                line.inputs[m + 1] = torch.cat([line.inputs[m + 1], rows_NH])
        last_B = torch.tensor(counts).cumsum(0) - 1
        return fed_NH[last_B], readable_NH[last_B]

    def _go_on(self, k: int, hidden_BH: Tensor, texts: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """One row more of each sequence, behind the drafts so far."""
        positions = [line.anchor_at - 1 + k for line in self._lines]
        tokens = [text[-1] for text in texts]
        return self._run(k % self.head.num_modules, hidden_BH, tokens, positions, [1] * len(texts))

    def _run(
        self, m: int, hidden_NH: Tensor, tokens: Sequence[int], positions: Sequence[int], counts: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        cache, device = self._caches[m], hidden_NH.device
        tokens_N, positions_N = torch.tensor(tokens, device=device), torch.tensor(positions, device=device)
        out = self.head.run(m, hidden_NH, tokens_N, positions_N, Continued(cache, counts))
        cache.advance(counts)
        return out

    def _settle(self) -> None:
        """Keep true rows alone: of module m those whose token is committed, and the inputs that were made of such."""
        for m, cache in enumerate(self._caches):
            true = [max(0, line.anchor_at - m) for line in self._lines]
            cache.rollback([min(n, known) for n, known in zip(cache.lengths, true, strict=True)])
            for line, held in zip(self._lines, cache.lengths, strict=True):
                # A row's input is true one row further than its token: it comes from the module before.
                end = line.anchor_at + (m == 0) - m + 1
                line.inputs[m] = line.inputs[m][held - line.start[m] : max(0, end - line.start[m])]
                line.start[m] = held

    @torch.inference_mode()
    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Note what was decided; the next proposal takes in its features."""
        rows = fused(self.head.fuse, features, self.taps)
        for line, tokens, last, rows_RH in zip(self._lines, accepted, bonus, rows, strict=True):
            line.tokens += [*tokens, last]
            line.committed.append(rows_RH)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the rest."""
        self._lines = [self._lines[row] for row in rows]
        for cache in self._caches:
            cache.keep(rows)

    def device_bytes(self, B: int, S: int) -> int:
        """Its weights, borrowed ones not counted, and keys and values of every row."""
        return self.head.device_bytes(B * S)


def split(rows_NH: Tensor, counts: Sequence[int]) -> list[Tensor]:
    """Rows of each sequence."""
    return list(torch.split(rows_NH, list(counts)))
