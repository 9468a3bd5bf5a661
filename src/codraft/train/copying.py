"""Where the text has been before: attention of a fresh head, taught that before anything else.

A text repeats itself and its prompt, and whoever drafts it must find where. In a language model heads that do emerge
after billions of tokens [Olsson22]; a drafter that sees millions learns what is likely and never looks back, and its AL
falls behind an n-gram table's where there is much to repeat. So its queries and keys, and what they are made of, first
learn alone: attention of every row is to lie on entries that tell of the token to come. That needs no vocabulary, so a
step costs a small part of one of training. What is learnt so then moves at a small share of the usual rates, which
would wipe it out before the rest of the head has learnt to read it.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from codraft.drafters.block import BlockHead
from codraft.drafters.layers.attention import grouped, wide
from codraft.drafters.rollout import SerialHead
from codraft.train.objectives.drafts import Batch

# Rates are shares of the size that a column of a matrix begins with: features differ in size by hundreds.
RATE = 0.1
WARMUP_STEPS = 20
# A row that finds nothing says no more than that.
MOST = 8.0
TINY = 1e-8


class Seeking:
    """A sight that measures where attention lies, over whole streams: `bounds` [S + 1] of N rows, `told_N` the token
    that each tells of, `next_N` the one to come. `loss` is -log of the share that lies on entries that tell of the
    token to come, of all query heads and of all rows that have such an entry, or None where no row has.

    Entries are the rows themselves, up to the one that looks, or `keys_NgD` of the rows before it."""

    def __init__(self, bounds: Sequence[int], told_N: Tensor, next_N: Tensor, keys_NgD: Tensor | None = None) -> None:
        self.bounds, self.told_N, self.next_N, self.keys_NgD = bounds, told_N, next_N, keys_NgD
        self.loss: Tensor | None = None

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`. Values are not looked at."""
        if self.loss is None:
            with torch.autocast(q_NhD.device.type, enabled=False):
                self.loss = self._measured(q_NhD, k_NgD if self.keys_NgD is None else self.keys_NgD, scale)
        return v_NgE.new_zeros(*q_NhD.shape[:2], v_NgE.shape[-1])

    def _measured(self, q_NhD: Tensor, k_NgD: Tensor, scale: float) -> Tensor | None:
        dtype, h = wide(q_NhD.dtype), q_NhD.shape[1]
        last = 0 if self.keys_NgD is None else -1
        lost: list[Tensor] = []
        for start, end in pairwise(self.bounds):
            causal_TT = torch.ones(end - start, end - start, dtype=torch.bool, device=q_NhD.device).tril(last)
            right_TT = causal_TT & (self.next_N[start:end, None] == self.told_N[None, start:end])
            has_T = right_TT.any(1)
            q_AhD, k_ThD = q_NhD[start:end][has_T].to(dtype), grouped(k_NgD[start:end], h).to(dtype)
            scores_hAT = torch.einsum("ahd,thd->hat", q_AhD, k_ThD) * scale
            whole_hA = scores_hAT.masked_fill(~causal_TT[has_T], -torch.inf).logsumexp(-1)
            right_hA = scores_hAT.masked_fill(~right_TT[has_T], -torch.inf).logsumexp(-1)
            lost.append((whole_hA - right_hA).clamp(max=MOST).flatten())
        found = torch.cat(lost)
        return found.mean() if len(found) else None


def serial_seeking(head: SerialHead, batch: Batch) -> Tensor | None:
    """The loss of the first layer of a serial head's first module: rows take in the next token, and tell of it."""
    rows_N, positions_N, bounds = places(batch, 2)
    told_N = batch.tokens_T[rows_N + 1]
    sight = Seeking(bounds, told_N, batch.tokens_T[rows_N + 2])
    head.run(0, head.fuse(batch.features)[rows_N], told_N, positions_N, sight)
    return sight.loss


def block_seeking(head: BlockHead, batch: Batch) -> Tensor | None:
    """The loss of slot 0 of a block, the anchor's own, in the first layer. No entry of the context holds the token that
    follows, but the target's features say what it expected there, so an entry tells of the token that came."""
    rows_N, positions_N, bounds = places(batch, 1)
    told_N = batch.tokens_T[rows_N + 1]
    keys_NgD, _ = head.context(head.fuse(batch.features)[rows_N], positions_N)[0]
    sight = Seeking(bounds, told_N, told_N, keys_NgD)
    head.fill(batch.tokens_T[rows_N], positions_N, 1, sight)
    return sight.loss


def places(batch: Batch, cut: int) -> tuple[Tensor, Tensor, list[int]]:
    """(places in the batch, positions in their streams, bounds) of all rows but the last `cut` of every stream."""
    starts, ends = torch.tensor(batch.bounds[:-1]), torch.tensor(batch.bounds[1:])
    lengths = (ends - starts - cut).clamp(min=0)
    rows_N = torch.cat([torch.arange(int(s), int(s + n)) for s, n in zip(starts, lengths, strict=True)])
    positions_N = torch.cat([torch.arange(int(n)) for n in lengths])
    device = batch.tokens_T.device
    return rows_N.to(device), positions_N.to(device), [0, *lengths.cumsum(0).tolist()]


def teach(
    head: nn.Module,
    seeking: Callable[[Any, Batch], Tensor | None],
    batches: Iterable[Batch],
    steps: int,
    report: Callable[[int], None],
    *,
    autocast: bool = False,
) -> tuple[list[str], list[float]]:
    """A step for each of so many batches: (the parameters that have learnt, by name; the loss of every step). `seeking`
    is the loss of a head of this kind on a batch."""
    named = {name: p for name, p in head.named_parameters() if p.requires_grad}
    optimizer = AdamW(named.values(), lr=RATE, weight_decay=0.0)
    sizes = [column_sizes(p) for p in named.values()]
    taught: set[str] = set()
    losses: list[float] = []
    for step, batch in enumerate(islice(batches, steps)):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (1 - step / steps)
        with torch.autocast(batch.tokens_T.device.type, torch.bfloat16, enabled=autocast):
            loss = seeking(head, batch)
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]
            taught |= {name for name, p in named.items() if p.grad is not None}
            before = [p.detach().clone() for p in named.values()]
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            with torch.no_grad():
                for p, old, size in zip(named.values(), before, sizes, strict=True):
                    # AdamW's step as a share of what each column is.
                    p.copy_(torch.lerp(old, p, size))
            losses.append(float(loss.detach()))
        report(step + 1)
    return sorted(taught), losses


def column_sizes(weight: Tensor) -> Tensor:
    """Root mean square of each column of a matrix, absolute values of a vector, as they stand; none is 0."""
    found = weight.detach().square().mean(0, keepdim=True).sqrt() if weight.dim() > 1 else weight.detach().abs()
    return found.clamp(min=TINY)
