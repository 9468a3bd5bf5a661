"""AL in the loop: replay of the drafter as it stands, on rows that it never learns from.

Not accuracy and not the loss: what counts is how many drafts in a row would be accepted, and that peaks while the loss
still falls.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from codraft.core.curve import CurvePoint
from codraft.core.errors import SpecError
from codraft.core.schema import AcceptanceResult
from codraft.core.stats import evenly
from codraft.decode.target import Tap
from codraft.replay.measure import Logs, replay_stream, result
from codraft.replay.streams import TokenStream
from codraft.train.checkpoint import Trainable
from codraft.train.features import FeatureSource
from codraft.train.tokens import TokenFile

# Share of the rows that is held out, and how many at least and at most.
SHARE, FEWEST, MOST = 0.02, 8, 96


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that nothing learns from, and their last answers as streams."""

    rows: list[int]
    streams: list[TokenStream]


def hold_out(data: TokenFile, count: int | None, eos_ids: frozenset[int], depth: int, max_length: int) -> HeldOut:
    """`count` rows (None: 2 %, 8 to 96), spread evenly over the file."""
    total = len(data)
    asked = min(MOST, max(FEWEST, round(SHARE * total))) if count is None else count
    if asked < 1 or asked >= total:
        raise SpecError(f"--held-out must leave rows to learn from: from 1 to {total - 1} of {total}; got {asked}")
    rows, streams = evenly(list(range(total)), asked), []
    for row in rows:
        stream = stream_of(data, row, eos_ids, depth, max_length)
        if stream is not None and stream.num_anchors() > 0:
            streams.append(stream)
    if not streams:
        raise SpecError(f"none of the {asked} rows held out holds a step to measure; raise --held-out")
    return HeldOut(rows, streams)


def stream_of(data: TokenFile, row: int, eos_ids: frozenset[int], depth: int, max_length: int) -> TokenStream | None:
    """A row's last answer. One that does not end by itself gives its last `depth` tokens as tail."""
    found = data.row(row)
    spans = [(first, min(last, max_length)) for first, last in found.spans() if first < max_length]
    if not spans:
        return None
    first, last = spans[-1]
    output = found.ids[first:last].tolist()
    asked = len(output) if output[-1] in eos_ids else len(output) - depth
    return TokenStream(
        index=row,
        conversation=str(row),
        turn=0,
        category=found.category,
        prompt_ids=found.ids[:first].tolist(),
        output_ids=output,
        asked=asked,
    )


@torch.no_grad()
def evaluate(
    trainable: Trainable,
    held: HeldOut,
    source: FeatureSource | None,
    eos_ids: frozenset[int],
    depths: Sequence[int],
    max_length: int,
) -> AcceptanceResult:
    """AL(D) in all and by category, by the replay that `codraft accept` runs."""
    drafter = trainable.drafter
    logs = Logs({D: [] for D in depths}, False, {"drafter_pass": 0.0, "walk": 0.0})
    trainable.module.eval()
    for stream in held.streams:
        features: Mapping[Tap, list[torch.Tensor]] = {}
        if drafter.taps and source is not None:
            inputs = len(stream.prompt_ids) + len(stream.output_ids) - 1
            found = source.features([stream.index], max_length)
            features = {tap: [rows[:inputs]] for tap, rows in found.items()}
        replay_stream(drafter, logs, stream, features, None, eos_ids, depths)
    trainable.module.train()
    return result(drafter, logs, held.streams, domains=True)


def point_at(curve: Sequence[CurvePoint], D: int) -> CurvePoint:
    """The point at D, or at the largest D below it."""
    return max((point for point in curve if point.D <= D), key=lambda point: point.D)


def learning_rows(data: TokenFile, held: HeldOut, max_length: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Rows that hold something to learn within `max_length`, those held out left aside."""
    aside = set(held.rows)
    rows = [row for row in range(len(data)) if row not in aside]
    usable = [row for row in rows if int(data.row(row).mask[:max_length].sum()) > 1]
    if not usable:
        raise SpecError(f"{data.path}: no row holds a token that the target wrote, so there is nothing to learn from")
    return np.array(usable, dtype=np.int64)
