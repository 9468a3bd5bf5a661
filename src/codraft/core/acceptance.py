"""Acceptance arithmetic: which steps there were, and AL and its relatives from integer counts.

Everything starts from a log of steps. A *step* is one verification pass after prefill, with or without a draft. Ratios
are derived once, from pooled counts: AL = 1 + accepted / steps (bonus included, prefill excluded).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codraft.core.curve import CurvePoint
from codraft.core.stats import bootstrap_weights, interval95

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLog:
    """Steps of one stream at one D, one entry a step (N entries).

    `anchor_N` is the output position of the anchor, `cut_N` marks steps ended by an accepted EOS (no bonus). `weight_N`
    is 1 for steps that happened; in expectations over draft randomness it is the probability of that outcome.
    """

    anchor_N: Ints
    drafted_N: Ints
    accepted_N: Ints
    cut_N: NDArray[np.bool_]
    weight_N: Floats

    @classmethod
    def of(cls, steps: Sequence[tuple[int, int, int, bool]]) -> "StepLog":
        """From (anchor, drafted, accepted, cut) of every step that happened."""
        table = np.array(steps, dtype=np.int64).reshape(len(steps), 4)
        return cls(
            anchor_N=table[:, 0],
            drafted_N=table[:, 1],
            accepted_N=table[:, 2],
            cut_N=table[:, 3].astype(bool),
            weight_N=np.ones(len(steps)),
        )

    def select(self, keep_N: NDArray[np.bool_]) -> "StepLog":
        """The steps marked in `keep_N`."""
        return StepLog(
            anchor_N=self.anchor_N[keep_N],
            drafted_N=self.drafted_N[keep_N],
            accepted_N=self.accepted_N[keep_N],
            cut_N=self.cut_N[keep_N],
            weight_N=self.weight_N[keep_N],
        )


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Number of steps by (tokens drafted, tokens accepted), and how many of them an accepted EOS cut."""

    counts: Floats
    cut_steps: float

    @classmethod
    def from_log(cls, log: StepLog, D: int) -> "Acceptance":
        """Tabulate a log whose drafts are at most D long."""
        counts = np.zeros((D + 1, D + 1))
        np.add.at(counts, (log.drafted_N, log.accepted_N), log.weight_N)
        return cls(counts, float(log.weight_N[log.cut_N].sum()))

    @classmethod
    def pool(cls, parts: Sequence["Acceptance"]) -> "Acceptance":
        """Sum of the counts: pool first, divide last."""
        return cls(np.sum([part.counts for part in parts], axis=0), float(sum(part.cut_steps for part in parts)))

    @property
    def D(self) -> int:
        """Draft length asked for."""
        return len(self.counts) - 1

    @property
    def steps(self) -> float:
        """Verification passes, with or without a draft."""
        return float(self.counts.sum())

    @property
    def drafted_steps(self) -> float:
        """Steps with at least one drafted token."""
        return float(self.counts[1:].sum())

    @property
    def accepted(self) -> float:
        """Drafted tokens that were accepted."""
        return float((self.counts.sum(axis=0) * np.arange(self.D + 1)).sum())

    @property
    def drafted(self) -> float:
        """Tokens drafted."""
        return float((self.counts.sum(axis=1) * np.arange(self.D + 1)).sum())

    @property
    def AL(self) -> float:
        """Acceptance length, 1 + accepted / steps; needs at least one step."""
        return 1 + self.accepted / self.steps

    @property
    def coverage(self) -> float:
        """Share of steps that had a draft."""
        return self.drafted_steps / self.steps

    def joint(self) -> list[float]:
        """joint[k-1]: share of all steps with at least k accepted; sums to AL - 1."""
        by_accepted = self.counts.sum(axis=0)
        return [float(by_accepted[k:].sum() / self.steps) for k in range(1, self.D + 1)]

    def conditional(self) -> list[float | None]:
        """conditional[k-1]: chance that draft k is accepted, over steps that drafted k and accepted k - 1.

        None where no step got that far.
        """
        rates: list[float | None] = []
        for k in range(1, self.D + 1):
            reached = float(self.counts[k:, k - 1 :].sum())
            rates.append(float(self.counts[k:, k:].sum()) / reached if reached > 0 else None)
        return rates

    def proposal_lengths(self) -> Floats:
        """Share of steps by number of tokens drafted, 0..D: what a verification pass really carries."""
        shares: Floats = self.counts.sum(axis=1) / self.steps
        return shares


def curve_point(conversations: Sequence[Sequence[Acceptance]]) -> CurvePoint | None:
    """Pool the prompts of all conversations; None where no step was taken.

    AL_macro is the mean over prompts; the 95 % interval resamples whole conversations and is absent for fewer than two.
    """
    prompts = [part for parts in conversations for part in parts if part.steps > 0]
    if not prompts:
        return None
    pooled = Acceptance.pool(prompts)
    steps_C = np.array([sum(part.steps for part in parts) for parts in conversations])
    accepted_C = np.array([sum(part.accepted for part in parts) for parts in conversations])
    return CurvePoint(
        D=pooled.D,
        AL=pooled.AL,
        AL_ci95=bootstrap_AL(accepted_C, steps_C),
        AL_macro=float(np.mean([part.AL for part in prompts])),
        coverage=pooled.coverage,
        steps=whole(pooled.steps),
        drafted_steps=whole(pooled.drafted_steps),
        cut_steps=whole(pooled.cut_steps),
        accepted=whole(pooled.accepted),
        drafted=whole(pooled.drafted),
        counts=[[whole(value) for value in row] for row in pooled.counts.tolist()],
        joint=pooled.joint(),
        conditional=pooled.conditional(),
    )


def bootstrap_AL(accepted_C: Floats, steps_C: Floats) -> tuple[float, float] | None:
    """95 % percentile interval of pooled AL over resampled conversations [Efron79]; None for fewer than two."""
    kept = steps_C > 0
    if kept.sum() < 2:
        return None
    weights_RC = bootstrap_weights(int(kept.sum()))
    return interval95(1 + (weights_RC @ accepted_C[kept]) / (weights_RC @ steps_C[kept]))


def whole(value: float) -> int | float:
    """Counts that are whole numbers leave as such (JSON `12`, not `12.0`)."""
    return int(value) if float(value).is_integer() else float(value)
