"""What rows that go on alone see, against every row by itself: exact in float64, and in bf16 as attention is."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from codraft.drafters import rollout
from codraft.drafters.layers.attention import attend
from codraft.drafters.rollout import Chain, OwnChain

ROWS, STEPS, HEADS, GROUPS, WIDTH = 41, 3, 4, 2, 16
SCALE = WIDTH**-0.5


@dataclass(frozen=True)
class Case:
    """True keys and values [M, g, D] of one layer, and by step queries, keys and values of rows that go on, in one
    dtype."""

    true: tuple[Tensor, Tensor]
    steps: list[tuple[Tensor, Tensor, Tensor]]
    rows_N: Tensor
    window: int | None
    sinks_h: Tensor | None

    def to(self, dtype: torch.dtype) -> "Case":
        """The same numbers, in another dtype."""
        keys, values = self.true
        steps = [(q.to(dtype), k.to(dtype), v.to(dtype)) for q, k, v in self.steps]
        sinks_h = None if self.sinks_h is None else self.sinks_h.to(dtype)
        return Case((keys.to(dtype), values.to(dtype)), steps, self.rows_N, self.window, sinks_h)

    def chained(self) -> Tensor:
        """The last step by `OwnChain`."""
        chain, seen = Chain(), torch.empty(0)
        for q, k, v in self.steps:
            sight = OwnChain([self.true], [chain], self.rows_N)
            seen = sight.look(q, k, v, scale=SCALE, window=self.window, sinks_h=self.sinks_h)
        return seen

    def row_by_row(self) -> Tensor:
        """The last step by attention of every row over the keys that live decoding would have in its cache."""
        seen = []
        for n, row in enumerate(self.rows_N.tolist()):
            keys = torch.cat((self.true[0][: row + 1], *(k[n : n + 1] for _, k, _ in self.steps)))
            values = torch.cat((self.true[1][: row + 1], *(v[n : n + 1] for _, _, v in self.steps)))
            if self.window is not None:
                keys, values = keys[-self.window :], values[-self.window :]
            q = self.steps[-1][0][n : n + 1]
            seen.append(attend(q, keys, values, None, scale=SCALE, sinks_h=self.sinks_h))
        return torch.cat(seen)


def case_of(window: int | None, *, sinks: bool) -> Case:
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Tensor:
        # Large enough that a softmax is neither flat nor one key's; numbers that bfloat16 has.
        return (1.5 * torch.randn(shape, generator=generator)).bfloat16()

    rows_N = torch.tensor([row for row in range(ROWS) if row % 4 != 1])
    true = draw(ROWS, GROUPS, WIDTH), draw(ROWS, GROUPS, WIDTH)
    steps = [
        (draw(len(rows_N), HEADS, WIDTH), draw(len(rows_N), GROUPS, WIDTH), draw(len(rows_N), GROUPS, WIDTH))
        for _ in range(STEPS)
    ]
    return Case(true, steps, rows_N, window, draw(HEADS) if sinks else None)


CASES = [(window, sinks) for window in (None, 2, 3, 9) for sinks in (False, True)]


@pytest.mark.parametrize("at_once", [1, 5, 512])
@pytest.mark.parametrize(("window", "sinks"), CASES)
def test_a_row_sees_true_keys_up_to_its_own_and_then_its_steps(
    window: int | None, sinks: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In chunks of any size."""
    monkeypatch.setattr(rollout, "ROWS_AT_ONCE", at_once)
    case = case_of(window, sinks=sinks).to(torch.float64)
    torch.testing.assert_close(case.chained(), case.row_by_row(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("window", "sinks"), CASES)
def test_rounding_in_bfloat16_is_that_of_plain_attention(window: int | None, sinks: bool) -> None:
    """Against the same numbers in float64: at most twice the error."""
    case = case_of(window, sinks=sinks)
    exact = case.to(torch.float64).row_by_row()
    chained, plain = case.chained(), case.row_by_row()
    assert chained.dtype == plain.dtype == torch.bfloat16
    errors = [(found.double() - exact).abs() for found in (chained, plain)]
    assert float(errors[0].max()) <= 2 * float(errors[1].max())
    assert float(errors[0].mean()) <= 2 * float(errors[1].mean())
    if sinks:
        # Both are our own sums here, in float32: nothing is rounded but the result, to eight bits.
        assert bool((errors[0] <= 2**-8 * exact.abs() + 1e-5).all())
