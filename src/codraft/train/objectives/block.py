"""DFlash and DSpark: blocks behind some anchors of each row, drawn anew in every step [DFlash].

Blocks are those of the drafter itself (`drafters/block.py`), of the size that it will be run with. Which anchors are
drawn is a function of (seed, step, row), so that a resumed run draws the same ones.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from codraft.drafters.block import BlockHead, BlockSight, Site
from codraft.drafters.dspark import DSparkHead
from codraft.train.objectives.drafts import Batch, Drafts, Stages
from codraft.train.objectives.serial import anchors_of, written
from codraft.train.readout import Readout

# Slots that one pass of the head fills, whatever rows they are of.
SLOTS_AT_ONCE = 2048


class BlockLesson(nn.Module):
    """At most `anchors_per_row` blocks a row, of the head's own size."""

    def __init__(self, head: BlockHead, readout: Readout, rows_C: Tensor, anchors_per_row: int, seed: int) -> None:
        """`rows_C`: what the head itself calls the columns, ids of its own vocabulary."""
        super().__init__()
        assert isinstance(head, nn.Module)
        self.head, self._readout, self._rows_C = head, [readout], rows_C
        self.num_drafts = head.size - head.first_slot
        self.anchors_per_row, self.seed = anchors_per_row, seed

    def num_anchors(self, batch: Batch) -> int:
        """See `Lesson.num_anchors`."""
        found = anchors_of(batch)
        spans = zip(batch.bounds, batch.bounds[1:], strict=False)
        return sum(min(self.anchors_per_row, int(found[first:last].sum())) for first, last in spans)

    def stages(self, batch: Batch) -> Stages:
        """See `Lesson.stages`: all drafts of all blocks."""
        yield self.drafts(batch)

    def drafts(self, batch: Batch) -> Drafts:
        """Slots of the blocks behind the drawn anchors."""
        head: BlockHead = self.head
        starts = self._starts(batch)
        fused_TH = head.fuse(batch.features)
        device = fused_TH.device
        first_T = torch.tensor(batch.bounds[:-1], device=device).repeat_interleave(
            torch.tensor(batch.bounds, device=device).diff()
        )
        context = head.context(fused_TH, torch.arange(len(fused_TH), device=device) - first_T)
        hidden = []
        for group in grouped(starts, SLOTS_AT_ONCE // head.size):
            sites = []
            for row, places in group:
                span = slice(batch.bounds[row], batch.bounds[row + 1])
                own = [(keys[span], values[span]) for keys, values in context]
                sites.append(Site((places - span.start).tolist(), own.__getitem__))
            anchors_C = torch.cat([batch.tokens_T[places] for _, places in group])
            starts_C = torch.cat([places - batch.bounds[row] for row, places in group])
            sight = BlockSight(sites, head.size, head.causal)
            hidden.append(head.fill(anchors_C, starts_C, head.size, sight)[:, head.first_slot :])
        anchor_A = torch.cat([places for _, places in starts])
        end_A = torch.cat([places.new_full((len(places),), batch.bounds[row + 1]) for row, places in starts])
        at_AK = anchor_A[:, None] + 1 + torch.arange(self.num_drafts, device=device)
        valid_AK = written(batch, end_A, at_AK)
        return Drafts(torch.cat(hidden), at_AK.clamp(max=len(batch.tokens_T) - 1), valid_AK)

    def _starts(self, batch: Batch) -> list[tuple[int, Tensor]]:
        """(number in the batch, places of its anchors, ascending) of every row that has some."""
        found, starts = anchors_of(batch), []
        for index, row in enumerate(batch.rows):
            first, last = batch.bounds[index], batch.bounds[index + 1]
            places = torch.nonzero(found[first:last])[:, 0] + first
            if len(places) > self.anchors_per_row:
                generator = torch.Generator().manual_seed(hash((self.seed, batch.step, row)) % (1 << 63))
                chosen = torch.randperm(len(places), generator=generator)[: self.anchors_per_row]
                places = places[chosen.sort().values.to(places.device)]
            if len(places):
                starts.append((index, places))
        return starts

    def logits(self, hidden_nKH: Tensor, tokens_nK: Tensor) -> tuple[Tensor, Tensor | None]:
        """See `Lesson.logits`; DSpark's bias by the token before, which is the stream's own here."""
        base_nKC = torch.unflatten(self._readout[0](hidden_nKH.flatten(0, 1)), 0, hidden_nKH.shape[:2])
        head = self.head
        if not isinstance(head, DSparkHead):
            return base_nKC, None
        biases, confidences = [], []
        out_Cr = None if head.markov_head is None else head.markov_head.markov_w2.weight[self._rows_C]
        memory_ns = head.begin(hidden_nKH[:, 0])
        for k in range(hidden_nKH.shape[1]):
            hidden_nH, token_n = hidden_nKH[:, k], tokens_nK[:, k]
            if head.markov_head is not None and out_Cr is not None:
                markov = head.markov_head
                latent_nr, memory_ns = markov.latent(markov.markov_w1(token_n), hidden_nH, memory_ns)
                biases.append(functional.linear(latent_nr, out_Cr))
            if head.confidence_head is not None:
                confidences.append(head.confidence(hidden_nH, token_n))
        logits_nKC = base_nKC + torch.stack(biases, 1) if biases else base_nKC
        return logits_nKC, torch.stack(confidences, 1) if confidences else None

    def output_parameters(self) -> list[Tensor]:
        """See `Lesson.output_parameters`."""
        readout, head = self._readout[0], self.head
        found = [readout.weight()] if readout.learns else []
        if isinstance(head, DSparkHead):
            parts = (head.markov_head, head.confidence_head)
            found += [p for part in parts if part is not None for p in part.parameters() if p.requires_grad]
        return found


def grouped(starts: list[tuple[int, Tensor]], blocks: int) -> list[list[tuple[int, Tensor]]]:
    """Rows whose blocks are filled in one pass: at most `blocks`, but one row at least."""
    groups: list[list[tuple[int, Tensor]]] = []
    held = 0
    for row, places in starts:
        if not groups or held + len(places) > blocks:
            groups.append([])
            held = 0
        groups[-1].append((row, places))
        held += len(places)
    return groups
