"""Attention of drafters. A layer makes queries, keys and values of new rows; what a query may look at is decided
elsewhere, behind `Sight`, since live decoding, teacher forcing and blocks of masks differ in nothing else.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from codraft.drafters.layers.parts import RMSNorm, Rotary


class Sight(Protocol):
    """Who sees what. `look` is called once by every layer of every pass, in the order of the layers."""

    def look(
        self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, *, scale: float, window: int | None, sinks_h: Tensor | None
    ) -> Tensor:
        """Values [N, h, E] of what each of the N new rows sees: earlier rows it knows of, and these by its own rule.

        `window` is the most keys back that a query sees, itself included; None: all.
        """
        ...


class GroupedAttention(nn.Module):
    """Grouped-query attention with optional biases, norms of queries and keys, a window, sinks and gates.

    `inputs` is the width it reads; EAGLE-3's first layer reads twice its hidden size. `gated` makes q_proj twice as
    wide, each head's query and then its gate, whose sigmoid multiplies what was seen (Qwen3-Next, Qwen3.5).
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rotary: Rotary,
        *,
        bias: bool = False,
        output_bias: bool = False,
        norm_eps: float | None = None,
        unit_offset: bool = False,
        window: int | None = None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.window = heads, kv_heads, head_dim, window
        self.gated = gated
        self.q_proj = nn.Linear(inputs, heads * head_dim * (2 if gated else 1), bias=bias)
        self.k_proj = nn.Linear(inputs, kv_heads * head_dim, bias=bias)
        self.v_proj = nn.Linear(inputs, kv_heads * head_dim, bias=bias)
        self.o_proj = nn.Linear(heads * head_dim, hidden, bias=output_bias)
        self.q_norm = None if norm_eps is None else RMSNorm(head_dim, norm_eps, unit_offset=unit_offset)
        self.k_norm = None if norm_eps is None else RMSNorm(head_dim, norm_eps, unit_offset=unit_offset)
        self.sinks: nn.Parameter | None = None
        # Shared by all layers: not a part of this one.
        self._rotary = [rotary]

    def queries(self, x_NC: Tensor, positions_N: Tensor) -> tuple[Tensor, Tensor | None]:
        """[N, heads, head_dim], normed and turned, and their gates of the same shape, None without."""
        q_NhD, gate_NhD = self.q_proj(x_NC).unflatten(-1, (self.heads, -1)), None
        if self.gated:
            q_NhD, gate_NhD = q_NhD.chunk(2, dim=-1)
        return self._turned(q_NhD if self.q_norm is None else self.q_norm(q_NhD), positions_N), gate_NhD

    def keys_values(self, x_NC: Tensor, positions_N: Tensor) -> tuple[Tensor, Tensor]:
        """Two of [N, kv_heads, head_dim], keys normed and turned."""
        k_NgD = self.k_proj(x_NC).unflatten(-1, (self.kv_heads, self.head_dim))
        v_NgD = self.v_proj(x_NC).unflatten(-1, (self.kv_heads, self.head_dim))
        return self._turned(k_NgD if self.k_norm is None else self.k_norm(k_NgD), positions_N), v_NgD

    def _turned(self, x_NhD: Tensor, positions_N: Tensor) -> Tensor:
        turned_NhD: Tensor = self._rotary[0](x_NhD, positions_N)
        return turned_NhD

    def forward(self, x_NC: Tensor, positions_N: Tensor, sight: Sight) -> Tensor:
        """[N, hidden]."""
        q_NhD, gate_NhD = self.queries(x_NC, positions_N)
        k_NgD, v_NgD = self.keys_values(x_NC, positions_N)
        seen_NhD = sight.look(q_NhD, k_NgD, v_NgD, scale=self.head_dim**-0.5, window=self.window, sinks_h=self.sinks)
        if gate_NhD is not None:
            seen_NhD = seen_NhD * gate_NhD.sigmoid()
        out_NH: Tensor = self.o_proj(seen_NhD.flatten(1))
        return out_NH


