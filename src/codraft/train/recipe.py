"""How a drafter learns: losses, weights of positions, optimizer, schedule; and recipes that were published.

Figures of the published ones are their repositories' defaults or examples, at the revisions in docs/references.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import inf
from typing import Any, Literal

from codraft.core.errors import SpecError
from codraft.train.losses import parse_mix
from codraft.train.objectives.drafts import check_weighing

Optimizer = Literal["adamw", "muon"]
Decline = Literal["cosine", "linear", "constant"]
Follow = Literal["all", "hits"]
BlockSizes = Literal["fixed", "drawn"]


# Passes over data that no run comes to the end of.
MOST_EPOCHS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """`drafts` are steps of a roll-out (serial heads); `follow`: whether it goes on behind all drafts, or behind hits
    alone, as decoding does. `anchors` blocks a row and `block_size` slots of each (block heads), all of that size or of
    sizes drawn anew every step. `weights` and `decay`: how much later drafts count. `warmup` is a share of all steps.
    `noise`: half the width of uniform noise on features. `copying`: steps that teach a fresh head's attention to find
    what a text repeats, before all else; what has learnt in them then takes `copying_rate` times the usual rates.
    `confidence`: weight of DSpark's confidence loss. `lr` is AdamW's; with `muon` matrices take `muon_lr`.
    """

    loss: str
    weights: str = "decay"
    decay: float = 1.0
    drafts: int = 1
    follow: Follow = "all"
    anchors: int = 512
    block_size: int = 8
    block_sizes: BlockSizes = "fixed"
    confidence: float = 0.0
    noise: float = 0.0
    copying: int = 0
    copying_rate: float = 0.1
    optimizer: Optimizer = "adamw"
    lr: float
    muon_lr: float = 0.0
    beta2: float = 0.95
    weight_decay: float = 0.0
    clip: float = 1.0
    warmup: float = 0.04
    decline: Decline = "cosine"
    epochs: float = 1.0

    def __post_init__(self) -> None:
        parse_mix(self.loss)
        check_weighing(self.weights, self.decay)
        for name, low in (("drafts", 1), ("anchors", 1), ("block_size", 2)):
            if getattr(self, name) < low:
                raise SpecError(f"--{name.replace('_', '-')} must be at least {low}; got {getattr(self, name)}")
        for name in ("lr", "clip"):
            if not 0 < getattr(self, name) < inf:
                raise SpecError(f"--{name} must be a finite number above 0; got {getattr(self, name):g}")
        for name in ("muon_lr", "weight_decay", "confidence", "noise"):
            if not 0 <= getattr(self, name) < inf:
                word = name.replace("_", "-")
                raise SpecError(f"--{word} must be a finite number, 0 or above; got {getattr(self, name):g}")
        if not 0 < self.epochs <= MOST_EPOCHS:
            raise SpecError(f"--epochs must be above 0 and at most {MOST_EPOCHS:,}; got {self.epochs:g}")
        if self.copying < 0 or not 0 <= self.copying_rate <= 1:
            raise SpecError(
                "--copying is a number of steps, 0 for none, and --copying-rate a share from 0 to 1; got "
                f"{self.copying}, {self.copying_rate:g}"
            )
        if not 0 <= self.warmup < 1:
            raise SpecError(f"--warmup is a share of all steps, from 0 to below 1; got {self.warmup:g}")
        if self.optimizer not in ("adamw", "muon") or self.decline not in ("cosine", "linear", "constant"):
            raise SpecError(
                "--optimizer is adamw or muon, and --decline cosine, linear or constant; got "
                f"{self.optimizer}, {self.decline}"
            )
        if self.follow not in ("all", "hits"):
            raise SpecError(f"--follow is all or hits; got {self.follow}")
        if self.block_sizes not in ("fixed", "drawn"):
            raise SpecError(f"--block-sizes is fixed or drawn; got {self.block_sizes}")
        if self.optimizer == "muon" and not self.muon_lr > 0:
            raise SpecError("--optimizer muon needs --muon-lr above 0, for example 0.01")


# For budgets of minutes to hours, which is what codraft's own drafters were trained with (docs/log.md says what was
# tried): Muon for matrices, as in the speculators library, and the target's distribution as far as it is cheap.
SHORT: Mapping[str, Recipe] = {
    "eagle3": Recipe(
        loss="kl", drafts=5, follow="hits", copying=1000, lr=5e-3, optimizer="muon", muon_lr=0.03, epochs=2
    ),
    "mtp": Recipe(
        loss="kl", drafts=5, follow="hits", copying=1000, lr=5e-3, optimizer="muon", muon_lr=0.03, epochs=2
    ),
    "dflash": Recipe(
        loss="kl", weights="dpace", block_size=9, block_sizes="drawn", anchors=64, lr=6e-3, optimizer="muon",
        muon_lr=0.04, epochs=2,
    ),
    "dspark": Recipe(
        loss="ce=0.1,tv=1.8", decay=0.7788, block_size=8, block_sizes="drawn", anchors=64, confidence=1.0, lr=6e-3,
        optimizer="muon", muon_lr=0.04, epochs=2,
    ),
    "external": Recipe(loss="kl", lr=5e-4, optimizer="muon", muon_lr=0.005, epochs=2),
}  # fmt: skip
# To go on from a drafter that is there: what it knows is not to be wiped out by the rates that a fresh one needs.
GENTLY = 0.1
ADAPT: Mapping[str, Recipe] = {
    mechanism: replace(one, lr=one.lr * GENTLY, muon_lr=one.muon_lr * GENTLY, copying=0, epochs=1)
    for mechanism, one in SHORT.items()
}
# By name and mechanism, as published.
PUBLISHED: Mapping[str, Mapping[str, Recipe]] = {
    "eagle": {
        "eagle3": Recipe(loss="kl", drafts=7, decay=0.8, lr=5e-5, clip=0.5, warmup=0.015, decline="linear", epochs=40),
    },
    "specforge": {
        "eagle3": Recipe(loss="kl", drafts=7, decay=0.8, lr=1e-4, clip=0.5, warmup=0.015, epochs=10),
        # exp(-(j - 1) / 7), blocks of 16.
        "dflash": Recipe(loss="ce", block_size=16, decay=0.8669, lr=6e-4, epochs=6),
        "dspark": Recipe(loss="ce=0.1,tv=1.8", block_size=7, decay=0.7788, confidence=1.0, lr=6e-4, epochs=10),
    },
    "modelopt": {
        "eagle3": Recipe(loss="kl", drafts=3, decay=0.9, lr=1e-4, decline="linear"),
        "dflash": Recipe(loss="kl", weights="dpace", block_size=8, lr=6e-4, epochs=10),
        "dspark": Recipe(
            loss="ce=0.1,tv=1.8", block_size=16, anchors=256, decay=0.8669, confidence=1.0, lr=6e-4, epochs=6
        ),
    },
    "speculators": {
        "eagle3": Recipe(loss="kl", drafts=3, noise=0.05, lr=1e-4, optimizer="muon", muon_lr=1e-3, epochs=20),
        "dflash": Recipe(loss="ce", weights="dpace", block_size=16, lr=1e-4, optimizer="muon", muon_lr=1e-3, epochs=20),
        "dspark": Recipe(loss="kl", block_size=8, lr=1e-4, optimizer="muon", muon_lr=1e-3, epochs=20),
        # FastMTP's weights, 0.6 ** k.
        "mtp": Recipe(loss="ce", drafts=3, decay=0.6, lr=1e-4, epochs=3),
    },
    "deepspec": {
        "eagle3": Recipe(loss="kl", drafts=7, decay=0.8, lr=6e-4, epochs=10),
        "dflash": Recipe(loss="ce", block_size=8, decay=0.7788, lr=6e-4, epochs=10),
        # 0.1 CE + 0.9 L1 + 1.0 BCE, exp(-k / 4); L1 is twice the total variation.
        "dspark": Recipe(loss="ce=0.1,tv=1.8", block_size=7, decay=0.7788, confidence=1.0, lr=6e-4, epochs=10),
    },
}


def recipe_of(name: str, mechanism: str, changes: Mapping[str, Any]) -> Recipe:
    """A recipe by name, with what the user changed. SpecError for a name that has none for this mechanism."""
    table: Mapping[str, Mapping[str, Recipe]] = {"short": SHORT, "adapt": ADAPT, **PUBLISHED}
    if name not in table or mechanism not in table[name]:
        having = ", ".join(one for one, recipes in table.items() if mechanism in recipes)
        raise SpecError(f"--recipe {name}: no such recipe for {mechanism}; choose of {having}")
    known = {field.name for field in fields(Recipe)}
    assert changes.keys() <= known, changes
    return replace(table[name][mechanism], **{key: value for key, value in changes.items() if value is not None})
