"""MTP modules taken out of a target, and between the names that targets have for them and those of the speculators
library.

Sources: the library's convert/mtp/converter.py and scripts/stitch_mtp.py, which fuse the experts of a mixture into one
tensor and part them again; formats/mtp.py and mtp_layout.py for everybody's names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from codraft.core.errors import SpecError
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.fields import shown
from codraft.formats.heads.forengine import engine_refusals
from codraft.formats.heads.frame import Config, Frame, speculators_frame, whole_keys
from codraft.formats.heads.head import Family, Kind, layer_part
from codraft.formats.heads.meaning import differences, meaning_of
from codraft.formats.heads.mtp_layout import EXPERTS, MtpLayout, read_layout
from codraft.formats.heads.mtp_options import NATIVE, SPECULATORS
from codraft.formats.heads.opened import Opened, OpenedTarget
from codraft.formats.heads.origin import FRAMEWORK, Origin, metadata_of
from codraft.formats.heads.plan import CONFIG, Plan, beside, encoded, refuse, said_of
from codraft.formats.heads.read import read_head
from codraft.formats.jsonfile import read_json
from codraft.formats.mtp import in_namespace, modules
from codraft.formats.quantnames import FLOATS, is_scale
from codraft.formats.safetensors import TensorInfo
from codraft.formats.safewrite import Item, Span, copied
from codraft.formats.untrained import look

# What a module's own parts are called by the library, and by Qwen's targets; mtp_layout.py's names first.
LIBRARY = {
    "proj": "input_proj", "embed_norm": "token_layernorm", "hidden_norm": "hidden_layernorm",
    "final_norm": "final_layernorm",
}  # fmt: skip
QWEN = {
    "proj": "fc", "embed_norm": "pre_fc_norm_embedding", "hidden_norm": "pre_fc_norm_hidden", "final_norm": "norm",
}  # fmt: skip
PREFIX = "mtp."
# Tokens that the library's converter proposes.
USUAL_TOKENS = 3
GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"
# Targets whose files have a matrix for each expert; newer ones have them fused.
APART = ("qwen3_next",)
ENDS = ("head", "embed")


@dataclass(frozen=True, slots=True)
class Style:
    """How a target spells its modules: the beginning of all names, and whether each expert has matrices of its own."""

    prefix: str
    experts: str


def prepare_modules(opened: Opened, family: Family, target: OpenedTarget | None, engine: str | None) -> Plan:
    """The plan for MTP modules: taken out as they are, or under the other names."""
    frame = Frame(
        head=opened.head, vocab_size=opened.head.vocab_size, owns_head=False,
        target=None if target is None else target.facts, engine=engine,
    )  # fmt: skip
    refuse(opened, list(engine_refusals(frame, family)))
    plan = same(opened, family, target) if family == opened.head.kind.family else other(opened, family, target, frame)
    plan.warnings += said_of(look(opened.point.source, trained(opened)))
    return plan


def trained(opened: Opened) -> dict[str, TensorInfo]:
    """Tensors of a module that are no copies of the target's ends."""
    return {
        name: info
        for name, info in opened.tensors.items()
        if "embed_tokens" not in name and ".head." not in name and "lm_head" not in name and not is_scale(name)
    }


def same(opened: Opened, family: Family, target: OpenedTarget | None) -> Plan:
    """The modules under the names that they have, with the config that stands around them."""
    missing = [name for module in modules(opened.tensors) for name in module.missing()]
    bare = [module.at for module in modules(opened.tensors) if not module.layers]
    if not modules(opened.tensors):
        missing.append("the projection that joins hidden state and embedding")
    if missing or bare:
        what = ", ".join([*missing, *(f"the decoder layer of {name}" for name in bare)])
        raise SpecError(f"{opened.label}: its MTP modules lack {what}; fetch the original checkpoint")
    unchecked = checked(opened)
    source = opened.point.source
    inside = len(opened.point.tensors) > len(opened.tensors)
    said = (
        f"{len(opened.tensors)} tensors of MTP modules taken out of {len(opened.point.tensors)}"
        if inside
        else ("the layout is the same: tensors and config copied")
    )
    return Plan(
        opened=opened, family=family, target=target, config=source.read(CONFIG),
        items=[copied(source, info, name) for name, info in opened.tensors.items()],
        metadata=FRAMEWORK if inside else opened.metadata or FRAMEWORK, written_taps=(), extra=beside(opened, {}),
        notes=[said, *unchecked], stem="mtp" if family == "native" else "model",
    )  # fmt: skip


