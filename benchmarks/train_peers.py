"""Tokens per second of a training step, beside the speculators library and Model-Optimizer, in one run.

    python benchmarks/train_peers.py PEERS_PYTHON TOKENS.safetensors

PEERS_PYTHON has `speculators`, `nvidia-modelopt` and a CPU build of torch. The same text (512 tokens of the target's
own, all but the first supervised), the same shapes (one EAGLE-3 layer, TTT 3; two layers of DFlash and DSpark, blocks
of 8 behind every position), float32, AdamW, forward, backward and optimizer. States of the target are cached, except
beside Model-Optimizer, which runs the target in every step, and so do we there. Ours and theirs alternate, three
rounds.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from codraft.cli.ui import QuietUi
from codraft.decode.hf.load import load_card
from codraft.train.begin import draft_ids
from codraft.train.checkpoint import load_target
from codraft.train.distributed import Ranks
from codraft.train.features import Online
from codraft.train.feed import Feed
from codraft.train.fresh import Shape
from codraft.train.job import Bench, TrainJob, prepare
from codraft.train.objectives.drafts import Batch
from codraft.train.recipe import recipe_of
from codraft.train.tokens import Origin, Row, TokenFile, write_tokens
from common import finish, spread

HERE = Path(__file__).parent
LENGTH, STEPS, ROUNDS = 512, 4, 3
TAPS = [1, 14, 26]
MASK_TOKEN = 16
V = 49152
# (name, mechanism, peer script, draft vocabulary, whether the target runs in every step, aim)
CASES = (
    ("eagle3, vocabulary of 8,192, states cached", "eagle3", "speculators", 8192, False, 1.3),
    ("eagle3, whole vocabulary, states cached", "eagle3", "speculators", V, False, 1.3),
    ("eagle3, vocabulary of 8,192, target in every step", "eagle3", "modelopt", 8192, True, 1.3),
    ("eagle3, whole vocabulary, target in every step", "eagle3", "modelopt", V, True, 1.3),
    ("dflash, whole vocabulary, states cached", "dflash", "speculators", V, False, 2.0),
    ("dspark, whole vocabulary, states cached", "dspark", "speculators", V, False, 2.0),
)


def text_of(path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """512 tokens of the target's answers."""
    data, ids = TokenFile(path), np.zeros(0, dtype=np.int64)
    for index in range(len(data)):
        row = data.row(index)
        ids = np.concatenate((ids, row.ids[row.mask]))
        if len(ids) >= LENGTH:
            break
    return ids[:LENGTH]


def job_of(mechanism: str, size: int, data: Path, work: Path) -> TrainJob:
    """Ours, of the same shape and losses."""
    losses = {"eagle3": {"loss": "kl", "drafts": 3, "follow": "all", "decay": 0.8, "copying": 0}}
    how = losses.get(
        mechanism,
        {"block_size": 8, "block_sizes": "fixed", "anchors": LENGTH, "loss": "ce" if mechanism == "dflash" else "kl"},
    )
    blocks = {} if mechanism == "eagle3" else {"layers": (2,), "mask_token_id": MASK_TOKEN, "markov_rank": 256}
    recipe = recipe_of("short", mechanism, {**how, "optimizer": "adamw", "lr": 1e-4})
    if mechanism == "dspark":
        recipe = replace(recipe, confidence=1.0)
    return TrainJob(
        mechanism=mechanism, target="demo", data=data, output=work, recipe=recipe, shape=Shape(**blocks),
        held_out=1, max_steps=1000, batch_tokens=LENGTH, dtype="float32", shortlist=0, loops="keep",
    )  # fmt: skip


def our_step(bench: Bench, batch: Callable[[], Batch]) -> Callable[[], float]:
    """Seconds of one step."""
    loop = bench.loop

    def step() -> float:
        start = time.perf_counter()
        made = batch()
        loss, _ = loop.module(made, float(loop.objective.num_anchors(made)))
        loss.backward()
        loop.move(10)
        return time.perf_counter() - start

    return step


