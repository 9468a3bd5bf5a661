"""One conversion of a drafter's checkpoint: open, check, plan, compare, write. Nothing is written before all is known.

The written config is read again before it is written: if the head that it describes differs in anything from the one
that was read, the conversion is refused. So what a layout cannot say is never lost without a word.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from codraft.core.conversion import ConversionRecord, FileInfo, LayerIds, TapsInfo
from codraft.core.errors import SpecError
from codraft.core.files import sha256_text
from codraft.core.provenance import provenance
from codraft.formats.fields import MOST_LAYERS, Fields
from codraft.formats.heads import write_block, write_eagle3
from codraft.formats.heads.check import tensor_faults
from codraft.formats.heads.convert_mtp import prepare_modules
from codraft.formats.heads.detect import detect
from codraft.formats.heads.forengine import adapt, engine_refusals, hints
from codraft.formats.heads.frame import Config, Frame, Refusal
from codraft.formats.heads.gate import refuse_conflicting_taps
from codraft.formats.heads.head import EMBED, HEAD, MAPS, Family, Head, Taps
from codraft.formats.heads.meaning import differences, meaning_of
from codraft.formats.heads.opened import Opened, OpenedTarget, open_drafter, open_target
from codraft.formats.heads.origin import FRAMEWORK, Origin, metadata_of
from codraft.formats.heads.plan import CONFIG, Conversion, Plan, beside, encoded, quantization, refuse, said_of
from codraft.formats.heads.read import read_head
from codraft.formats.heads.spellings import ENGINE_NAMES, NAMES, layout_of, written
from codraft.formats.heads.tensorplan import plan_tensors, read_map
from codraft.formats.outfolder import check_new_folder, new_folder
from codraft.formats.safetensors import TensorInfo
from codraft.formats.safewrite import Item, Progress, copied, write_raw, write_tensors
from codraft.formats.untrained import look


def prepare(request: Conversion) -> Plan:
    """Everything up to the writing. SpecError where the head is faulty, or cannot be said in the layout."""
    opened = open_drafter(request.source)
    family = layout_of(opened.mechanism, request.to)
    target = None if request.target is None else open_target(request.target)
    if opened.mechanism == "mtp":
        return prepare_modules(opened, family, target, request.engine)
    faults = tensor_faults(opened.head, opened.tensors)
    if faults:
        raise SpecError(f"{opened.label}: {'; '.join(faults)}; export the head again, nothing was written")
    check_layers(opened, target)
    plan = (same if family == opened.head.kind.family else other)(opened, family, target, request.engine)
    plan.warnings += suspicions(opened)
    return plan


def check_layers(opened: Opened, target: OpenedTarget | None) -> None:
    """Layer ids that the target has, as far as anybody says how deep it is."""
    stated = Fields(opened.config, file=opened.head.file).size("num_target_layers", highest=MOST_LAYERS)
    known = None if target is None else target.facts.num_layers
    depth = known or stated
    for taps in opened.head.taps:
        wrong = [i for i in taps.outputs if i < -1 or (depth is not None and i >= depth)]
        if wrong:
            whose = opened.label if known is None or target is None else target.facts.label
            within = "-1 or above" if depth is None else f"in -1..{depth - 1}, of the {depth} layers that {whose} names"
            raise SpecError(
                f"{opened.label}: {taps.key} means the outputs of layers {list(taps.outputs)}, and they must be "
                f"{within}; name the target that it was trained for"
            )


def suspicions(opened: Opened) -> list[str]:
    """What looks untrained. The target's ends and tables of a Markov head may be anything."""
    own = {name: info for name, info in opened.tensors.items() if name not in (EMBED, HEAD)}
    return said_of(look(opened.point.source, own))


def frame_of(opened: Opened, target: OpenedTarget | None, engine: str | None, *, owns_head: bool) -> Frame:
    """What the config writers want to know."""
    facts = None if target is None else target.facts
    size = vocabulary(opened)
    return Frame(head=opened.head, vocab_size=size, owns_head=owns_head, target=facts, engine=engine)


