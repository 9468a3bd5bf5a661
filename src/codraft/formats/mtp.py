"""Tensors of multi-token-prediction modules inside a target's checkpoint, in each family's names."""

import re
from collections.abc import Iterable

# Qwen3-Next and later, Nemotron-H, MiMo, ERNIE: a namespace of its own. DeepSeek, GLM: layers after the last.
NAMESPACE = re.compile(r"(?:^|\.)(?:mtp(?:_\w+)?|nextn)\.")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
# Towers for pictures and sound count their layers on their own.
TOWER = re.compile(r"(?:^|\.)(?:visual|vit|vision\w*|audio\w*|image\w*|speech\w*|talker|\w+2wav|sam_\w+|\w*encoder)\.")
# The parts without which a module cannot join hidden state and embedding, by family.
JOINS = ("eh_proj", "fc", "input_proj", "mtp_linear_proj")


def mtp_tensors(names: Iterable[str], num_layers: int) -> list[str]:
    """Those that belong to MTP modules: in a namespace of theirs, or in layers from `num_layers` on."""
    found = []
    for name in names:
        match = LAYER.search(name)
        beyond = match is not None and int(match[1]) >= num_layers and not TOWER.search(name)
        if beyond or NAMESPACE.search(name):
            found.append(name)
    return found


def has_join(names: Iterable[str]) -> bool:
    """Whether the projection that joins hidden state and embedding is among them, quantized or not."""
    return any(part in JOINS for name in names for part in name.split(".")[-3:])
