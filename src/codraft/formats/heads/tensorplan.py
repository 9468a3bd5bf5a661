"""Which tensors a converted head has: copied under other names, taken from the target, derived, or left out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from codraft.core.errors import SpecError
from codraft.formats.draftmap import DraftMap, read_draft_map
from codraft.formats.ends import same_numbers
from codraft.formats.heads.head import EMBED, HEAD, Family
from codraft.formats.heads.opened import Opened, OpenedTarget
from codraft.formats.heads.origin import Origin
from codraft.formats.heads.spellings import NAMES, written
from codraft.formats.safetensors import read_values
from codraft.formats.safewrite import Item, copied, digest

if TYPE_CHECKING:
    import numpy as np

# Copies of the target's ends: a layout's files must have them, may have them, or leave both to the target.
MUST, MAY, NEVER = "must", "may", "never"
ENDS: Mapping[tuple[str, Family], str] = {
    ("eagle3", "safeailab"): MAY,
    ("eagle3", "modelopt"): MAY,
    ("eagle3", "speculators"): MUST,
    ("dflash", "zlab"): NEVER,
    ("dflash", "speculators"): MUST,
    ("dspark", "deepspec"): MUST,
    ("dspark", "specforge"): NEVER,
    ("dspark", "modelopt"): NEVER,
    ("dspark", "speculators"): MUST,
}
WORDS = {EMBED: "embedding", HEAD: "output head"}
# Layouts without the marks of a reduced vocabulary, and those that name both maps for a whole one as well.
WITHOUT_MARKS: tuple[Family, ...] = ("modelopt",)
WITH_IDENTITY: tuple[Family, ...] = ("safeailab",)
# Tensors that the source's layout has room for and no other.
PLACELESS = ("fc.bias", "mask_embedding", "mask_embedding.weight")
PLACELESS_ENDS = (".self_attn.sinks",)


@dataclass(slots=True)
class TensorPlan:
    """Tensors to be written, and what happened to those that are not simply copied. `added` and `dropped`: SHA-256 by
    canonical name. `filled` are those of `added` that are the target's."""

    items: list[Item] = field(default_factory=list)
    added: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    filled: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Work:
    """A plan in the making: the head, where it goes, its tensors by canonical name."""

    opened: Opened
    family: Family
    vocab_size: int
    target: OpenedTarget | None
    tensors: dict[str, Item]
    plan: TensorPlan

    @property
    def origin(self) -> Origin | None:
        """What an earlier conversion from this very layout left."""
        origin = self.opened.origin
        return origin if origin is not None and origin.family == self.family else None

    @property
    def layout(self) -> str:
        """The layout as people call it."""
        return NAMES[self.family]

    def add(self, name: str, item: Item) -> None:
        """A tensor that the source has not."""
        self.tensors[name] = item
        self.plan.added[name] = digest(item)

    def drop(self, name: str) -> None:
        """A tensor that the layout leaves out."""
        self.plan.dropped[name] = digest(self.tensors.pop(name))


def plan_tensors(opened: Opened, family: Family, vocab_size: int, target: OpenedTarget | None) -> TensorPlan:
    """The tensors of `opened` in another layout. `vocab_size` is the target's. SpecError where one has no place, or
    is missing."""
    source = opened.point.source
    tensors = {name: copied(source, info, name) for name, info in opened.tensors.items()}
    lost = [name for name in tensors if name in PLACELESS or name.endswith(PLACELESS_ENDS)]
    if lost:
        raise SpecError(f"{opened.label}: {NAMES[family]} files have no {lost[0]}, so this head cannot be written so")
    work = Work(opened, family, vocab_size, target, tensors, TensorPlan())
    plan_maps(work)
    for name in (EMBED, HEAD):
        plan_end(work, name)
    work.plan.items = [
        Item(written(opened.mechanism, family, name), item.dtype, item.shape, item.parts)
        for name, item in work.tensors.items()
    ]
    return work.plan


def plan_maps(work: Work) -> None:
    """d2t and t2d: of a reduced vocabulary as the layout has them, of a whole one where it names them at all."""
    opened, plan = work.opened, work.plan
    if "d2t" not in work.tensors and "t2d" not in work.tensors:
        restore_identity(work)
        return
    found = read_map(opened, work.vocab_size)
    if found.form == "inconsistent" or any(problem.kind == "t2d" for problem in found.problems):
        reasons = "; ".join(problem.message for problem in found.problems)
        raise SpecError(f"{opened.label}: its map of draft ids is wrong ({reasons}); export the head again")
    plan.notes += [f"d2t: {problem.message}" for problem in found.problems]
    if found.form == "absolute":
        plan.notes.append(
            "d2t holds target ids and not offsets, which engines add to the draft's id; it stays as it is"
        )
    if opened.head.reduced:
        marks(work, found)
    elif work.family not in WITH_IDENTITY:
        if list(found.target_ids) != list(range(len(found.target_ids))):
            raise SpecError(f"{opened.label}: its d2t puts a whole vocabulary in another order, which {work.layout} "
                            "files cannot say")  # fmt: skip
        for name in ("d2t", "t2d"):
            if name in work.tensors:
                work.drop(name)
        plan.notes.append("d2t and t2d say nothing, since the vocabulary is whole; left out")


def marks(work: Work, found: DraftMap) -> None:
    """t2d beside a d2t."""
    if work.family in WITHOUT_MARKS:
        if "t2d" in work.tensors:
            work.drop("t2d")
            work.plan.notes.append(f"t2d left out: {work.layout} files have none, and d2t says the same")
    elif "t2d" not in work.tensors:
        if work.origin is None or "t2d" in work.origin.dropped:
            work.add("t2d", marks_of(found, work.vocab_size))
            work.plan.notes.append("t2d derived from d2t")
    elif returned(work, "t2d"):
        work.plan.notes.append("t2d left out again: it was derived from d2t")


