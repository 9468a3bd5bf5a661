"""Multi-head latent attention [DeepSeekV2], with one key and one value for all heads.

The keys of a row are its latent c and a short part k that turns with its position; kv_b_proj would expand c to a key
and a value for every head. Instead its key half is applied to the queries and its value half to what they saw, which is
the same by associativity: q . (K c) = (K^T q) . c, and sum_j w_j (V c_j) = V (sum_j w_j c_j). So a cache holds a latent
a row, and no key for each of a hundred heads.
"""

import torch
from torch import Tensor, nn

from codraft.drafters.layers.attention import Sight
from codraft.drafters.layers.parts import RMSNorm, Rotary


class LatentAttention(nn.Module):
    """Queries of `plain` channels that do not turn and `rotated` that do; values of `value` channels. `q_rank` None:
    queries without a latent of their own. Parameters are called as DeepSeek calls them."""

    def __init__(
        self,
        hidden: int,
        heads: int,
        rotary: Rotary,
        *,
        q_rank: int | None,
        kv_rank: int,
        plain: int,
        rotated: int,
        value: int,
        eps: float,
        scale: float,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.plain, self.rotated, self.value = heads, plain, rotated, value
        self.kv_rank, self.scale = kv_rank, scale
        width = heads * (plain + rotated)
        if q_rank is None:
            self.q_proj = nn.Linear(hidden, width, bias=False)
        else:
            self.q_a_proj = nn.Linear(hidden, q_rank, bias=bias)
            self.q_a_layernorm = RMSNorm(q_rank, eps)
            self.q_b_proj = nn.Linear(q_rank, width, bias=False)
        self.q_rank = q_rank
        self.kv_a_proj_with_mqa = nn.Linear(hidden, kv_rank + rotated, bias=bias)
        self.kv_a_layernorm = RMSNorm(kv_rank, eps)
        self.kv_b_proj = nn.Linear(kv_rank, heads * (plain + value), bias=False)
        self.o_proj = nn.Linear(heads * value, hidden, bias=bias)
        # Shared by all layers: not a part of this one.
        self._rotary = [rotary]

    def queries(self, x_NH: Tensor) -> Tensor:
        """[N, heads, plain + rotated], not turned."""
        q_NC = self.q_proj(x_NH) if self.q_rank is None else self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x_NH)))
        q_NhD: Tensor = q_NC.unflatten(-1, (self.heads, self.plain + self.rotated))
        return q_NhD

    def forward(self, x_NH: Tensor, positions_N: Tensor, sight: Sight) -> Tensor:
        """[N, hidden]."""
        rotary = self._rotary[0]
        plain_NhP, turning_NhT = torch.split(self.queries(x_NH), [self.plain, self.rotated], dim=-1)
        latent_NR, key_NT = torch.split(self.kv_a_proj_with_mqa(x_NH), [self.kv_rank, self.rotated], dim=-1)
        latent_N1R = self.kv_a_layernorm(latent_NR)[:, None]
        expand_hCR = self.kv_b_proj.weight.view(self.heads, self.plain + self.value, self.kv_rank)
        keys_hPR, values_hER = torch.split(expand_hCR, [self.plain, self.value], dim=1)
        q_NhD = torch.cat((torch.einsum("nhp,hpr->nhr", plain_NhP, keys_hPR), rotary(turning_NhT, positions_N)), dim=-1)
        k_N1D = torch.cat((latent_N1R, rotary(key_NT[:, None], positions_N)), dim=-1)
        seen_NhR = sight.look(q_NhD, k_N1D, latent_N1R, scale=self.scale, window=None, sinks_h=None)
        out_NH: Tensor = self.o_proj(torch.einsum("nhr,her->nhe", seen_NhR, values_hER).flatten(1))
        return out_NH
