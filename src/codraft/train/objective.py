"""From a drafter that learns and a recipe to its objective: which columns, whose output head, which lesson."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from codraft.decode.hf.model import HFModel
from codraft.decode.target import Tap
from codraft.train.checkpoint import Trainable
from codraft.train.kinds import KINDS
from codraft.train.losses import parse_mix
from codraft.train.objectives.block import BlockLesson
from codraft.train.objectives.drafts import Batch, Objective, check_weighing
from codraft.train.objectives.external import ExternalLesson
from codraft.train.objectives.serial import SerialLesson
from codraft.train.readout import Columns, Readout, borrowed, own
from codraft.train.recipe import Recipe


def columns_of(trainable: Trainable, target: HFModel, shortlist: Tensor | None) -> Columns:
    """A reduced vocabulary's tokens; those of the shortlist where the output head is the target's; else all."""
    ids = trainable.drafter.picker.target_ids  # type: ignore[attr-defined]
    if ids is None:
        learnt = getattr(trainable.module, "lm_head", None) is not None and not KINDS[trainable.mechanism].whole_model
        ids = torch.arange(target.vocab_size) if shortlist is None or learnt else shortlist
    return Columns.of(ids.to(target.device), target.vocab_size)


def objective_of(
    trainable: Trainable, target: HFModel, recipe: Recipe, columns: Columns, seed: int
) -> tuple[Objective, tuple[Tap, ...]]:
    """The objective, and the taps that its batches need."""
    mix = parse_mix(recipe.loss)
    teacher = borrowed(target, columns)
    lesson = LESSONS[trainable.mechanism](trainable, recipe, columns, teacher, seed)
    confidence = recipe.confidence if KINDS[trainable.mechanism].confident else 0.0
    weighing = check_weighing(recipe.weights, recipe.decay)
    taps: Sequence[Tap] = trainable.drafter.taps
    if mix.reads_target or confidence:
        taps = (*taps, "final")
    return Objective(lesson, columns, mix, weighing, teacher, confidence), tuple(dict.fromkeys(taps))


def serial(trainable: Trainable, recipe: Recipe, columns: Columns, teacher: Readout, seed: int) -> SerialLesson:
    """EAGLE-3 and MTP."""
    head: Any = trainable.module
    readouts = [readout_of(head, columns, teacher)] * head.num_modules
    noise = noise_of(recipe.noise, seed)
    return SerialLesson(head, readouts, recipe.drafts, noise, hits_alone=recipe.follow == "hits")


def block(trainable: Trainable, recipe: Recipe, columns: Columns, teacher: Readout, seed: int) -> BlockLesson:
    """DFlash and DSpark."""
    head: Any = trainable.module
    reduced = trainable.drafter.picker.target_ids is not None  # type: ignore[attr-defined]
    rows_C = torch.arange(len(columns.ids_C)) if reduced else columns.ids_C
    return BlockLesson(head, readout_of(head, columns, teacher), rows_C, recipe.anchors, seed)


def external(trainable: Trainable, recipe: Recipe, columns: Columns, teacher: Readout, seed: int) -> ExternalLesson:
    """A language model of its own, whose output head stays the target's."""
    model: Any = trainable.drafter.model  # type: ignore[attr-defined]
    return ExternalLesson(model, borrowed(model, columns))


LESSONS: dict[str, Callable[[Trainable, Recipe, Columns, Readout, int], Any]] = {
    "eagle3": serial,
    "mtp": serial,
    "dflash": block,
    "dspark": block,
    "external": external,
}


def readout_of(head: Any, columns: Columns, teacher: Readout) -> Readout:
    """A head's own output rows where it has some, else the target's."""
    layer = getattr(head, "lm_head", None)
    return teacher if layer is None else own(layer)


def noise_of(half: float, seed: int) -> Callable[[Tensor, Batch], Tensor] | None:
    """Uniform noise on fused features, a function of (seed, step, first row)."""
    if not half:
        return None

    def noisy(fused_TH: Tensor, batch: Batch) -> Tensor:
        generator = torch.Generator().manual_seed(hash((seed, batch.step, batch.rows[0])) % (1 << 63))
        drawn = torch.rand(fused_TH.shape, generator=generator).to(fused_TH)
        return fused_TH + half * (2 * drawn - 1)

    return noisy
