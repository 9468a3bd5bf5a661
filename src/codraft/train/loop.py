"""The loop: batches, losses, steps; AL by replay every so often, the best checkpoint by AL, everything resumable."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from codraft.train.batches import Schedule
from codraft.train.distributed import Ranks, accumulating
from codraft.train.feed import Feed
from codraft.train.objectives.drafts import Measured, Objective
from codraft.train.optim import clip, set_rate, share_of_rate
from codraft.train.recipe import Recipe
from codraft.train.state import Progress


@dataclass(slots=True)
class Clock:
    """Seconds of a step by what they went into."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Time spent here counts as `name`."""
        start = time.perf_counter()
        yield
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step: `loss` a draft's anchor, hits by position among the drafts there were, tokens passed and supervised."""

    step: int
    loss: float
    accuracy: list[float]
    nll: list[float]
    tokens: int
    anchors: int
    lr: float
    norm: float
    seconds: dict[str, float]

    def row(self, progress: Progress) -> dict[str, Any]:
        """As the log has it."""
        whole = sum(self.seconds.values())
        return {
            "step": self.step,
            "seen": progress.tokens,
            "loss": self.loss,
            "accuracy": [round(value, 4) for value in self.accuracy],
            "nll": [round(value, 4) for value in self.nll],
            "lr": self.lr,
            "grad_norm": self.norm,
            "tokens": self.tokens,
            "tokens_per_s": self.tokens / whole if whole else None,
            "seconds": {name: round(value, 4) for name, value in self.seconds.items()},
        }


@dataclass(slots=True)
class Loop:
    """All that a run holds. `module` is the objective as the processes share it."""

    objective: Objective
    module: nn.Module
    optimizers: list[Optimizer]
    recipe: Recipe
    schedule: Schedule
    feed: Feed
    steps: int
    ranks: Ranks
    autocast: bool = False

    def step(self, number: int) -> StepReport:
        """Gradients of all micro-batches of a step, divided by all its anchors, and the optimizers' move."""
        clock, device = Clock(), self.feed.device
        with clock.part("data"):
            batches = [self.feed.batch(rows, number) for rows in self.schedule.step(number)]
            anchors = self.ranks.total(torch.tensor(float(sum(self.objective.num_anchors(b) for b in batches))))
        measured: list[Measured] = []
        for index, batch in enumerate(batches):
            last = index == len(batches) - 1
            with accumulating(self.module, last=last):
                with clock.part("forward"), torch.autocast(device.partition(":")[0], torch.bfloat16, self.autocast):
                    loss, found = self.module(batch, max(1.0, float(anchors)))
                with clock.part("backward"):
                    # Processes average their gradients, and the denominator is that of all of them.
                    (loss * self.ranks.world).backward()
            measured.append(found)
        # The output head's gradient is taken with its loss; see `Chunked`.
        head = sum(found.head_s for found in measured)
        clock.seconds["head"], clock.seconds["forward"] = head, clock.seconds["forward"] - head
        with clock.part("optimizer"):
            norm = self.move(number)
        sums = self.ranks.total(totals(measured, sum(len(b.tokens_T) for b in batches)))
        return report(number, sums, float(anchors), norm, self._rate(number), clock.seconds)

    def move(self, number: int) -> float:
        """The optimizers' step along the gradients, which are then dropped; their norm before it was cut."""
        set_rate(self.optimizers, share_of_rate(number, self.steps, self.recipe))
        learning = [p for group in self.optimizers for part in group.param_groups for p in part["params"]]
        norm = clip(learning, self.recipe.clip)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return norm

    def _rate(self, number: int) -> float:
        return self.recipe.lr * share_of_rate(number, self.steps, self.recipe)


def totals(measured: Sequence[Measured], tokens: int) -> Tensor:
    """[3 K + 2]: counts, hits, -log p by position; loss; tokens."""
    parts = [torch.stack([one.counts_K, one.hits_K, one.nll_K]).flatten() for one in measured]
    loss = sum(one.loss for one in measured)
    return torch.cat((torch.stack(parts).sum(0), torch.tensor([loss, float(tokens)], dtype=torch.float64)))


def report(number: int, sums: Tensor, anchors: float, norm: float, lr: float, seconds: dict[str, float]) -> StepReport:
    """Sums over all processes as means."""
    counts_K, hits_K, nll_K = sums[:-2].view(3, -1)
    most_K = counts_K.clamp(min=1)
    return StepReport(
        step=number,
        loss=float(sums[-2]) / max(1.0, anchors),
        accuracy=(hits_K / most_K).tolist(),
        nll=(nll_K / most_K).tolist(),
        tokens=int(sums[-1]),
        anchors=int(anchors),
        lr=lr,
        norm=norm,
        seconds=seconds,
    )
