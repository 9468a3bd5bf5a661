"""The job behind `codraft train`: a target, its answers and a recipe in; a drafter in a public layout out.

The output folder holds the best drafter so far, by AL, in the layout that it began in, from the first evaluation on.
`run/` beside it holds what the run needs to go on: the checkpoint it began as, the state, the log.
"""

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.files import atomic_write, sha256_file, sha256_text, write_failure
from codraft.core.spec import check_positive
from codraft.decode.hf.load import Card, load_card, resolve_folder
from codraft.decode.hf.model import HFModel
from codraft.replay.job import Ui
from codraft.train.batches import BatchPlan, Schedule
from codraft.train.begin import Means, counts_of, opened
from codraft.train.checkpoint import Trainable, load_target
from codraft.train.cuts import kept_lengths
from codraft.train.distributed import Parallel, Ranks, recompute_feed_forwards, shared
from codraft.train.features import FeatureSource, read_description, source_of
from codraft.train.feed import Feed
from codraft.train.fresh import Shape
from codraft.train.held import HeldOut, hold_out, learning_rows
from codraft.train.identity import weights_id
from codraft.train.kinds import kind_of
from codraft.train.loop import Loop
from codraft.train.objective import columns_of, objective_of, reduced_ids
from codraft.train.optim import optimizers_of
from codraft.train.readout import Shortlist
from codraft.train.recipe import Recipe
from codraft.train.state import FILE, load_state
from codraft.train.tokens import TokenFile

Loops = Literal["cut", "keep"]
RUN, ASKED = "run", "asked.json"
# What a run leaves that is killed before it has said what it is.
BEGUN = re.compile(r"\..*\.part|begin|fresh|copying\.json")
DEFAULT_SHORTLIST, DEFAULT_DRAWN = 12288, 2048

# Parts of a job that make another run of it, and stand in `asked.json` as they are.
ASKED_AS_GIVEN = (
    "rows", "shortlist", "drawn", "max_length", "loops", "batch_tokens", "accumulate", "max_steps", "held_out",
    "select", "dtype", "autocast", "seed",
)  # fmt: skip


# What 0 stands for, and what no machine has or no user means.
NONE = {"shortlist": "all of them", "drawn": "none"}
MOST = {"depth": 64, "accumulate": 1 << 16, "batch_tokens": 1 << 24, "max_length": 1 << 24}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainJob:
    """What was asked. `source` is a drafter to go on from, None for a fresh one of `shape`. `shortlist` 0: all columns
    of a borrowed output head; `drawn`: others beside it, anew in every step. `select` is the D whose AL picks the best
    checkpoint."""

    mechanism: str
    target: str
    data: Path
    output: Path
    recipe: Recipe
    shape: Shape = field(default_factory=Shape)
    source: str | None = None
    draft_vocab: Path | None = None
    features: Path | None = None
    rows: int | None = None
    shortlist: int = DEFAULT_SHORTLIST
    drawn: int = DEFAULT_DRAWN
    max_length: int = 1024
    loops: Loops = "cut"
    batch_tokens: int = 2048
    accumulate: int = 1
    max_steps: int | None = None
    eval_every: int = 100
    save_every: int = 50
    held_out: int | None = None
    depth: int = 8
    select: int = 4
    dtype: str = "auto"
    autocast: bool = False
    checkpointing: bool = False
    parallel: Parallel = "ddp"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.recipe.weights == "dpace" and not kind_of(self.mechanism).blocks:
            raise SpecError(
                f"--weights dpace weighs all drafts of a block at once, and {self.mechanism} drafts one after the "
                "other; take decay"
            )
        for name in ("max_length", "batch_tokens", "accumulate", "eval_every", "save_every", "depth", "select"):
            check_positive(getattr(self, name), f"--{name.replace('_', '-')}")
        for name in ("max_steps", "rows"):
            check_positive(getattr(self, name), f"--{name.replace('_', '-')}")
        for name in ("shortlist", "drawn"):
            if getattr(self, name) < 0:
                raise SpecError(f"--{name} is a number of columns, 0 for {NONE[name]}; got {getattr(self, name)}")
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise SpecError(f"--{name.replace('_', '-')} must be at most {most:,}; got {getattr(self, name):,}")
        if not 0 <= self.seed < 1 << 63:
            raise SpecError(f"--seed must be in 0..2**63 - 1; got {self.seed}")
        if self.dtype == "float64":
            raise SpecError("--dtype float64: drafters learn in float32; take auto, float32, bfloat16 or float16")
        if self.select > self.depth:
            raise SpecError(f"--select must be at most --depth {self.depth}; got {self.select}")

    @property
    def run(self) -> Path:
        """Where the run keeps its state."""
        return self.output / RUN

    def asked(self, data: TokenFile) -> dict[str, Any]:
        """What a run is; another answer here is another run. Where files lie and how often is measured is not."""
        told = {
            "mechanism": self.mechanism,
            "target": self.target,
            "data": data.sha256,
            "from": self.source,
            "recipe": asdict(self.recipe),
            "shape": {name: plain(getattr(self.shape, name)) for name in Shape.__slots__},
        }
        told["target_weights"] = weights_id(resolve_folder(self.target))
        if self.source is not None:
            told["from_weights"] = weights_id(resolve_folder(self.source))
        # Stored numbers are rounded, so that a run with them is another run than one without.
        told["features"] = None if self.features is None else read_description(self.features)["dtype"]
        if self.draft_vocab is not None:
            told["draft_vocab"] = sha256_file(self.draft_vocab)
        for name in ASKED_AS_GIVEN:
            told[name] = getattr(self, name)
        return told


