"""Whether a head fits a target, as far as sizes tell; each misfit is one sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from codraft.core.errors import SpecError
from codraft.drafters.weights import LoadedHead
from codraft.formats.heads.detect import architectures

if TYPE_CHECKING:
    from codraft.decode.hf.model import HFModel


def check_fit(loaded: LoadedHead, taps: Sequence[int], target: "HFModel", vocab_size: int) -> None:
    """Refuse a head that was trained for another target, or whose layers are of a kind that codraft does not run."""
    head, where = loaded.head, f"drafter {loaded.id}"
    if any(kind.startswith("Gemma4") for kind in architectures(head.config)):
        raise SpecError(f"{where}: its layers are Gemma 4's, with norms behind parts; codraft runs Llama's and Qwen3's")
    if any(not -1 <= tap < target.num_layers for tap in taps):
        raise SpecError(
            f"{where} reads the outputs of layers {list(taps)}, and the target's are 0..{target.num_layers - 1} (-1: "
            "embeddings); it was trained for another target, see codraft inspect"
        )
    if head.target_hidden != target.hidden_size:
        raise SpecError(
            f"{where} reads features of width {head.target_hidden}, and the target's hidden size is "
            f"{target.hidden_size}; it was trained for another target"
        )
    missing = [name for name in ("embed_tokens", "lm_head") if not loaded.own(f"{name}.weight")]
    if missing and head.geometry.hidden != target.hidden_size:
        raise SpecError(
            f"{where} has hidden size {head.geometry.hidden} and no {' and '.join(missing)} of its own, and the "
            f"target's hidden size is {target.hidden_size}; fetch the file that holds them"
        )
    if head.vocab_size not in (None, vocab_size):
        raise SpecError(
            f"{where}: vocab_size is {head.vocab_size}, the target's {vocab_size}; it was trained for another target"
        )
