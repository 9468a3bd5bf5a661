"""Losses of a drafter's distribution against the target's, row by row, and how they are mixed.

Every loss takes the drafter's logits [N, C] over some columns of the vocabulary, the target's logits [N, C] over the
same columns (None where no loss of a mix reads them) and the column [N] of the token that the target wrote; it gives
[N], in float32 at least. Both distributions are those over the columns, as reduced vocabularies have them [EAGLE-3].
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from codraft.core.errors import SpecError

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
# Weight of the divergence in `lk`: SCALE exp(-DECAY alpha), which fades as the two agree [LKLosses].
LK_SCALE, LK_DECAY = 1.0, 3.0
# A logarithm of less is none.
TINY = 1e-9


def cross_entropy(own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """-log p_draft of the token that the target wrote."""
    return functional.cross_entropy(own_NC, column_N, reduction="none")


def forward_kl(own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """KL(p_target || p_draft): cross-entropy against the target's distribution, less its entropy [EAGLE-3]."""
    found_N: Tensor = ForwardKL.apply(own_NC, target_NC)  # type: ignore[no-untyped-call]
    return found_N


class ForwardKL(torch.autograd.Function):
    """The gradient is known, p_draft - p_target: half of the passes over the logits that autograd would take."""

    @staticmethod
    def forward(ctx: Any, own_NC: Tensor, target_NC: Tensor) -> Tensor:
        """sum p (t - o) - log Z_t + log Z_o of logits t and o, and p = exp(t) / Z_t."""
        own_p_NC, target_p_NC = own_NC.softmax(-1), target_NC.softmax(-1)
        apart_N: Tensor = torch.linalg.vecdot(target_p_NC, target_NC) - torch.linalg.vecdot(target_p_NC, own_NC)
        found_N = apart_N - log_normaliser(target_NC, target_p_NC) + log_normaliser(own_NC, own_p_NC)
        ctx.grad_NC = own_p_NC.sub_(target_p_NC)
        return found_N

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor, None]:
        """Of the drafter alone: the target is given. Taken once, in place."""
        grad_NC, ctx.grad_NC = ctx.grad_NC, None
        return grad_NC.mul_(outputs[0][:, None]), None


def log_normaliser(logits_NC: Tensor, p_NC: Tensor) -> Tensor:
    """[N] log Z, from the likeliest, whose probability is never small."""
    found_N: Tensor = logits_NC.amax(-1) - p_NC.amax(-1).log()
    return found_N


def reverse_kl(own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """KL(p_draft || p_target): the drafter concentrates on what the target would write [Gu24]."""
    log_own_NC, log_target_NC = own_NC.log_softmax(-1), target_NC.log_softmax(-1)
    return (log_own_NC.exp() * (log_own_NC - log_target_NC)).sum(-1)


def total_variation(own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """Half the L1 distance, which is the chance that a drawn draft is rejected [Leviathan23]; DSpark's L1 is twice
    this."""
    return (own_NC.softmax(-1) - target_NC.softmax(-1)).abs().sum(-1) / 2


def lk_alpha(own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """-log of the acceptance alpha = sum of min(p_target, p_draft) [LKLosses]."""
    return -torch.log(1 - total_variation(own_NC, target_NC, column_N) + TINY)


def lk(own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """w KL + (1 - w)(1 - alpha), w fading from LK_SCALE as alpha grows [LKLosses]."""
    rejected_N = total_variation(own_NC, target_NC, column_N)
    weight_N = LK_SCALE * torch.exp(-LK_DECAY * (1 - rejected_N.detach()))
    return weight_N * forward_kl(own_NC, target_NC, column_N) + (1 - weight_N) * rejected_N


LOSSES: Mapping[str, Loss] = {
    "ce": cross_entropy,
    "kl": forward_kl,
    "reverse_kl": reverse_kl,
    "tv": total_variation,
    "lk_alpha": lk_alpha,
    "lk": lk,
}


@dataclass(frozen=True, slots=True)
class Mix:
    """A weighted sum of losses, by name."""

    weights: Mapping[str, float]

    @property
    def reads_target(self) -> bool:
        """Whether the target's distribution is needed, beside the token that it wrote."""
        return set(self.weights) != {"ce"}

    def __call__(self, own_NC: Tensor, target_NC: Tensor | None, column_N: Tensor) -> Tensor:
        """[N]."""
        target_NC = own_NC if target_NC is None else target_NC
        parts = [weight * LOSSES[name](own_NC, target_NC, column_N) for name, weight in self.weights.items()]
        return torch.stack(parts).sum(0)

    def __str__(self) -> str:
        return ",".join(name if weight == 1 else f"{name}={weight:g}" for name, weight in self.weights.items())


def parse_mix(text: str) -> Mix:
    """`kl`, or `ce=0.1,tv=1.8`. SpecError for a name or a weight that is none."""
    weights: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if name not in LOSSES:
            raise SpecError(f"--loss {text}: no loss is called '{name}'; choose of {', '.join(LOSSES)}")
        if name in weights:
            raise SpecError(f"--loss {text}: {name} stands there twice; give it one weight")
        try:
            weights[name] = float(number) if equals else 1.0
        except ValueError:
            weights[name] = -1.0
        if not 0 < weights[name] < float("inf"):
            raise SpecError(f"--loss {text}: the weight of {name} must be a number above 0; got '{number}'")
    return Mix(weights)
