"""The target that a drafter is built for, as far as drafters need to know it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from codraft.core.spec import Sampling

if TYPE_CHECKING:
    from codraft.decode.hf.model import HFModel


@dataclass(frozen=True, slots=True)
class Beside:
    """`folder` holds the target's files, `vocab_size` are the rows of its output head. `load` gives its weights, which
    it loads when first asked: heads that borrow its ends need them. `notes` takes what a user should know of drafters
    that were built."""

    folder: Path
    vocab_size: int
    sampling: Sampling
    dtype: str
    load: "Callable[[], HFModel]"
    notes: list[str] = field(default_factory=list)
