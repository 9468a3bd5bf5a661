"""Experts of MTP modules: what they compute, what they copy, and what is held in memory while they are put in place."""

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from codraft.drafters.layers.experts import Experts, Routing, SparseFFN
from codraft.drafters.mtp import assemble, expand, make_head

from tests.drafters.heads import ToyEnds, randomize
from tests.drafters.mtps import H, Made, V, made


def some_experts() -> tuple[Experts, Tensor, Tensor, Tensor]:
    """Five experts, the last chosen by nobody; nine rows, their weights and choices."""
    experts = Experts(H, 5, 6, "silu").double()
    randomize(experts, 1, 0.4)
    experts.requires_grad_(True)
    generator = torch.Generator().manual_seed(2)
    x_NH = torch.randn((9, H), generator=generator, dtype=torch.float64)
    weights_NK = torch.rand((9, 2), generator=generator, dtype=torch.float64)
    chosen_NK = torch.stack([torch.randperm(4, generator=generator)[:2] for _ in range(9)])
    return experts, x_NH, weights_NK, chosen_NK


def written_out(experts: Experts, x_NH: Tensor, weights_NK: Tensor, chosen_NK: Tensor) -> Tensor:
    """Row by row, choice by choice."""
    rows = []
    for x_H, weights_K, chosen_K in zip(x_NH, weights_NK, chosen_NK, strict=True):
        made_KH = []
        for expert in chosen_K:
            gate_I, up_I = (experts.gate_up_proj[expert] @ x_H).chunk(2)
            made_KH.append(experts.down_proj[expert] @ (functional.silu(gate_I) * up_I))
        rows.append(weights_K @ torch.stack(made_KH))
    return torch.stack(rows)


@pytest.mark.parametrize("training", [False, True])
def test_rows_are_the_weighted_sum_of_their_experts(training: bool) -> None:
    experts, *given = some_experts()
    with torch.set_grad_enabled(training):
        found = experts(*given)
    assert found.requires_grad == training
    torch.testing.assert_close(found, written_out(experts, *given), rtol=1e-12, atol=1e-12)


def test_gradients_reach_rows_weights_and_every_expert_that_was_chosen() -> None:
    experts, x_NH, weights_NK, chosen_NK = some_experts()
    inputs = [x_NH.requires_grad_(), weights_NK.requires_grad_(), experts.gate_up_proj, experts.down_proj]
    pull_NH = torch.randn((9, H), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    found, expected = (
        torch.autograd.grad((out_NH * pull_NH).sum(), inputs)
        for out_NH in (experts(x_NH, weights_NK, chosen_NK), written_out(experts, x_NH, weights_NK, chosen_NK))
    )
    for one, other in zip(found, expected, strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


def test_gradients_are_those_of_finite_differences_through_router_and_experts() -> None:
    routing = Routing(scores="sigmoid", top_k=2, groups=2, top_groups=1, scale=1.5)
    module = SparseFFN(4, 4, 3, 2, "silu", routing).double()
    randomize(module, 4, 0.4)
    x_NH = torch.randn((5, 4), generator=torch.Generator().manual_seed(5), dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(module, (x_NH,))


class Making(TorchDispatchMode):
    """Counts operations that make a new tensor of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape, self.count = shape, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        new = isinstance(out, Tensor) and tuple(out.shape) == self.shape and not func._schema.is_mutable
        self.count += new
        return out


@pytest.mark.parametrize("training", [False, True])
def test_all_rows_are_made_once_however_many_experts_there_are(training: bool) -> None:
    experts, *given = some_experts()
    with torch.set_grad_enabled(training), Making((9, H)) as seen:
        experts(*given)
    assert seen.count == 1


class Stored(dict[str, Tensor]):
    """Notes, whenever one is taken, how many stored matrices of experts live outside of it."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__({name: tensor.clone() for name, tensor in tensors.items()})
        self.alive = {name: weakref.ref(self[name]) for name in self if ".experts." in name}
        self.loose: list[int] = []

    def pop(self, name: str, *default: Any) -> Any:
        self.loose.append(sum(ref() is not None and name not in self for name, ref in self.alive.items()))
        return super().pop(name, *default)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_stored_experts_are_let_go_one_by_one(dtype: torch.dtype) -> None:
    """So that memory holds about one copy of the modules: never more than the matrices of one expert in two forms."""
    one = made("deepseek", 2)
    stored = Stored(one.tensors)
    state = assemble(one.layout(), stored, dtype)
    assert not stored
    assert len(stored.alive) == 2 * 3 * 8
    assert len(stored.loose) > 48
    assert max(stored.loose) <= 2
    for i in range(2):
        before = f"model.layers.{2 + i}.mlp.experts"
        for e in range(8):
            halves = [one.tensors[f"{before}.{e}.{kind}_proj.weight"] for kind in ("gate", "up")]
            assert torch.equal(state[f"blocks.{i}.mlp.experts.gate_up_proj"][e], torch.cat(halves).to(dtype))
            down = one.tensors[f"{before}.{e}.down_proj.weight"]
            assert torch.equal(state[f"blocks.{i}.mlp.experts.down_proj"][e], down.to(dtype))


def test_fp8_experts_in_one_tensor_have_a_grid_of_scales_each() -> None:
    generator = torch.Generator().manual_seed(6)
    weight_EOI = torch.randn((3, 10, 9), generator=generator).to(torch.float8_e4m3fn)
    scale = 0.1 + torch.rand((3, 3, 3), generator=generator)
    found = expand(weight_EOI, scale, (4, 3), torch.float64)
    for e in range(3):
        for row in range(10):
            for column in range(9):
                meant = weight_EOI[e, row, column].float() * scale[e, row // 4, column // 3]
                assert found[e, row, column] == meant


def test_angles_that_older_exports_hold_are_not_read() -> None:
    one = made("glm")
    angles = {"model.layers.2.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    more = Made(one.family, one.layers, one.joints, one.tensors | angles, one.config)
    ends = ToyEnds(V, H)
    plain, found = one.head(ends).state_dict(), more.head(ends).state_dict()
    assert all(torch.equal(found[name], plain[name]) for name in plain)
    assert found.keys() == plain.keys()


def test_a_head_leaves_nothing_of_what_was_stored() -> None:
    one = made("qwen3_next", 2)
    stored = dict(one.tensors)
    make_head(one.layout(), stored, "final", ToyEnds(V, H), torch.float32, "cpu")
    assert not stored
