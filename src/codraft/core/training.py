"""What training and its preparation found: records of `codraft train`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from codraft.core.provenance import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingPoint:
    """The AL at D of a drafter that is right wherever its vocabulary has the token."""

    D: int
    AL: float
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyPart:
    """Some rows of a token file held against a draft vocabulary.

    `coverage` is the share of their supervised tokens that are in it; `curve` is empty where no span holds a step.
    """

    name: str
    rows: int
    tokens: int
    coverage: float
    curve: list[CeilingPoint]


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyMeasure:
    """A vocabulary held against text, in all and by part, the largest first; no parts where rows have no names."""

    all: VocabularyPart
    categories: list[VocabularyPart] = field(default_factory=list)
    languages: list[VocabularyPart] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyReport:
    """One draft vocabulary: `special` and `byte` tokens are kept whatever their counts, `unseen` only fill it up.

    `counted` is measured on the rows that it was counted in; `held_out` on each tenth row, by a vocabulary of the same
    size counted in the nine others, and absent for fewer than ten rows. `head_bytes`: bfloat16 weights of the output
    head, read once a draft step.
    """

    size: int
    special: int
    byte: int
    unseen: int
    head_bytes: int
    counted: VocabularyMeasure
    held_out: VocabularyMeasure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyData:
    """What was counted: `distinct` token ids among `supervised` ones; `short_spans` hold no step.

    `walked_rows` are those that the AL ceilings come from, spread evenly over the file.
    """

    file: str
    rows: int
    tokens: int
    supervised: int
    distinct: int
    spans: int
    short_spans: int
    walked_rows: int


@dataclass(frozen=True, kw_only=True)
class TrainVocabRecord(Record):
    """Draft vocabularies of several sizes over the same text; `whole` is the target's own, for comparison."""

    SCHEMA: ClassVar[str] = "codraft.train_vocab/1"
    target: str
    vocab_size: int
    hidden: int
    data: VocabularyData
    sizes: list[VocabularyReport]
    whole: VocabularyReport
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class DraftVocabularyRecord(Record):
    """A draft vocabulary, for training: target ids, ascending, none twice."""

    SCHEMA: ClassVar[str] = "codraft.draft_vocabulary/1"
    target: str
    vocab_size: int
    target_ids: list[int]
    data: VocabularyData
    report: VocabularyReport
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """AL at D after `at_tokens` supervised tokens, from the checkpoints measured so far.

    `AL` is absent where none is given, and `reason` says why. `extrapolated`: how many times beyond the last checkpoint
    it lies, 1 and below is within the data. `plateau`: where the curve flattens, absent where that cannot be told yet.
    `last` and `best` are checkpoints as (tokens, AL).
    """

    D: int
    at_tokens: int
    AL: float | None = None
    AL_ci95: tuple[float, float] | None = None
    form: str | None = None
    plateau: float | None = None
    plateau_ci95: tuple[float, float] | None = None
    extrapolated: float | None = None
    falling: bool = False
    reason: str | None = None
    num_points: int
    last: tuple[int, float] | None = None
    best: tuple[int, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedPoint:
    """An evaluation: supervised tokens seen, repeats counted, and AL at the D that picks the best checkpoint."""

    tokens: int
    AL: float
    AL_ci95: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class TrainRecord(Record):
    """A training run. `seconds` of the steps by what they went into, summed over this process's part of the run;
    `tokens_per_s` is the median of all steps. `AL` is the best checkpoint's by D, on held-out streams."""

    SCHEMA: ClassVar[str] = "codraft.train/1"
    mechanism: str
    target: str
    output: str
    weights_sha256: str
    parameters: int
    columns: int
    steps: int
    best_step: int
    supervised_tokens_seen: int
    training_s: float
    tokens_per_s: float | None = None
    seconds: dict[str, float]
    select_D: int
    AL: dict[str, float]
    domains: dict[str, dict[str, float]]
    points: list[TrainedPoint]
    forecast: Forecast | None = None
    recipe: dict[str, Any]
    wall_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTerm:
    """One term of a plan: bytes or seconds, and what it is a product of."""

    name: str
    value: float
    of: str


@dataclass(frozen=True, kw_only=True)
class TrainPlanRecord(Record):
    """What a run will take, by term: `disk` and `memory` in bytes, `time` in seconds at `rate` operations a second, as
    one matrix product was measured on this machine."""

    SCHEMA: ClassVar[str] = "codraft.train_plan/1"
    mechanism: str
    target: str
    tokens: int
    steps: int
    epochs: float
    rate: float
    disk: list[PlanTerm]
    memory: list[PlanTerm]
    time: list[PlanTerm]


@dataclass(frozen=True, kw_only=True)
class TrainFeaturesRecord(Record):
    """Hidden states of a token file's rows, written once. `written` shards in this run, of `shards`."""

    SCHEMA: ClassVar[str] = "codraft.train_features/1"
    target: str
    output: str
    data_sha256: str
    layers: list[int]
    stored_as: str
    tokens: int
    shards: int
    written: int
    bytes: int
    seconds: float
    tokens_per_s: float | None = None
