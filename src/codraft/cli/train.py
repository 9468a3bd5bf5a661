"""`codraft train`: a drafter for a target."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from codraft.cli import options as o

Mechanism = Annotated[
    str,
    Parameter(
        help="eagle3, mtp, dflash or dspark (heads that read the target's hidden states), or external (some of the "
        "target's layers as a model of its own)."
    ),
]
Data = Annotated[Path, Parameter(help="Token file of the target's answers, made with `codraft train data`.")]
Output = Annotated[
    Path,
    Parameter(
        name=["--output", "-o"],
        help="Folder of the drafter: the best one so far by AL, from the first evaluation on. What the run needs to go "
        "on is in its `run/`; the same command goes on there.",
    ),
]
From = Annotated[
    str | None,
    Parameter(
        name="--from",
        help="Go on from this drafter (folder or hub id) instead of a fresh one, as after the target has changed. For "
        "mtp also a target that has modules.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFlags:
    """How it learns; what is not given is the recipe's."""

    loss: Annotated[
        str | None,
        Parameter(
            help="ce, kl, reverse_kl, tv, lk_alpha, lk, or a mix as ce=0.1,tv=1.8: the drafter's distribution against "
            "the token that the target wrote (ce) or against its distribution."
        ),
    ] = None
    weights: Annotated[
        str | None,
        Parameter(help="decay: the i-th draft counts --decay ** i; dpace: by the chance that it is reached."),
    ] = None
    decay: Annotated[float | None, Parameter(help="See --weights.")] = None
    drafts: Annotated[
        int | None, o.Whole, Parameter(help="Steps of the roll-out of eagle3 and mtp (training-time test).")
    ] = None
    follow: Annotated[
        str | None,
        Parameter(
            help="all: every anchor takes all --drafts, as published; hits: until a draft misses, as decoding does."
        ),
    ] = None
    anchors: Annotated[int | None, o.Whole, Parameter(help="Blocks of a row, of dflash and dspark, drawn anew.")] = None
    block_size: Annotated[
        int | None,
        o.Whole,
        Parameter(help="Slots of a block. dflash drafts one token less than that, dspark as many."),
    ] = None
    block_sizes: Annotated[
        str | None,
        Parameter(
            help="fixed: --block-size always; drawn: every step another one up to it, since engines cut blocks to what "
            "D takes, which is another block to slots that see each other."
        ),
    ] = None
    confidence: Annotated[float | None, Parameter(help="Weight of the confidence head's loss, of dspark.")] = None
    noise: Annotated[
        float | None, Parameter(help="Uniform noise of this half-width on the features that a serial head reads.")
    ] = None
    copying: Annotated[
        int | None,
        Parameter(
            help="Steps of a fresh head that teach its attention to find what a text repeats before all else, no more "
            "than the run has itself; 0: none. They need no output head and cost little."
        ),
    ] = None
    copying_rate: Annotated[
        float | None, Parameter(help="What was taught so then learns at this share of the rates.")
    ] = None
    optimizer: Annotated[str | None, Parameter(help="adamw, or muon: Muon for matrices and AdamW for the rest.")] = None
    lr: Annotated[float | None, Parameter(help="Learning rate of AdamW.")] = None
    muon_lr: Annotated[float | None, Parameter(help="Learning rate of Muon.")] = None
    weight_decay: Annotated[float | None, Parameter(help="Decoupled from the gradient.")] = None
    clip: Annotated[float | None, Parameter(help="Largest norm of a step's gradient.")] = None
    warmup: Annotated[float | None, Parameter(help="Share of the steps in which the rate rises.")] = None
    decline: Annotated[str | None, Parameter(help="How it falls then: cosine, linear, constant.")] = None
    epochs: Annotated[float | None, Parameter(help="Passes over the data.")] = None

    def given(self) -> dict[str, Any]:
        """Those that were given."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeFlags:
    """What a fresh drafter is like."""

    init: Annotated[
        Literal["target", "layers", "random"] | None,
        Parameter(
            help="What a head begins as: target, copies of the target's layers behind joints that hand its hidden "
            "state on; layers, the copies behind joints of noise; random, noise alone. Default: what learns fastest."
        ),
    ] = None
    layers: Annotated[
        str | None,
        Parameter(help="Layers of dflash and dspark (a number); of external a number, or those to take, as 0,1,28,29."),
    ] = None
    ffn: Annotated[int | None, o.Whole, Parameter(help="Width of a head's feed-forward; default: the target's.")] = None
    taps: Annotated[
        str | None, Parameter(help="Layers whose outputs a head reads, as 1,14,26; default: what engines take.")
    ] = None
    fc_norm: Annotated[
        bool | None,
        Parameter(negative=(), help="Norm each feature of eagle3 before they are joined; vLLM and SGLang read it."),
    ] = None
    draft_vocab: Annotated[
        Path | None, Parameter(help="Vocabulary of eagle3, made with `codraft train vocab`; default: 8192 tokens.")
    ] = None
    markov_rank: Annotated[int | None, o.Whole, Parameter(help="Rank of dspark's Markov head; default 256.")] = None
    mask_token: Annotated[
        int | None,
        o.Whole,
        Parameter(help="Token that fills blocks; default: a special one that never occurs in the data."),
    ] = None

    def given(self) -> set[str]:
        """Names of those that were given."""
        return {f.name for f in fields(self) if getattr(self, f.name) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFlags:
    """What a step is, and where it runs."""

    rows: Annotated[int | None, o.Whole, Parameter(help="Only the first so many rows of the data; default: all.")] = (
        None
    )
    batch_tokens: Annotated[int, o.Whole, Parameter(help="Tokens of a batch.")] = 2048
    accumulate: Annotated[int, o.Whole, Parameter(help="Batches of a step.")] = 1
    max_length: Annotated[int, o.Whole, Parameter(help="Rows are cut here.")] = 1024
    loops: Annotated[
        Literal["cut", "keep"],
        Parameter(help="An answer that ends in a loop is cut where its third round begins, or kept whole."),
    ] = "cut"
    max_steps: Annotated[int | None, o.Whole, Parameter(help="Steps, instead of --epochs.")] = None
    shortlist: Annotated[
        int,
        o.Whole,
        Parameter(
            help="Columns of a borrowed output head that losses look at: the tokens that the target wrote most often. "
            "0: all."
        ),
    ] = 12288
    drawn: Annotated[
        int,
        o.Whole,
        Parameter(
            help="Other columns beside the shortlist, anew in every step: what is never looked at might be drafted."
        ),
    ] = 2048
    features: Annotated[
        Path | None,
        Parameter(help="Hidden states written before by `codraft train features`; default: the target runs beside."),
    ] = None
    autocast: Annotated[
        bool, Parameter(negative=(), help="bfloat16 where it does no harm; weights stay in float32.")
    ] = False
    checkpointing: Annotated[bool, Parameter(negative=(), help="Compute feed-forwards twice, to hold less memory.")] = (
        False
    )
    parallel: Annotated[
        Literal["ddp", "fsdp"], Parameter(help="Under torchrun: whole copies, or shards of the drafter.")
    ] = "ddp"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureFlags:
    """How AL is measured on the way."""

    eval_every: Annotated[int, o.Whole, Parameter(help="Steps between evaluations.")] = 100
    save_every: Annotated[int, o.Whole, Parameter(help="Steps between saved states.")] = 50
    held_out: Annotated[
        int | None, o.Whole, Parameter(help="Rows to measure on, never learnt from; default 2 %, from 8 to 96.")
    ] = None
    depth: Annotated[int, o.Whole, Parameter(name=["--depth", "-D"], help="AL(D) up to this D.")] = 8
    select: Annotated[int, o.Whole, Parameter(help="The D whose AL picks the best checkpoint.")] = 4


def train(
    mechanism: Mechanism,
    target: o.Target,
    /,
    *,
    data: Data,
    output: Output,
    source: From = None,
    recipe: Annotated[
        str | None,
        Parameter(
            help="short (minutes to hours; the default), adapt (the same at a tenth of the rates; the default with "
            "--from), or as published: eagle, specforge, modelopt, speculators, deepspec. Flags below change parts."
        ),
    ] = None,
    how: Annotated[RecipeFlags | None, Parameter(name="*")] = None,
    shape: Annotated[ShapeFlags | None, Parameter(name="*")] = None,
    batch: Annotated[BatchFlags | None, Parameter(name="*")] = None,
    measure: Annotated[MeasureFlags | None, Parameter(name="*")] = None,
    seed: o.Seed = None,
    dtype: o.Dtype = "auto",
    json: o.Json = None,
) -> int:
    """A drafter for a target, from the target's own answers, in a layout that engines load.

    Losses and replay share one unroll, so what is learnt is what decoding will do. AL is measured by replay on held-out
    answers every so often, and the best checkpoint by AL is kept: the loss goes on falling when AL has long peaked.

        codraft train data demo --self-written 2000 -o tokens.safetensors
        codraft train eagle3 demo --data tokens.safetensors -o my-eagle3
        codraft accept demo -d eagle3:my-eagle3 -p demo:16

    Five commands stand beside it, each with a --help of its own:

        codraft train data       answers of the target, as a token file
        codraft train show       what of them is supervised, and what is wrong with prompts
        codraft train plan       disk, memory and time of a run
        codraft train vocab      a draft vocabulary, and the AL it allows
        codraft train features   the target's hidden states, once for several runs

    It can be killed at any time: the same command goes on, and ends as if it had never been. run/log.jsonl has a row
    for each step. Under torchrun it runs on several devices.
    """
    from codraft.core.record import check_apart, check_destination, emit

    check_destination(json)
    check_apart({"--output": output, "--json": json}, {"--data": [data]})
    from codraft.cli.train_table import print_training
    from codraft.cli.ui import QuietUi, RichUi
    from codraft.decode.hf.load import device
    from codraft.train.distributed import ranks
    from codraft.train.pages import large_pages
    from codraft.train.record import record_of
    from codraft.train.run import train as run_training

    large_pages()
    job = job_of(
        mechanism, target, data, output, source, recipe, how or RecipeFlags(), shape or ShapeFlags(),
        batch or BatchFlags(), measure or MeasureFlags(), 0 if seed is None else seed, dtype,
    )  # fmt: skip
    with ranks(device()) as found:
        finished = run_training(job, found, RichUi() if found.first else QuietUi())
        if found.first:
            record = record_of(finished)
            emit(record, json)
            print_training(record)
    return 0


def job_of(
    mechanism: str,
    target: str,
    data: Path,
    output: Path,
    source: str | None,
    recipe: str | None,
    how: RecipeFlags,
    shape: ShapeFlags,
    batch: BatchFlags,
    measure: MeasureFlags,
    seed: int,
    dtype: str,
) -> Any:
    """The job that the flags ask for. SpecError for what cannot be."""
    from codraft.core.spec import parse_list
    from codraft.decode.hf.load import check_dtype
    from codraft.train.fresh import Shape
    from codraft.train.job import TrainJob
    from codraft.train.kinds import kind_of, refuse_idle
    from codraft.train.recipe import recipe_of

    refuse_idle(mechanism, how.given(), shape.given(), source)
    chosen = recipe_of(recipe or ("short" if source is None else "adapt"), mechanism, how.given())
    return TrainJob(
        mechanism=mechanism,
        target=target,
        data=data,
        output=output,
        source=source,
        recipe=chosen if source is None else replace(chosen, copying=0),
        shape=Shape(
            init=shape.init or kind_of(mechanism).init,
            seed=seed,
            layers=None if shape.layers is None else tuple(parse_list(shape.layers, "--layers", lowest=0)),
            ffn=shape.ffn,
            taps=None if shape.taps is None else tuple(parse_list(shape.taps, "--taps", lowest=0)),
            fc_norm=bool(shape.fc_norm),
            mask_token_id=shape.mask_token,
            markov_rank=shape.markov_rank,
        ),
        draft_vocab=shape.draft_vocab,
        seed=seed,
        dtype=check_dtype(dtype),
        **{field.name: getattr(batch, field.name) for field in fields(batch)},
        **{field.name: getattr(measure, field.name) for field in fields(measure)},
    )
