"""The target that a drafter is built for, as far as drafters need to know it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from codraft.core.spec import Sampling
from codraft.formats.heads.gate import Sizes

if TYPE_CHECKING:
    from codraft.decode.hf.load import Card
    from codraft.decode.hf.model import HFModel


@dataclass(frozen=True, slots=True)
class Beside:
    """`target` is what the user calls it, `folder` holds its files, `sizes` are what its config says. `load` gives its
    weights, which it loads when first asked: heads that borrow its ends need them. `notes` takes what a user should
    know of drafters that were built."""

    target: str
    folder: Path
    sizes: Sizes
    sampling: Sampling
    dtype: str
    load: "Callable[[], HFModel]"
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, card: "Card", sampling: Sampling, dtype: str, load: "Callable[[], HFModel]") -> "Beside":
        """A target by its card."""
        return cls(card.id, card.folder, card.sizes, sampling, dtype, load)

    @property
    def vocab_size(self) -> int:
        """Rows of the target's output head."""
        return self.sizes.vocab_size
