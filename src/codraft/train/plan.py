"""What a run will take: disk, memory and time by term, from sizes alone and one measured matrix product.

Every term is a product of numbers that are told with it. Passes are counted as two operations a weight and token, and a
gradient as twice a pass; attention and everything that is not a matrix product is left out, so times are low by what
that takes (docs/log.md has a plan beside its run).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from codraft.core.training import PlanTerm
from codraft.decode.hf.load import Card, read_config
from codraft.train.begin import DRAFT_VOCAB
from codraft.train.cuts import kept_lengths
from codraft.train.fresh import USUAL_MARKOV_RANK, check_shape
from codraft.train.held import FEWEST, MOST, SHARE
from codraft.train.job import TrainJob
from codraft.train.kinds import KINDS
from codraft.train.objectives.drafts import logits_at_once
from codraft.train.tokens import TokenFile
from codraft.train.vocab import read_draft_vocabulary

FLOAT = 4
# Floats that a layer keeps of a row for the gradient: norms, residuals, queries to output; three of the feed-forward.
KEPT_HIDDENS, KEPT_FFNS = 8, 3
# Tensors [rows, columns] that a loss holds at once: both logits, both distributions, their gradient.
LOGITS_HELD = 5
# A gradient is two passes more; with respect to inputs alone one more.
LEARNING, FROZEN = 3, 2
# Moments of AdamW; Muon has one.
MOMENTS = {"adamw": 2, "muon": 1}
# Newton-Schulz: five times three products of a matrix with a square one of its shorter side, about.
MUON_PRODUCTS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Weights of what takes part. `layer` of one decoder layer of the target, `ends` of its embedding and output head
    where they are two; `own` of what learns in passes, `table` of what learns in output heads; `columns` that losses
    look at, `learns_columns`: whether these learn. `tables` of what learns and is looked up row by row: DSpark's."""

    hidden: int
    ffn: int
    num_layers: int
    layer: int
    ends: int
    own: int
    own_layers: int
    columns: int
    learns_columns: bool
    tables: int
    taps: int

    @property
    def learnt(self) -> int:
        """All that learns."""
        return self.own + self.tables + (self.columns * self.hidden if self.learns_columns else 0)


