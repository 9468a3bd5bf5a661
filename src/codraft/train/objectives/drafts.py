"""Drafts behind many anchors, and the loss over them: the part that all mechanisms share.

A mechanism gives hidden states of K drafts behind each of A anchors, all at once or stage by stage, and turns them into
logits. Here these are held against what the target wrote, a few anchors at a time: logits over a vocabulary are formed,
their gradient is taken, and both are dropped before the next few. So memory does not grow with the vocabulary.
"""

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from codraft.core.errors import SpecError
from codraft.decode.target import Tap
from codraft.train.losses import Mix, total_variation
from codraft.train.readout import BorrowedReadout, Columns, Shortlist, narrow_type, wide

# Logits that are held at once, by device. On a CPU what a cache nearly holds: larger ones are handed back to the system
# and cleared anew for every allocation, which took longer than what was done with them.
LOGITS_AT_ONCE = {"cpu": 1 << 22, "cuda": 1 << 26}
Weights = Literal["decay", "dpace"]
# D-PACE smooths what it takes for the chance of acceptance: (1 - a) q + a [D-PACE].
DPACE_SMOOTHING = 0.5


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of training data one after the other: tokens [T] and masks [T] of what the target wrote, features [T, C].

    `bounds`: where rows begin, and the end. `rows` are their numbers in the data, `step` that of the training step.
    """

    tokens_T: Tensor
    mask_T: Tensor
    bounds: Sequence[int]
    features: Mapping[Tap, Tensor]
    rows: Sequence[int]
    step: int


@dataclass(frozen=True, slots=True)
class Drafts:
    """K drafts behind each of A anchors: `hidden_AKH` before the output head, `at_AK` the place in the batch of the
    token that each is to be, `valid_AK` whether there is one that the target wrote. `first`: how many drafts stand
    before them."""

    hidden_AKH: Tensor
    at_AK: Tensor
    valid_AK: Tensor
    first: int = 0


# Drafts to be judged; what is sent back says of each whether it hit.
Stages = Generator[Drafts, Tensor, None]


class Lesson(Protocol):
    """One mechanism's part."""

    num_drafts: int

    def num_anchors(self, batch: Batch) -> int:
        """Anchors that there will be; known before any pass, since losses are divided by all of them."""
        ...

    def stages(self, batch: Batch) -> Stages:
        """Teacher-forced drafts behind the anchors of a batch, the first ones first."""
        ...

    def leaves(self, batch: Batch, columns: Columns) -> list[Tensor]:
        """What `logits` reads and learns: parameters, or rows of them, gathered once for all parts of a batch."""
        ...

    def logits(
        self, hidden_nKH: Tensor, tokens_nK: Tensor, columns: Columns, leaves: Sequence[Tensor]
    ) -> tuple[Tensor, Tensor | None]:
        """([n, K, C] logits, [n, K] confidences where the mechanism has them); `tokens_nK` stand before each draft."""
        ...


@dataclass(frozen=True, slots=True)
class Weighing:
    """How much the drafts of an anchor count: `decay` ** i for the i-th, or by D-PACE's chance that it is reached."""

    kind: Weights
    decay: float

    def __call__(self, q_nK: Tensor, valid_nK: Tensor, first: int = 0) -> Tensor:
        """[n, K] from the probabilities that the drafter gives the target's tokens; `first` drafts stand before."""
        if self.kind == "decay":
            return self.decay ** (first + torch.arange(q_nK.shape[1], device=q_nK.device)).expand_as(q_nK)
        smooth_nK = (1 - DPACE_SMOOTHING) * q_nK + DPACE_SMOOTHING
        reached_nK = smooth_nK.masked_fill(~valid_nK, 0).cumprod(1)
        # w_j = sum of C_m over m >= j: what a better draft j is worth to all that come after it.
        return reached_nK.flip(1).cumsum(1).flip(1)


@dataclass(frozen=True, slots=True)
class Measured:
    """Sums over the drafts of a batch, [K] each: how many there were, hit, and -log p of the target's token; the loss,
    undivided; seconds spent on logits, their loss and their gradient."""

    counts_K: Tensor
    hits_K: Tensor
    nll_K: Tensor
    loss: float
    head_s: float


@dataclass(frozen=True, slots=True)
class Part:
    """Drafts of some anchors of a stage: the places [n, K] of the tokens that they are to be, and whether there are
    such; `first`: how many drafts stand before them."""

    batch: Batch
    columns: Columns
    at_nK: Tensor
    valid_nK: Tensor
    first: int


