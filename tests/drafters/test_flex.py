"""Flex attention, which GPUs run, against the attention that CPUs run: the same views, to rounding in float32.

It runs uncompiled here, forward only; there is no backward of it on a CPU.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from codraft.drafters.block import BlockSight, Site
from codraft.drafters.layers import flex
from codraft.drafters.rollout import Rollout

H, HEADS, GROUPS, WIDTH = 8, 4, 2, 4
BOUNDS = [0, 7, 8, 30, 41]


class Mixer:
    """A head of one layer that is attention and nothing else."""

    num_modules, layers_per_module = 2, 1

    def __init__(self, window: int | None) -> None:
        generator = torch.Generator().manual_seed(0)
        self.window = window
        self.maps = [torch.randn(H, heads * WIDTH, generator=generator) for heads in (HEADS, GROUPS, GROUPS)]
        self.out = torch.randn(HEADS * WIDTH, H, generator=generator) / 4
        self.embedding = torch.randn(50, H, generator=generator)

    def run(self, module: int, hidden_NH: Tensor, tokens_N: Tensor, positions_N: Tensor, sight: Any) -> Any:
        x = hidden_NH + self.embedding[tokens_N] + positions_N[:, None] / 50
        q, k, v = ((x @ m).unflatten(1, (-1, WIDTH)) for m in self.maps)
        seen = sight.look(q, k, v, scale=WIDTH**-0.5, window=self.window, sinks_h=None)
        out = torch.tanh(seen.flatten(1) @ self.out)
        return out, out


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 3, 9])
def test_a_rollout_of_several_streams(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.arange(BOUNDS[-1]) * 7 % 50
    fused = torch.randn(BOUNDS[-1], H, generator=torch.Generator().manual_seed(1))
    head: Any = Mixer(window)

    def steps() -> list[Tensor]:
        rollout, found = Rollout(head, fused, tokens, BOUNDS), []
        for k in range(6):
            found.append(rollout.step())
            if k >= 1:
                rollout.retain(rollout.rows_N % (k + 2) != 1)
        return found

    plain = steps()
    monkeypatch.setattr(flex, "fits", lambda q, sinks: True)
    for one, other in zip(plain, steps(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3, 9])
def test_blocks_of_several_streams(window: int | None, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    starts, slots = [[1, 4, 5], [9], [2, 20]], 3

    def drawn(length: int) -> Tensor:
        return torch.randn(length, GROUPS, WIDTH, generator=generator)

    contexts = [(drawn(length), drawn(length)) for length in (6, 9, 22)]
    rows = slots * sum(len(one) for one in starts)
    q = torch.randn(rows, HEADS, WIDTH, generator=generator)
    k, v = (torch.randn(rows, GROUPS, WIDTH, generator=generator) for _ in "kv")

    def look() -> Tensor:
        sites = [Site(places, [own].__getitem__) for places, own in zip(starts, contexts, strict=True)]
        return BlockSight(sites, slots, [causal]).look(q, k, v, scale=0.5, window=window, sinks_h=None)

    plain = look()
    monkeypatch.setattr(flex, "fits", lambda q, sinks: True)
    torch.testing.assert_close(look(), plain, rtol=1e-5, atol=1e-5)
