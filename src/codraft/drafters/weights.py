"""Weights of a learned drafter: which head they are, and its tensors under the names that all families share."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from codraft.core.errors import SpecError
from codraft.decode.hf.load import resolve_folder
from codraft.drafters.pick import Picker
from codraft.formats.checkpoint import Checkpoint, open_checkpoint
from codraft.formats.draftmap import read_draft_map
from codraft.formats.heads.detect import detect
from codraft.formats.heads.gate import refuse_head, refuse_misfit
from codraft.formats.heads.head import EMBED, HEAD, MAPS, Head, Kind
from codraft.formats.heads.opened import by_canonical_name, refuse_lost
from codraft.formats.heads.plan import said_of
from codraft.formats.heads.read import read_head
from codraft.formats.safetensors import TensorInfo
from codraft.formats.source import Source
from codraft.formats.untrained import look, not_finite

if TYPE_CHECKING:
    from codraft.drafters.beside import Beside

# What safetensors headers call dtypes.
DTYPES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64",
    torch.int32: "I32", torch.bool: "BOOL",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFile:
    """A head by its config and headers, which are under their canonical names. `pickled` holds the tensors of an early
    head, which has no headers."""

    id: str
    folder: Path
    checkpoint: Checkpoint
    head: Head
    headers: Mapping[str, TensorInfo]
    pickled: Mapping[str, Tensor] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedHead:
    """A head and its tensors by canonical name, as stored; `id` is what the user called it. `notes`: what a user should
    know of it, in words."""

    id: str
    head: Head
    tensors: Mapping[str, Tensor]
    notes: Sequence[str] = ()

    def own(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self.tensors


def open_head(path: str, mechanism: str) -> HeadFile:
    """The head in a folder or of a hub id; no weights are read. SpecError where it is of another mechanism, its config
    asks for what codraft does not run, or a tensor is missing, unexpected or misshapen."""
    folder = resolve_folder(path, pickled=True)
    checkpoint = open_checkpoint(str(folder))
    pickled = read_pickles(folder, checkpoint)
    names: Mapping[str, TensorInfo] = checkpoint.tensors if pickled is None else headers_of(pickled)
    if not names:
        raise SpecError(f"drafter {path} has no weights; name the folder that holds config.json and safetensors")
    refuse_lost(checkpoint)
    kind = detect(checkpoint.config, names)
    if kind is None or kind.mechanism != mechanism:
        raise SpecError(wrong_kind(path, kind, mechanism))
    head = read_head(kind, checkpoint.config, names, f"{path}/config.json")
    headers = by_canonical_name(f"drafter {path}", kind, names)
    refuse_head(head, headers, f"drafter {path}")
    return HeadFile(id=path, folder=folder, checkpoint=checkpoint, head=head, headers=headers, pickled=pickled)


def open_fitting(path: str, mechanism: str, beside: "Beside") -> HeadFile:
    """As `open_head`, of a head for this target."""
    opened, where = open_head(path, mechanism), f"drafter {path}"
    refuse_misfit(opened.head, opened.headers.keys(), beside.sizes, where)
    # Small, and wrong ones would come to light after the target has been loaded and has written.
    maps = stored_tensors(opened, [name for name in MAPS if name in opened.headers])
    target_ids(LoadedHead(id=path, head=opened.head, tensors=maps), beside.vocab_size)
    if opened.pickled is None:
        refuse_broken(where, opened.checkpoint.source, opened.headers)
    return opened


def stored_tensors(opened: HeadFile, names: Collection[str]) -> dict[str, Tensor]:
    """Tensors of a head by these canonical names, as stored."""
    written = {name: opened.headers[name].name for name in names}
    stored = opened.pickled
    if stored is None:
        stored = read_tensors(opened.folder, opened.checkpoint, list(written.values()))
    return {name: stored[one] for name, one in written.items()}


def refuse_broken(where: str, source: Source, tensors: Mapping[str, TensorInfo]) -> None:
    """NaN or infinity in what a few reads of each tensor show; all of it is looked at when it is loaded."""
    broken = not_finite(source, tensors)
    if broken:
        raise SpecError(f"{where}: {broken[0]} holds NaN or infinity; export the drafter again from a sound checkpoint")


def load_head(opened: HeadFile) -> LoadedHead:
    """Its tensors."""
    tensors = stored_tensors(opened, opened.headers.keys())
    notes: Sequence[str] = ()
    if opened.pickled is None:
        # The two ends are the target's.
        own = {name: info for name, info in opened.headers.items() if name not in (EMBED, HEAD)}
        notes = untrained(f"drafter {opened.id}", opened.checkpoint.source, own)
    return LoadedHead(id=opened.id, head=opened.head, tensors=tensors, notes=notes)


def untrained(what: str, source: Source, own: Mapping[str, TensorInfo]) -> list[str]:
    """What of a drafter's own tensors looks untrained by a few rows of each, in words for the user."""
    return [f"{what} looks untrained: {said}" for said in said_of(look(source, own))]