def vocabulary(opened: Opened) -> int | None:
    """The target's vocabulary: the config's, or what marks or embedding show."""
    shapes = (opened.tensors[name].shape for name in ("t2d", EMBED) if name in opened.tensors)
    return opened.head.vocab_size or next((shape[0] for shape in shapes if shape), None)


def same(opened: Opened, family: Family, target: OpenedTarget | None, engine: str | None) -> Plan:
    """The layout stays: tensors under their own names, the config byte for byte, with keys for the engine if any."""
    frame = frame_of(opened, target, engine, owns_head=HEAD in opened.tensors)
    refuse(opened, list(engine_refusals(frame, family)))
    source = opened.point.source
    items = [copied(source, info, info.name) for info in opened.tensors.values()]
    config, notes = adapt(dict(opened.config), frame, family)
    kept, dropped, more = without_identity(items, opened, engine)
    raw = source.read(CONFIG) if config == opened.config else encoded(config)
    notes = [*notes, *more] or ["the layout is the same: tensors and config copied"]
    again = reread(opened, config, kept)
    refuse_changed(opened, again, family)
    return Plan(
        opened=opened, family=family, target=target, config=raw, items=kept, metadata=opened.metadata or FRAMEWORK,
        written_taps=again.taps, extra=beside(opened, {}), dropped=dropped, notes=notes,
    )  # fmt: skip


def refuse_changed(opened: Opened, again: Head, family: Family) -> None:
    """The head that was written must be the one that was read."""
    changed = differences(meaning_of(opened.head), meaning_of(again))
    if changed or (again.mechanism, again.kind.family) != (opened.mechanism, family):
        raise SpecError(
            f"{opened.label}: {NAMES[family]} files cannot say all of this head; it would be read with other values "
            f"of {', '.join(changed) or 'its kind'}; choose another layout"
        )


def without_identity(items: list[Item], opened: Opened, engine: str | None) -> tuple[list[Item], list[str], list[str]]:
    """(items, names left out, notes): maps of a whole vocabulary go for vLLM, which has no place for them."""
    maps = [item.name for item in items if item.name in MAPS]
    if engine != "vllm" or opened.head.reduced or "d2t" not in maps:
        return items, [], []
    size = vocabulary(opened)
    if size is None or list(read_map(opened, size).target_ids) != list(range(size)):
        raise SpecError(
            f"{opened.label}: its d2t puts a whole vocabulary in another order, for which vLLM has no place; leave out "
            "--engine vllm"
        )
    said = "d2t left out: vLLM has no place for it where the vocabulary is whole"
    return [item for item in items if item.name not in maps], maps, [said]


def other(opened: Opened, family: Family, target: OpenedTarget | None, engine: str | None) -> Plan:
    """Another layout: a config of its own, tensors under its names."""
    writer = write_eagle3 if opened.mechanism == "eagle3" else write_block
    frame = frame_of(opened, target, engine, owns_head=True)
    refuse_conflicting_taps(opened.head, opened.label)
    if opened.head.block is not None and not opened.head.taps:
        raise SpecError(
            f"{opened.label}: the config names no layer ids (target_layer_ids), and without them nobody knows what fc "
            "reads; write those that it was trained on"
        )
    reasons = [*cannot(list(writer.refusals(frame, family)), frame, family), *engine_refusals(frame, family)]
    refuse(opened, reasons)
    if frame.vocab_size is None:
        raise SpecError(f"{opened.label}: vocab_size is missing; write the target's into the config")
    tensors = plan_tensors(opened, family, frame.vocab_size, target)
    kept, identity, notes = without_identity(tensors.items, opened, engine)
    frame = replace(frame, owns_head=any(item.name == HEAD or item.name.startswith("lm_head.") for item in kept))
    config, more = adapt(writer.WRITERS[family](frame), frame, family)
    names = {info.name: written(opened.mechanism, family, name) for name, info in opened.tensors.items()}
    config |= quantization(opened, names)
    again = reread(opened, config, kept)
    refuse_changed(opened, again, family)
    return Plan(
        opened=opened, family=family, target=target, config=encoded(config), items=kept,
        metadata=metadata_of(Origin(opened.head.kind.family, tensors.added, tensors.dropped)),
        written_taps=again.taps, extra=beside(opened, names),
        filled=tensors.filled, derived=[name for name in tensors.added if name not in tensors.filled],
        dropped=[*tensors.dropped, *identity],
        notes=[*tensors.notes, *notes, *more, *hints(frame, family, config)],
    )  # fmt: skip


