"""What is to be written and what has been: answers as lines of a file, each appended as soon as it ends.

A job that was killed goes on where that file stops; a line that was cut in the middle is cut off.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from codraft.core.errors import SpecError
from codraft.core.files import write_failure
from codraft.core.spec import Sampling

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One text to be written behind `prompt_ids`; `key` names it in files, `index` keys its noise."""

    key: str
    index: int
    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling


@dataclass(frozen=True, slots=True)
class Written:
    """`output_ids` end with the token that stopped them where `stop_reason` is eos."""

    output_ids: list[int]
    stop_reason: Literal["eos", "length"]


def read_answers(path: Path) -> dict[str, Written]:
    """Answers by key. SpecError where a whole line is none: the file is not ours."""
    if not path.exists():
        return {}
    try:
        content = path.read_bytes()
        whole, end, torn = content.rpartition(b"\n")
        if torn:
            with path.open("rb+") as file:
                file.truncate(len(whole) + len(end))
        return dict(map(parsed, whole.splitlines()))
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except (ValueError, KeyError, TypeError) as error:
        raise SpecError(f"{path} holds a line that is no answer; delete its folder and start anew") from error


def parsed(line: bytes) -> tuple[str, Written]:
    """One line of the file."""
    row: Mapping[str, Any] = json.loads(line)
    if row["stop_reason"] not in ("eos", "length"):
        raise ValueError("stop_reason")
    return str(row["key"]), Written([int(i) for i in row["output_ids"]], row["stop_reason"])


def append_answers(path: Path, answers: Iterable[tuple[str, Written]]) -> None:
    """Whole lines behind what is there, on the disk when this returns."""
    lines = [json.dumps({"key": k, "output_ids": a.output_ids, "stop_reason": a.stop_reason}) for k, a in answers]
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write("".join(f"{line}\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