def plain(value: Any) -> Any:
    """A value as JSON has it; a long list of ids by its hash."""
    return sha256_text(repr(value.tolist()))[:16] if isinstance(value, Tensor) else value


@dataclass(slots=True, kw_only=True)
class Bench:
    """All that a run has at hand before its first step."""

    job: TrainJob
    card: Card
    data: TokenFile
    target: HFModel
    trainable: Trainable
    held: HeldOut
    source: FeatureSource | None
    loop: Loop
    ranks: Ranks


def prepare(job: TrainJob, ranks: Ranks, ui: Ui) -> Bench:
    """Everything checked and loaded. SpecError before anything long."""
    card, data = load_card(job.target), TokenFile(job.data, job.rows)
    if data.origin.vocab_size != card.vocab_size:
        raise SpecError(
            f"{job.data} was written by a target of {data.origin.vocab_size} tokens ({data.origin.target}), and "
            f"{job.target} has {card.vocab_size}; write answers of this target with: codraft train data"
        )
    kept = kept_lengths(data, job.max_length, loops=job.loops == "keep")
    held = hold_out(data, job.held_out, card.eos_ids, job.depth, kept)
    with begun(job, data, ranks):
        return bench_of(job, ranks, ui, card, data, kept, held)


def bench_of(
    job: TrainJob, ranks: Ranks, ui: Ui, card: Card, data: TokenFile, kept: NDArray[np.int64], held: HeldOut
) -> Bench:
    """Target, drafter and loop."""
    rows = learning_rows(data, held, kept)
    with ui.stage(f"load {job.target}"):
        target = load_target(job.target, job.dtype)
    alone = schedule_of(job, kept, rows, Ranks())
    means = Means(
        job=job, card=card, data=data, target=target, rows=rows, kept=kept, schedule=alone,
        steps=job.max_steps or alone.steps(job.recipe.epochs),
    )  # fmt: skip
    trainable, taught = opened(means, ranks, ui)
    shortlist = shortlist_of(job, trainable, target, data, rows, card)
    objective, taps = objective_of(trainable, target, job.recipe, shortlist, job.seed)
    objective.to(target.device).train()
    source = source_of(job.features, data, target, taps) if taps else None
    if job.checkpointing:
        recompute_feed_forwards(trainable.module)
    schedule = schedule_of(job, kept, rows, ranks)
    module = shared(objective, ranks, job.parallel)
    learning = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    loop = Loop(
        objective=objective,
        module=module,
        optimizers=optimizers_of(learning, job.recipe, taught, coarse=job.autocast),
        recipe=job.recipe,
        schedule=schedule,
        feed=Feed(data, source, kept, target.device),
        steps=job.max_steps or schedule.steps(job.recipe.epochs),
        ranks=ranks,
        autocast=job.autocast,
    )
    return Bench(
        job=job, card=card, data=data, target=target, trainable=trainable, held=held, source=source,
        loop=loop, ranks=ranks,
    )  # fmt: skip


