"""Where the text has been before: attention of a fresh serial head, taught that before anything else.

A text repeats itself and its prompt, and whoever drafts it must find where. In a language model heads that do emerge
after billions of tokens [Olsson22]; a drafter that sees millions learns what is likely and never looks back, and its AL
falls behind an n-gram table's where there is much to repeat. So its queries and keys, and what they are made of, first
learn alone: attention of every row is to lie on entries whose token is the one to come. That needs no vocabulary, so a
step costs a small part of one of training. What is learnt so then moves at a small share of the usual rates, which
would wipe it out before the rest of the head has learnt to read it.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, pairwise

import torch
from torch import Tensor, nn
from torch.optim import AdamW

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
    """A sight that measures where attention lies, over whole streams: `bounds` [S + 1] of N rows, `taken_N` the token
    that each takes in, `next_N` the one to come. `loss` is -log of the share that lies on entries whose token is the
    one to come, of all query heads and of all rows that have such an entry, or None where no row has."""

    def __init__(self, bounds: Sequence[int], taken_N: Tensor, next_N: Tensor) -> None:
        self.bounds, self.taken_N, self.next_N = bounds, taken_N, next_N
        self.loss: Tensor | None = None

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """See `Sight.look`. Values are not looked at."""
        if self.loss is None:
            with torch.autocast(q_NhD.device.type, enabled=False):
                self.loss = self._measured(q_NhD, k_NgD, scale)
        return v_NgE.new_zeros(*q_NhD.shape[:2], v_NgE.shape[-1])

    def _measured(self, q_NhD: Tensor, k_NgD: Tensor, scale: float) -> Tensor | None:
        dtype, h = wide(q_NhD.dtype), q_NhD.shape[1]
        lost: list[Tensor] = []
        for start, end in pairwise(self.bounds):
            causal_TT = torch.ones(end - start, end - start, dtype=torch.bool, device=q_NhD.device).tril()
            right_TT = causal_TT & (self.next_N[start:end, None] == self.taken_N[None, start:end])
            has_T = right_TT.any(1)
            q_AhD, k_ThD = q_NhD[start:end][has_T].to(dtype), grouped(k_NgD[start:end], h).to(dtype)
            scores_hAT = torch.einsum("ahd,thd->hat", q_AhD, k_ThD) * scale
            whole_hA = scores_hAT.masked_fill(~causal_TT[has_T], -torch.inf).logsumexp(-1)
            right_hA = scores_hAT.masked_fill(~right_TT[has_T], -torch.inf).logsumexp(-1)
            lost.append((whole_hA - right_hA).clamp(max=MOST).flatten())
        found = torch.cat(lost)
        return found.mean() if len(found) else None


def seeking_loss(head: SerialHead, batch: Batch) -> Tensor | None:
    """Of the first layer of the head's first module."""
    starts, ends = torch.tensor(batch.bounds[:-1]), torch.tensor(batch.bounds[1:])
    # Row t takes in token t + 1, and token t + 2 is to come.
    lengths = (ends - starts - 2).clamp(min=0)
    rows_N = torch.cat([torch.arange(int(s), int(s + n)) for s, n in zip(starts, lengths, strict=True)])
    positions_N = torch.cat([torch.arange(int(n)) for n in lengths])
    rows_N, positions_N = rows_N.to(batch.tokens_T.device), positions_N.to(batch.tokens_T.device)
    taken_N, next_N = batch.tokens_T[rows_N + 1], batch.tokens_T[rows_N + 2]
    sight = Seeking([0, *lengths.cumsum(0).tolist()], taken_N, next_N)
    head.run(0, head.fuse(batch.features)[rows_N], taken_N, positions_N, sight)
    return sight.loss


def teach(
    head: SerialHead, batches: Iterable[Batch], steps: int, report: Callable[[int], None], *, autocast: bool = False
) -> tuple[list[str], list[float]]:
    """A step for each of so many batches: (the parameters that have learnt, by name; the loss of every step)."""
    assert isinstance(head, nn.Module)
    named = {name: p for name, p in head.named_parameters() if p.requires_grad}
    optimizer = AdamW(named.values(), lr=RATE, weight_decay=0.0)
    sizes = [column_sizes(p) for p in named.values()]
    taught: set[str] = set()
    losses: list[float] = []
    for step, batch in enumerate(islice(batches, steps)):
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / WARMUP_STEPS) * (1 - step / steps)
        with torch.autocast(batch.tokens_T.device.type, torch.bfloat16, enabled=autocast):
            loss = seeking_loss(head, batch)
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
