"""What each kind of record holds, as frozen dataclasses; `record.py` reads and writes them.

A measured field has no default; a field that was not measured is absent from the JSON, never zero.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from codraft.core.acceptance import CurvePoint
from codraft.core.provenance import Provenance


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
