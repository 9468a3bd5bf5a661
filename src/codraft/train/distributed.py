"""Several processes under torchrun, by torch's own means: DDP where a drafter fits one device, FSDP2 where it does not.

Losses are divided by the anchors of all processes before any gradient is taken, so that a step is the same whatever
number of processes shared it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

Parallel = Literal["ddp", "fsdp"]
FFN = ("mlp", "feed_forward", "ffn")
LONGEST_WAIT = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among `world`; a lone one is rank 0 of 1."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files."""
        return self.rank == 0

    def total(self, values: Tensor) -> Tensor:
        """Sums over all processes."""
        if self.world > 1:
            distributed.all_reduce(values)
        return values

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            distributed.barrier()

    def told(self, value: Any) -> Any:
        """What the first process says."""
        held = [value]
        if self.world > 1:
            distributed.broadcast_object_list(held, src=0)
        return held[0]


@contextmanager
def ranks(device: str) -> Iterator[Ranks]:
    """The processes that torchrun started, or this one alone."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Ranks()
        return
    if device.startswith("cuda"):
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    # Sums and words of the loop itself lie on the CPU. The first process measures AL while the others wait.
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    distributed.init_process_group(backend, timeout=LONGEST_WAIT)
    try:
        yield Ranks(distributed.get_rank(), distributed.get_world_size())
    finally:
        distributed.destroy_process_group()


def shared(objective: nn.Module, found: Ranks, parallel: Parallel) -> nn.Module:
    """The objective, its gradients averaged over all processes."""
    if found.world == 1:
        return objective
    if parallel == "fsdp":
        fully_shard(objective)
        return objective
    return DistributedDataParallel(objective)


def accumulating(module: nn.Module, *, last: bool) -> Any:
    """Within it gradients stay in this process, until the last batch of a step."""
    if isinstance(module, DistributedDataParallel):
        return nullcontext() if last else module.no_sync()
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(last)
    return nullcontext()


def recompute_feed_forwards(module: nn.Module) -> None:
    """Drop what feed-forwards keep for the gradient, most of all that is kept, and compute it again."""
    for name, part in module.named_modules():
        if name.rpartition(".")[2] in FFN:
            part.forward = partial(checkpoint, part.forward, use_reentrant=False)
