"""Drafting a block at once: DFlash and DSpark.

A block of slots stands at the anchor's position and after it. Slot 0 holds the anchor, the others a mask; one pass
fills all of them. They look at each other, and at the context through keys and values made of the target's features,
which exist for positions before the anchor only. The context has no hidden states in the drafter: what a step commits
is turned into keys and values and nothing more, so nothing that a block wrote outlives it.

A head drafts in parallel (DFlash), or adds to each slot's logits a bias by the token before it (DSpark): `correct` and
its memory are where the two differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.target import Tap
from codraft.drafters.cache import KeyValueCache
from codraft.drafters.fusing import fused, fused_rows
from codraft.drafters.layers import flex
from codraft.drafters.layers.attention import Sight, attend
from codraft.drafters.pick import ROWS_AT_ONCE, Drafts, Picker
from codraft.drafters.schedule import Cut

# Slots of one stream's blocks that are attended to at once: every block masks all the others' out.
SLOTS_AT_ONCE = 256
# Keys and values of one layer, rows = positions.
KeysValues = tuple[Tensor, Tensor]


class BlockHead(Protocol):
    """A head that fills a block in one pass.

    `size` is the block it was trained with; `first_slot` the slot of its first draft: 1 where a slot predicts its own
    position, 0 where it predicts the next one. `causal`, by layer: slots see only those before them.
    """

    taps: tuple[Tap, ...]
    size: int
    first_slot: int
    causal: tuple[bool, ...]

    def fuse(self, features: Mapping[Tap, Tensor]) -> Tensor:
        """[N, H] from the tapped features, each [N, C]."""
        ...

    def context(self, fused_NH: Tensor, positions_N: Tensor) -> list[KeysValues]:
        """Keys and values of every layer, [N, g, D] each."""
        ...

    def fill(self, anchors_C: Tensor, starts_C: Tensor, num_slots: int, sight: Sight) -> Tensor:
        """[C, num_slots, H] after the last norm: blocks behind these anchors, which stand at `starts_C`."""
        ...

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """[N, V'] over the head's own vocabulary."""
        ...

    def begin(self, hidden_NH: Tensor) -> Tensor:
        """[N, s] memory of N blocks before their first draft."""
        ...

    def correct(
        self, logits_NV: Tensor, hidden_NH: Tensor, previous_N: Tensor, memory_Ns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """([N, V'] logits given the token before the draft, [N, s] memory after it)."""
        ...

    def confidence(self, hidden_NH: Tensor, previous_N: Tensor) -> Tensor:
        """[N] chance that a draft is accepted if all before it are."""
        ...

    def device_bytes(self, rows: int) -> int:
        """Of its own weights, borrowed ones not counted, and of keys and values of `rows` positions."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """Blocks of one stream: where each starts, and the stream's keys and values by layer."""

    starts: Sequence[int]
    context: Callable[[int], KeysValues]


class BlockSight:
    """Each slot sees context before its block, and its own block. Nothing is written anywhere."""

    def __init__(self, sites: Sequence[Site], num_slots: int, causal: Sequence[bool]) -> None:
        self.sites, self.num_slots, self.causal = sites, num_slots, causal
        self.layer = 0
        self._masks: dict[tuple[int, int | None, bool], Tensor] = {}

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`; blocks of a site stand together, in the order of the sites."""
        if flex.fits(q_NhD, sinks_h):
            out_NhE = self._at_once(q_NhD, k_NgD, v_NgE, scale, window)
            self.layer += 1
            return out_NhE
        seen, row = [], 0
        for index, site in enumerate(self.sites):
            rows = slice(row, row + len(site.starts) * self.num_slots)
            row = rows.stop
            keys, values = site.context(self.layer)
            end = max(site.starts)
            first = 0 if window is None else max(0, min(site.starts) + 1 - window)
            mask = self._mask(index, first, end, window, keys.device)
            keys, values = torch.cat((keys[first:end], k_NgD[rows])), torch.cat((values[first:end], v_NgE[rows]))
            seen.append(attend(q_NhD[rows], keys, values, mask, scale=scale, sinks_h=sinks_h))
        self.layer += 1
        return torch.cat(seen)

    def _at_once(self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, scale: float, window: int | None) -> Tensor:
        """All sites in one pass of flex attention."""
        device, n = q_NhD.device, self.num_slots
        contexts = [site.context(self.layer) for site in self.sites]
        ends = [max(site.starts) for site in self.sites]
        keys = torch.cat([*(k[:end] for (k, _), end in zip(contexts, ends, strict=True)), k_NgD])
        values = torch.cat([*(v[:end] for (_, v), end in zip(contexts, ends, strict=True)), v_NgE])
        starts_C = torch.tensor([start for site in self.sites for start in site.starts], device=device)
        site_C = torch.tensor([i for i, site in enumerate(self.sites) for _ in site.starts], device=device)
        seen = flex.then_block(
            site_C.repeat_interleave(n),
            starts_C.repeat_interleave(n),
            (starts_C[:, None] + torch.arange(n, device=device)).flatten(),
            torch.arange(len(starts_C), device=device).repeat_interleave(n),
            torch.tensor([i for i, end in enumerate(ends) for _ in range(end)], device=device),
            torch.cat([torch.arange(end, device=device) for end in ends]),
            window,
            causal=self.causal[self.layer],
        )
        return flex.attend_where(q_NhD, keys, values, seen, scale=scale)

    def _mask(self, index: int, first: int, end: int, window: int | None, device: torch.device) -> Tensor | None:
        """None where all is seen; layers of one kind share theirs."""
        starts, causal = self.sites[index].starts, self.causal[self.layer]
        if len(starts) == 1 and not causal and (window is None or end + self.num_slots <= window):
            return None
        key = (index, window, causal)
        if key not in self._masks:
            self._masks[key] = visible(
                torch.tensor(starts, device=device), self.num_slots, first, end, window, causal=causal
            )
        return self._masks[key]


def visible(starts_C: Tensor, num_slots: int, first: int, end: int, window: int | None, *, causal: bool) -> Tensor:
    """[C * n, (end - first) + C * n]: which of the context positions first..end - 1, then of all slots, a slot sees.

    Of the context those before its block; of the slots those of its own block, up to itself where `causal`. A window
    counts back from the slot's own position, itself included.
    """
    slots_n = torch.arange(num_slots, device=starts_C.device)
    at_R = (starts_C[:, None] + slots_n).flatten()
    start_R = starts_C.repeat_interleave(num_slots)
    block_R = torch.arange(len(starts_C), device=starts_C.device).repeat_interleave(num_slots)
    context_M = torch.arange(first, end, device=starts_C.device)
    before_RM = context_M < start_R[:, None]
    own_RR = block_R == block_R[:, None]
    if window is not None:
        before_RM &= at_R[:, None] - context_M < window
        own_RR &= at_R[:, None] - at_R < window
    if causal:
        own_RR &= at_R <= at_R[:, None]
    return torch.cat((before_RM, own_RR), dim=1)


def stream_blocks(
    head: BlockHead, context: Sequence[KeysValues], tokens_T: Tensor, starts_C: Tensor, num_slots: int
) -> Tensor:
    """[C, num_slots, H]: blocks behind the tokens at `starts_C` of one stream whose context is `context`.

    Teacher-forced, for replay; training packs several streams (`train/objectives/block.py`).
    """
    at_once = max(1, SLOTS_AT_ONCE // num_slots)
    filled = []
    for part_C in torch.split(starts_C, at_once):
        sight = BlockSight([Site(part_C.tolist(), context.__getitem__)], num_slots, head.causal)
        filled.append(head.fill(tokens_T[part_C], part_C, num_slots, sight))
    return torch.cat(filled)


class BlockDrafter:
    """A block head behind the drafter seam.

    `block` says what varies with D: `resize` gives the block as many slots as D drafts take, `truncate` keeps the size
    of the training and takes the first D drafts. `cut` shortens drafts by their confidences.
    """

    def __init__(
        self,
        head: BlockHead,
        picker: Picker,
        info: DrafterInfo,
        *,
        block: Literal["resize", "truncate"] = "resize",
        cut: Cut | None = None,
    ) -> None:
        self.head, self.picker, self.info, self.block, self.cut = head, picker, info, block, cut
        # A head may read a layer twice.
        self.taps = tuple(dict.fromkeys(head.taps))
        self._requests: list[Request] = []
        self._cache = KeyValueCache(0, 0)

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses, or the distribution that drafts are drawn from."""
        return self.picker.draft_kind

    @property
    def prefix_stable(self) -> bool:
        """A block of another size is another draft, unless no slot sees those behind it."""
        return self.block == "truncate" or all(self.head.causal)

    def _shape(self, D: int) -> tuple[int, int]:
        """(slots, drafts) of a block at D."""
        head = self.head
        if self.block == "truncate":
            return head.size, min(D, head.size - head.first_slot)
        return D + head.first_slot, D

    @torch.inference_mode()
    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """One pass over a block behind every anchor; the context is turned into keys and values once."""
        anchors = max(len(output_ids) - 1, 0)
        num_slots, k = self._shape(D)
        dense = self.draft_kind == "dense"
        hit_AD: NDArray[np.float64] | NDArray[np.bool_] = np.zeros(
            (anchors, D), dtype=np.float64 if dense else np.bool_
        )
        drafted_A = np.full(anchors, k, dtype=np.int64)
        if anchors == 0 or k == 0:
            return Unrolled(drafted_A, hit_AD)
        fused_TH = fused_rows(self.head.fuse, {tap: features[tap][0] for tap in self.taps})
        device = fused_TH.device
        context = self.head.context(fused_TH, torch.arange(len(fused_TH), device=device))
        tokens_T = torch.tensor([*prompt_ids, *output_ids], device=device)
        for first in range(0, anchors, ROWS_AT_ONCE):
            rows = slice(first, min(first + ROWS_AT_ONCE, anchors))
            starts_C = torch.arange(rows.start, rows.stop, device=device) + len(prompt_ids)
            hidden_CnH = stream_blocks(self.head, context, tokens_T, starts_C, num_slots)
            hit_Ck, confidence_Ck = self._compare(self._drafting(hidden_CnH, k), tokens_T, starts_C)
            hit_AD[rows, :k] = hit_Ck.cpu().numpy()
            if self.cut is not None:
                # Replay takes one sequence a step.
                drafted_A[rows] = [self.cut.lengths([row])[0] for row in confidence_Ck.tolist()]
        return Unrolled(drafted_A, hit_AD)

    def _drafting(self, hidden_CnH: Tensor, k: int) -> Tensor:
        """[C, k, H] of the slots that draft."""
        return hidden_CnH[:, self.head.first_slot : self.head.first_slot + k]

    def _compare(self, hidden_CkH: Tensor, tokens_T: Tensor, starts_C: Tensor) -> tuple[Tensor, Tensor]:
        """How the stream's tokens fare from each anchor [C, k], and confidences [C, k] where something is cut by them.

        Without a cut an anchor is followed while its drafts hit. With one, the length of a draft depends on drafts that
        miss too, so greedy ones follow their own chain to the end. Those of a drawn draft that misses are not known:
        the stream's tokens stand in for them, which is exact wherever it decides about acceptance.
        """
        head, greedy = self.head, self.draft_kind == "one_hot"
        own = greedy and self.cut is not None
        C, k, _ = hidden_CkH.shape
        hit_Ck = hidden_CkH.new_zeros((C, k), dtype=torch.bool if greedy else torch.float64)
        confidence_Ck = hidden_CkH.new_ones((C, k), dtype=torch.float64)
        alive_N, previous_N = torch.arange(C, device=starts_C.device), tokens_T[starts_C]
        true_N = torch.ones_like(alive_N, dtype=torch.bool)
        memory_Ns = head.begin(hidden_CkH[:, 0])
        for i in range(k):
            hidden_NH = hidden_CkH[alive_N, i]
            if self.cut is not None:
                confidence_Ck[alive_N, i] = head.confidence(hidden_NH, previous_N).double()
            logits_NV, memory_Ns = head.correct(head.logits(hidden_NH), hidden_NH, previous_N, memory_Ns)
            at_N = starts_C[alive_N] + 1 + i
            known_N = at_N < len(tokens_T)
            wanted_N = tokens_T[at_N.clamp(max=len(tokens_T) - 1)]
            picked_N = self.picker.best(logits_NV) if own else wanted_N
            found_N = picked_N == wanted_N if own else self.picker.score(logits_NV, wanted_N)
            hit_Ck[alive_N, i] = found_N.masked_fill(~(known_N & true_N), 0)
            true_N = hit_Ck[alive_N, i] > 0
            kept_N = true_N if self.cut is None else known_N | own
            alive_N, previous_N, true_N = alive_N[kept_N], picked_N[kept_N], true_N[kept_N]
            memory_Ns = memory_Ns[kept_N]
            if not len(alive_N):
                break
        return hit_Ck, confidence_Ck

    @torch.inference_mode()
    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Turn the prompts' features into keys and values."""
        self._requests = list(requests)
        self._cache = KeyValueCache(len(self.head.causal), len(requests))
        self._take_in(features)

    @torch.inference_mode()
    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """One pass over the blocks of all sequences, as many at once as their logits leave room for."""
        num_slots, k = self._shape(D)
        if k < 1:
            return Proposal.point_masses([[] for _ in anchors])
        chains: list[Drafts] = []
        confidence: list[list[float]] = []
        for rows in spans(len(anchors), max(1, ROWS_AT_ONCE // num_slots)):
            hidden_CkH = self._drafting(self._fill(anchors, rows, num_slots), k)
            # The anchor is the output token before the first drafted one.
            at = [self._cache.lengths[row] + 1 - len(self._requests[row].prompt_ids) for row in rows]
            chains.append(Drafts(self.picker, [self._requests[row].index for row in rows], at))
            confidence += self._draft(chains[-1], hidden_CkH, [anchors[row] for row in rows])
        lengths = [k] * len(anchors) if self.cut is None else self.cut.lengths(confidence)
        return joined(chains, lengths)

    def _fill(self, anchors: Sequence[int], rows: Sequence[int], num_slots: int) -> Tensor:
        """[C, num_slots, H] of some sequences' blocks."""
        cache = self._cache
        sites = [Site([cache.lengths[row]], partial(cache.held, sequence=row)) for row in rows]
        device = cache.held(0, rows[0])[0].device
        anchors_C = torch.tensor([anchors[row] for row in rows], device=device)
        starts_C = torch.tensor([cache.lengths[row] for row in rows], device=device)
        return self.head.fill(anchors_C, starts_C, num_slots, BlockSight(sites, num_slots, self.head.causal))

    def _draft(self, drafts: Drafts, hidden_CkH: Tensor, anchors: Sequence[int]) -> list[list[float]]:
        """Extend the chains over all slots; confidences of each sequence, where something is cut by them."""
        head, k = self.head, hidden_CkH.shape[1]
        base_CkV = torch.unflatten(head.logits(hidden_CkH.flatten(0, 1)), 0, hidden_CkH.shape[:2])
        previous_C = torch.tensor(anchors, device=hidden_CkH.device)
        memory_Cs = head.begin(hidden_CkH[:, 0])
        confidence: list[list[float]] = [[] for _ in anchors]
        for i in range(k):
            hidden_CH = hidden_CkH[:, i]
            if self.cut is not None:
                for row, value in zip(confidence, head.confidence(hidden_CH, previous_C).tolist(), strict=True):
                    row.append(value)
            logits_CV, memory_Cs = head.correct(base_CkV[:, i], hidden_CH, previous_C, memory_Cs)
            previous_C = torch.tensor(drafts.extend(logits_CV), device=hidden_CkH.device)
        return confidence

    @torch.inference_mode()
    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Anchor and accepted tokens enter the context, by their features."""
        self._take_in(features)

    def _take_in(self, features: Features) -> None:
        """Append the context of each sequence, projected in one go."""
        counts = [len(rows) for rows in features[self.taps[0]]]
        fused_NH = torch.cat(fused(self.head.fuse, features, self.taps))
        positions = [held + i for held, count in zip(self._cache.lengths, counts, strict=True) for i in range(count)]
        layers = self.head.context(fused_NH, torch.tensor(positions, device=fused_NH.device))
        for layer, (keys, values) in enumerate(layers):
            parts = zip(torch.split(keys, counts), torch.split(values, counts), strict=True)
            for sequence, (k_MgD, v_MgE) in enumerate(parts):
                self._cache.write(layer, sequence, k_MgD, v_MgE)
        self._cache.advance(counts)

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the rest."""
        self._requests = [self._requests[row] for row in rows]
        self._cache.keep(rows)

    def device_bytes(self, B: int, S: int) -> int:
        """Its weights, borrowed ones not counted, and keys and values of the context."""
        return self.head.device_bytes(B * S)


def spans(count: int, size: int) -> Iterator[range]:
    """0..count - 1 in ranges of at most `size`."""
    return (range(start, min(start + size, count)) for start in range(0, count, size))


def joined(chains: Sequence[Drafts], lengths: Sequence[int]) -> Proposal:
    """The proposals of groups of sequences as one, each chain cut to its length."""
    tokens: list[list[int]] = []
    p_draft: list[Tensor | None] = []
    for drafts in chains:
        part = drafts.proposal(lengths[len(tokens) : len(tokens) + len(drafts.tokens)])
        tokens += part.tokens
        p_draft += part.p_draft
    return Proposal(tokens, p_draft)
