"""Who writes: one seam, two ways to run the target. Both append to the same kind of file and go on where it stops.

torch is our own loop at D = 0. Its batches are the same in every run, and its noise is keyed, so a run that was killed
and resumed writes what an uninterrupted one writes. vLLM runs in a Python of its own and is many times as fast; its
build for the CPU takes no seed for a request, so sampled texts differ from run to run.
"""

import copy
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.decode.loop import decode
from codraft.decode.target import Target
from codraft.train.data.answers import Progress, Wanted, Written, append_answers, read_answers


class Writer(Protocol):
    """Runs the target over requests."""

    name: str

    def write(
        self,
        wanted: Sequence[Wanted],
        out: Path,
        stop_ids: frozenset[int],
        progress: Progress,
        limit: int | None = None,
    ) -> dict[str, Written]:
        """All of `wanted` that `out` holds in the end, by key.

        Once these hold `limit` tokens no further text is begun; what is being written is finished, so that the limit
        does not favour short answers.
        """
        ...


class TorchWriter:
    """Our own loop, `batch` texts at a time. `target` is called only where something is left to be written."""

    name = "torch"

    def __init__(self, target: Callable[[], Target], batch: int) -> None:
        self._target, self._batch = target, batch

    def write(
        self,
        wanted: Sequence[Wanted],
        out: Path,
        stop_ids: frozenset[int],
        progress: Progress,
        limit: int | None = None,
    ) -> dict[str, Written]:
        """See `Writer`."""
        there = read_answers(out)
        found: dict[str, Written] = {w.key: there[w.key] for w in wanted if w.key in there}
        tokens = 0
        for group in batches(wanted, self._batch):
            if limit is not None and tokens >= limit:
                break
            # A batch that is partly there is written whole again, so that its numerics are what they were.
            if any(w.key not in found for w in group):
                texts = self._write_batch(group, stop_ids)
                append_answers(out, ((key, text) for key, text in texts.items() if key not in found))
                found = texts | found
            tokens += sum(len(found[w.key].output_ids) for w in group)
            progress(len(found), len(wanted))
        return found

    def _write_batch(self, group: Sequence[Wanted], stop_ids: frozenset[int]) -> dict[str, Written]:
        target = copy.copy(self._target())
        target.eos_ids = stop_ids
        requests = [Request(w.index, w.prompt_ids, w.max_tokens) for w in group]
        streams = decode(target, None, requests, group[0].sampling, 0)
        return {w.key: Written(s.text_ids, s.stop_reason(stop_ids)) for w, s in zip(group, streams, strict=True)}


def batches(wanted: Sequence[Wanted], size: int) -> Iterator[list[Wanted]]:
    """Texts of like length and sampling together. The batches are shuffled: a limit shall not favour short prompts."""
    by_sampling: dict[Sampling, list[Wanted]] = defaultdict(list)
    for w in wanted:
        by_sampling[w.sampling].append(w)
    made: list[list[Wanted]] = []
    for group in by_sampling.values():
        group.sort(key=lambda w: len(w.prompt_ids))
        made += [group[start : start + size] for start in range(0, len(group), size)]
    random.Random(0).shuffle(made)
    yield from made
