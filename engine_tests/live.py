"""Our side: a drafter decodes live, and every step is written down as the engine's recorder writes it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from codraft.core.spec import DrafterSpec, Sampling
from codraft.decode.drafter import Drafter, Features, Proposal, Request
from codraft.decode.forced import forced_pass
from codraft.decode.hf.load import load_model, sizes_of
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.beside import Beside
from codraft.drafters.pick import Picker
from codraft.drafters.registry import build

from engine_tests.compare import Margins, Step, Way

GREEDY = Sampling()


class Watch:
    """A drafter that notes what it drafts: tokens by (request, step), margins of its logits beside them."""

    def __init__(self, drafter: Drafter) -> None:
        self.drafter = drafter
        self.taps, self.prefix_stable, self.info = drafter.taps, drafter.prefix_stable, drafter.info
        self.rows: list[int] = []
        self.tokens: list[list[tuple[int, ...]]] = []
        self.margins: list[list[list[float]]] = []

    @property
    def draft_kind(self) -> Any:
        """See `Drafter`."""
        return self.drafter.draft_kind

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """See `Drafter`."""
        self.rows = list(range(len(requests)))
        self.tokens, self.margins = [[] for _ in requests], [[] for _ in requests]
        self.drafter.prefill(requests, anchors, features)

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """See `Drafter`."""
        with watched(getattr(self.drafter, "picker", None)) as calls:
            proposal = self.drafter.propose(anchors, D)
        for b, request in enumerate(self.rows):
            self.tokens[request].append(tuple(proposal.tokens[b]))
            self.margins[request].append([margin_B[b] for margin_B in calls])
        return proposal

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """See `Drafter`."""
        self.drafter.commit(accepted, bonus, features)

    def keep(self, rows: Sequence[int]) -> None:
        """See `Drafter`."""
        self.rows = [self.rows[row] for row in rows]
        self.drafter.keep(rows)

    def unroll(self, *args: Any) -> Any:
        """See `Drafter`."""
        return self.drafter.unroll(*args)

    def device_bytes(self, B: int, S: int) -> int:
        """See `Drafter`."""
        return self.drafter.device_bytes(B, S)


@contextmanager
def watched(picker: Picker | None) -> Iterator[list[list[float]]]:
    """Margins of every call of a picker's `best`, one for each sequence."""
    calls: list[list[float]] = []
    if picker is None:
        yield calls
        return
    best = picker.best

    def note(logits_NV: Tensor) -> Tensor:
        calls.append(gaps(logits_NV).tolist())
        return best(logits_NV)

    picker.best = note  # type: ignore[method-assign]
    try:
        yield calls
    finally:
        del picker.best


def gaps(logits_NV: Tensor) -> Tensor:
    """[N] distance of the two best logits."""
    top_N2 = logits_NV.float().topk(2, dim=-1).values
    return top_N2[:, 0] - top_N2[:, 1]


class Decoded:
    """What one drafter did on all prompts: ways, and the margins where someone asks."""

    def __init__(self, target: HFModel, drafter: Drafter, prompts: Sequence[Sequence[int]], limit: int, D: int) -> None:
        self.target, self.prompts, self.watch = target, prompts, Watch(drafter)
        requests = [Request(i, prompt, limit) for i, prompt in enumerate(prompts)]
        self.streams = decode(target, self.watch, requests, GREEDY, D)

    @cached_property
    def ways(self) -> list[Way]:
        """Output cut at the limit; steps whole. A step that an EOS cut counts the drafts up to it."""
        ways = []
        for stream, drafted in zip(self.streams, self.watch.tokens, strict=True):
            steps = zip(stream.steps, drafted, strict=True)
            ways.append(Way(tuple(stream.text_ids), tuple(Step(p, d[:k], a) for (p, k, a, _), d in steps)))
        return ways

    @cached_property
    def margins(self) -> list[Margins]:
        """Of every request; drafters without logits never tie."""
        return [self._margins(i) for i in range(len(self.prompts))]

    def _margins(self, request: int) -> Margins:
        steps, noted = self.streams[request].steps, self.watch.margins[request]
        by_anchor = {p: margins for (p, *_), margins in zip(steps, noted, strict=True)}

        def draft(anchor: int, i: int) -> float:
            margins = by_anchor[anchor]
            return margins[i] if margins else float("inf")

        return Margins(draft, lambda position: float(self._text_gaps(request)[position]))

    def _text_gaps(self, request: int) -> Tensor:
        """[T] margins of the target before each token of its output."""
        prompt, output = self.prompts[request], self.streams[request].text_ids
        gaps_T, _ = forced_pass(self.target, [*prompt, *output[:-1]], output, lambda logits_NV, _: gaps(logits_NV))
        assert gaps_T is not None
        return gaps_T


def load(folder: Path, dtype: str, threads: int | None = None) -> HFModel:
    """A target in one dtype."""
    if threads is not None:
        torch.set_num_threads(threads)
    return load_model(str(folder), dtype)


def drafter_beside(target: HFModel, folder: Path, spec: DrafterSpec) -> Drafter:
    """The drafter that codraft builds for this spec."""
    # Not by its card: small random targets have no tokenizer.
    sizes = sizes_of(target.model.config.get_text_config(decoder=True))
    return build(spec, Beside(str(folder), folder, sizes, GREEDY, target.dtype, lambda: target))
