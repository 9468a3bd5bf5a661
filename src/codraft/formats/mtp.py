"""Tensors of multi-token-prediction modules inside a target's checkpoint, in each family's names."""

import re
from collections.abc import Iterable

# Qwen3-Next and later, Nemotron-H: a namespace of its own. DeepSeek, GLM, MiMo: layers after the last.
NAMESPACE = re.compile(r"(?:^|\.)(?:mtp|mtp_layers|mtp_modules|nextn)\.(?:layers\.)?(?:(\d+)\.)?")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
# The parts without which a module cannot join hidden state and embedding, by family.
JOINS = ("eh_proj", "fc", "input_proj")


def mtp_tensors(names: Iterable[str], num_layers: int) -> list[str]:
    """Those that belong to MTP modules: in a namespace of theirs, or in layers from `num_layers` on."""
    found = []
    for name in names:
        if NAMESPACE.search(name) or ((match := LAYER.search(name)) is not None and int(match[1]) >= num_layers):
            found.append(name)
    return found


def has_join(names: Iterable[str]) -> bool:
    """Whether the projection that joins hidden state and embedding is among them, quantized or not."""
    return any(part in JOINS for name in names for part in name.split(".")[-3:])
