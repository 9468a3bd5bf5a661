"""Norms, rotary positions and the gated feed-forward of a decoder layer, over flat rows: [N, ...], N tokens of any
sequences."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional

ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "swish": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
}


class RMSNorm(nn.Module):
    """x / rms(x) * w, or * (1 + w) in Gemma's and Qwen3-Next's way; squares are summed in float32 at least."""

    def __init__(self, size: int, eps: float, *, unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size) if unit_offset else torch.ones(size))
        self.eps, self.unit_offset = eps, unit_offset

    def forward(self, x: Tensor) -> Tensor:
        """[..., size] to the same."""
        wide = x if x.dtype == torch.float64 else x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        if self.unit_offset:
            return (wide * (1 + self.weight.to(wide.dtype))).to(x.dtype)
        return wide.to(x.dtype) * self.weight


class Rotary(nn.Module):
    """Turns the first `2 * len(inverse)` channels of every head by its token's position.

    `interleaved`: channels 0 and 1 are a pair (GPT-J, DeepSeek), else channel i and i + half are (NeoX, Llama).
    """

    def __init__(self, inverse: Tensor, factor: float = 1.0, *, interleaved: bool = False) -> None:
        super().__init__()
        self.inverse = nn.Buffer(inverse, persistent=False)
        self.factor, self.interleaved = factor, interleaved

    def forward(self, x_NhD: Tensor, positions_N: Tensor) -> Tensor:
        """Heads [N, h, D], turned."""
        turned = 2 * len(self.inverse)
        wide = torch.float64 if x_NhD.dtype == torch.float64 else torch.float32
        angles_NF = positions_N.to(wide)[:, None] * self.inverse.to(positions_N.device, wide)
        cos_N1F = (angles_NF.cos() * self.factor).to(x_NhD.dtype)[:, None]
        sin_N1F = (angles_NF.sin() * self.factor).to(x_NhD.dtype)[:, None]
        head, rest = x_NhD[..., :turned], x_NhD[..., turned:]
        if self.interleaved:
            one, other = head[..., 0::2], head[..., 1::2]
            mixed = torch.stack((one * cos_N1F - other * sin_N1F, other * cos_N1F + one * sin_N1F), dim=-1).flatten(-2)
        else:
            one, other = head.chunk(2, dim=-1)
            mixed = torch.cat((one * cos_N1F - other * sin_N1F, other * cos_N1F + one * sin_N1F), dim=-1)
        return torch.cat((mixed, rest), dim=-1) if rest.shape[-1] else mixed


class GatedFFN(nn.Module):
    """down(act(gate(x)) * up(x)) [Shazeer20]."""

    def __init__(self, hidden: int, width: int, act: str, *, bias: bool = False) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=bias)
        self.up_proj = nn.Linear(hidden, width, bias=bias)
        self.down_proj = nn.Linear(width, hidden, bias=bias)
        self.act = ACTIVATIONS[act]

    def forward(self, x_NH: Tensor) -> Tensor:
        """[N, H] to the same."""
        out_NH: Tensor = self.down_proj(self.act(self.gate_proj(x_NH)) * self.up_proj(x_NH))
        return out_NH