def checked(opened: Opened) -> list[str]:
    """Refuse modules that lack a tensor, or have one in another shape than the config says; a note where codraft does
    not know what modules of this family hold."""
    table = NATIVE if opened.head.kind.family == "native" else SPECULATORS
    model_type = str(layer_part(opened.config)[0].get("model_type"))
    if model_type not in table:
        return [f"tensors of model_type '{shown(model_type)}' are copied unchecked: codraft runs no modules of it"]
    read_layout(point_of(opened), opened.label, to_run=False)
    return []


def other(opened: Opened, family: Family, target: OpenedTarget | None, frame: Frame) -> Plan:
    """One module of Qwen's kind under the other names."""
    layout = read_layout(point_of(opened), opened.label)
    model_type = str(layer_part(opened.config)[0].get("model_type"))
    if model_type not in SPECULATORS or len(layout.modules) != 1:
        count = len(layout.modules)
        what = f"{count} modules" if count > 1 else f"modules of model_type '{shown(model_type)}'"
        raise SpecError(
            f"{opened.label}: speculators files of MTP hold one module of {', '.join(SPECULATORS)}, and these are "
            f"{what}; write --to native"
        )
    if family == "native" and model_type not in NATIVE:
        raise SpecError(
            f"{opened.label}: no target of model_type '{shown(model_type)}' has MTP modules of its own, hence no "
            "names to write; keep the speculators layout"
        )
    stored = [opened.tensors[name] for name in layout.stored()]
    packed = next((info for info in stored if info.dtype not in FLOATS), None)
    if packed is not None:
        raise SpecError(f"{opened.label}: {packed.name} is quantized ({packed.dtype}), and codraft renames modules in "
                        "floats only; write the layout that it has")  # fmt: skip
    style = style_of(opened, layout, target, model_type)
    if family == "speculators":
        items, config = library_items(opened, layout), library_config(frame)
    else:
        items, config = native_items(opened, layout, style), native_config(opened, frame, target)
    check_meaning(opened, family, config, items)
    dropped = [part for part in ENDS if part in layout.modules[0]] + ([layout.embed] if layout.embed else [])
    notes = [f"{', '.join(dropped)} left out: the target's are used"] if dropped else []
    return Plan(
        opened=opened, family=family, target=target, config=encoded(config), items=items,
        metadata=metadata_of(Origin(opened.head.kind.family, style={"prefix": style.prefix, "experts": style.experts})),
        written_taps=(), dropped=[name for name in dropped if name], notes=[*notes, *said_of_experts(layout, items)],
        stem="mtp" if family == "native" else "model",
    )  # fmt: skip


def point_of(opened: Opened) -> Checkpoint:
    """The checkpoint with the modules alone, also those of files that its index passes over."""
    return replace(opened.point, tensors=opened.tensors, index=None, unlisted={})


def style_of(opened: Opened, layout: MtpLayout, target: OpenedTarget | None, model_type: str) -> Style:
    """How the native names are spelt: as the source has them, as an earlier conversion found them, as the target's own
    modules have them, or as is usual for its family."""
    if opened.head.kind.family == "native":
        at = layout.modules[0]["proj.weight"]
        return Style(at[: at.rindex("fc.")], "fused" if layout.fused[0] else "apart")
    origin = opened.origin
    if origin is not None and origin.family == "native" and "prefix" in origin.style:
        return Style(origin.style["prefix"], origin.style.get("experts", "apart"))
    theirs = [] if target is None else [name for name in target.point.tensors if in_namespace(name)]
    joint = next((name for name in theirs if name.endswith("fc.weight")), None)
    if joint is not None:
        return Style(joint[: joint.rindex("fc.")], "fused" if any(GATE_UP in name for name in theirs) else "apart")
    return Style(PREFIX, "apart" if model_type in APART else "fused")


def library_items(opened: Opened, layout: MtpLayout) -> list[Item]:
    """Tensors in the library's names; experts fused."""
    return [
        called(item, f"mtp_layers.0.{spelt(item.name, LIBRARY)}")
        for item in (layout_items(opened, layout) if layout.fused[0] else fused(layout_items(opened, layout)))
    ]


def native_items(opened: Opened, layout: MtpLayout, style: Style) -> list[Item]:
    """Tensors in a target's names; experts as the target has them."""
    items = list(layout_items(opened, layout))
    if layout.fused[0] and style.experts == "apart":
        items = list(apart(items))
    return [called(item, style.prefix + native_name(item.name)) for item in items]


def native_name(part: str) -> str:
    """What Qwen's targets call a part: those of the decoder layer are numbered."""
    stem = part.partition(".")[0]
    return spelt(part, QWEN) if stem in QWEN else f"layers.0.{part}"


