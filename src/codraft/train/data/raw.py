"""Rows of prompt files as they stand there, broken ones included: training data is large, and never clean.

What cannot be read as a whole (no such file, a cut gzip) is a SpecError all the same.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.files import HALF_PAIR
from codraft.core.stats import evenly
from codraft.formats.rows import read_parquet
from codraft.replay.prompts import split_count
from codraft.replay.promptsets import RAW, locate

BOM = b"\xef\xbb\xbf"
# Columns of a parquet file that are read: those that hold prompts, and what decides about a row.
PROMPT_COLUMNS = ("messages", "conversations", "conversation", "turns", "prompt", "instruction", "question")
OTHER_COLUMNS = ("input", "category", "system", "system_prompt", "tools", "functions", "task_id", "entry_point", "id")


class Broken:
    """Stands for a line that is no JSON object."""


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row: `where` names it for people, `number` counts from 1 within its file."""

    where: str
    number: int
    value: Any


def read_source(source: str) -> list[RawRow]:
    """Rows of `NAME_OR_FILE[/CATEGORY][:N]`; N takes that many, spread evenly over the file or its category."""
    name, count = split_count(source)
    found = locate(name, RAW)
    rows = [row for called, path in found.files.items() for row in read_file(path, called)]
    if found.category is not None:
        rows = [r for r in rows if isinstance(r.value, dict) and r.value.get("category") == found.category]
        if not rows:
            raise SpecError(f"--prompts {source}: no such file, and no row has the category '{found.category}'")
    if not rows:
        raise SpecError(f"prompt file {name} has no rows; give at least one prompt")
    return rows if count is None else evenly(rows, count)


def read_file(path: Path, called: str) -> Iterator[RawRow]:
    """Rows of a JSONL (or gzipped), JSON (one array) or parquet file; blank lines are none."""
    if path.suffix.lower() == ".parquet":
        for number, row in read_parquet(path, PROMPT_COLUMNS, OTHER_COLUMNS):
            yield RawRow(f"{called}, row {number}", number, row)
        return
    content = file_bytes(path)
    if path.suffix.lower() == ".json" and content.lstrip()[:1] == b"[":
        array = parsed(content)
        if not isinstance(array, list):
            raise SpecError(f"cannot read {path}: not valid JSON; mend it, or give one JSON object a line (JSONL)")
        yield from (RawRow(f"{called}, row {n}", n, value) for n, value in enumerate(array, start=1))
        return
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield RawRow(f"{called}, line {number}", number, parsed(line))


def file_bytes(path: Path) -> bytes:
    """The text of a file, unpacked and without a byte order mark."""
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SpecError(f"cannot read {path}: it is not a whole gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    return content.removeprefix(BOM)


def parsed(content: bytes) -> Any:
    """JSON data, `Broken` where it is none, or holds half a character, which no tokenizer can take."""
    try:
        text = content.decode()
        value = json.loads(text)
        if HALF_PAIR.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return Broken
    return value
