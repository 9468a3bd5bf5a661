"""Where the numbers of a record come from: version, machine, engine, inputs, time."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from codraft import __version__


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


@dataclass(frozen=True, kw_only=True)
class Record:
    """What every record starts with; subclasses name their schema once."""

    SCHEMA: ClassVar[str]
    schema: str
    provenance: Provenance


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


def machine_words(place: Mapping[str, Any]) -> str:
    """A machine in a few words: processor, cores, device."""
    return f"{place.get('cpu', 'unknown')}, {place.get('cores', '?')} cores, {place.get('device', 'unknown')}"


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
