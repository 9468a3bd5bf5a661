"""What each kind of record holds, as frozen dataclasses; `record.py` reads and writes them.

A measured field has no default; a field that was not measured is absent from the JSON, never zero.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from codraft.core.curve import CurvePoint
from codraft.core.provenance import Record


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
    """AL(D) of one drafter. Basis `steps` counts every pass; `expected_steps` is an expectation over draft noise.

    `cold` is the curve of a drafter that remembers other streams, with nothing remembered; absent for the others.
    """

    drafter: DrafterInfo
    basis: Literal["steps", "expected_steps", "drafted_steps"]
    curve: list[CurvePoint]
    cold: list[CurvePoint] | None = None
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
    """Medians in seconds at one (B, S, D); p10 and p90 are of T_verif. x = B * (1 + D) tokens are verified.

    `shares` of a pass by kind of work: ffn, projections (the linear layers of attention), attention (the rest of it,
    which reads the cache), head and other; they sum to 1. Drafting that is negligible beside its pass is sampled less.
    """

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
    t_sys_spread_s: tuple[float, float] | None = None
    t_draft_spread_s: dict[str, tuple[float, float]] | None = None
    t_draft_num_samples: dict[str, int] | None = None
    shares: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmPoint:
    """[M, k] x [k, n] on this machine: median seconds with spread, and the throughput 2 M n k / t."""

    layer: str
    n: int
    k: int
    M: int
    t_s: float
    p10: float
    p90: float
    num_samples: int
    flops_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionPoint:
    """Attention of one layer, 1 + D queries a sequence over S cached tokens: `rows` = G (1 + D) per KV head."""

    B: int
    S: int
    D: int
    rows: int
    t_s: float
    p10: float
    p90: float
    num_samples: int
    flops_per_s: float
    bytes_per_s: float


Ragged = Literal["padded", "packed"]


@dataclass(frozen=True, kw_only=True)
class TimingRecord(Record):
    """Step times measured on this machine.

    `ragged` says what a pass over drafts of unequal length costs: `padded` as the longest, `packed` as their sum.
    """

    SCHEMA = "codraft.timing/1"
    target: str
    ragged: Ragged
    points: list[TimingPoint]
    gemm: list[GemmPoint] | None = None
    attention: list[AttentionPoint] | None = None


@dataclass(frozen=True, kw_only=True)
class HardwareRecord(Record):
    """What this machine can do: the highest memory and arithmetic rates its microbenchmarks reached."""

    SCHEMA = "codraft.hardware/1"
    name: str
    bytes_per_s: float
    flops_per_s: float
    gemm: list[GemmPoint]
    attention: list[AttentionPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One (drafter, D) at one load; x is the mean number of tokens in a verification pass.

    The parts of T_step are absent where only whole steps were given.
    """

    drafter: str
    D: int
    AL: float
    AL_ci95: tuple[float, float] | None = None
    x: float
    t_verif_s: float | None = None
    t_draft_s: float | None = None
    t_sys_s: float | None = None
    t_step_s: float
    speedup: float
    speedup_ci95: tuple[float, float] | None = None
    break_even_AL: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guideline:
    """One of the five guidelines at a point: its premise and whether it holds, the value it names, and why.

    `optimum` is what the same question's exact answer is, `loss` the share of speed lost by following the rule.
    """

    id: int
    premise: str
    applies: bool
    value: int | str | None = None
    optimum: int | str | None = None
    loss: float | None = None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPoint:
    """The choice at one (B, S); `best` is null where no candidate gains enough to be worth its while."""

    NULLS: ClassVar[tuple[str, ...]] = ("best",)
    B: int
    S: int
    plain: dict[str, float]
    best: Candidate | None
    verdict: str
    warnings: list[str]
    candidates: list[Candidate]
    guidelines: list[Guideline]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEntry:
    """What to run up to `max_batch` sequences; drafter null and D = 0 mean off."""

    NULLS: ClassVar[tuple[str, ...]] = ("drafter",)
    max_batch: int
    drafter: str | None
    D: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """One way of drafting, for this target: what it needs, what it costs, when it fits."""

    mechanism: str
    inputs: str
    generation: str
    memory_bytes: int | None = None
    memory: str
    cost: str
    training: str
    fits: str
    measured_as: list[str]


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
    mechanisms: list[Mechanism]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One way to run at one load: speed for one user against speed of the machine; drafter null is plain decoding.

    `frontier` marks points that none beats in both; `plain_frontier` the same among plain decoding alone.
    """

    NULLS: ClassVar[tuple[str, ...]] = ("drafter",)
    B: int
    S: int
    drafter: str | None
    D: int
    AL: float
    tokens_per_s_user: float
    tokens_per_s: float
    frontier: bool
    plain_frontier: bool


@dataclass(frozen=True, kw_only=True)
class FrontierRecord(Record):
    """AL / T_step against B * AL / T_step, with and without speculation."""

    SCHEMA = "codraft.frontier/1"
    target: str
    basis: dict[str, str]
    points: list[FrontierPoint]
