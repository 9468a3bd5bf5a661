"""Records: one JSON object per measurement, with the provenance of every number in it.

A measured field has no default; a field that was not measured is absent from the JSON, never zero.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from codraft import __version__
from codraft.core.acceptance import CurvePoint
from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, check_writable, sha256_text, write_failure
from codraft.core.spec import load

R = TypeVar("R", bound="Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where the numbers of a record come from."""

    version: str
    git: str | None = None
    machine: dict[str, Any]
    engine: dict[str, str]
    dtype: str | None = None
    seeds: list[int]
    input_hashes: dict[str, str]
    time: str
    command: list[str]


def provenance(
    *,
    engine: Mapping[str, str],
    input_hashes: Mapping[str, str],
    dtype: str | None = None,
    device: str = "cpu",
    seeds: tuple[int, ...] = (),
) -> Provenance:
    """Provenance of a measurement made now, on this machine."""
    return Provenance(
        version=__version__,
        git=git_revision(),
        machine=machine(device),
        engine=dict(engine),
        dtype=dtype,
        seeds=list(seeds),
        input_hashes=dict(input_hashes),
        time=datetime.now(UTC).isoformat(timespec="seconds"),
        command=["codraft", *sys.argv[1:]],
    )


def machine(device: str) -> dict[str, Any]:
    """Processor, cores usable by this process, memory and device."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    facts: dict[str, Any] = {
        "system": platform.system(),
        "arch": platform.machine(),
        "cpu": cpu_name(),
        "cores": usable,
        "python": platform.python_version(),
        "device": device,
    }
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        facts["memory_bytes"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return facts


def cpu_name() -> str:
    """Model name of the processor, as the system tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def git_revision() -> str | None:
    """Short commit of codraft's own checkout, None when installed as a package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@dataclass(frozen=True, kw_only=True)
class Record:
    """What every record starts with; subclasses name their schema once."""

    SCHEMA: ClassVar[str]
    schema: str
    provenance: Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterInfo:
    """A drafter as it stands in records."""

    name: str
    mechanism: str
    id: str | None = None
    options: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptsInfo:
    """A prompt or stream set as it stands in records."""

    name: str
    sha256: str
    num_prompts: int
    num_conversations: int
    template: str
    skipped_long: int | None = None
    skipped_short: int | None = None
    written_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCurve:
    """AL(D) over one category or context bucket."""

    num_prompts: int
    curve: list[CurvePoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptanceResult:
    """AL(D) of one drafter. Basis `steps` counts every pass; `expected_steps` is an expectation over draft noise."""

    drafter: DrafterInfo
    basis: Literal["steps", "expected_steps", "drafted_steps"]
    curve: list[CurvePoint]
    domains: dict[str, DomainCurve] = field(default_factory=dict)
    timings_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AcceptanceRecord(Record):
    """AL(D) for every D asked and every drafter, on one workload."""

    SCHEMA = "codraft.acceptance/1"
    target: str
    prompts: PromptsInfo
    sampling: dict[str, Any]
    mode: str
    max_new_tokens: int
    stream_tokens: int
    timings_s: dict[str, float]
    wall_s: float
    results: list[AcceptanceResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generated:
    """One answer."""

    index: int
    turn: int
    prompt_ids: list[int]
    output_ids: list[int]
    text: str
    stop_reason: Literal["eos", "length"]
    steps: int
    drafted_steps: int
    drafted: int
    accepted: int
    seconds: float
    prefill_s: float


@dataclass(frozen=True, kw_only=True)
class GenerationRecord(Record):
    """Answers written by the lossless loop."""

    SCHEMA = "codraft.generation/1"
    target: str
    drafter: DrafterInfo | None = None
    D: int
    sampling: dict[str, Any]
    skipped_long: int | None = None
    outputs: list[Generated]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingPoint:
    """Medians in seconds at one (B, S, D); p10 and p90 are of T_verif. x = B * (1 + D) tokens are verified."""

    B: int
    S: int
    D: int
    x: int
    t_verif_s: float
    t_sys_s: float
    t_draft_s: dict[str, float]
    num_samples: int
    p10: float
    p90: float


@dataclass(frozen=True, kw_only=True)
class TimingRecord(Record):
    """Step times measured on this machine."""

    SCHEMA = "codraft.timing/1"
    target: str
    points: list[TimingPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One (drafter, D) at one load."""

    drafter: str
    D: int
    AL: float
    AL_ci95: tuple[float, float] | None = None
    t_step_s: float
    speedup: float
    speedup_ci95: tuple[float, float] | None = None
    break_even_AL: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guideline:
    """One of the five guidelines at a point: whether its premise holds, the D it names, and why."""

    id: int
    applies: bool
    value: int | str | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint:
    """The choice at one (B, S); `best` is null where no candidate gains enough to be worth its while."""

    B: int
    S: int
    plain: dict[str, float]
    best: Candidate | None
    candidates: list[Candidate]
    guidelines: list[Guideline]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """What to run up to `max_batch` sequences; drafter null and D = 0 mean off."""

    max_batch: int
    drafter: str | None
    D: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Speed-up of `generate` measured beside the prediction, over the same prompts, plain and drafted in turn."""

    drafter: str
    D: int
    predicted: float
    measured: float
    measured_ci95: tuple[float, float] | None = None
    signed_error: float
    plain_tokens_per_s: float
    drafted_tokens_per_s: float
    num_pairs: int
    identical_outputs: int
    num_outputs: int


@dataclass(frozen=True, kw_only=True)
class DecisionRecord(Record):
    """Which drafter and which D to run at each load."""

    SCHEMA = "codraft.decision/1"
    target: str
    basis: dict[str, str]
    points: list[DecisionPoint]
    schedule: list[ScheduleEntry]
    confirmation: Confirmation | None = None


# Contract fields whose null is a statement ("off", "never reached"), so it must stand in the JSON.
MEANINGFUL_NULLS = frozenset({"best", "drafter"})


def to_json(value: Any, *, inside: str = "") -> Any:
    """Plain JSON data of a record; unmeasured (None) fields are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = {f.name: getattr(value, f.name) for f in fields(value)}
        keep_null = isinstance(value, DecisionPoint | ScheduleEntry)
        return {
            key: to_json(item)
            for key, item in pairs.items()
            if item is not None or (keep_null and key in MEANINGFUL_NULLS)
        }
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
        try:
            sys.stdout.write(dumps(record))
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise SpecError(write_failure(Path("stdout"), error)) from error
    elif destination is not None:
        write_record(record, Path(destination))


def check_destination(destination: str | None) -> None:
    """Refuse an unwritable `--json PATH` before the work starts."""
    if destination is not None and destination != "-":
        check_writable(Path(destination))


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