def wrong_kind(path: str, kind: Kind | None, mechanism: str) -> str:
    """Why this is not the head that was asked for."""
    if kind is None:
        return f"drafter {path} is no {mechanism} head that codraft knows; see: codraft inspect TARGET {path}"
    key, value = kind.seen
    return f"drafter {path} is a head of {kind.mechanism} ({key}: {value}), not {mechanism}; see codraft inspect"


def read_tensors(folder: Path, checkpoint: Checkpoint, names: Sequence[str]) -> dict[str, Tensor]:
    """These tensors of a checkpoint's safetensors files, by the names they are stored under."""
    by_file: dict[str, list[str]] = {}
    for name in names:
        by_file.setdefault(checkpoint.tensors[name].file, []).append(name)
    found: dict[str, Tensor] = {}
    for file, inside in by_file.items():
        try:
            with safe_open(folder / file, framework="pt") as handle:
                found |= {name: handle.get_tensor(name) for name in inside}
        except (OSError, SafetensorError) as error:
            raise SpecError(f"cannot read {folder / file}: {error}; fetch it again") from error
    return found


def read_pickles(folder: Path, checkpoint: Checkpoint) -> dict[str, Tensor] | None:
    """Plain tensors of a pickled file, as early heads have it, where there are no safetensors; nothing else in it is
    ever run."""
    if checkpoint.tensors or len(checkpoint.pickled) != 1:
        return None
    file = folder / checkpoint.pickled[0]
    try:
        stored = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        kind = type(error).__name__
        raise SpecError(
            f"cannot read {file} as plain tensors ({kind}); fetch it again, or convert it to safetensors where it is "
            "whole"
        ) from error
    found = {k: v for k, v in stored.items() if isinstance(k, str) and is_plain(v)} if isinstance(stored, dict) else {}
    if not isinstance(stored, dict) or len(found) < len(stored):
        raise SpecError(f"{file} holds more than plain tensors by name; convert it to safetensors")
    return found


def is_plain(value: object) -> bool:
    """Whether a value is a tensor of numbers in memory: not sparse, not a shape alone."""
    if not isinstance(value, Tensor):
        return False
    return value.layout == torch.strided and value.device.type == "cpu" and not value.is_quantized


def headers_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorInfo]:
    """What a safetensors header would say of them."""
    return {
        name: TensorInfo(name, DTYPES.get(tensor.dtype, dtype_name(tensor)), tuple(tensor.shape), "", 0, 0)
        for name, tensor in tensors.items()
    }


def dtype_name(tensor: Tensor) -> str:
    """What torch calls a tensor's dtype."""
    return str(tensor.dtype).removeprefix("torch.")


def refuse_not_finite(where: str, tensors: Mapping[str, Tensor]) -> None:
    """A NaN makes every draft NaN, and drawn ones would be accepted by no law."""
    broken = next((name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())), None)
    if broken is not None:
        raise SpecError(f"{where}: {broken} holds NaN or infinity; export the drafter again from a sound checkpoint")


def fill(module: nn.Module, loaded: LoadedHead, like: "Beside") -> None:
    """Give a module its tensors, one for each parameter, in the target's dtype and on its device. The module may be
    made on torch's `meta` device, where parameters are shapes alone."""
    target = like.load()
    dtype = getattr(torch, target.dtype)
    values = {name: tensor.to(dtype) for name, tensor in loaded.tensors.items() if name not in MAPS}
    refuse_not_finite(f"drafter {loaded.id}", values)
    try:
        module.load_state_dict(values, strict=True, assign=True)
    except RuntimeError as error:
        raise SpecError(f"drafter {loaded.id}: {' '.join(str(error).split())}") from error
    module.to(target.device).eval().requires_grad_(False)
    like.notes.extend(loaded.notes)


def target_ids(loaded: LoadedHead, vocab_size: int) -> Tensor | None:
    """[V'] target id of every draft id, None where the head knows the whole vocabulary."""
    head = loaded.head
    if "d2t" not in loaded.tensors:
        if head.reduced:
            raise SpecError(
                f"drafter {loaded.id}: it drafts from {head.draft_vocab_size} of {head.vocab_size} tokens and has no "
                "d2t that says which; fetch the file that holds it"
            )
        return None
    t2d = loaded.tensors.get("t2d")
    found = read_draft_map(
        loaded.tensors["d2t"].numpy(), None if t2d is None else t2d.numpy(), vocab_size, head.draft_vocab_size
    )
    against = [problem.message for problem in found.problems if problem.kind == "t2d"]
    said = [problem.message for problem in found.problems] if found.form == "inconsistent" else against
    if said:
        raise SpecError(f"drafter {loaded.id}: {'; '.join(said)}; fetch or export the head again")
    return torch.tensor([int(i) for i in found.target_ids])


def picker_of(draft: Literal["greedy", "sample"], loaded: LoadedHead, beside: "Beside") -> Picker:
    """Picks from the head's own vocabulary."""
    ids = target_ids(loaded, beside.vocab_size)
    ids = None if ids is None else ids.to(beside.load().device)
    return Picker(draft, beside.sampling, beside.vocab_size, ids)


def weight_bytes(module: nn.Module) -> int:
    """Bytes of a module's own parameters."""
    return sum(p.numel() * p.element_size() for p in module.parameters())
