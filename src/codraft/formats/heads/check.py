"""What is wrong with the tensors of a head: those that are missing, unexpected or misshapen, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codraft.formats.heads.head import Head
from codraft.formats.heads.layout import Expected, Shape, expected
from codraft.formats.jsonfile import printable
from codraft.formats.quantnames import (
    FLOATS,
    PACKED_NAMES,
    QUANTIZED,
    WEIGHT_NAMES,
    is_packed,
    is_rebuilt,
    is_scale,
    last_part,
    stem,
)
from codraft.formats.safetensors import TensorInfo

# Names that one sentence lists.
MOST_LISTED = 8
# What a map of a reduced vocabulary, and the marks beside it, are stored as.
WHOLE_NUMBERS = ("I64", "I32", "I16", "U64", "U32", "U16", "I8", "U8")
MARKS = ("BOOL", *WHOLE_NUMBERS)


@dataclass(frozen=True, slots=True)
class Faults:
    """By canonical name: tensors that should be there, that have no place, that have another shape (as stored, wanted)
    or an element type that says nothing to a loader. Quantized weights are left alone: their shape is their format's.
    """

    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    misshapen: list[tuple[str, Shape, Shape]] = field(default_factory=list)
    mistyped: list[tuple[str, str]] = field(default_factory=list)

    def sentences(self) -> list[str]:
        """One for each kind of fault, with the count and the first names."""
        shapes = [f"{name} is {list(found)}, expected {list(wanted)}" for name, found, wanted in self.misshapen]
        types = [f"{name} is stored as {dtype}" for name, dtype in self.mistyped]
        told = (
            (self.missing, "is missing", "are missing"),
            (shapes, "has another shape than the config gives", "have other shapes than the config gives"),
            (types, "is of a type that it cannot have", "are of types that they cannot have"),
            (self.unexpected, "is unexpected", "are unexpected"),
        )
        return [sentence(list(names), one, more) for names, one, more in told if names]


def tensor_faults(head: Head, tensors: Mapping[str, TensorInfo]) -> list[str]:
    """Sentences without a full stop; `tensors` are under their canonical names. Empty where codraft does not know what
    tensors a head of this mechanism has."""
    wanted = expected(head)
    return [] if wanted is None else compare(wanted, tensors).sentences()


def compare(wanted: Sequence[Expected], tensors: Mapping[str, TensorInfo]) -> Faults:
    """The tensors of a head beside those that it should have."""
    by_name = {item.name: item for item in wanted}
    held = {stem(name) for name in tensors if last_part(name) in WEIGHT_NAMES}
    scaled = {stem(name) for name in tensors if is_scale(name) or is_packed(name)}
    faults = Faults(missing=[item.name for item in wanted if item.required and not present(item.name, tensors, held)])
    for name, info in tensors.items():
        item = by_name.get(name)
        if item is None:
            if not (beside_weight(name) and f"{stem(name)}.weight" in by_name) and not is_rebuilt(name):
                faults.unexpected.append(name)
        elif not typed(name, info.dtype):
            faults.mistyped.append((name, info.dtype))
        elif item.shape not in (None, info.shape) and not (info.dtype in QUANTIZED and stem(name) in scaled):
            faults.misshapen.append((name, info.shape, item.shape or ()))
    return faults


def present(name: str, tensors: Mapping[str, TensorInfo], held: set[str]) -> bool:
    """Whether a tensor is there, quantized or not; `held` are the modules that have a weight."""
    return name in tensors or (name.endswith(".weight") and stem(name) in held)


def beside_weight(name: str) -> bool:
    """Whether a tensor is a quantized weight, or stands beside one."""
    return is_scale(name) or is_packed(name) or last_part(name) in PACKED_NAMES


def typed(name: str, dtype: str) -> bool:
    """Whether a tensor may have this element type."""
    if name == "d2t":
        return dtype in WHOLE_NUMBERS
    return dtype in (MARKS if name == "t2d" else (*FLOATS, *QUANTIZED))


def sentence(names: Sequence[str], one: str, more: str) -> str:
    """A count, what is the matter, and the first names."""
    shown = "; ".join(printable(name) for name in names[:MOST_LISTED])
    rest = f" and {len(names) - MOST_LISTED} more" if len(names) > MOST_LISTED else ""
    return f"{len(names)} tensor{'s' if len(names) > 1 else ''} {more if len(names) > 1 else one}: {shown}{rest}"
