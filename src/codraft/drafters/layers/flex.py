"""Who sees what as one pass of flex attention: for GPUs, where a loop over streams would be launches and no work.

The same views as rollout.py and block.py compute stream by stream, equal to rounding (a test holds that). It has no
backward on a CPU, and sinks are none of its parts.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

# (query, key) -> seen, of index tensors.
Seen = Callable[[Tensor, Tensor], Tensor]


def fits(q_QhD: Tensor, sinks_h: Tensor | None) -> bool:
    """Whether these are for flex attention."""
    return q_QhD.is_cuda and sinks_h is None


@cache
def kernel(device: str) -> Callable[..., Tensor]:
    """Fused where it can be."""
    plain: Callable[..., Tensor] = flex_attention
    return torch.compile(plain, dynamic=True) if device == "cuda" else plain


def attend_where(q_QhD: Tensor, k_MgD: Tensor, v_MgE: Tensor, seen: Seen, *, scale: float) -> Tensor:
    """[Q, h, E]: softmax attention where `seen(query, key)`."""
    Q, M = len(q_QhD), len(k_MgD)

    def mask(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return seen(query, key)

    blocks = create_block_mask(mask, None, None, Q, M, device=q_QhD.device)
    out_1hQE = kernel(q_QhD.device.type)(
        q_QhD.transpose(0, 1)[None],
        k_MgD.transpose(0, 1)[None],
        v_MgE.transpose(0, 1)[None],
        block_mask=blocks,
        scale=scale,
        enable_gqa=True,
    )
    return out_1hQE[0].transpose(0, 1)


def within(stream_Q: Tensor, at_Q: Tensor, stream_M: Tensor, at_M: Tensor, window: int | None) -> Seen:
    """Keys of the same stream, not after the query, and no more than `window` of them back."""

    def seen(query: Tensor, key: Tensor) -> Tensor:
        distance = at_Q[query] - at_M[key]
        found = (stream_Q[query] == stream_M[key]) & (distance >= 0)
        return found if window is None else found & (distance < window)

    return seen


def then_own(shared: Seen, M: int, Q: int, device: torch.device) -> Seen:
    """As `shared` for the first M keys; behind them lie own keys, Q of every step, each seen by its row alone."""

    context, rows = size_on(M, device), size_on(Q, device)

    def seen(query: Tensor, key: Tensor) -> Tensor:
        near = torch.minimum(key, context - 1)
        return torch.where(key < context, shared(query, near), (key - context) % rows == query)

    return seen


def size_on(size: int, device: torch.device) -> Tensor:
    """A size as a tensor: it is another one in every batch, and a number would be compiled in each time."""
    return torch.tensor(size, device=device)


def then_block(
    stream_Q: Tensor,
    start_Q: Tensor,
    at_Q: Tensor,
    block_Q: Tensor,
    stream_M: Tensor,
    at_M: Tensor,
    window: int | None,
    *,
    causal: bool,
) -> Seen:
    """Of the context what lies before the query's block, and of the slots, which follow the context, its own block."""
    size = size_on(len(at_M), at_M.device)

    def seen(query: Tensor, key: Tensor) -> Tensor:
        context, slot = torch.minimum(key, size - 1), (key - size).clamp(min=0)
        before = (stream_Q[query] == stream_M[context]) & (at_M[context] < start_Q[query])
        own = block_Q[query] == block_Q[slot]
        if window is not None:
            before = before & (at_Q[query] - at_M[context] < window)
            own = own & (at_Q[query] - at_Q[slot] < window)
        if causal:
            own = own & (at_Q[slot] <= at_Q[query])
        return torch.where(key < size, before, own)

    return seen