class Objective(nn.Module):
    """The loss of a batch. `final`: the tap from which the target's own distribution is read, where the mix reads it.

    `forward` gives (loss / denominator, sums). With several processes each passes the denominator of all of them.
    """

    def __init__(
        self,
        lesson: Lesson,
        shortlist: Shortlist,
        mix: Mix,
        weighing: Weighing,
        teacher: BorrowedReadout,
        confidence_weight: float = 0.0,
    ) -> None:
        super().__init__()
        # A lesson is a module, of which the trainable parameters are found.
        assert isinstance(lesson, nn.Module)
        self.lesson, self.mix, self.weighing = lesson, mix, weighing
        self.confidence_weight = confidence_weight
        self.shortlist, self.teacher = shortlist, teacher

    def num_anchors(self, batch: Batch) -> int:
        """See `Lesson.num_anchors`."""
        count: int = self.lesson.num_anchors(batch)
        return count

    def forward(self, batch: Batch, denominator: float) -> tuple[Tensor, Measured]:
        """(loss, sums)."""
        columns = self.shortlist.at(batch.step)
        sums = torch.zeros(3, self.lesson.num_drafts, dtype=torch.float64)
        stages: Stages = self.lesson.stages(batch)
        losses, seconds = [], 0.0
        drafts = next(stages, None)
        while drafts is not None:
            start = time.perf_counter()
            loss, hits_AK = self._stage(batch, drafts, columns, denominator, sums)
            losses.append(loss)
            seconds += time.perf_counter() - start
            try:
                drafts = stages.send(hits_AK)
            except StopIteration:
                drafts = None
        total = torch.stack(losses).sum()
        counts_K, hits_K, nll_K = sums
        return total, Measured(counts_K, hits_K, nll_K, float(total.detach()) * denominator, seconds)

    def _stage(
        self, batch: Batch, drafts: Drafts, columns: Columns, denominator: float, sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Loss of some drafts of all anchors, and which hit; `sums` take in what was measured."""
        A, K = drafts.at_AK.shape
        hits_AK = torch.zeros_like(drafts.valid_AK)

        def part(rows: slice, hidden_nKH: Tensor, leaves: Sequence[Tensor]) -> Tensor:
            some = Part(batch, columns, drafts.at_AK[rows], drafts.valid_AK[rows], drafts.first)
            loss, measured, hits_AK[rows] = self._part(some, hidden_nKH, leaves)
            sums[:, drafts.first : drafts.first + K] += measured
            return loss / denominator

        at_once = max(1, logits_at_once(batch.tokens_T.device.type) // (K * len(columns.ids_C)))
        leaves: list[Tensor] = self.lesson.leaves(batch, columns)
        loss: Tensor = Chunked.apply(part, at_once, A, drafts.hidden_AKH, *leaves)  # type: ignore[no-untyped-call]
        return loss, hits_AK

    def _part(self, some: Part, hidden_nKH: Tensor, leaves: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Undivided loss of some anchors; sums [3, K] of drafts, hits, -log p; which hit [n, K]."""
        columns, valid_nK, shape = some.columns, some.valid_nK, some.at_nK.shape
        tokens_T = some.batch.tokens_T
        logits_nKC, confidence_nK = self.lesson.logits(hidden_nKH, tokens_T[some.at_nK - 1], columns, leaves)
        logits_NC = wide(logits_nKC.flatten(0, 1))
        column_N = columns.place_V[tokens_T[some.at_nK]].flatten()
        # A token that the drafter cannot draft teaches nothing; it still counts as a draft that missed.
        known_N = valid_nK.flatten() & (column_N >= 0)
        column_N = column_N.clamp(min=0)
        target_NC = self._target(some) if self.mix.reads_target or confidence_nK is not None else None
        own_NC = logits_NC if columns.shift_C is None else logits_NC + columns.shift_C
        loss_nK = self.mix(own_NC, target_NC, column_N).masked_fill(~known_N, 0).view(shape)
        with torch.no_grad():
            nll_N = functional.cross_entropy(own_NC, column_N, reduction="none").masked_fill(~known_N, 0)
            hits_N = (logits_NC.argmax(-1) == column_N) & known_N
            q_nK = (-nll_N).exp().masked_fill(~known_N, 0).view(shape)
            weight_nK = self.weighing(q_nK, valid_nK, some.first)
            sums = torch.stack((valid_nK.double(), hits_N.view(shape).double(), nll_N.view(shape).double())).sum(1)
        loss = (loss_nK * weight_nK).sum()
        if confidence_nK is not None and self.confidence_weight:
            assert target_NC is not None
            wrong_nK = misjudged(confidence_nK, own_NC.detach(), target_NC, column_N)
            loss = loss + self.confidence_weight * (wrong_nK.masked_fill(~valid_nK, 0) * weight_nK).sum()
        return loss, sums.cpu(), hits_N.view(shape)

    @torch.no_grad()
    def _target(self, some: Part) -> Tensor:
        """[N, C] the target's logits where it wrote these tokens; anchors side by side ask for the same ones."""
        before_N = some.at_nK.flatten() - 1
        before_U, back_N = torch.unique(before_N, return_inverse=True)
        logits_UC = wide(self.teacher(some.batch.features["final"][before_U], some.columns))
        if some.columns.shift_C is not None:
            logits_UC += some.columns.shift_C
        return logits_UC if before_U.equal(before_N) else logits_UC[back_N]


def logits_at_once(device: str) -> int:
    """Numbers that logits may have on this kind of device."""
    return LOGITS_AT_ONCE["cpu" if device == "cpu" else "cuda"]


def misjudged(confidence_nK: Tensor, own_NC: Tensor, target_NC: Tensor, column_N: Tensor) -> Tensor:
    """[n, K] cross-entropy of confidences against the chance that a drawn draft is accepted [DSpark]."""
    # Autocast refuses this loss on a GPU, and it is in float32 anyway.
    with torch.autocast(own_NC.device.type, enabled=False):
        # Rounding may leave the range by a little.
        accepted_N = (1 - total_variation(own_NC, target_NC, column_N)).clamp(0, 1)
        return functional.binary_cross_entropy(
            confidence_nK.to(accepted_N.dtype), accepted_N.view(confidence_nK.shape), reduction="none"
        )


class Chunked(torch.autograd.Function):
    """A sum over anchors, some at a time; the gradient of each part is taken at once and its graph is dropped."""

    @staticmethod
    def forward(
        ctx: Any,
        part: Callable[[slice, Tensor, Sequence[Tensor]], Tensor],
        at_once: int,
        A: int,
        hidden_AKH: Tensor,
        *learning: Tensor,
    ) -> Tensor:
        """The sum over `at_once` anchors after the other; `part(rows, hidden_nKH, leaves)` is a scalar."""
        # Rows that were gathered have a graph of their own, which is not walked here. Parameters may also be read
        # where they are, but under autocast each part would cast them again.
        narrow = narrow_type(hidden_AKH.device.type)
        leaves = [
            one if one.is_leaf and narrow is None else one.detach().to(narrow or one.dtype).requires_grad_()
            for one in learning
        ]
        total = hidden_AKH.new_zeros((), dtype=torch.promote_types(hidden_AKH.dtype, torch.float32))
        grad_AKH = torch.zeros_like(hidden_AKH)
        grads = [torch.zeros_like(one) for one in learning]
        for start in range(0, A, at_once):
            rows = slice(start, min(start + at_once, A))
            with torch.enable_grad():
                hidden_nKH = hidden_AKH[rows].detach().requires_grad_()
                loss = part(rows, hidden_nKH, leaves)
            # A confidence head learns nothing where its loss has no weight.
            found = torch.autograd.grad(loss, [hidden_nKH, *leaves], allow_unused=True)
            total += loss.detach()
            grad_AKH[rows] = found[0]
            for held, grad in zip(grads, found[1:], strict=True):
                if grad is not None:
                    held += grad
        ctx.grads = (grad_AKH, *grads)
        return total

    @staticmethod
    def backward(ctx: Any, *outputs: Any) -> tuple[Tensor | None, ...]:
        """The gradients that were taken, scaled; they are given away once."""
        (grad_AKH, *own), ctx.grads = ctx.grads, ()
        for grad in (grad_AKH, *own):
            grad.mul_(outputs[0].to(grad.dtype))
        return None, None, None, grad_AKH, *own


def check_weighing(kind: str, decay: float) -> Weighing:
    """`--weights` and `--decay`. SpecError outside their ranges."""
    if kind not in ("decay", "dpace"):
        raise SpecError(f"--weights must be decay or dpace; got '{kind}'")
    if not 0 < decay <= 1:
        raise SpecError(f"--decay must lie above 0 and at most at 1; got {decay:g}")
    return Weighing("dpace" if kind == "dpace" else "decay", decay)
