"""AL in the loop: replay of the drafter as it stands, on rows that it never learns from.

Not accuracy and not the loss: what counts is how many drafts in a row would be accepted, and that peaks while the loss
still falls.
"""

from collections.abc import Mapping, Sequence

import torch

from codraft.core.curve import CurvePoint
from codraft.core.schema import AcceptanceResult
from codraft.decode.drafter import Drafter
from codraft.decode.target import Tap
from codraft.replay.measure import Logs, replay_stream, result
from codraft.train.checkpoint import Trainable
from codraft.train.features import FeatureSource
from codraft.train.held import HeldOut


@torch.no_grad()
def evaluate(
    trainable: Trainable,
    held: HeldOut,
    source: FeatureSource | None,
    eos_ids: frozenset[int],
    depths: Sequence[int],
) -> AcceptanceResult:
    """AL(D) in all and by category, by the replay that `codraft accept` runs."""
    drafter = trainable.drafter
    logs = Logs({D: [] for D in depths}, False, {"drafter_pass": 0.0, "walk": 0.0})
    trainable.module.eval()
    for stream in held.streams:
        features: Mapping[Tap, list[torch.Tensor]] = {}
        if drafter.taps and source is not None:
            inputs = len(stream.prompt_ids) + len(stream.output_ids) - 1
            features = {tap: [rows] for tap, rows in source.features([stream.index], [inputs]).items()}
        replay_stream(drafter, logs, stream, features, None, eos_ids, depths)
    trainable.module.train()
    return result(drafter, logs, held.streams, domains=True)


def point_at(curve: Sequence[CurvePoint], D: int) -> CurvePoint:
    """The point at D, or at the largest D below it."""
    return max((point for point in curve if point.D <= D), key=lambda point: point.D)


def depths_on_the_way(drafter: Drafter, depth: int, select: int) -> list[int]:
    """The D to measure again and again: all, where one unroll says them all, else the one that chooses."""
    return list(range(1, depth + 1)) if drafter.prefix_stable else [select]
