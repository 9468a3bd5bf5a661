"""Optimizers by a recipe, and the learning rate by step."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import AdamW, Optimizer

from codraft.train.muon import Muon
from codraft.train.recipe import Recipe

BETA1 = 0.9
# Matrices that are tables, not maps of one space to another: AdamW is for these.
TABLES = ("markov_w1", "markov_w2", "lm_head", "embed_tokens", "confidence_head")


def optimizers_of(
    parameters: Iterable[tuple[str, nn.Parameter]],
    recipe: Recipe,
    taught: Collection[str] = (),
    *,
    coarse: bool = False,
) -> list[Optimizer]:
    """AdamW for all, or Muon for matrices and AdamW for the rest [Jordan24]; Muon in bfloat16 where `coarse`.
    Parameters whose names end like one of `taught` take a share of the rates."""
    matrices: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    rest: dict[bool, list[nn.Parameter]] = {False: [], True: []}
    endings = tuple(f".{name}" for name in taught)
    for name, parameter in parameters:
        muon = recipe.optimizer == "muon" and parameter.dim() == 2 and not any(table in name for table in TABLES)
        (matrices if muon else rest)[f".{name}".endswith(endings)].append(parameter)
    made: list[Optimizer] = []
    if any(rest.values()):
        groups, betas = groups_of(rest, recipe.lr, recipe.copying_rate), (BETA1, recipe.beta2)
        made.append(AdamW(groups, lr=recipe.lr, betas=betas, weight_decay=recipe.weight_decay, fused=True))
    if any(matrices.values()):
        groups = groups_of(matrices, recipe.muon_lr, recipe.copying_rate)
        made.append(Muon(groups, lr=recipe.muon_lr, weight_decay=recipe.weight_decay, coarse=coarse))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
    return made


def groups_of(parameters: Mapping[bool, list[nn.Parameter]], lr: float, share: float) -> list[dict[str, Any]]:
    """Parameters by whether they were taught before, and their rates."""
    return [
        {"params": members, "lr": lr * share if taught else lr} for taught, members in parameters.items() if members
    ]


def share_of_rate(step: int, steps: int, recipe: Recipe) -> float:
    """The learning rate of a step, as a share of the full one: a linear rise, then the decline."""
    rise = max(1, round(recipe.warmup * steps))
    if step < rise:
        return (step + 1) / rise
    done = (step - rise) / max(1, steps - rise)
    if recipe.decline == "cosine":
        return (1 + math.cos(math.pi * done)) / 2
    return 1.0 if recipe.decline == "constant" else 1 - done


def set_rate(optimizers: Iterable[Optimizer], share: float) -> None:
    """The same share of every group's own full rate."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * share


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], most: float) -> float:
    """Gradients cut to a norm of `most`; the norm that they had."""
    norm = nn.utils.clip_grad_norm_(list(parameters), most)
    full = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return float(full)