def schedule_of(job: TrainJob, kept: NDArray[np.int64], rows: NDArray[np.int64], ranks: Ranks) -> Schedule:
    """Which rows make which step of this process."""
    plan = BatchPlan(lengths=kept[rows], batch_tokens=job.batch_tokens, seed=job.seed)
    return Schedule(Renumbered(plan, rows), job.accumulate, ranks.rank, ranks.world)


class Renumbered:
    """A plan over some rows of the data, told by their numbers there."""

    def __init__(self, plan: BatchPlan, rows: Any) -> None:
        self.plan, self.rows = plan, rows

    def epoch(self, number: int) -> list[list[int]]:
        """See `BatchPlan.epoch`."""
        return [[int(self.rows[i]) for i in batch] for batch in self.plan.epoch(number)]


def shortlist_of(
    job: TrainJob, trainable: Trainable, target: HFModel, data: TokenFile, rows: Iterable[int], card: Card
) -> Shortlist:
    """The columns that losses look at: a head's own, or of a borrowed output head those of the shortlist, and some
    others in turn."""
    common = common_tokens(data, rows, job.shortlist, card) if job.shortlist else None
    fixed = columns_of(trainable, target, common)
    return Shortlist(fixed, job.drawn if reduced_ids(trainable) is None else 0, job.seed)


def common_tokens(data: TokenFile, rows: Iterable[int], size: int, card: Card) -> Tensor:
    """The tokens that the target wrote most often in these rows, ascending; its end tokens always among them."""
    counts = counts_of(data, rows, card.vocab_size)
    counts[list(card.eos_ids)] = counts.max() + 1
    # Of equal counts the lower id, whose merge is older.
    order = torch.sort(counts, descending=True, stable=True).indices
    return order[: min(size, card.vocab_size)].sort().values


@contextmanager
def begun(job: TrainJob, data: TokenFile, ranks: Ranks) -> Iterator[None]:
    """A folder to run in, new or of this very run. Where it is new, nothing stays of a run that is refused."""
    asked = job.asked(data)
    file = job.run / ASKED
    fresh = not file.exists()
    if not fresh:
        differing = differences(flat(json.loads(file.read_text(encoding="utf-8"))), flat(json.loads(json.dumps(asked))))
        if differing:
            raise SpecError(
                f"{job.output} holds a run that was asked something else ({differing}); ask the same, name another "
                f"folder, or go on from it there with --from {job.output}"
            )
    there = job.output.exists()
    if fresh and there:
        refuse_foreign(job)
    ranks.wait()
    try:
        job.run.mkdir(parents=True, exist_ok=True)
        if ranks.first and not file.exists():
            with atomic_write(file) as handle:
                handle.write(json.dumps(asked, indent=1) + "\n")
    except OSError as error:
        raise SpecError(write_failure(job.run, error)) from error
    try:
        yield
    except (SpecError, CapabilityError):
        if fresh and ranks.first:
            shutil.rmtree(job.run if there else job.output, ignore_errors=True)
        raise


def refuse_foreign(job: TrainJob) -> None:
    """SpecError for an output folder that holds more than a run which was killed as it began."""
    try:
        if not job.output.is_dir():
            raise SpecError(f"{job.output} is a file, and the drafter is a folder; name another place")
        begun = [one.name for one in job.run.iterdir()] if job.run.is_dir() else []
        if {one.name for one in job.output.iterdir()} <= {RUN} and all(BEGUN.fullmatch(name) for name in begun):
            shutil.rmtree(job.run, ignore_errors=True)
            return
    except OSError as error:
        raise SpecError(f"cannot look into {job.output}: {error.strerror or error}; name another place") from error
    raise SpecError(f"{job.output} holds files of something else; name a folder that does not exist yet")


def flat(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked, parts of recipe and shape by their own names."""
    parts = {name: value for part in ("recipe", "shape") for name, value in asked.get(part, {}).items()}
    return {name: value for name, value in asked.items() if name not in ("recipe", "shape")} | parts


def differences(held: Mapping[str, Any], told: Mapping[str, Any]) -> str:
    """What two runs were asked that is not the same. What an earlier codraft did not note down is not compared."""
    names = [name for name in told if name in held and held[name] != told[name]]
    return ", ".join(f"{name} was {json.dumps(held[name])}, now {json.dumps(told[name])}" for name in names)


def resume(bench: Bench) -> Any:
    """Take up a run that was saved; None where there is none."""
    if not (bench.job.run / FILE).exists():
        return None
    return load_state(bench.job.run, bench.loop.module, bench.loop.optimizers)
