"""Headers of safetensors files, and small pieces of their tensors. Never a whole file."""

from dataclasses import dataclass
from math import prod

# Bits of an element, by the format's dtype names.
DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
}  # fmt: skip


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
