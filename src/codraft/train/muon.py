"""Muon for the matrices of a head: momentum, then its nearest orthogonal matrix as the step [Jordan24].

torch's own works in bfloat16 whatever the machine, which on a CPU without that arithmetic took 37 s a step of a
4 M parameter head; here it is float32 on a CPU unless told otherwise, and bfloat16 on a GPU. Otherwise the same:
Nesterov momentum 0.95, five Newton-Schulz steps, a rate that grows with the height of a matrix over its width.
"""

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

MOMENTUM = 0.95
STEPS = 5
# Of the quintic iteration, chosen to grow small singular values fast; it ends between 0.7 and 1.2, not at 1 [Jordan24].
A, B, C = 3.4445, -4.7750, 2.0315
EPS = 1e-7


@torch.no_grad()
def orthogonalised(matrix_RC: Tensor, *, coarse: bool = False) -> Tensor:
    """[R, C] with all singular values near 1, and the singular vectors of `matrix_RC`; in bfloat16 where `coarse`."""
    wide = len(matrix_RC) <= matrix_RC.shape[1]
    x = matrix_RC if wide else matrix_RC.T
    x = x.to(torch.bfloat16 if coarse or x.is_cuda else torch.promote_types(x.dtype, torch.float32))
    x = x / x.norm().clamp(min=EPS)
    for _ in range(STEPS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return (x if wide else x.T).to(matrix_RC.dtype)


class Muon(Optimizer):
    """For parameters of two dimensions. `coarse`: bfloat16 inside a step, on a CPU too."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float = 0.0,
        *,
        coarse: bool = False,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": weight_decay})
        self._coarse = coarse

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """One step; parameters without a gradient stay."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group)

    def _move(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state, grad = self.state[parameter], parameter.grad
        assert grad is not None
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(grad)
        buffer: Tensor = state["momentum_buffer"]
        buffer.lerp_(grad, 1 - MOMENTUM)
        step = whole(grad.lerp(buffer, MOMENTUM), partial(orthogonalised, coarse=self._coarse))
        rows, columns = parameter.shape
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        parameter.add_(step, alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))


def whole(matrix: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    """A function of a whole matrix, of one that is sharded too."""
    if not isinstance(matrix, DTensor):
        return function(matrix)
    return distribute_tensor(function(matrix.full_tensor()), matrix.device_mesh, matrix.placements)
