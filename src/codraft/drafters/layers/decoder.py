"""The pre-norm decoder layer of Llama and Qwen3 form that block drafters are stacked of."""

from collections.abc import Collection

import torch
from torch import Tensor, nn

from codraft.drafters.layers.attention import GroupedAttention, Sight
from codraft.drafters.layers.parts import GatedFFN, RMSNorm, Rotary
from codraft.formats.heads.head import Geometry
from codraft.formats.heads.options import LayerOptions


class DecoderLayer(nn.Module):
    """Attention, then a gated feed-forward, each behind a norm and beside a residual.

    `own` are names within the layer of tensors that a file may have or not: a bias of the output projection, sinks.
    """

    def __init__(
        self,
        geometry: Geometry,
        options: LayerOptions,
        rotary: Rotary,
        *,
        window: int | None = None,
        own: Collection[str] = (),
    ) -> None:
        super().__init__()
        g = geometry
        self.input_layernorm = RMSNorm(g.hidden, options.eps)
        self.self_attn = GroupedAttention(
            g.hidden,
            g.hidden,
            g.num_heads,
            g.num_kv_heads,
            g.head_dim,
            rotary,
            bias=options.attention_bias,
            output_bias="self_attn.o_proj.bias" in own,
            norm_eps=options.eps if options.qk_norm else None,
            window=window,
        )
        if "self_attn.sinks" in own:
            self.self_attn.sinks = nn.Parameter(torch.zeros(g.num_heads))
        self.post_attention_layernorm = RMSNorm(g.hidden, options.eps)
        self.mlp = GatedFFN(g.hidden, g.ffn, options.act, bias=options.mlp_bias)

    def forward(self, hidden_NH: Tensor, positions_N: Tensor, sight: Sight) -> Tensor:
        """[N, H] to the same."""
        hidden_NH = hidden_NH + self.self_attn(self.input_layernorm(hidden_NH), positions_N, sight)
        out_NH: Tensor = hidden_NH + self.mlp(self.post_attention_layernorm(hidden_NH))
        return out_NH
