"""Laps: how long each phase of each step took."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from codraft.decode.loop import Phase


class Laps:
    """A `Probe` that collects seconds by phase, one entry a step. On a GPU it waits for the device at each edge."""

    def __init__(self, device: str) -> None:
        self._cuda = device.startswith("cuda")
        self.steps: list[dict[str, float]] = []
        self.prefill_s = 0.0
        self._open: dict[str, float] = {}

    def now(self) -> float:
        """Monotonic seconds, with the device's work done."""
        if self._cuda:
            import torch

            torch.cuda.synchronize()
        return time.perf_counter()

    @contextmanager
    def phase(self, name: Phase) -> Iterator[None]:
        """Time one phase; leaving "step" closes the step's entry."""
        start = self.now()
        yield
        seconds = self.now() - start
        if name == "prefill":
            self.prefill_s += seconds
        elif name == "step":
            self.steps.append({"draft": 0.0, **self._open, "step": seconds})
            self._open = {}
        else:
            self._open[name] = self._open.get(name, 0.0) + seconds
