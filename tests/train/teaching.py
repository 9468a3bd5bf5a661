"""A tiny target's own answers as a token file, and runs over it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.load import load_model
from codraft.decode.loop import decode
from codraft.train.distributed import Ranks
from codraft.train.fresh import Shape
from codraft.train.job import TrainJob
from codraft.train.recipe import Recipe, recipe_of
from codraft.train.run import Run, train
from codraft.train.tokens import Origin, Row, write_tokens

from tests.train.data.letters import Quiet

MECHANISMS = ("eagle3", "mtp", "dflash", "dspark", "external")
VOCAB, LENGTH = 260, 24
# Wide enough to learn by heart, small enough to be quick. AdamW alone, whose steps are cheap at this size.
RECIPES: dict[str, dict[str, Any]] = {
    "eagle3": {"drafts": 3, "lr": 1e-2, "copying": 2},
    "mtp": {"drafts": 3, "lr": 1e-2, "copying": 2},
    "dflash": {"block_size": 4, "block_sizes": "fixed", "anchors": 8, "lr": 1e-2},
    "dspark": {"block_size": 3, "block_sizes": "fixed", "anchors": 8, "lr": 1e-2},
    "external": {"lr": 1e-2},
}


def write_answers(target: Path, output: Path, count: int = 12, length: int = LENGTH) -> Path:
    """What the target writes greedily after `count` short prompts; every third row holds two answers."""
    model = load_model(str(target), "float32")
    prompts = [[3 + (7 * i + 5 * j) % (VOCAB - 5) for j in range(2 + i % 4)] for i in range(count)]
    requests = [Request(i, prompt, length) for i, prompt in enumerate(prompts)]
    rows = []
    for i, stream in enumerate(decode(model, None, requests, Sampling(), 0)):
        ids = np.array([*prompts[i], *stream.text_ids])
        mask = np.arange(len(ids)) >= len(prompts[i])
        if i % 3 == 2:
            # A user's word in between.
            mask[len(prompts[i]) + length // 2] = False
        rows.append(Row(ids, mask, "even" if i % 2 == 0 else "odd"))
    write_tokens(output, rows, Origin(target=str(target), vocab_size=VOCAB, template="raw"))
    return output


def recipe(mechanism: str, **changes: Any) -> Recipe:
    """Of the mechanism, for tiny runs."""
    return recipe_of("short", mechanism, {"optimizer": "adamw", **RECIPES[mechanism], **changes})


def job(mechanism: str, target: Path, data: Path, output: Path, **changes: Any) -> TrainJob:
    """A run of a few steps."""
    how = {key: changes.pop(key) for key in list(changes) if key in Recipe.__slots__}
    made = TrainJob(
        mechanism=mechanism,
        target=str(target),
        data=data,
        output=output,
        recipe=recipe(mechanism, **how),
        shape=Shape(layers=(1,), markov_rank=8),
        batch_tokens=128,
        max_steps=6,
        eval_every=3,
        save_every=2,
        held_out=3,
        depth=3,
        select=3,
        dtype="float32",
        shortlist=0,
        # A small random target does little else.
        loops="keep",
    )
    return replace(made, **changes)


def run(asked: TrainJob, ranks: Ranks | None = None) -> Run:
    """To the end, silently."""
    return train(asked, ranks or Ranks(), Quiet())


def losses(output: Path) -> list[float]:
    """By step, from the log."""
    from json import loads

    rows: Sequence[dict[str, Any]] = [loads(line) for line in (output / "run" / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row["kind"] == "step"]
