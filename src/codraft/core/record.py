"""Records as files: one JSON object per measurement, whole or absent, unknown keys refused."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, check_writable, sha256_text, write_failure
from codraft.core.provenance import Record
from codraft.core.spec import load

R = TypeVar("R", bound="Record")


def to_json(value: Any) -> Any:
    """Plain JSON data of a record; unmeasured (None) fields are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = {f.name: getattr(value, f.name) for f in fields(value)}
        # Null may be a statement ("off", "never reached"); a class that has such fields names them.
        stated = getattr(value, "NULLS", ())
        return {key: to_json(item) for key, item in pairs.items() if item is not None or key in stated}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def dumps(record: Record) -> str:
    """A record as JSON text: two-space indent, number lists on one line, no NaN."""
    text = json.dumps(to_json(record), indent=2, ensure_ascii=False, allow_nan=False)
    return squeeze_lists(text) + "\n"


def squeeze_lists(text: str) -> str:
    """Join the lines of innermost lists, so that token ids and counts do not take a line each."""
    lines: list[str] = []
    open_list: list[str] | None = None
    # Not splitlines(): JSON strings may hold line separators such as U+2028 as they are.
    for line in text.split("\n"):
        body = line.strip()
        if open_list is not None and body[:1] in '{["' and not body.startswith("[]"):
            lines += open_list
            open_list = None
        if open_list is None:
            if body.endswith("["):
                open_list = [line]
            else:
                lines.append(line)
        elif body in ("]", "],"):
            lines.append(open_list[0] + " ".join(part.strip() for part in open_list[1:]) + body)
            open_list = None
        else:
            open_list.append(line)
    return "\n".join(lines)


def write_record(record: Record, path: Path) -> None:
    """Write whole or not at all."""
    with atomic_write(path) as handle:
        handle.write(dumps(record))


def emit(record: Record, destination: str | None) -> None:
    """Write to `--json PATH` or `-` (stdout); nothing where it was not asked."""
    if destination == "-":
        if sys.stdout is None:
            raise SpecError("cannot write the record: stdout is closed; give --json a file")
        text = dumps(record)
        try:
            text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        except UnicodeEncodeError:
            # A terminal of few characters gets the same JSON in escapes.
            text = escaped(record)
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise SpecError(write_failure(Path("stdout"), error)) from error
    elif destination is not None:
        write_record(record, Path(destination))


def escaped(record: Record) -> str:
    """A record as JSON text in ASCII."""
    return json.dumps(to_json(record), indent=2, allow_nan=False) + "\n"


def check_destination(destination: str | None) -> None:
    """Refuse an unwritable `--json PATH` before the work starts."""
    if destination is not None and destination != "-":
        check_writable(Path(destination))


def check_apart(written: Mapping[str, str | Path | None], read: Mapping[str, Sequence[str | Path]]) -> None:
    """SpecError where a path that is written, by its flag, is one that is read, or two are one, or a record lies in the
    folder that a command makes: what is there would be overwritten."""
    goals = {flag: Path(place).resolve() for flag, place in written.items() if place is not None and str(place) != "-"}
    sources = {Path(place).resolve(): flag for flag, places in read.items() for place in places}
    for flag, goal in goals.items():
        if goal in sources:
            raise SpecError(f"{sources[goal]} and {flag} are both {written[flag]}; name another place for {flag}")
        inside = next((other for other, place in goals.items() if other != flag and goal.is_relative_to(place)), None)
        if inside is not None:
            raise SpecError(f"{flag} {written[flag]} lies where {inside} is written; name a place outside")


def read_record(path: Path, kind: type[R]) -> R:
    """A record of the asked kind; anything else is a SpecError naming what was found."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not a JSON record; make it again with the verb that wrote it") from error
    found = data.get("schema") if isinstance(data, dict) else None
    if found != kind.SCHEMA:
        raise SpecError(f"{path}: expected a '{kind.SCHEMA}' record, found '{found}'")
    return load(kind, data, str(path))


def hash_of(value: Any) -> str:
    """Short hash of JSON data: equal inputs, equal hash."""
    return sha256_text(json.dumps(to_json(value), sort_keys=True))[:16]
