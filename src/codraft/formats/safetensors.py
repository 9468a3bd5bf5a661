"""Headers of safetensors files, and small pieces of their tensors. Never a whole file."""

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from codraft.core.errors import SpecError
from codraft.formats.jsonfile import LFS_POINTER, MAX_NAME, MAX_TENSORS, parse_object, place, quoted
from codraft.formats.source import Source

if TYPE_CHECKING:
    import numpy as np

# Bits of an element, by the format's dtype names.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "C64": 64, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
# What numpy calls them; the dtypes it does not have are given as raw bytes.
NUMPY_DTYPES = {
    "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8",
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "C64": "<c8",
}  # fmt: skip
# The format's own limit on a header; 90,000 tensors need 12 MB.
MAX_HEADER_BYTES = 100_000_000
MAX_PIECE_BYTES = 64 << 20
MAX_DIMS = 32
# Commas of a tensor with five dimensions; seen before parsing, which takes seconds and a gigabyte for a million.
COMMAS_PER_TENSOR = 8
MAX_INT = 2**63


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as its header states it; `start` and `stop` are bytes of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    start: int
    stop: int

    @property
    def num_elements(self) -> int:
        """Elements as stored (packed formats hold several weights in one)."""
        return prod(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes in the file."""
        return self.stop - self.start


def read_header(source: Source, file: str) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """(tensors by name, metadata) of a safetensors file, in two reads. The tensors fill the file without gap or
    overlap, as the format demands; anything else is a SpecError, and so are more than MAX_TENSORS."""
    where = place(source, file)
    size = source.sizes().get(file, 0)
    if size < 8:
        raise SpecError(f"{where} is not a safetensors file: it has {size} bytes; fetch it again")
    start = source.read(file, 0, 8)
    if start == LFS_POINTER[:8]:
        raise SpecError(f"{where} is a Git LFS pointer and not the file itself; fetch it with git lfs pull")
    length = int.from_bytes(start, "little")
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise SpecError(
            f"{where} is cut short or not a safetensors file: it claims a header of {length} bytes and has {size} "
            f"(headers have at most {MAX_HEADER_BYTES}); fetch it again"
        )
    raw = source.read(file, 8, 8 + length)
    if not raw.startswith(b"{"):
        raise SpecError(f"{where} is not a safetensors file: its header does not begin with {{; fetch it again")
    if raw.count(b'"data_offsets"') > MAX_TENSORS or raw.count(b",") > COMMAS_PER_TENSOR * MAX_TENSORS:
        raise SpecError(f"the header of {where} has more than {MAX_TENSORS} tensors; check that it is the right file")
    header = parse_object(raw, f"the header of {where}")
    try:
        metadata = read_metadata(header.pop("__metadata__", None))
        tensors = {name: tensor_info(name, entry, file, 8 + length) for name, entry in header.items()}
    except HeaderError as error:
        raise SpecError(f"the header of {where} is wrong: {error}; fetch it again") from error
    check_tiling(tensors, where, 8 + length, size)
    return tensors, metadata


class HeaderError(ValueError):
    """What is wrong with a header, without the file's name."""


def read_metadata(table: Any) -> dict[str, str]:
    """`__metadata__`: a table of strings, or absent."""
    if table is None:
        return {}
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise HeaderError("__metadata__ is not a table of strings")
    return table


def tensor_info(name: str, entry: Any, file: str, data_start: int) -> TensorInfo:
    """One entry of a header whose data part begins at byte `data_start`."""
    if len(name) > MAX_NAME:
        raise HeaderError(f"tensor {quoted(name)} has a name of {len(name)} characters, and {MAX_NAME} are the most")
    try:
        dtype, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        bits = DTYPE_BITS.get(dtype)
    except (TypeError, KeyError, ValueError) as error:
        raise HeaderError(f"tensor {quoted(name)} lacks a dtype, a shape or two data_offsets") from error
    if bits is None:
        raise HeaderError(f"tensor {quoted(name)} has the unknown dtype {quoted(str(dtype))}")
    if type(start) is not int or type(stop) is not int or not 0 <= start <= stop < MAX_INT:
        raise HeaderError(f"the data_offsets of tensor {quoted(name)} are not two ascending positions")
    num_bytes = (num_elements(name, shape) * bits + 7) // 8
    if num_bytes != stop - start:
        raise HeaderError(
            f"tensor {quoted(name)} has {stop - start} bytes, but its shape {quoted(str(shape))[1:-1]} as {dtype} "
            f"takes {num_bytes}"
        )
    return TensorInfo(name, dtype, tuple(shape), file, data_start + start, data_start + stop)


def num_elements(name: str, shape: Any) -> int:
    """Elements of a shape. Every step stays below 2^63."""
    if type(shape) is not list:
        raise HeaderError(f"the shape of tensor {quoted(name)} is not a list")
    if len(shape) > MAX_DIMS:
        raise HeaderError(f"tensor {quoted(name)} has {len(shape)} dimensions, and {MAX_DIMS} are the most")
    count = 1
    for size in shape:
        if type(size) is not int or not 0 <= size < MAX_INT:
            raise HeaderError(f"the shape of tensor {quoted(name)} holds something else than sizes")
        count *= size
        if count >= MAX_INT:
            raise HeaderError(f"tensor {quoted(name)} has 2^63 elements or more")
    return count


def check_tiling(tensors: dict[str, TensorInfo], where: str, data_start: int, size: int) -> None:
    """The tensors fill the data part of the file, one after the other."""
    at = data_start
    for info in sorted(tensors.values(), key=lambda info: (info.start, info.stop)):
        if info.start != at:
            kind = "overlaps the one before it" if info.start < at else "leaves a gap before it"
            raise SpecError(f"the header of {where} is wrong: tensor {quoted(info.name)} {kind}; fetch it again")
        at = info.stop
    if at != size:
        kind = "cut short" if size < at else "too long"
        raise SpecError(f"{where} is {kind}: its header describes {at} bytes and it has {size}; fetch it again")


def read_values(source: Source, info: TensorInfo, first: int = 0, count: int | None = None) -> "np.ndarray[Any, Any]":
    """Elements first .. first + count of a tensor (to its end without `count`) in stored order, one-dimensional.

    BF16 comes as float32, BOOL as bool. numpy has no F8, F6 and F4: of these come the raw bytes as uint8, of packed
    ones the bytes that the elements touch. A SpecError above 64 MB, a ValueError outside the tensor.
    """
    import numpy as np

    values = np.frombuffer(read_raw(source, info, first, count), NUMPY_DTYPES.get(info.dtype, "u1"))
    if info.dtype == "BF16":
        return (values.astype("<u4") << 16).view("<f4")
    return values != 0 if info.dtype == "BOOL" else values


def read_raw(source: Source, info: TensorInfo, first: int = 0, count: int | None = None) -> bytes:
    """The bytes of elements first .. first + count, as `read_values`; without numpy, whose import takes longer."""
    count = info.num_elements - first if count is None else count
    if first < 0 or count < 0 or first + count > info.num_elements:
        raise ValueError(f"{quoted(info.name)} has {info.num_elements} elements, not {first} to {first + count}")
    bits = DTYPE_BITS[info.dtype]
    start, stop = info.start + first * bits // 8, info.start + ((first + count) * bits + 7) // 8
    if stop - start > MAX_PIECE_BYTES:
        raise SpecError(
            f"tensor {quoted(info.name)} of {place(source, info.file)} has {stop - start} bytes where at most "
            f"{MAX_PIECE_BYTES} are read; check that it is the right file"
        )
    return source.read(info.file, start, stop)
