"""Attention whose output has a gate for every channel, made with the queries (Qwen3-Next, Qwen3.5)."""

from torch import Tensor, nn

from codraft.drafters.layers.attention import GroupedAttention, Sight
from codraft.drafters.layers.parts import Rotary


class GatedAttention(GroupedAttention):
    """As `GroupedAttention`, with q_proj twice as wide: each head's query, then its gate. The gate's sigmoid multiplies
    what was seen, before o_proj."""

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
    ) -> None:
        super().__init__(
            inputs,
            hidden,
            heads,
            kv_heads,
            head_dim,
            rotary,
            bias=bias,
            output_bias=output_bias,
            norm_eps=norm_eps,
            unit_offset=unit_offset,
        )
        self.q_proj = nn.Linear(inputs, 2 * heads * head_dim, bias=bias)

    def forward(self, x_NC: Tensor, positions_N: Tensor, sight: Sight) -> Tensor:
        """[N, hidden]."""
        both_Nh2D = self.q_proj(x_NC).unflatten(-1, (self.heads, 2 * self.head_dim))
        q_NhD, gate_NhD = both_Nh2D.chunk(2, dim=-1)
        q_NhD = self._turned(q_NhD if self.q_norm is None else self.q_norm(q_NhD), positions_N)
        k_NgD, v_NgD = self.keys_values(x_NC, positions_N)
        seen_NhD = sight.look(q_NhD, k_NgD, v_NgD, scale=self.head_dim**-0.5, window=self.window, sinks_h=self.sinks)
        out_NH: Tensor = self.o_proj((seen_NhD * gate_NhD.sigmoid()).flatten(1))
        return out_NH