def cannot(refusals: Sequence[Refusal], frame: Frame, family: Family) -> Iterator[str]:
    """Options that the layout has no words for: those that nothing helps, and those that an engine's own keys say."""
    left = [(words, engines) for words, engines in refusals if frame.engine not in engines]
    never = [words for words, engines in left if not engines]
    if never:
        yield f"{NAMES[family]} files cannot say {', '.join(dict.fromkeys(never))}"
    for engines in dict.fromkeys(engines for _, engines in left if engines):
        listed = ", ".join(words for words, others in left if others == engines)
        names = " or ".join(ENGINE_NAMES[engine] for engine in engines)
        yield f"{NAMES[family]} files can say {listed} only by keys of {names}: --engine {' or '.join(engines)}"


def reread(opened: Opened, config: Config, items: Sequence[Item]) -> Head:
    """The head that a config and tensors about to be written describe."""
    tensors = {item.name: TensorInfo(item.name, item.dtype, item.shape, "", 0, 0) for item in items}
    kind = detect(config, tensors)
    if kind is None:
        raise SpecError(f"{opened.label}: the result would not be known for a head; choose another layout")
    return read_head(kind, config, tensors, f"{opened.label}/{CONFIG}")


def convert(request: Conversion, progress: Progress | None = None) -> ConversionRecord:
    """A drafter's checkpoint in another layout, written to `request.output`. SpecError before anything is written."""
    start = time.perf_counter()
    check_new_folder(request.output)
    plan = prepare(request)
    with new_folder(request.output) as folder:
        files = write_tensors(folder, plan.items, plan.metadata, progress, stem=plan.stem)
        files += [write_raw(folder / CONFIG, plan.config)]
        files += [write_raw(folder / name, data) for name, data in plan.extra.items()]
    return ConversionRecord(
        schema=ConversionRecord.SCHEMA,
        provenance=provenance(engine={"name": "headers"}, input_hashes=hashes(plan)),
        input=plan.opened.label,
        output=str(request.output),
        mechanism=plan.opened.mechanism,
        from_format=plan.opened.head.kind.family,
        to_format=plan.family,
        engine=request.engine,
        target=None if plan.target is None else plan.target.facts.label,
        tensors=len(plan.items),
        bytes=plan.num_bytes,
        files=[FileInfo(name=file.name, bytes=file.bytes, sha256=file.sha256) for file in files],
        taps=taps_info(plan),
        filled=plan.filled,
        derived=plan.derived,
        dropped=plan.dropped,
        notes=plan.notes,
        warnings=plan.warnings,
        wall_s=time.perf_counter() - start,
    )


def hashes(plan: Plan) -> dict[str, str]:
    """Short hashes of the source's config and headers."""
    headers = "\n".join(f"{i.name} {i.dtype} {i.shape}" for i in plan.opened.tensors.values())
    config = sha256_text(repr(sorted(plan.opened.config.items(), key=lambda item: item[0])))
    return {"config": config[:16], "headers": sha256_text(headers)[:16]}


def taps_info(plan: Plan) -> TapsInfo | None:
    """Layer ids in both conventions, None where neither file names any."""
    read, now = plan.opened.head.taps, plan.written_taps
    if not read and not now:
        return None
    outputs = (read or now)[0].outputs

    def listed(taps: Sequence[Taps]) -> list[LayerIds]:
        return [LayerIds(key=one.key, convention=one.convention, ids=list(one.written)) for one in taps]

    return TapsInfo(outputs=list(outputs), inputs=[i + 1 for i in outputs], read=listed(read), written=listed(now))
