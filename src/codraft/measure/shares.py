"""Where the time of a pass goes: FFN, attention's linear layers, the rest of attention, the head, everything else."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from codraft.decode.hf.model import HFModel

KINDS = ("ffn", "attention", "projections", "head")


class Sections:
    """Seconds spent in modules of each kind since the last `take`. On a GPU events are read after the pass."""

    def __init__(self, model: HFModel, modules: Mapping[str, list[Any]]) -> None:
        self._modules = modules
        self._cuda = model.device.startswith("cuda")
        self._spans: list[tuple[str, Any, Any]] = []
        self._open: dict[int, Any] = {}

    @contextmanager
    def watching(self) -> Iterator["Sections"]:
        """Hook the modules for as long as this is open."""
        handles = []
        for kind in KINDS:
            for module in self._modules[kind]:
                handles.append(module.register_forward_pre_hook(self._enter))
                handles.append(module.register_forward_hook(self._leaver(kind)))
        try:
            yield self
        finally:
            for handle in handles:
                handle.remove()

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _enter(self, module: Any, _inputs: Any) -> None:
        self._open[id(module)] = self._now()

    def _leaver(self, kind: str) -> Any:
        def leave(module: Any, _inputs: Any, _output: Any) -> None:
            self._spans.append((kind, self._open.pop(id(module)), self._now()))

        return leave

    def take(self) -> dict[str, float]:
        """Seconds by kind, and start anew; the pass must be over."""
        totals = dict.fromkeys(KINDS, 0.0)
        for kind, start, end in self._spans:
            totals[kind] += start.elapsed_time(end) / 1e3 if self._cuda else end - start
        self._spans = []
        return totals


def shares(seconds: Mapping[str, float], whole: float) -> dict[str, float]:
    """Shares of a pass that took `whole` seconds; what attention does besides its linear layers is its own share."""
    ffn, projections, head = (seconds[kind] / whole for kind in ("ffn", "projections", "head"))
    attention = max(0.0, seconds["attention"] / whole - projections)
    return {
        "ffn": ffn,
        "projections": projections,
        "attention": attention,
        "head": head,
        "other": max(0.0, 1 - ffn - projections - attention - head),
    }