def attend(
    q_QhD: Tensor, k_MgD: Tensor, v_MgE: Tensor, seen_QM: Tensor | None, *, scale: float, sinks_h: Tensor | None = None
) -> Tensor:
    """Softmax attention of Q queries over M keys, [Q, h, E]. `seen_QM` None: every query sees every key.

    A sink is a logit of its own in every head's softmax that carries no value (OpenAI's gpt-oss).
    """
    if sinks_h is not None:
        return attend_beside_sinks(q_QhD, k_MgD, v_MgE, seen_QM, scale=scale, sinks_h=sinks_h)
    out_hQE = functional.scaled_dot_product_attention(
        q_QhD.transpose(0, 1)[None],
        k_MgD.transpose(0, 1)[None],
        v_MgE.transpose(0, 1)[None],
        attn_mask=seen_QM,
        scale=scale,
        enable_gqa=True,
    )[0]
    return out_hQE.transpose(0, 1)


def attend_beside_sinks(
    q_QhD: Tensor, k_MgD: Tensor, v_MgE: Tensor, seen_QM: Tensor | None, *, scale: float, sinks_h: Tensor
) -> Tensor:
    """As `attend`, written out, in float32 at least."""
    dtype, (Q, h) = wide(q_QhD.dtype), q_QhD.shape[:2]
    scores_hQM = torch.einsum("qhd,mhd->hqm", q_QhD.to(dtype), grouped(k_MgD, h).to(dtype)) * scale
    if seen_QM is not None:
        scores_hQM = scores_hQM.masked_fill(~seen_QM, -torch.inf)
    sinks_hQ1 = sinks_h.to(dtype)[:, None, None].expand(h, Q, 1)
    weights_hQM = torch.cat((scores_hQM, sinks_hQ1), dim=-1).softmax(-1)[..., :-1]
    return torch.einsum("hqm,mhe->qhe", weights_hQM, grouped(v_MgE, h).to(dtype)).to(q_QhD.dtype)


def attend_own(
    q_QhD: Tensor,
    k_MgD: Tensor,
    v_MgE: Tensor,
    seen_QM: Tensor,
    own_k_QcgD: Tensor,
    own_v_QcgE: Tensor,
    own_seen_Qc: Tensor | None = None,
    *,
    scale: float,
    sinks_h: Tensor | None = None,
) -> Tensor:
    """As `attend`, [Q, h, E], over M keys that all queries share and c more of each query's own.

    Written out: behind one mask every query would meet the own keys of all the others. Softmax in float32 at least.
    """
    dtype, (Q, h, _), g = wide(q_QhD.dtype), q_QhD.shape, k_MgD.shape[1]
    q_QgjD = q_QhD.to(dtype).reshape(Q, g, h // g, -1)
    shared_gjQM = torch.einsum("qgjd,mgd->gjqm", q_QgjD, k_MgD.to(dtype)) * scale
    own_gjQc = torch.einsum("qgjd,qcgd->gjqc", q_QgjD, own_k_QcgD.to(dtype)) * scale
    if own_seen_Qc is not None:
        own_gjQc = own_gjQc.masked_fill(~own_seen_Qc, -torch.inf)
    scores = [shared_gjQM.masked_fill(~seen_QM, -torch.inf), own_gjQc]
    if sinks_h is not None:
        scores.append(sinks_h.to(dtype).reshape(g, h // g, 1, 1).expand(-1, -1, Q, 1))
    weights = torch.cat(scores, dim=-1).softmax(-1)
    M, c = len(k_MgD), own_k_QcgD.shape[1]
    out_QgjE = torch.einsum("gjqm,mge->qgje", weights[..., :M], v_MgE.to(dtype))
    out_QgjE = out_QgjE + torch.einsum("gjqc,qcge->qgje", weights[..., M : M + c], own_v_QcgE.to(dtype))
    return out_QgjE.flatten(1, 2).to(q_QhD.dtype)


def grouped(x: Tensor, heads: int) -> Tensor:
    """Keys or values [..., g, D] repeated to one for each query head; a single one is not copied (latent attention)."""
    if x.shape[-2] == 1:
        return x.expand(*x.shape[:-2], heads, x.shape[-1])
    return x if x.shape[-2] == heads else x.repeat_interleave(heads // x.shape[-2], dim=-2)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Arithmetic of a softmax: float32 at least."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def causal(query_positions_Q: Tensor, key_positions_M: Tensor, window: int | None) -> Tensor:
    """[Q, M]: keys not after the query, and no more than `window` of them back."""
    distance_QM = query_positions_Q[:, None] - key_positions_M[None, :]
    seen_QM = distance_QM >= 0
    return seen_QM if window is None else seen_QM & (distance_QM < window)