def restore_identity(work: Work) -> None:
    """Maps of a whole vocabulary, as the source of an earlier conversion had them."""
    origin, size = work.origin, work.vocab_size
    if origin is None or work.family not in WITH_IDENTITY:
        return
    for name, item in (
        ("d2t", Item("d2t", "I64", (size,), (bytes(8 * size),))),
        ("t2d", Item("t2d", "BOOL", (size,), (b"\1" * size,))),
    ):
        if origin.dropped.get(name) == digest(item):
            work.tensors[name] = item
            work.plan.notes.append(f"{name} of the whole vocabulary written again")


def marks_of(found: DraftMap, vocab_size: int) -> Item:
    """t2d: true for every target id that a draft id stands for."""
    marked = bytearray(vocab_size)
    for i in found.target_ids:
        marked[int(i)] = 1
    return Item("t2d", "BOOL", (vocab_size,), (bytes(marked),))


def read_map(opened: Opened, vocab_size: int) -> DraftMap:
    """The map of a reduced vocabulary."""
    source, head = opened.point.source, opened.head

    def values(name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]] | None":
        info = opened.tensors.get(name)
        return None if info is None else read_values(source, info)

    d2t = values("d2t")
    if d2t is None:
        raise SpecError(
            f"{opened.label} has a t2d and no d2t, so nobody knows what its draft ids mean; export it again"
        )
    return read_draft_map(d2t, values("t2d"), vocab_size, head.draft_vocab_size)


def returned(work: Work, name: str) -> bool:
    """Whether an earlier conversion from this layout added the tensor and it is still the same; then it goes again."""
    origin = work.origin
    if origin is None or name not in origin.added or digest(work.tensors[name]) != origin.added[name]:
        return False
    del work.tensors[name]
    return True


def plan_end(work: Work, name: str) -> None:
    """Embedding or output head, as the layout has it."""
    rule = ENDS[(work.opened.mechanism, work.family)]
    stem = name.removesuffix("weight")
    held = [key for key in work.tensors if key.startswith(stem)]
    if rule == NEVER and held:
        leave_out(work, name, held)
    elif rule == MUST and not held:
        fill(work, name)
    elif rule == MAY and held == [name] and returned(work, name):
        work.plan.notes.append(f"{name} left out again: it was copied from the target")
    elif rule == MAY and not held:
        restore(work, name)


def leave_out(work: Work, name: str, held: list[str]) -> None:
    """A layout that takes an end from the target: the copy goes if it is one."""
    opened, target, word = work.opened, work.target, WORDS[name]
    if held == [name] and returned(work, name):
        work.plan.notes.append(f"{name} left out again: it was copied from the target")
        return
    if held != [name]:
        raise SpecError(f"{opened.label} has a quantized {word} of its own, and {work.layout} files take the target's")
    if target is not None:
        if not same_numbers((opened.point.source, opened.tensors[name]), (target.point.source, target.end(name))):
            raise SpecError(
                f"{opened.label}: its {word} ({name}) is not that of {target.facts.label}, and {work.layout} files "
                "take the target's; name the target that it was trained for, or choose a layout that holds its own"
            )
        said = f"it holds the same numbers as {target.facts.label}'s"
    elif opened.head.config.get("embed_requires_grad") is True and name == EMBED:
        raise SpecError(
            f"{opened.label}: embed_requires_grad is true, so its embedding may be its own, and {work.layout} files "
            "take the target's; name the target with --target, and codraft compares them"
        )
    else:
        said = "not compared, since no --target was given"
    work.drop(name)
    work.plan.notes.append(f"{name} left out: {work.layout} files take the target's {word} ({said})")


def fill(work: Work, name: str) -> None:
    """A layout that holds a copy of the target's end."""
    opened, target, word = work.opened, work.target, WORDS[name]
    if target is None:
        raise SpecError(
            f"{opened.label} has no {word} ({name}), and {work.layout} files hold a copy of the target's; name the "
            "target with --target"
        )
    info, hidden = target.end(name), opened.head.geometry.hidden
    wanted = (work.vocab_size, hidden)
    if info.shape != wanted:
        raise SpecError(
            f"--target {target.facts.label}: {info.name} is {list(info.shape)}, and the head needs a {word} of "
            f"{list(wanted)}; name the target that it was trained for"
        )
    work.add(name, copied(target.point.source, info, name))
    work.plan.filled.append(name)
    work.plan.notes.append(f"{name} copied from {target.facts.label} ({info.name})")
    if work.origin is not None and work.origin.dropped.get(name, work.plan.added[name]) != work.plan.added[name]:
        work.plan.notes.append(f"this {word} is not bit for bit the copy that an earlier conversion left out")


def restore(work: Work, name: str) -> None:
    """A copy that an earlier conversion from this layout left out, taken from the target again where it is known."""
    origin, target = work.origin, work.target
    if origin is None or name not in origin.dropped:
        return
    if target is not None:
        item = copied(target.point.source, target.end(name), name)
        if digest(item) == origin.dropped[name]:
            work.tensors[name] = item
            work.plan.filled.append(name)
            work.plan.notes.append(f"{name} copied from {target.facts.label} again")
            return
    work.plan.notes.append(
        f"{name} was left out by an earlier conversion and is not written again; the target's is used"
    )
