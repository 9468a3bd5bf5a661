"""Replay of all seven mechanisms on one set of streams, and what each learned one costs beside the floor of its passes.

The floor of a serial head: one causal forward of its layers over the stream, and D - 1 over the anchors' rows alone,
which see nothing of the prompt, with its output head over the anchors. That of a block head: one forward of its layers
over all blocks, which see nothing but themselves, with its output head. Heads are random, so a replay that drops an
anchor after its first miss would stop at once; the cost asked here is the worst case, in which every draft is taken for
a hit and none is dropped.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from codraft.core.spec import parse_drafter
from codraft.decode.drafter import Drafter
from codraft.decode.hf.load import Card
from codraft.decode.hf.model import HFModel
from codraft.drafters.beside import Beside
from codraft.drafters.block import BlockDrafter
from codraft.drafters.pick import ROWS_AT_ONCE, Picker
from codraft.drafters.registry import build
from codraft.drafters.rollout import Building
from codraft.drafters.serial import SerialDrafter
from codraft.replay.measure import replay, target_pass
from codraft.replay.streams import TokenStream
from common import GREEDY, finish, load, spread, streams
from heads import random_head

DEPTHS = list(range(1, 9))
REPEATS = 3
GOAL = 1.5
HEADS = ("eagle3", "mtp", "dflash,block=truncate", "dspark,block=truncate", "dflash")


class Everything(Picker):
    """Takes every draft for a hit, at the price of looking."""

    def score(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        """[N] true."""
        return super().score(logits_NV, tokens_N) | True


class OwnBlock:
    """Blocks that see nothing but themselves: the least that a pass over them can cost."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots

    def look(self, q_NhD: Tensor, k_NgD: Tensor, v_NgE: Tensor, **how: Any) -> Tensor:
        """Every slot of a block sees its block."""
        n = self.num_slots
        parts = [x.unflatten(0, (-1, n)).transpose(1, 2) for x in (q_NhD, k_NgD, v_NgE)]
        out = torch.nn.functional.scaled_dot_product_attention(*parts, scale=how["scale"], enable_gqa=True)
        return out.transpose(1, 2).flatten(0, 1)


def main() -> int:
    """Print figures and the record."""
    model, card, codec = load()
    chosen = streams(model, codec, "demo:8", 96, max(DEPTHS), 8).measurable
    figures: dict[str, Any] = {"streams": len(chosen), "output_tokens": sum(len(s.output_ids) for s in chosen)}
    goals: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        for text in ("ngram", "suffix", "external:demo-noisy", *HEADS):
            drafter = built(text, Path(folder), model, card)
            work = partial(replay, model, drafter, chosen, GREEDY, card.eos_ids, DEPTHS)
            figures[f"replay_s {text}"] = spread([once(work) for _ in range(REPEATS)])
            if isinstance(drafter, SerialDrafter | BlockDrafter):
                ratios = beside_floor(model, drafter, chosen)
                figures[f"against_floor {text}"] = spread(ratios)
                goals[f"{text} within {GOAL} of its floor"] = figures[f"against_floor {text}"]["median"] <= GOAL
            print(f"  {text}: done", file=sys.stderr)
    return finish("heads", figures, goals, model.dtype)


def built(text: str, folder: Path, model: HFModel, card: Card) -> Drafter:
    """A drafter; a learned one of a random head."""
    mechanism, _, options = text.partition(",")
    if text in HEADS:
        text = f"{mechanism}:{random_head(folder / mechanism, mechanism)}{',' + options if options else ''}"
    return build(parse_drafter(text), Beside.of(card, GREEDY, model.dtype, lambda: model))


def once(work: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@torch.inference_mode()
def beside_floor(model: HFModel, drafter: SerialDrafter | BlockDrafter, chosen: list[TokenStream]) -> list[float]:
    """Worst-case unroll over its floor, both summed over the streams, side by side, round after round."""
    drafter.picker = Everything("greedy", GREEDY, drafter.picker.vocab_size, drafter.picker.target_ids)
    features = [target_pass(model, stream, None, drafter.taps)[1] for stream in chosen]
    depths = [max(DEPTHS)] if drafter.prefix_stable else DEPTHS
    floor = serial_floor if isinstance(drafter, SerialDrafter) else block_floor
    ratios = []
    for turn in range(REPEATS + 1):
        ours = theirs = 0.0
        for stream, states in zip(chosen, features, strict=True):
            for D in depths:
                ours += once(partial(drafter.unroll, stream.prompt_ids, stream.output_ids, states, D))
                theirs += once(partial(floor, drafter, stream, states, D))
        if turn:
            ratios.append(ours / theirs)
    return ratios


def serial_floor(drafter: SerialDrafter, stream: TokenStream, states: Any, D: int) -> None:
    """A causal forward over the stream's rows, then D - 1 over its anchors' alone; each read out at the anchors."""
    head, first = drafter.head, len(stream.prompt_ids) - 1
    hidden_NH = head.fuse({tap: states[tap][0] for tap in drafter.taps})
    tokens_N = torch.tensor([*stream.prompt_ids, *stream.output_ids])[1:]
    rows_N = torch.arange(len(tokens_N))
    for k in range(D):
        hidden_NH, readable_NH = head.run(0, hidden_NH, tokens_N, rows_N, Building())
        if k == 0:
            hidden_NH, readable_NH = hidden_NH[first:-1], readable_NH[first:-1]
            tokens_N, rows_N = tokens_N[first:-1], rows_N[first:-1]
        for part in readable_NH.split(ROWS_AT_ONCE):
            drafter.picker.best(head.logits(0, part))


def block_floor(drafter: BlockDrafter, stream: TokenStream, states: Any, D: int) -> None:
    """One forward over the blocks of all anchors, and the context's keys and values."""
    head, (num_slots, k) = drafter.head, drafter._shape(D)
    fused_NH = head.fuse({tap: states[tap][0] for tap in drafter.taps})
    head.context(fused_NH, torch.arange(len(fused_NH)))
    anchors_C = torch.tensor(stream.output_ids[:-1])
    starts_C = torch.arange(len(anchors_C)) + len(stream.prompt_ids)
    hidden_CnH = head.fill(anchors_C, starts_C, num_slots, OwnBlock(num_slots))
    for part in hidden_CnH[:, head.first_slot : head.first_slot + k].flatten(0, 1).split(ROWS_AT_ONCE):
        drafter.picker.best(head.logits(part))


if __name__ == "__main__":
    sys.exit(main())
