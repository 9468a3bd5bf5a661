"""What a run begins with: a drafter that is there, or a fresh one, written to its folder before the first step."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codraft.decode.hf.load import Card
from codraft.decode.hf.model import HFModel
from codraft.formats.outfolder import new_folder
from codraft.replay.job import Ui
from codraft.train.batches import Schedule
from codraft.train.checkpoint import Trainable, export, open_trainable, write_fresh
from codraft.train.copying import block_seeking, serial_seeking, teach
from codraft.train.distributed import Ranks
from codraft.train.features import source_of
from codraft.train.feed import Feed
from codraft.train.fresh import Shape
from codraft.train.kinds import KINDS
from codraft.train.tokens import TokenFile
from codraft.train.vocab import build, kept_of, read_draft_vocabulary

if TYPE_CHECKING:
    from codraft.train.job import TrainJob

BEGIN, FRESH, TAUGHT = "begin", "fresh", "copying.json"
DRAFT_VOCAB = 8192
# Rows by which sizes of the target's hidden states are measured, and tokens of each.
PROBED, PROBE_LENGTH = 16, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a fresh drafter is made with: the `rows` that it learns from, of each the first `kept`, in the order of
    `schedule`; `steps` are those of the whole run."""

    job: "TrainJob"
    card: Card
    data: TokenFile
    target: HFModel
    rows: NDArray[np.int64]
    schedule: Schedule
    steps: int
    kept: NDArray[np.int64]


def opened(means: Means, ranks: Ranks, ui: Ui) -> tuple[Trainable, list[str]]:
    """The drafter that learns, and names of its parameters that were taught before all else."""
    job = means.job
    if job.source is not None:
        return open_trainable(job.mechanism, job.source, means.target, means.card), []
    folder = job.run / BEGIN
    if ranks.first and not folder.exists():
        if job.recipe.copying:
            write_taught(means, folder, ui)
        else:
            write_fresh(job.mechanism, means.target, means.card, shape_of(means), folder, probe(means))
    ranks.wait()
    file = folder / TAUGHT
    names = json.loads(file.read_text(encoding="utf-8"))["learnt"] if file.exists() else []
    return open_trainable(job.mechanism, str(folder), means.target, means.card), names


def write_taught(means: Means, folder: Path, ui: Ui) -> None:
    """A fresh drafter whose attention has been taught to find what a text repeats. A run that is killed in the middle
    of it begins it again."""
    job, steps = means.job, min(means.job.recipe.copying, means.steps)
    fresh = job.run / FRESH
    shutil.rmtree(fresh, ignore_errors=True)
    write_fresh(job.mechanism, means.target, means.card, shape_of(means), fresh, probe(means))
    drafter: Any = open_trainable(job.mechanism, str(fresh), means.target, means.card)
    drafter.module.to(means.target.device)
    source = source_of(job.features, means.data, means.target, drafter.drafter.taps)
    feed = Feed(means.data, source, means.kept, means.target.device)
    batches = (feed.batch(rows, step) for step in count() for rows in means.schedule.step(step))
    seeking = block_seeking if KINDS[job.mechanism].blocks else serial_seeking
    with ui.stage(f"teach attention to copy, {steps} steps") as report:
        names, losses = teach(
            drafter.module, seeking, batches, steps, lambda done: report(done, steps), autocast=job.autocast
        )
    told = {"learnt": names, "steps": steps, "losses": [round(loss, 4) for loss in losses]}
    with new_folder(folder) as part:
        export(drafter, drafter.parameters, part, torch.float32)
        (part / TAUGHT).write_text(json.dumps(told) + "\n", encoding="utf-8")
    shutil.rmtree(fresh)


def probe(means: Means) -> list[list[int]]:
    """Some text of the data."""
    return [means.data.row(row).ids[:PROBE_LENGTH].tolist() for row in islice(means.rows, PROBED)]


def shape_of(means: Means) -> Shape:
    """What was asked for, and what of it the data decides."""
    job, shape, kind = means.job, means.job.shape, KINDS[means.job.mechanism]
    if kind.reduced:
        shape = replace(shape, target_ids=draft_ids(job, means.data, means.rows, means.card))
    if kind.blocks:
        mask = shape.mask_token_id if shape.mask_token_id is not None else mask_token(means.data, means.card)
        shape = replace(shape, mask_token_id=mask, block_size=job.recipe.block_size)
    return shape


def draft_ids(job: "TrainJob", data: TokenFile, rows: Iterable[int], card: Card) -> Tensor:
    """The reduced vocabulary that was asked for, or the usual one, counted in the answers of these rows."""
    if job.draft_vocab is not None:
        return torch.from_numpy(read_draft_vocabulary(job.draft_vocab, card.vocab_size).target_ids)
    counts = counts_of(data, rows, card.vocab_size).numpy()
    kept = kept_of(card)
    size = min(DRAFT_VOCAB, card.vocab_size)
    return torch.from_numpy(build(counts, kept, size).vocabulary.target_ids)


def mask_token(data: TokenFile, card: Card) -> int:
    """A special token that never occurs in the data, the last of them; else the token seen least."""
    counts = torch.zeros(card.vocab_size, dtype=torch.int64)
    for index in range(len(data)):
        counts += torch.bincount(torch.from_numpy(data.row(index).ids), minlength=card.vocab_size)
    special = [i for i in card.tokenizer.all_special_ids if i < card.vocab_size and not int(counts[i])]
    return max(special) if special else int(counts.argmin())


def counts_of(data: TokenFile, rows: Iterable[int], vocab_size: int) -> Tensor:
    """[V] how often the target wrote each token in these rows."""
    counts = torch.zeros(vocab_size, dtype=torch.int64)
    for index in rows:
        row = data.row(index)
        counts += torch.bincount(torch.from_numpy(row.ids[row.mask]), minlength=vocab_size)
    return counts