def theirs(python: str, script: str, job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Their seconds by step."""
    file = folder / "peer.json"
    file.write_text(json.dumps(job))
    done = subprocess.run(
        [python, str(HERE / "peers" / f"{script}_steps.py"), str(file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no word"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def compare(case: Sequence[Any], python: str, source: Path, work: Path) -> tuple[dict[str, Any], float | None]:
    """Figures of one case, and the ratio of medians."""
    name, mechanism, script, size, beside, _ = case
    ids = text_of(source)
    data = work / "text.safetensors"
    mask = np.arange(LENGTH) > 0
    # Another prompt, to be held out.
    other = np.where(mask, ids, ids + 1)
    write_tokens(data, [Row(ids, mask), Row(other, mask)], Origin(target="demo", vocab_size=V, template="raw"))
    job = job_of(mechanism, size, data, work / name.replace(" ", "-"))
    texts = TokenFile(source)
    chosen = draft_ids(replace(job, draft_vocab=None), texts, range(len(texts)), load_card("demo"))
    if mechanism == "eagle3":
        job = replace(job, shape=replace(job.shape, target_ids=chosen if size < V else torch.arange(V)))
    bench = prepare(job, Ranks(), QuietUi())
    target = load_target("demo", "float32")
    states = Online(target, bench.data, (*TAPS, 29)).features([0], [LENGTH])
    feed = Feed(bench.data, bench.source, bench.data.lengths, "cpu")
    cached = feed.batch([0], 0)
    step = our_step(bench, (lambda: feed.batch([0], 0)) if beside else (lambda: cached))
    tensors = work / "text-states.safetensors"
    save_file({
        "ids": torch.from_numpy(ids), "mask": torch.from_numpy(mask), "draft_ids": chosen,
        "hidden": torch.cat([states[tap] for tap in TAPS], dim=-1).contiguous(), "last": states[29].contiguous(),
    }, tensors)  # fmt: skip
    asked = {
        "target": str(load_card("demo").folder), "algorithm": mechanism, "tensors": str(tensors), "draft_vocab": size,
        "layers": 1 if mechanism == "eagle3" else 2, "ffn": 1536, "layer_ids": [tap + 1 for tap in TAPS], "drafts": 3,
        "block_size": 8, "anchors": LENGTH, "markov_rank": 256, "mask_token_id": MASK_TOKEN, "steps": STEPS,
        "loss": "ce" if mechanism == "dflash" else "kl_div",
    }  # fmt: skip
    first, ours, peers, figures = step(), [], [], {}
    for _ in range(ROUNDS):
        ours += [LENGTH / step() for _ in range(STEPS - 1)]
        found = theirs(python, script, asked, work)
        if "error" in found:
            return {"ours tok/s": spread(ours, 1), f"{script}": found["error"]}, None
        peers += [LENGTH / seconds for seconds in found["seconds"][1:]]
        figures[f"{script} first step s"] = round(found["seconds"][0], 2)
    ratio = float(np.median(ours) / np.median(peers))
    return {
        "ours tok/s": spread(ours, 1), f"{script} tok/s": spread(peers, 1), "ratio": round(ratio, 2),
        "our first step s": round(first, 2), **figures,
    }, ratio  # fmt: skip


def main() -> int:
    """Print figures and the record."""
    python, source = sys.argv[1], Path(sys.argv[2])
    figures: dict[str, Any] = {}
    goals: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            figures[case[0]], ratio = compare(case, python, source, Path(folder))
            print(f"  {case[0]}: {figures[case[0]]}", file=sys.stderr)
            if ratio is not None:
                goals[f"{case[0]}: {case[5]} times"] = ratio >= case[5]
    return finish("train_peers", figures, goals, "float32")


if __name__ == "__main__":
    sys.exit(main())
