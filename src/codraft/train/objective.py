"""From a drafter that learns and a recipe to its objective: which columns, whose output head, which lesson."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from codraft.decode.hf.model import HFModel
from codraft.decode.target import Tap
from codraft.drafters.mtp import MtpHead
from codraft.train.checkpoint import Trainable
from codraft.train.kinds import KINDS
from codraft.train.losses import parse_mix
from codraft.train.objectives.block import BlockLesson
from codraft.train.objectives.drafts import Batch, Objective, check_weighing
from codraft.train.objectives.external import ExternalLesson
from codraft.train.objectives.serial import Noise, SerialLesson
from codraft.train.readout import BorrowedReadout, Columns, CopiedHead, OwnReadout, Readout, Shortlist
from codraft.train.recipe import Recipe


def columns_of(trainable: Trainable, target: HFModel, shortlist: Tensor | None) -> Columns:
    """A reduced vocabulary's tokens; those of the shortlist where the output head is borrowed; else all."""
    ids = reduced_ids(trainable)
    if ids is None:
        own = not KINDS[trainable.mechanism].whole_model and own_rows(trainable.module)
        ids = torch.arange(target.vocab_size) if shortlist is None or own else shortlist
    return Columns.of(ids.to(target.device), target.vocab_size)


def reduced_ids(trainable: Trainable) -> Tensor | None:
    """The tokens of a reduced vocabulary, in the target's numbers."""
    ids: Tensor | None = trainable.drafter.picker.target_ids  # type: ignore[attr-defined]
    return ids


def own_rows(head: nn.Module) -> bool:
    """Whether a head's own output rows, one for each token, are learnt."""
    layer = getattr(head, "lm_head", None)
    return layer is not None and layer.weight.requires_grad


def objective_of(
    trainable: Trainable, target: HFModel, recipe: Recipe, shortlist: Shortlist, seed: int
) -> tuple[Objective, tuple[Tap, ...]]:
    """The objective, and the taps that its batches need."""
    mix = parse_mix(recipe.loss)
    teacher = BorrowedReadout(target)
    lesson = LESSONS[trainable.mechanism](trainable, recipe, teacher, seed)
    confidence = recipe.confidence if KINDS[trainable.mechanism].confident else 0.0
    weighing = check_weighing(recipe.weights, recipe.decay)
    taps: Sequence[Tap] = trainable.drafter.taps
    if mix.reads_target or confidence:
        taps = (*taps, "final")
    return Objective(lesson, shortlist, mix, weighing, teacher, confidence), tuple(dict.fromkeys(taps))


def serial(trainable: Trainable, recipe: Recipe, teacher: Readout, seed: int) -> SerialLesson:
    """EAGLE-3 and MTP."""
    head: Any = trainable.module
    if isinstance(head, MtpHead):
        copies = [head.own_head(module) for module in range(head.num_modules)]
        readouts = [teacher if rows is None else BorrowedReadout(CopiedHead(rows)) for rows in copies]
    else:
        readouts = [readout_of(trainable, teacher)]
    noise = noise_of(recipe.noise, seed, trainable.drafter.taps)
    return SerialLesson(head, readouts, recipe.drafts, noise, hits_alone=recipe.follow == "hits")


def block(trainable: Trainable, recipe: Recipe, teacher: Readout, seed: int) -> BlockLesson:
    """DFlash and DSpark."""
    head: Any = trainable.module
    reduced = reduced_ids(trainable) is not None
    readout = readout_of(trainable, teacher)
    return BlockLesson(head, readout, recipe.anchors, seed, reduced=reduced, drawn_sizes=recipe.block_sizes == "drawn")


def external(trainable: Trainable, recipe: Recipe, teacher: Readout, seed: int) -> ExternalLesson:
    """A language model of its own, whose output head stays the target's."""
    model: Any = trainable.drafter.model  # type: ignore[attr-defined]
    return ExternalLesson(model, BorrowedReadout(model))


LESSONS: dict[str, Callable[[Trainable, Recipe, Readout, int], Any]] = {
    "eagle3": serial,
    "mtp": serial,
    "dflash": block,
    "dspark": block,
    "external": external,
}


def readout_of(trainable: Trainable, teacher: Readout) -> Readout:
    """A head's own output rows where it has some, else the target's."""
    layer = getattr(trainable.module, "lm_head", None)
    if layer is None:
        return teacher
    if own_rows(trainable.module) or reduced_ids(trainable) is not None:
        return OwnReadout(layer)
    return BorrowedReadout(CopiedHead(layer.weight))


def noise_of(half: float, seed: int, taps: Sequence[Tap]) -> Noise | None:
    """Uniform noise on what a head reads of the target, a function of (seed, step, first row)."""
    if not half:
        return None

    def noisy(batch: Batch) -> Mapping[Tap, Tensor]:
        generator = torch.Generator().manual_seed(hash((seed, batch.step, batch.rows[0])) % (1 << 63))
        found = dict(batch.features)
        for tap in dict.fromkeys(taps):
            drawn = torch.rand(found[tap].shape, generator=generator).to(found[tap])
            found[tap] = found[tap] + half * (2 * drawn - 1)
        return found

    return noisy
