"""What a token file for training holds, and how it came about: the record of `codraft train data`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from codraft.core.provenance import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsInfo:
    """`rows` = `kept` + the sum of `dropped` by reason. `repaired` counts kept rows by what was mended."""

    rows: int
    kept: int
    dropped: dict[str, int]
    repaired: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Quantiles of lengths in tokens."""

    p10: int
    p50: int
    p90: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfWrittenInfo:
    """User turns that the target wrote, counted as rows are; `tokens` of those kept, with the chat template around."""

    turns: RowsInfo
    tokens: Lengths | None = None
    temperature: float
    top_p: float
    openers: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryTokens:
    """One category of the file."""

    rows: int
    supervised_tokens: int


@dataclass(frozen=True, kw_only=True)
class TrainDataRecord(Record):
    """A token file.

    `file_rows` sequences of `tokens` tokens, of which `supervised_tokens` were written by the target. `prompts` are the
    rows of prompt files or streams, `self_written` turns by the target. `skipped_turns` were not answered since the
    conversation had outgrown the window, `empty_answers` held no token to be predicted. Seconds and tokens/s are of
    this run alone, which found `resumed_answers` written.
    """

    SCHEMA: ClassVar[str] = "codraft.train_data/1"
    target: str
    output: str
    sha256: str
    writer: Literal["torch", "vllm", "streams"]
    written_by: str | None = None
    template: str
    sampling: list[dict[str, Any]]
    max_new_tokens: int | None = None
    limit_tokens: int | None = None
    prompts: RowsInfo | None = None
    self_written: SelfWrittenInfo | None = None
    conversations: int
    file_rows: int
    tokens: int
    supervised_tokens: int
    ended: int
    skipped_turns: int
    empty_answers: int
    resumed_answers: int
    prompt_tokens: Lengths
    answer_tokens: Lengths
    languages: dict[str, dict[str, int]]
    categories: dict[str, CategoryTokens]
    seconds: dict[str, float]
    tokens_per_s: float | None = None
    wall_s: float
