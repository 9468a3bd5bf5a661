"""From logits to distributions and tokens."""

import torch
from torch import Tensor

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling
from codraft.decode.noise import Purpose, exponentials

NUCLEUS_GUESS = 1024


def probabilities(logits_NV: Tensor, sampling: Sampling) -> Tensor:
    """[N, V] float64 distribution after temperature, then top-k, then top-p. Needs temperature > 0.

    SpecError for logits that are no numbers: no law holds for tokens that are drawn from NaN.
    """
    scaled_NV = logits_NV.double() / sampling.temperature
    if 0 < sampling.top_k < scaled_NV.shape[-1]:
        kept_NK = scaled_NV.topk(sampling.top_k, dim=-1).values
        scaled_NV = scaled_NV.masked_fill(scaled_NV < kept_NK[:, -1:], -torch.inf)
    p_NV = scaled_NV.softmax(-1)
    if bool(p_NV.isnan().any()):
        raise SpecError(
            "a model gave logits that are NaN or all infinite, and nothing can be drawn from them; try --dtype "
            "float32, and look at the weights with codraft inspect"
        )
    if sampling.top_p < 1:
        p_NV = nucleus(p_NV, sampling.top_p)
    return p_NV


def nucleus(p_NV: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most likely tokens whose mass reaches top_p, renormalised [Holtzman19]."""
    V = p_NV.shape[-1]
    # A nucleus is small as a rule: look among the likeliest first, sort the whole vocabulary only if they fall short.
    for size in (min(NUCLEUS_GUESS, V), V):
        likely_NK, ids_NK = p_NV.topk(size, dim=-1)
        before_NK = likely_NK.cumsum(-1) - likely_NK
        if size == V or bool((before_NK[:, -1] >= top_p).all()):
            break
    kept_NK = likely_NK.masked_fill(before_NK >= top_p, 0.0)
    p_NV = torch.zeros_like(p_NV).scatter_(-1, ids_NK, kept_NK)
    return p_NV / p_NV.sum(-1, keepdim=True)


def draw(p_V: Tensor, seed: int, stream: int, position: int, purpose: Purpose) -> int:
    """The token that this key's noise picks from p."""
    noise_V = torch.from_numpy(exponentials(seed, stream, position, purpose, p_V.shape[-1]))
    return int((p_V / noise_V.to(p_V.device)).argmax())


def choose(logits_V: Tensor, sampling: Sampling, stream: int, position: int) -> int:
    """The target's own token at an output position: its argmax, or the draw of that position's noise."""
    if sampling.greedy:
        return int(logits_V.argmax())
    return draw(probabilities(logits_V[None], sampling)[0], sampling.seed, stream, position, Purpose.TARGET)
