"""What is wrong with the tensors of a head, one sentence each."""

from collections.abc import Mapping

from codraft.formats.heads.head import Head
from codraft.formats.heads.layout import expected
from codraft.formats.safetensors import TensorInfo


def tensor_faults(head: Head, tensors: Mapping[str, TensorInfo]) -> list[str]:
    """Tensors that are missing, misshapen or unexpected; `tensors` are under their canonical names."""
    wanted = expected(head)
    if wanted is None:
        return []
    faults = []
    for one in wanted:
        info = tensors.get(one.name)
        if info is None:
            if one.required:
                faults.append(f"tensor {one.name} is missing")
        elif one.shape is not None and info.shape != one.shape:
            faults.append(f"tensor {one.name} has shape {list(info.shape)}, expected {list(one.shape)}")
    known = {one.name for one in wanted}
    faults += [f"tensor {name} is unexpected" for name in tensors if name not in known and "rotary_emb" not in name]
    return faults
