"""Drafters as checkpoints: a fresh one written, any one opened to learn, and a trained one written back.

What is written has the config, the maps and the tensor names of the checkpoint that training began with, bit for bit;
only the values of what learnt are new.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from codraft.core.errors import SpecError
from codraft.core.spec import DRAFTER_SPECS, Sampling
from codraft.decode.drafter import Drafter
from codraft.decode.hf.load import Card, load_model, resolve_folder
from codraft.decode.hf.model import HFModel
from codraft.drafters.beside import Beside
from codraft.drafters.mtp import MtpHead, parameter_of
from codraft.drafters.registry import build
from codraft.drafters.weights import open_head, read_tensors
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.heads.mtp_layout import read_layout
from codraft.formats.outfolder import new_folder
from codraft.train.fresh import MAKERS, Shape, Source, check_shape
from codraft.train.kinds import KINDS
from codraft.train.saving import appearing

CONFIG, WEIGHTS = "config.json", "model.safetensors"
# Files that make a folder a language model of its own.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "vocab.json",
    "merges.txt", "tokenizer.model", "generation_config.json",
)  # fmt: skip
# Both ends stay the target's, copies of them too.
ENDS = ("embed_tokens", "heads.")
OUTPUT = "lm_head"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainable:
    """A drafter that learns. `module` holds what may learn, and `drafter` is the same one behind the seam, so that
    replay measures what is being trained. `stored` maps parameters to tensors of `folder`, where it began."""

    mechanism: str
    drafter: Drafter
    module: nn.Module
    folder: Path
    stored: Mapping[str, str]

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        """Those that learn, by name."""
        return {name: p for name, p in self.module.named_parameters() if p.requires_grad}


def write_fresh(
    mechanism: str, target: HFModel, card: Card, shape: Shape, folder: Path, text: Sequence[Sequence[int]] = ()
) -> None:
    """A new checkpoint under `folder`; `text` is what sizes in it are measured by."""
    check_shape(shape, KINDS[mechanism], target.num_layers)
    config, tensors = MAKERS[mechanism](Source(target, text), shape)
    whole = KINDS[mechanism].whole_model
    if whole and config.get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)
    with new_folder(folder) as part:
        write_model(part, config, {name: value.contiguous() for name, value in tensors.items()})
        if whole:
            copy_tokenizer(card.folder, part)


def write_model(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """config.json and the weights."""
    text = json.dumps(config, indent=2, ensure_ascii=False, default=str) + "\n"
    (folder / CONFIG).write_text(text, encoding="utf-8")
    save_weights(tensors, folder)


def save_weights(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """The weights, whole or not at all."""
    with appearing(folder / WEIGHTS) as part:
        save_file(dict(tensors), part, metadata={"format": "pt"})


def copy_tokenizer(source: Path, folder: Path) -> None:
    """What makes text of ids."""
    for name in TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def open_trainable(mechanism: str, path: str, target: HFModel, card: Card) -> Trainable:
    """A drafter of this mechanism in a folder, or of a hub id, in float32, its own tensors learning."""
    folder = resolve_folder(path)
    beside = Beside.of(card, Sampling(), "float32", lambda: target)
    kind: Any = DRAFTER_SPECS[mechanism]
    drafter: Any = build(kind(path=path), beside)
    whole = KINDS[mechanism].whole_model
    module: nn.Module = drafter.model.model if whole else drafter.head
    module.float().requires_grad_(True)
    for name, parameter in module.named_parameters():
        # Block heads without a vocabulary of their own have the target's output head, whoever stored it.
        copied = KINDS[mechanism].blocks and drafter.picker.target_ids is None and name.startswith(OUTPUT)
        if name.startswith(ENDS) or copied or (whole and frozen_end(drafter.model, parameter)):
            parameter.requires_grad_(False)
    stored = stored_names(mechanism, module, str(folder))
    return Trainable(mechanism=mechanism, drafter=drafter, module=module, folder=folder, stored=stored)


def frozen_end(model: HFModel, parameter: nn.Parameter) -> bool:
    """Whether a parameter is an external drafter's embedding or output head."""
    ends = (model.model.get_input_embeddings(), model.model.get_output_embeddings())
    return any(parameter is one for end in ends if end is not None for one in end.parameters())


def stored_names(mechanism: str, module: nn.Module, folder: str) -> dict[str, str]:
    """Parameter -> tensor of the file."""
    names = [name for name, _ in module.named_parameters()]
    if KINDS[mechanism].whole_model:
        return {name: name for name in names}
    if isinstance(module, MtpHead):
        layout = read_layout(open_checkpoint(folder), f"drafter {folder}")
        found = {
            parameter_of(i, part, name): name for i, parts in enumerate(layout.modules) for part, name in parts.items()
        }
        missing = [name for name in names if name not in found and not name.startswith(ENDS)]
        if missing:
            raise SpecError(f"drafter {folder}: its {missing[0]} is stored in a form that training cannot write back")
        return {name: found[name] for name in names if name in found}
    headers = open_head(folder, mechanism).headers
    return {name: headers[name].name for name in names}


def export(trainable: Trainable, state: Mapping[str, Tensor], folder: Path, dtype: torch.dtype) -> None:
    """The drafter with these values [by parameter] into an existing folder, everything else as it was."""
    checkpoint = open_checkpoint(str(trainable.folder))
    tensors = dict(read_tensors(trainable.folder, checkpoint, list(checkpoint.tensors)))
    for name, value in state.items():
        tensors[trainable.stored[name]] = value.detach().cpu()
    written = {name: as_stored(value, dtype).contiguous() for name, value in tensors.items()}
    (folder / CONFIG).write_bytes((trainable.folder / CONFIG).read_bytes())
    save_weights(written, folder)
    if KINDS[trainable.mechanism].whole_model:
        copy_tokenizer(trainable.folder, folder)


def as_stored(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers in the dtype of the export, maps as they are."""
    return value.to(dtype) if value.is_floating_point() else value


def load_target(model_id: str, dtype: str) -> HFModel:
    """The target, frozen."""
    target = load_model(model_id, dtype)
    target.model.requires_grad_(False)
    return target
