"""Drafters stored without what they share with their target: the embedding of an external drafter, two thirds of it.

`borrows.json` in such a folder says whose tensors are missing: {"target": ID, "tensors": {NAME: NAME IN THE TARGET}}.
The whole checkpoint is put together once, in the cache, by copying bytes, and is what engines load.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.files import atomic_folder, sha256_text
from codraft.formats.checkpoint import Checkpoint, open_checkpoint, read_checkpoint
from codraft.formats.hub import cache_root
from codraft.formats.safewrite import copied, write_tensors
from codraft.formats.source import FolderSource, open_source

FILE = "borrows.json"
CONFIG = "config.json"
# What turns text into ids; a drafter's are its target's.
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
             "generation_config.json", "vocab.json", "merges.txt", "tokenizer.model")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Borrows:
    """Tensors by the name that the drafter has them under, and their names in the target."""

    target: str
    tensors: Mapping[str, str]


def read_borrows(folder: Path) -> Borrows | None:
    """What a folder lacks, None for a whole one. SpecError for a file that says nothing of use."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        target, tensors = told["target"], told["tensors"]
        sound = isinstance(target, str) and isinstance(tensors, dict)
        sound = sound and all(isinstance(name, str) for pair in tensors.items() for name in pair)
    except (OSError, ValueError, KeyError, TypeError):
        sound = False
    if not sound:
        raise SpecError(f'{file} must be {{"target": ID, "tensors": {{NAME: NAME IN THE TARGET}}}}; fetch it again')
    return Borrows(target, tensors)


def whole(folder: Path, find: Callable[[str], Path]) -> Path:
    """A folder as it is, or put together where it lacks what is its target's, which `find` gives the folder of."""
    borrows = read_borrows(folder)
    if borrows is None:
        return folder
    target = Path(borrows.target).expanduser()
    if target.is_dir() and read_borrows(target) is not None:
        raise SpecError(f"{folder} borrows from {borrows.target}, which is not whole itself; fetch the drafter again")
    return assembled(folder, borrows, find(borrows.target))


def open_whole(model: str) -> Checkpoint:
    """`open_checkpoint`, of all that belongs to a model. Without torch, so that its target must be here already."""
    folder = Path(model).expanduser()
    if model and folder.is_dir() and (made := whole(folder, here)) != folder:
        return read_checkpoint(FolderSource(made, str(Path(model))))
    return open_checkpoint(model)


def here(model: str) -> Path:
    """The folder of a model on this machine."""
    source = open_source(model)
    if not isinstance(source, FolderSource):
        raise SpecError(f"a drafter borrows from {model}, which is not on this machine; fetch it (hf download {model})")
    return source.folder


def whole_path(folder: Path, borrows: Borrows, target_folder: Path) -> Path:
    """Where in the cache the whole checkpoint of such a folder lies, or will lie: by what it is made of."""
    stamps = [(str(file), *stamp(file)) for one in (folder, target_folder) for file in sorted(one.iterdir())]
    key = sha256_text(repr((stamps, borrows.target, sorted(borrows.tensors.items()))))[:16]
    return cache_root() / "assembled" / f"{folder.name}-{key}"


def stamp(file: Path) -> tuple[int, int]:
    """Size and time of a file: another one gives another checkpoint."""
    found = os.stat(file)
    return found.st_size, found.st_mtime_ns


def assembled(folder: Path, borrows: Borrows, target_folder: Path) -> Path:
    """The whole checkpoint, put together if it is not there yet."""
    goal = whole_path(folder, borrows, target_folder)
    if goal.is_dir():
        return goal
    own, target = open_checkpoint(str(folder)), open_checkpoint(str(target_folder))
    missing = next((name for name in borrows.tensors.values() if name not in target.tensors), None)
    if missing is not None:
        raise SpecError(f"{folder} borrows {missing}, which {target_folder} has not; give the target it was made for")
    items = [copied(own.source, info, name) for name, info in own.tensors.items()]
    items += [copied(target.source, target.tensors[there], name) for name, there in borrows.tensors.items()]
    with atomic_folder(goal) as part:
        write_tensors(part, items, {"format": "pt"})
        shutil.copyfile(folder / CONFIG, part / CONFIG)
        for name in TOKENIZER:
            source = next((one / name for one in (folder, target_folder) if (one / name).is_file()), None)
            if source is not None:
                shutil.copyfile(source, part / name)
    return goal


def without(checkpoint: Checkpoint, borrows: Borrows, folder: Path) -> None:
    """A checkpoint written to `folder` without what it borrows, and the file that says so."""
    items = [copied(checkpoint.source, info, name) for name, info in checkpoint.tensors.items()]
    write_tensors(folder, [item for item in items if item.name not in borrows.tensors], {"format": "pt"})
    told = {"target": borrows.target, "tensors": dict(borrows.tensors)}
    (folder / FILE).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