def spelt(part: str, words: Mapping[str, str]) -> str:
    """A part under another name for its first word."""
    stem, dot, rest = part.partition(".")
    return words.get(stem, stem) + dot + rest


def called(item: Item, name: str) -> Item:
    """A tensor under another name."""
    return Item(name, item.dtype, item.shape, item.parts)


def layout_items(opened: Opened, layout: MtpLayout) -> Iterator[Item]:
    """The module's tensors by mtp_layout.py's names, without copies of the target's ends."""
    for part, name in layout.modules[0].items():
        if part not in ENDS:
            yield copied(opened.point.source, opened.tensors[name], part)


def fused(items: Iterator[Item]) -> Iterator[Item]:
    """Experts in two tensors: [E, 2 F, H] of gate and up, [E, H, F] of down. Rows follow each other in memory, so the
    bytes of one are those of the others in turn."""
    experts: dict[int, dict[str, Item]] = {}
    for item in items:
        if not item.name.startswith(EXPERTS):
            yield item
            continue
        index, _, kind = item.name.removeprefix(EXPERTS).partition(".")
        experts.setdefault(int(index), {})[kind] = item
    if not experts:
        return
    order = [experts[i] for i in sorted(experts)]
    gate, down = order[0]["gate_proj.weight"], order[0]["down_proj.weight"]
    both = tuple(part for one in order for kind in ("gate_proj", "up_proj") for part in one[f"{kind}.weight"].parts)
    yield Item(GATE_UP, gate.dtype, (len(order), 2 * gate.shape[0], gate.shape[1]), both)
    yield Item(DOWN, down.dtype, (len(order), *down.shape),
               tuple(part for one in order for part in one["down_proj.weight"].parts))  # fmt: skip


def apart(items: list[Item]) -> Iterator[Item]:
    """The inverse: a slice of the bytes for every expert."""
    for item in items:
        if item.name == GATE_UP:
            count, rows, width = item.shape
            for i in range(count):
                for k, kind in enumerate(("gate_proj", "up_proj")):
                    piece = slice_of(item, (2 * i + k), 2 * count)
                    yield Item(f"{EXPERTS}{i}.{kind}.weight", item.dtype, (rows // 2, width), (piece,))
        elif item.name == DOWN:
            for i in range(item.shape[0]):
                yield Item(
                    f"{EXPERTS}{i}.down_proj.weight", item.dtype, item.shape[1:], (slice_of(item, i, item.shape[0]),)
                )
        else:
            yield item


def slice_of(item: Item, index: int, count: int) -> Span:
    """The index-th of `count` equal slices of a copied tensor."""
    (span,) = item.parts
    assert isinstance(span, Span)
    size = (span.stop - span.start) // count
    return Span(span.source, span.file, span.start + index * size, span.start + (index + 1) * size)


def said_of_experts(layout: MtpLayout, items: list[Item]) -> list[str]:
    """Whether experts were fused or parted, in words."""
    after = any(item.name.endswith("experts.gate_up_proj") for item in items)
    if not layout.sparse[0] or after == layout.fused[0]:
        return []
    return ["experts fused into one tensor each for gate and up, and for down" if after else
            "experts parted into matrices of their own, as the target has them"]  # fmt: skip


def library_config(frame: Frame) -> Config:
    """The library's config of one module."""
    layers = {key: value for key, value in frame.head.text.items() if key not in ("architectures", "auto_map")}
    return {
        **speculators_frame(frame, "MTPDraftModel", USUAL_TOKENS),
        "transformer_layer_config": layers,
        "num_nextn_predict_layers": 1,
        **whole_keys(frame),
    }


def native_config(opened: Opened, frame: Frame, target: OpenedTarget | None) -> Config:
    """The target's own config; without one, its layers as the library keeps them, and its class."""
    if target is not None:
        return read_json(target.point.source, CONFIG)
    facts = speculators_frame(frame, "", USUAL_TOKENS)["speculators_config"]["verifier"]
    found: Config = {"architectures": facts["architectures"]} if facts["architectures"] else {}
    return {**found, **opened.head.text, **whole_keys(frame)}


def check_meaning(opened: Opened, family: Family, config: Config, items: list[Item]) -> None:
    """The written module must be read as the same one."""
    tensors = {item.name: TensorInfo(item.name, item.dtype, item.shape, "", 0, 0) for item in items}
    kind = Kind(mechanism="mtp", family=family, seen=("tensors", ""))
    again = read_head(kind, config, tensors, f"{opened.label}/{CONFIG}")
    changed = differences(meaning_of(opened.head), meaning_of(again))
    if changed:
        raise SpecError(
            f"{opened.label}: the module would be read with other values of {', '.join(changed)}; name the target that "
            "it belongs to"
        )
