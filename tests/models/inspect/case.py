"""A pair that fits, one change to it, and what must then be found: the shape of all cases, and how they are run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from codraft.core.inspection import Finding, InspectionRecord
from codraft.models.inspect.job import inspect
from codraft.models.inspect.pair import Question
from codraft.models.inspect.workload import Sample

from tests.checkpoints import WHOLE, Bits, Tensor, as_initialised, as_layout, layout_bytes, random_pieces
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import Side, Two

REFUSED = "codraft.refused"
Change = Callable[[Two], None]


@dataclass(frozen=True, kw_only=True)
class Case:
    """After `changes` to the pair `base`, the finding `code` is there, and was not before.

    `words` are in its message, `key` among the keys of its evidence. `beside` are all other errors and warnings that
    the same changes bring: one cause has one explanation unless the case says why.
    """

    name: str
    base: str
    changes: tuple[Change, ...]
    code: str
    severity: str
    words: str
    key: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NearMiss:
    """After `changes` the finding `code` is not there; `beside` are all errors and warnings that are."""

    name: str
    base: str
    changes: tuple[Change, ...]
    code: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class On:
    """Changes to one side of a pair; a dotted key goes into nested parts, and None takes a key away."""

    side: str

    def of(self, two: Two) -> Side:
        """The side."""
        found = two.target if self.side == "target" else two.drafter
        assert found is not None
        return found

    def says(self, key: str, value: Any) -> Change:
        """A key of the config."""

        def change(two: Two) -> None:
            *parts, last = key.split(".")
            at = self.of(two).config
            for part in parts:
                at = at.setdefault(part, {})
            at.pop(last, None)
            if value is not None:
                at[last] = value

        return change

    def silent(self, *keys: str) -> Change:
        """Without these keys."""
        return together(*(self.says(key, None) for key in keys))

    def holds(self, tensors: Mapping[str, Tensor]) -> Change:
        """More tensors, or others under these names."""
        return lambda two: self.of(two).tensors.update(tensors)

    def initialised(self) -> Change:
        """Its matrices as noise of one size."""
        return lambda two: self.of(two).tensors.update(as_initialised(self.of(two).tensors))

    def lacks(self, *names: str) -> Change:
        """Without the tensors whose names begin so."""

        def change(two: Two) -> None:
            tensors = self.of(two).tensors
            gone = [name for name in tensors if name.startswith(names)]
            assert gone, names
            for name in gone:
                del tensors[name]

        return change

    def empty(self) -> Change:
        """Without any tensor, and without a file of them."""

        def change(two: Two) -> None:
            self.of(two).tensors.clear()
            self.of(two).shards = 0

        return change

    def stores(self, name: str, dtype: str) -> Change:
        """A tensor of the same shape with elements of another type."""

        def change(two: Two) -> None:
            tensors = self.of(two).tensors
            tensors[name] = (dtype, as_layout(tensors[name])[1])

        return change

    def renames(self, old: str, new: str) -> Change:
        """Tensors whose names begin with `old` under a name that begins with `new`."""

        def change(two: Two) -> None:
            side = self.of(two)
            side.tensors = {
                new + name[len(old) :] if name.startswith(old) else name: tensor
                for name, tensor in side.tensors.items()
            }

        return change

    def indexed(self, more: Mapping[str, str]) -> Change:
        """An index that names every tensor, and these tensors in these files besides."""

        def change(two: Two) -> None:
            side = self.of(two)
            named = {**dict.fromkeys(side.tensors, "model.safetensors"), **more}
            side.extra["model.safetensors.index.json"] = {"metadata": {}, "weight_map": named}

        return change

    def has(self, **more: Any) -> Change:
        """Fields of the side itself: vocabulary, added tokens, more files."""

        def change(two: Two) -> None:
            for name, value in more.items():
                setattr(self.of(two), name, value)

        return change


TARGET, DRAFTER = On("target"), On("drafter")


def asks(**question: Any) -> Change:
    """What else the user says; None takes it back."""

    def change(two: Two) -> None:
        two.asked.update(question)

    return change


def together(*changes: Change) -> Change:
    """Several changes as one."""

    def change(two: Two) -> None:
        for one in changes:
            one(two)

    return change


@cache
def random_values(name: str, dtype: str, shape: tuple[int, ...]) -> Bits:
    """What `write_checkpoint` writes for a small tensor, made once for all cases."""
    pieces = random_pieces(name, dtype, layout_bytes((dtype, shape)))
    return Bits(dtype, shape, b"".join(data for _, data in pieces))


def filled(name: str, tensor: Tensor) -> Tensor:
    """A tensor with its values."""
    if not isinstance(tensor, tuple) or layout_bytes(tensor) > WHOLE:
        return tensor
    return random_values(name, *tensor)


@dataclass
class Bench:
    """Where pairs are written and inspected; untouched ones only once."""

    folder: Path
    plain: dict[str, InspectionRecord] = field(default_factory=dict)
    count: int = 0

    def base(self, name: str) -> InspectionRecord:
        """What is found in a pair as it is."""
        if name not in self.plain:
            self.plain[name] = self.run(ALL[name]())
        return self.plain[name]

    def changed(self, name: str, changes: tuple[Change, ...]) -> InspectionRecord:
        """What is found after changes."""
        two = ALL[name]()
        together(*changes)(two)
        return self.run(two)

    def run(self, two: Two) -> InspectionRecord:
        """Write a pair and inspect it."""
        self.count += 1
        folder = self.folder / str(self.count)
        for side in (two.target, two.drafter):
            if side is not None:
                side.tensors = {name: filled(name, tensor) for name, tensor in side.tensors.items()}
        target = two.target.write(folder / "target")
        drafter = None if two.drafter is None else two.drafter.write(folder / "drafter")
        text = two.asked.pop("text", None)
        sample = None if text is None else Sample(name="mine", texts=[text])
        return inspect(str(target), None if drafter is None else str(drafter), Question(**two.asked), sample)


def grave(record: InspectionRecord) -> list[str]:
    """Codes of errors and warnings, sorted, each as often as it is found; without what follows from them, that codraft
    refuses the head too."""
    return sorted(f.code for f in record.findings if f.severity != "note" and f.code != REFUSED)


def found(record: InspectionRecord, code: str) -> list[Finding]:
    """Findings of one rule."""
    return [finding for finding in record.findings if finding.code == code]
