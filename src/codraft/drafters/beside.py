"""The target that a drafter is built for, as far as drafters need to know it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from codraft.core.spec import Sampling

if TYPE_CHECKING:
    from codraft.decode.hf.load import Card
    from codraft.decode.hf.model import HFModel


@dataclass(frozen=True, slots=True)
class Beside:
    """`load` gives the target's weights, loading them when first asked: heads that borrow its ends need them."""

    card: "Card"
    sampling: Sampling
    dtype: str
    load: "Callable[[], HFModel]"

    @property
    def folder(self) -> Path:
        """Where the target's files are."""
        return self.card.folder

    @property
    def vocab_size(self) -> int:
        """Rows of its output head."""
        return self.card.vocab_size
