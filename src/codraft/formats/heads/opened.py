"""A drafter's checkpoint and its target's, opened for conversion: refused with one sentence where they cannot be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.checkpoint import HF_QUANT, Checkpoint, open_checkpoint
from codraft.formats.ends import EMBEDDINGS, HEADS, first_of
from codraft.formats.fields import Fields, shown
from codraft.formats.heads.detect import architectures, detect
from codraft.formats.heads.frame import TargetFacts
from codraft.formats.heads.head import OTHER_MECHANISMS, Head, Kind, layer_part
from codraft.formats.heads.layout import canonical
from codraft.formats.heads.origin import Origin, read_origin
from codraft.formats.heads.read import MOST_LAYERS, read_head
from codraft.formats.heads.spellings import LAYOUTS
from codraft.formats.jsonfile import quoted, read_json
from codraft.formats.mtp import mtp_tensors
from codraft.formats.quantnames import FLOATS
from codraft.formats.safetensors import TensorInfo, read_header

# A mask embedding that vLLM reads beside the weights of some DFlash heads.
PICKLED_PART = "mask_embedding.pt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A drafter. `config` is its config.json as it is; `tensors` by canonical name; of MTP modules by their own names,
    without the rest of the model around them. `origin`: what an earlier conversion left."""

    point: Checkpoint
    config: Mapping[str, Any]
    head: Head
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]
    origin: Origin | None

    @property
    def label(self) -> str:
        """The drafter as people name it."""
        return self.point.label

    @property
    def mechanism(self) -> str:
        """Its mechanism."""
        return self.head.mechanism


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTarget:
    """A target, of which a head may take embedding and output head."""

    point: Checkpoint
    facts: TargetFacts

    def end(self, name: str) -> TensorInfo:
        """Its tensor for a head's `embed_tokens.weight` or `lm_head.weight`; a tied head is the embedding."""
        tensors = self.point.tensors
        embedding = first_of(tensors, EMBEDDINGS)
        found = embedding if name.startswith("embed_tokens") else first_of(tensors, HEADS) or embedding
        if found is None:
            raise SpecError(
                f"--target {self.point.label} has no tensor that codraft knows as its {name}; name the folder or hub "
                "id that holds the target's weights"
            )
        if found.dtype not in FLOATS:
            raise SpecError(
                f"--target {self.point.label}: {found.name} is quantized ({found.dtype}), and a head holds it as "
                "floats; name the target's unquantized checkpoint"
            )
        return found


def open_drafter(name: str) -> Opened:
    """The head or the MTP modules in a folder, a file or a hub repository."""
    point = open_checkpoint(name)
    refuse_files(point)
    kind = detect(point.config, point.tensors)
    tensors = dict(point.tensors)
    if kind is None:
        tensors = modules_inside(point)
        kind = Kind(mechanism="mtp", family="native", seen=("tensors", next(iter(tensors))))
    if kind.mechanism not in LAYOUTS:
        known = "EAGLE-3, DFlash, DSpark and MTP"
        what = kind.mechanism if kind.mechanism in OTHER_MECHANISMS else shown(kind.mechanism)
        raise SpecError(f"{point.label} is a {what} head ({kind.seen[0]}); codraft converts heads of {known}")
    head = read_head(kind, point.config, tensors, f"{point.label}/config.json")
    metadata = read_header(point.source, point.files[0])[1]
    return Opened(
        point=point,
        config=read_json(point.source, "config.json"),
        head=head,
        tensors=tensors if kind.mechanism == "mtp" else by_canonical_name(point.label, kind, point.tensors),
        metadata=metadata,
        origin=read_origin(metadata),
    )


def refuse_files(point: Checkpoint) -> None:
    """Weights that are pickled, absent, or not all there."""
    refuse_lost(point)
    if not point.tensors and point.pickled:
        raise SpecError(
            f"{point.label} has its weights in {quoted(point.pickled[0])}, which is pickled and can run code when "
            "opened; where you trust it, load it with torch.load(FILE, weights_only=True) and write the tensors with "
            "safetensors.torch.save_file beside its config.json, then convert that folder"
        )
    if PICKLED_PART in point.pickled:
        raise SpecError(
            f"{point.label} has a mask embedding in {PICKLED_PART}, which is pickled and no layout's tensor; convert "
            "it by hand"
        )
    if not point.tensors:
        raise SpecError(f"{point.label} has no weights; name the folder that holds config.json and safetensors files")


def refuse_lost(point: Checkpoint) -> None:
    """Files or tensors that the index names and nobody has."""
    if point.lacks_files and point.index is not None:
        names = point.index.absent_files
        raise SpecError(
            f"{point.label}: {len(names)} of the files that its index names are not there ({quoted(names[0])}); fetch "
            "the checkpoint again"
        )
    if point.index is not None and point.index.absent_tensors:
        names = point.index.absent_tensors
        raise SpecError(
            f"{point.label}: its index names {len(names)} tensors that the files do not hold ({quoted(names[0])}); "
            "fetch the checkpoint again"
        )


def modules_inside(point: Checkpoint) -> dict[str, TensorInfo]:
    """The MTP modules inside a target. SpecError for a model that has none."""
    text = Fields(*layer_part(point.config), f"{point.label}/config.json")
    # Files that the index does not name: engines pass over an mtp.safetensors there, and here it is what is wanted.
    stored = {**point.unlisted, **point.tensors}
    held = mtp_tensors(stored, text.size("num_hidden_layers", highest=MOST_LAYERS) or 0)
    if not held or text.size("num_hidden_layers") is None:
        raise SpecError(
            f"{point.label} is no drafter's head that codraft knows, and no model with MTP modules inside; name the "
            "drafter's folder or hub id"
        )
    stages = next((key for key in (*text.part, *point.config) if key.startswith("dspark_")), None)
    if stages is not None:
        raise SpecError(
            f"{point.label}: its mtp tensors are DSpark stages of DeepSeek-V4 ({stages}), which live in the target "
            "alone; there is no layout to convert them to"
        )
    return {name: stored[name] for name in held}


def by_canonical_name(label: str, kind: Kind, tensors: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Tensors by canonical name; two that share one are refused, in a sentence that `label` begins."""
    found: dict[str, TensorInfo] = {}
    for name, info in tensors.items():
        key = canonical(kind, name)
        if key in found:
            raise SpecError(
                f"{label} holds {quoted(found[key].name)} and {quoted(name)}, which are one tensor of the head; "
                "remove one"
            )
        found[key] = info
    return found


def open_target(name: str) -> OpenedTarget:
    """The target that a head belongs to; its headers, and of its weights what is asked for."""
    point = open_checkpoint(name)
    kind = detect(point.config, point.tensors)
    if kind is not None:
        raise SpecError(f"--target {name} is a drafter's head ({kind.mechanism}); name the model that it drafts for")
    text = Fields(*layer_part(point.config), f"{name}/config.json")
    facts = TargetFacts(
        label=point.label,
        architectures=tuple(architectures(point.config)),
        num_layers=text.size("num_hidden_layers", highest=MOST_LAYERS),
    )
    return OpenedTarget(point=point, facts=facts)


def quantization_file(point: Checkpoint) -> str | None:
    """Model-Optimizer's hf_quant_config.json, where it is there."""
    name = f"{HF_QUANT}.json"
    return name if name in point.source.sizes() else None
