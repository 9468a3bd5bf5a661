"""What an inspection found: the record of `codraft inspect`."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from codraft.core.provenance import Record

Severity = Literal["error", "warning", "note"]
# Worst first.
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Where it was seen: a config key (dotted) or a tensor, in a file, and what stands there (absent: nothing does)."""

    side: Literal["target", "drafter", "asked"]
    file: str
    key: str
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, doubtful or worth knowing.

    `error`: it cannot work, or acceptance is near 1 whatever the text. `warning`: it may work and lose, or it depends
    on the engine. `note`: a fact that explains figures seen later. `engines` says what each engine makes of it.
    """

    code: str
    severity: Severity
    message: str
    evidence: list[Evidence]
    consequence: str
    fix: str
    engines: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Weights counted, not bytes. `active`: read for one token, so an embedding table counts only where it is the head.

    `basis`: `headers` were counted, or the shape that `config` describes was.
    """

    total: int
    active: int
    embedding: int
    head: int
    mtp: int
    basis: Literal["headers", "config"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSummary:
    """A model in the numbers that speculation depends on.

    `mixers` and `ffns` count layers by kind. Bytes of cache are by dtype: of layers that keep every token, what
    windowed layers take at most for a sequence, and states of a sequence, whatever its length. `latent`: numbers that
    latent attention caches for a token, compressed and rotated.
    """

    id: str
    model_type: str
    architectures: list[str]
    num_layers: int
    mixers: dict[str, int]
    ffns: dict[str, int]
    hidden_size: int
    vocab_size: int
    num_heads: int | None = None
    num_kv_heads: int | None = None
    G: int | None = None
    head_dim: int | None = None
    head_dim_basis: Literal["given", "headers", "assumed"] | None = None
    latent: tuple[int, int] | None = None
    window: int | None = None
    max_positions: int | None = None
    parameters: Parameters | None = None
    kv_bytes_per_token: dict[str, int]
    window_bytes_per_sequence: dict[str, int] = field(default_factory=dict)
    state_bytes_per_sequence: dict[str, int]
    weight_bytes: dict[str, int]
    tied: bool
    mtp_layers: int
    quantization: str | None = None
    assumed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSummary:
    """A drafter checkpoint. `taps` are layers whose output is read, 0..L-1, -1 for the embeddings."""

    id: str
    mechanism: str
    family: str
    num_layers: int
    hidden_size: int
    target_hidden_size: int | None = None
    vocab_size: int | None = None
    draft_vocab_size: int | None = None
    taps: list[int] | None = None
    taps_as_written: list[int] | None = None
    taps_convention: Literal["output", "input"] | None = None
    block_size: int | None = None
    max_D: int | None = None
    mask_token_id: int | None = None
    max_positions: int | None = None
    parameters: int | None = None
    weight_bytes: dict[str, int]
    kv_bytes_per_token: dict[str, int]
    borrows: list[str]


Verdict = Literal["equal", "padded", "extended", "permuted", "different", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Two vocabularies beside each other. `verdict`:

    equal: every id means the same string. padded: the same, and the embeddings differ in rows. permuted: ids mean other
    strings, and each of those strings is in the other vocabulary. extended: equal but for ids that one of them lacks.
    different: the rest. unknown: one has no tokenizer file that can be compared. Where files are equal byte for byte
    and nothing depends on what is in them, the verdict is `equal` and nothing is counted.

    `num_differing_added`: those of the differing ids that are added tokens (special ones among them) for either.
    `examples`: differing ids (`id`, `target`, `drafter`, `added`), those with two meanings first; None: it lacks the
    id. `extra`: tokens at ids that one lacks, the first of them. `num_without_row`: ids of either past the end
    of the smaller embedding. `safe_padding`: no id has two meanings and none is without row, so logits past them can
    be masked. `special`: bos, eos, pad or unk that both name with other ids, as {target, drafter}. `affected_share`:
    share of the sample's tokens, as the target cuts it, that mean something else to the drafter or have no row there.
    """

    verdict: Verdict
    num_target: int | None = None
    num_drafter: int | None = None
    rows_target: int | None = None
    rows_drafter: int | None = None
    num_differing: int | None = None
    examples: list[dict[str, Any]]
    shared_strings: int | None = None
    safe_padding: bool | None = None
    num_differing_added: int | None = None
    num_without_row: int | None = None
    extra: list[str] = field(default_factory=list)
    special: dict[str, Any] = field(default_factory=dict)
    file_target: str | None = None
    file_drafter: str | None = None
    affected_share: float | None = None
    sample: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInfo:
    """The user's text in the target's tokens."""

    name: str
    num_prompts: int
    longest: int


@dataclass(frozen=True, kw_only=True)
class InspectionRecord(Record):
    """What a model is, whether a drafter fits it, and what each engine will make of the two."""

    SCHEMA: ClassVar[str] = "codraft.inspection/1"
    target: ModelSummary
    drafter: ModelSummary | HeadSummary | None = None
    method: str | None = None
    engine: str | None = None
    asked: dict[str, int] = field(default_factory=dict)
    sample: SampleInfo | None = None
    vocabulary: Vocabulary | None = None
    findings: list[Finding]
    bytes_read: int
    wall_s: float
