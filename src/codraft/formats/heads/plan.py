"""What a conversion will write, and helpers that every mechanism's conversion needs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.formats.heads.frame import QUANTIZATION, Config
from codraft.formats.heads.head import MOST_NAMED, Family, Taps
from codraft.formats.heads.opened import Opened, OpenedTarget, quantization_file
from codraft.formats.safewrite import Item
from codraft.formats.untrained import Untrained

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What was asked: `source` and `target` as open_checkpoint takes them, `to` a layout's name."""

    source: str
    to: str
    output: Path
    target: str | None = None
    engine: str | None = None


@dataclass(slots=True, kw_only=True)
class Plan:
    """All that will be written. `config` is the file's bytes; `stem` begins the names of weight files."""

    opened: Opened
    family: Family
    target: OpenedTarget | None
    config: bytes
    items: list[Item]
    metadata: Mapping[str, str]
    written_taps: tuple[Taps, ...]
    extra: dict[str, bytes] = field(default_factory=dict)
    filled: list[str] = field(default_factory=list)
    derived: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    stem: str = "model"

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(item.num_bytes for item in self.items)


def refuse(opened: Opened, reasons: Sequence[str]) -> None:
    """All reasons in one sentence."""
    if reasons:
        raise SpecError(f"{opened.label}: {'; '.join(reasons)}; nothing was written")


def said_of(found: Untrained) -> list[str]:
    """Findings in words."""
    words = [
        (found.not_finite, "tensors that hold NaN or infinity"),
        (found.constant, "matrices that hold one value everywhere"),
        (found.untouched, "matrices that look as initialised, with no trace of training"),
    ]
    said = [f"{what}: {listed(names)}" for names, what in words if names]
    if found.norms > 1:
        said.append(f"all {found.norms} norms are as initialised, with no trace of training")
    return said


def listed(names: Sequence[str]) -> str:
    """The first names, and how many there are."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more} ({len(names)})"


def encoded(config: Config) -> bytes:
    """A config as a file."""
    return (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode()


def quantization(opened: Opened, names: Mapping[str, str]) -> Config:
    """The quantization part of a config, with the modules that it names under their new names."""
    return {key: with_new_names(opened.config[key], modules_of(names)) for key in QUANTIZATION if key in opened.config}


def beside(opened: Opened, names: Mapping[str, str]) -> dict[str, bytes]:
    """Model-Optimizer's quantization file, which goes with the weights."""
    file = quantization_file(opened.point)
    if file is None:
        return {}
    raw = opened.point.source.read(file)
    return {file: encoded(with_new_names(json.loads(raw), modules_of(names))) if names else raw}


def modules_of(names: Mapping[str, str]) -> dict[str, str]:
    """Old and new names of the modules that changed theirs."""
    stems = {old.rpartition(".")[0]: new.rpartition(".")[0] for old, new in names.items() if "." in old}
    return {old: new for old, new in stems.items() if old != new}


def with_new_names(value: Any, modules: Mapping[str, str]) -> Any:
    """JSON data in which texts that name a module name it anew; patterns stay as they are."""
    if isinstance(value, str):
        return modules.get(value, value)
    if isinstance(value, list):
        return [with_new_names(one, modules) for one in value]
    if isinstance(value, Mapping):
        return {modules.get(key, key): with_new_names(one, modules) for key, one in value.items()}
    return value
