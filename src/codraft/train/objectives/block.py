"""DFlash and DSpark: blocks behind some anchors of each row, drawn anew in every step [DFlash].

Blocks are those of the drafter itself (`drafters/block.py`), of the size that it will be run with. Which anchors are
drawn is a function of (seed, step, row), so that a resumed run draws the same ones.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from codraft.drafters.block import BlockHead, BlockSight, Site
from codraft.drafters.dspark import DSparkHead
from codraft.train.objectives.drafts import Batch, Drafts, Stages
from codraft.train.objectives.serial import anchors_of, written
from codraft.train.readout import Columns, Readout

# Slots that one pass of the head fills, whatever rows they are of.
SLOTS_AT_ONCE = 2048
# The fewest drafts of a block whose size is drawn: with one alone there is nothing to see but the context.
LEAST_DRAWN = 1
TABLES = ("markov_w1", "markov_w2")


class BlockLesson(nn.Module):
    """At most `anchors_per_row` blocks a row, of the head's own size."""

    def __init__(
        self, head: BlockHead, readout: Readout, anchors_per_row: int, seed: int, *, reduced: bool, drawn_sizes: bool
    ) -> None:
        """`reduced`: columns are all of the head's own vocabulary. `drawn_sizes`: every step draws the size of its
        blocks, since a block that is cut to what D takes is another block to slots that see each other."""
        super().__init__()
        assert isinstance(head, nn.Module)
        self.head, self._readout, self._reduced, self._drawn = head, readout, reduced, drawn_sizes
        self.num_drafts = head.size - head.first_slot
        self.anchors_per_row, self.seed = anchors_per_row, seed
        self._spoken = torch.zeros(0, dtype=torch.int64)

    def num_slots(self, step: int) -> int:
        """Slots of the blocks of a step: at least two drafts, where the size is drawn."""
        head = self.head
        if not self._drawn:
            return head.size
        least = min(head.first_slot + LEAST_DRAWN, head.size)
        chance = torch.Generator().manual_seed(hash((self.seed, step)) % (1 << 63))
        return int(torch.randint(least, head.size + 1, (), generator=chance))

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
        num_slots = self.num_slots(batch.step)
        starts = self._starts(batch)
        fused_TH = head.fuse(batch.features)
        device = fused_TH.device
        first_T = torch.tensor(batch.bounds[:-1], device=device).repeat_interleave(
            torch.tensor(batch.bounds, device=device).diff()
        )
        context = head.context(fused_TH, torch.arange(len(fused_TH), device=device) - first_T)
        hidden = []
        for group in grouped(starts, SLOTS_AT_ONCE // num_slots):
            sites = []
            for row, places in group:
                span = slice(batch.bounds[row], batch.bounds[row + 1])
                own = [(keys[span], values[span]) for keys, values in context]
                sites.append(Site((places - span.start).tolist(), own.__getitem__))
            anchors_C = torch.cat([batch.tokens_T[places] for _, places in group])
            starts_C = torch.cat([places - batch.bounds[row] for row, places in group])
            sight = BlockSight(sites, num_slots, head.causal)
            hidden.append(head.fill(anchors_C, starts_C, num_slots, sight)[:, head.first_slot :])
        anchor_A = torch.cat([places for _, places in starts])
        end_A = torch.cat([places.new_full((len(places),), batch.bounds[row + 1]) for row, places in starts])
        at_AK = anchor_A[:, None] + 1 + torch.arange(num_slots - head.first_slot, device=device)
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

    def leaves(self, batch: Batch, columns: Columns) -> list[Tensor]:
        """See `Lesson.leaves`: output rows of its own; of DSpark's tables the rows of this batch, and small parts."""
        head, found = self.head, self._readout.leaves()
        if not isinstance(head, DSparkHead):
            return found
        if head.markov_head is not None:
            markov = head.markov_head
            tokens_U = self._spoken = torch.unique(batch.tokens_T)
            rows_C = torch.arange(len(columns.ids_C), device=tokens_U.device) if self._reduced else columns.ids_C
            found += [markov.markov_w1.weight[tokens_U], markov.markov_w2.weight[rows_C]]
            found += [p for name, p in markov.named_parameters() if not name.startswith(TABLES) and p.requires_grad]
        if head.confidence_head is not None:
            found += list(head.confidence_head.parameters())
        return found

    def logits(
        self, hidden_nKH: Tensor, tokens_nK: Tensor, columns: Columns, leaves: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """See `Lesson.logits`; DSpark's bias by the token before, which is the stream's own here."""
        n, K, _ = hidden_nKH.shape
        own = len(self._readout.leaves())
        base_nKC = torch.unflatten(self._readout(hidden_nKH.flatten(0, 1), columns, leaves[:own]), 0, (n, K))
        head = self.head
        if not isinstance(head, DSparkHead):
            return base_nKC, None
        embedding_nKr = None
        if head.markov_head is not None:
            rows_Ur, out_Cr = leaves[own : own + 2]
            embedding_nKr = functional.embedding(torch.searchsorted(self._spoken, tokens_nK), rows_Ur)
            memory_ns, latents = head.markov_head.begin(hidden_nKH[:, 0]), []
            for k in range(K):
                latent_nr, memory_ns = head.markov_head.latent(embedding_nKr[:, k], hidden_nKH[:, k], memory_ns)
                latents.append(latent_nr)
            base_nKC = base_nKC + functional.linear(torch.stack(latents, 1), out_Cr)
        if head.confidence_head is None:
            return base_nKC, None
        embedding = None if embedding_nKr is None else embedding_nKr.flatten(0, 1)
        return base_nKC, torch.unflatten(head.judged(hidden_nKH.flatten(0, 1), embedding), 0, (n, K))


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
