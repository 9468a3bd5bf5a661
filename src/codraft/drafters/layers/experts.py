"""A mixture of experts over flat rows: a router chooses `top_k` of them for each row.

DeepSeek scores with a sigmoid, chooses by score plus a bias within the best groups, and weighs by the score alone
[DeepSeekV3]; Qwen weighs by a softmax and gates its shared expert.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from codraft.drafters.layers.attention import wide
from codraft.drafters.layers.parts import ACTIVATIONS, GatedFFN

# Keeps a sum of vanishing scores from dividing by 0, as in DeepSeek's own code.
TINY = 1e-20


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How rows find their experts: `top_k` of all, out of the best `top_groups` of `groups`. `normed`: their weights
    sum to 1, before `scale`."""

    scores: Literal["sigmoid", "softmax"]
    top_k: int
    groups: int = 1
    top_groups: int = 1
    scale: float = 1.0
    normed: bool = True


class Router(nn.Module):
    """Scores of all experts; in float32 at least, for a tie that rounding makes changes the choice."""

    def __init__(self, hidden: int, experts: int, routing: Routing) -> None:
        super().__init__()
        self.routing = routing
        self.weight = nn.Parameter(torch.empty(experts, hidden))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(experts)) if routing.scores == "sigmoid" else None

    def forward(self, x_NH: Tensor) -> tuple[Tensor, Tensor]:
        """([N, K] weights, [N, K] experts)."""
        dtype, how = wide(x_NH.dtype), self.routing
        logits_NE = functional.linear(x_NH.to(dtype), self.weight.to(dtype))
        scores_NE = logits_NE.sigmoid() if how.scores == "sigmoid" else logits_NE.softmax(-1)
        wanted_NE = scores_NE
        if self.e_score_correction_bias is not None:
            wanted_NE = within_groups(scores_NE + self.e_score_correction_bias.to(dtype), how.groups, how.top_groups)
        chosen_NK = wanted_NE.topk(how.top_k, dim=-1).indices
        weights_NK = scores_NE.gather(1, chosen_NK)
        if how.normed:
            weights_NK = weights_NK / (weights_NK.sum(-1, keepdim=True) + TINY)
        return (weights_NK * how.scale).to(x_NH.dtype), chosen_NK


def within_groups(scores_NE: Tensor, groups: int, top_groups: int) -> Tensor:
    """[N, E] with -inf outside of the best groups; a group is as good as the sum of its two best experts."""
    if top_groups == groups:
        return scores_NE
    grouped_NGe = scores_NE.view(len(scores_NE), groups, -1)
    best_NG = grouped_NGe.topk(min(2, grouped_NGe.shape[-1]), dim=-1).values.sum(-1)
    kept_NG = torch.zeros_like(best_NG, dtype=torch.bool).scatter(
        1, best_NG.topk(top_groups, dim=-1).indices, value=True
    )
    within_NE: Tensor = grouped_NGe.masked_fill(~kept_NG[..., None], -torch.inf).flatten(1)
    return within_NE


class Experts(nn.Module):
    """Gated feed-forwards of equal size, their matrices in one tensor each."""

    def __init__(self, hidden: int, experts: int, width: int, act: str) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * width, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, width))
        self.act = ACTIVATIONS[act]

    def forward(self, x_NH: Tensor, weights_NK: Tensor, chosen_NK: Tensor) -> Tensor:
        """[N, H] weighted sum of what each row's experts make of it. An expert runs once, over all that chose it."""
        out_NH = torch.zeros_like(x_NH)
        for expert in sorted(set(chosen_NK.flatten().tolist())):
            row_M, place_M = (chosen_NK == expert).nonzero(as_tuple=True)
            gate_MI, up_MI = functional.linear(x_NH[row_M], self.gate_up_proj[expert]).chunk(2, dim=-1)
            made_MH = functional.linear(self.act(gate_MI) * up_MI, self.down_proj[expert])
            # In place: a copy of all rows for each of hundreds of experts costs more than the experts. Gradients flow.
            out_NH.index_add_(0, row_M, made_MH * weights_NK[row_M, place_M, None])
        return out_NH


class SparseFFN(nn.Module):
    """Routed experts and a shared one that every row passes through. Its name, and whether it is gated, go with the
    kind of router: `shared_experts` without a gate for sigmoid, `shared_expert` with one for softmax."""

    def __init__(self, hidden: int, experts: int, width: int, shared_width: int, act: str, routing: Routing) -> None:
        super().__init__()
        self.gate = Router(hidden, experts, routing)
        self.experts = Experts(hidden, experts, width, act)
        gated = routing.scores == "softmax"
        self.shared_experts = GatedFFN(hidden, shared_width, act) if shared_width and not gated else None
        self.shared_expert = GatedFFN(hidden, shared_width, act) if shared_width and gated else None
        self.shared_expert_gate = nn.Linear(hidden, 1, bias=False) if shared_width and gated else None

    def forward(self, x_NH: Tensor) -> Tensor:
        """[N, H] to the same."""
        out_NH: Tensor = self.experts(x_NH, *self.gate(x_NH))
        if self.shared_experts is not None:
            out_NH = out_NH + self.shared_experts(x_NH)
        if self.shared_expert is not None and self.shared_expert_gate is not None:
            out_NH = out_NH + self.shared_expert_gate(x_NH).sigmoid() * self.shared_expert(x_NH)
        return out_NH
