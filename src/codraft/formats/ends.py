"""Names that families give to a model's two ends, and whether two tensors hold the same numbers."""

from collections.abc import Iterable, Mapping

from codraft.formats.quantnames import FLOATS
from codraft.formats.safetensors import TensorInfo, read_raw, read_values
from codraft.formats.source import Source

EMBEDDINGS = (
    "model.embed_tokens.weight",
    "embed_tokens.weight",
    "transformer.wte.weight",
    "wte.weight",
    "backbone.embeddings.weight",
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
)
HEADS = ("lm_head.weight", "output.weight", "language_model.lm_head.weight", "model.lm_head.weight")
# Elements compared at a time.
PIECE = 1 << 20


def first_of(tensors: Mapping[str, TensorInfo], names: Iterable[str]) -> TensorInfo | None:
    """The first of these tensors that is there."""
    return next((tensors[name] for name in names if name in tensors), None)


def same_numbers(ours: tuple[Source, TensorInfo], theirs: tuple[Source, TensorInfo]) -> bool:
    """Whether two tensors have one shape and hold the same numbers, every one; types of floats may differ."""
    (source_a, a), (source_b, b) = ours, theirs
    if a.shape != b.shape or (a.dtype != b.dtype and not (a.dtype in FLOATS and b.dtype in FLOATS)):
        return False
    for first in range(0, a.num_elements, PIECE):
        count = min(PIECE, a.num_elements - first)
        if a.dtype == b.dtype:
            if read_raw(source_a, a, first, count) != read_raw(source_b, b, first, count):
                return False
        elif not (read_values(source_a, a, first, count) == read_values(source_b, b, first, count)).all():
            return False
    return True