def sizes_of(job: TrainJob, card: Card) -> Sizes:
    """From the target's config and what is asked; layers are taken for Llama's kind."""
    config = read_config(card.folder, card.id).get_text_config(decoder=True)
    H, L, V = config.hidden_size, config.num_hidden_layers, card.vocab_size
    check_shape(job.shape, KINDS[job.mechanism], L)
    ffn = getattr(config, "intermediate_size", None) or 4 * H
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or H // heads
    attention = H * head_dim * (2 * heads + 2 * kv_heads)
    layer = attention + 3 * H * ffn
    width = job.shape.ffn or ffn
    kind = KINDS[job.mechanism]
    counts = job.shape.layers or ((max(1, L // 4),) if kind.whole_model else (2,) if kind.blocks else (1,))
    own_layers = len(counts) if len(counts) > 1 else counts[0]
    doubled = H * head_dim * (heads + 2 * kv_heads) if kind.reduced else 0
    taps = 0 if kind.whole_model else len(job.shape.taps or (0, 0, 0)) if kind.blocks or kind.reduced else 1
    joins = H * H * (2 if taps == 1 else taps)
    columns = min(draft_columns(job, V) if kind.reduced else job.shortlist + job.drawn if job.shortlist else V, V)
    return Sizes(
        hidden=H,
        ffn=ffn,
        num_layers=L,
        layer=layer,
        ends=V * H * (1 if getattr(config, "tie_word_embeddings", False) else 2),
        own=own_layers * (attention + 3 * H * (ffn if kind.whole_model else width)) + doubled + joins,
        own_layers=own_layers,
        columns=columns,
        learns_columns=kind.reduced,
        tables=2 * V * (job.shape.markov_rank or USUAL_MARKOV_RANK) if kind.confident else 0,
        taps=taps,
    )


def draft_columns(job: TrainJob, vocab_size: int) -> int:
    """Tokens that a head of its own drafts from."""
    if job.draft_vocab is None:
        return DRAFT_VOCAB
    return len(read_draft_vocabulary(job.draft_vocab, vocab_size).target_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """How much there is: tokens of one epoch, anchors and rows of drafts in it, steps of the run; tokens and rows of
    drafts that all evaluations together look at."""

    tokens: int
    anchors: int
    drafted_rows: int
    epochs: float
    steps: int
    measured_tokens: int
    measured_rows: int


def work_of(job: TrainJob, data: TokenFile) -> Work:
    """Of the data as batches will have it."""
    how, kind = job.recipe, KINDS[job.mechanism]
    kept = kept_lengths(data, job.max_length, loops=job.loops == "keep")
    tokens = int(kept.sum())
    anchors = round(data.num_supervised * tokens / max(1, data.num_tokens))
    blocks = min(anchors, how.anchors * len(data)) if kind.blocks else anchors
    # Sizes that are drawn are half as large in the mean.
    slots = (how.block_size + 1) / 2 if how.block_sizes == "drawn" else how.block_size
    per_anchor = slots if kind.blocks else 1 if kind.whole_model else how.drafts
    steps = job.max_steps or max(1, round(how.epochs * tokens / (job.batch_tokens * job.accumulate)))
    epochs = steps * job.batch_tokens * job.accumulate / max(1, tokens)
    held = job.held_out or min(MOST, max(FEWEST, round(SHARE * len(data))))
    share = min(1.0, held / max(1, len(data))) * (2 + steps // job.eval_every)
    return Work(
        tokens=tokens,
        anchors=blocks,
        drafted_rows=round(blocks * per_anchor),
        epochs=epochs,
        steps=steps,
        measured_tokens=round(tokens * share),
        measured_rows=round(data.num_supervised * share * (job.select + 1 if kind.blocks else 2)),
    )


def disk(job: TrainJob, s: Sizes, w: Work) -> list[PlanTerm]:
    """Bytes that stay."""
    moments = MOMENTS[job.recipe.optimizer]
    # The last layer's output serves losses and MTP.
    layers = len({*range(s.taps), "last"}) if s.taps > 1 else 1
    features = PlanTerm(
        name="features, if written once",
        value=float(w.tokens * layers * s.hidden * 2),
        of=f"{w.tokens:,} tokens x {layers} layers x {s.hidden} x 2 bytes",
    )
    return [
        *([] if written(job) else [features]),
        PlanTerm(
            name="state",
            value=float(s.learnt * FLOAT * (1 + moments)),
            of=f"{s.learnt:,} weights x {1 + moments} x 4 bytes",
        ),
        PlanTerm(name="drafter", value=float(s.learnt * 2), of=f"{s.learnt:,} weights x 2 bytes"),
    ]


def written(job: TrainJob) -> bool:
    """Whether the target's hidden states lie there already."""
    return job.features is not None and job.features.exists()


def memory(job: TrainJob, s: Sizes, w: Work, target_bytes: int, device: str) -> list[PlanTerm]:
    """Bytes at once on such a device, the target beside the drafter."""
    logits = logits_at_once(device)
    moments = MOMENTS[job.recipe.optimizer]
    target = s.num_layers * s.layer + s.ends
    per_token = w.drafted_rows / max(1, w.tokens)
    rows = round(job.batch_tokens * max(1.0, per_token))
    kept = s.own_layers * (KEPT_HIDDENS * s.hidden + (0 if job.checkpointing else KEPT_FFNS * s.ffn))
    return [
        PlanTerm(name="target", value=float(target * target_bytes), of=f"{target:,} weights x {target_bytes} bytes"),
        PlanTerm(
            name="drafter",
            value=float(s.learnt * FLOAT * (2 + moments)),
            of=f"{s.learnt:,} weights, gradients and {moments} moments x 4 bytes",
        ),
        PlanTerm(
            name="kept for the gradient", value=float(rows * kept * FLOAT), of=f"{rows:,} rows x {kept:,} x 4 bytes"
        ),
        PlanTerm(
            name="features of a batch",
            value=float(job.batch_tokens * (s.taps + 1) * s.hidden * FLOAT),
            of=f"{job.batch_tokens:,} tokens x {s.taps + 1} layers x {s.hidden} x 4 bytes",
        ),
        PlanTerm(
            name="logits at once",
            value=float(logits * FLOAT * LOGITS_HELD),
            of=f"{logits:,} numbers x {LOGITS_HELD} x 4 bytes",
        ),
    ]


def operations(job: TrainJob, s: Sizes, w: Work) -> list[PlanTerm]:
    """Floating-point operations of the whole run, in matrix products."""
    offline = job.features is not None
    passes = 0.0 if written(job) else 1.0 if offline else w.epochs
    target = 2.0 * s.num_layers * s.layer * w.tokens * passes
    own = 2.0 * LEARNING * s.own * w.drafted_rows * w.epochs
    rows = w.drafted_rows * w.epochs * s.columns * s.hidden
    output = 2.0 * (LEARNING if s.learns_columns else FROZEN) * rows
    teacher = 2.0 * w.anchors * w.epochs * s.columns * s.hidden if job.recipe.loss != "ce" else 0.0
    muon = 2.0 * MUON_PRODUCTS * s.own * min(s.hidden, s.ffn) * w.steps if job.recipe.optimizer == "muon" else 0.0
    ends = s.hidden * (s.columns if s.learns_columns else s.ends // s.hidden)
    replay = 2.0 * w.measured_rows * (s.own + ends)
    if not offline and s.taps:
        replay += 2.0 * s.num_layers * s.layer * w.measured_tokens
    taught = 0 if job.source is not None else min(job.recipe.copying, w.steps) * job.batch_tokens
    copying = 2.0 * taught * (LEARNING * s.own + (0 if offline else s.num_layers * s.layer))
    found = {
        "teaching attention to copy": copying,
        f"target's passes ({'once, for the features' if offline else 'in every epoch'})": target,
        "drafter, forward and backward": own,
        "drafter's logits and their gradient": output,
        "target's logits": teacher,
        "optimizer": muon,
        "replay of what is held out": replay,
    }
    return [PlanTerm(name=name, value=value, of="operations") for name, value in found.items() if value]


def measured_rate(s: Sizes, rows: int, device: str) -> float:
    """Operations a second of one feed-forward product of a batch, the median of some."""
    x, w = torch.randn(rows, s.hidden, device=device), torch.randn(s.ffn, s.hidden, device=device)
    seconds: list[float] = []
    for _ in range(9):
        start = time.perf_counter()
        torch.nn.functional.linear(x, w)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return 2.0 * rows * s.hidden * s.ffn / sorted(seconds)[len(seconds) // 2]


def timed(terms: Sequence[PlanTerm], rate: float) -> list[PlanTerm]:
    """Operations as seconds."""
    return [
        PlanTerm(name=term.name, value=term.value / rate, of=f"{term.value:.3g} operations at {rate:.3g}/s")
        for term in terms
    ]


def total(terms: Sequence[PlanTerm]) -> float:
    """All together."""
    return sum(term.value for term in terms)
