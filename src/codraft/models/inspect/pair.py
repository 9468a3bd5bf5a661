"""What is inspected, and how a check reports: a `Rule` for what can be wrong, a `Finding` for where it is."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from codraft.core.inspection import Evidence, Finding, Parameters, Severity, Vocabulary
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.fields import Fields
from codraft.formats.heads.head import Head
from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import Architecture
from codraft.models.inspect.workload import Workload

ENGINES = ("vllm", "sglang", "trtllm")
ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
Side = Literal["target", "drafter"]
# Bounds of what is shown of other people's files.
LONGEST_NAME = 120
LONGEST_MESSAGE = 600
MOST_ITEMS = 16
MOST_DIMENSIONS = 8
LARGEST_SHOWN = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One thing that can be wrong. `varies`: when it is of another severity. `seen`: public reports of it, as
    OWNER/REPO#NUMBER or a documented source."""

    code: str
    severity: Severity
    varies: str = ""
    title: str
    consequence: str
    fix: str
    seen: str = ""

    def found(
        self,
        message: str,
        *evidence: Evidence,
        engines: Mapping[str, str] | None = None,
        severity: Severity | None = None,
        fix: str | None = None,
    ) -> Finding:
        """This rule, met here."""
        return Finding(
            code=self.code,
            severity=severity or self.severity,
            message=short(message, LONGEST_MESSAGE),
            evidence=list(evidence),
            consequence=self.consequence,
            fix=self.fix if fix is None else short(fix, LONGEST_MESSAGE),
            engines={engine: short(words, LONGEST_MESSAGE) for engine, words in (engines or {}).items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A causal language model: the target, or an external drafter."""

    side: Side
    checkpoint: Checkpoint
    arch: Architecture
    parameters: Parameters | None

    @property
    def config(self) -> Mapping[str, Any]:
        """Its config.json."""
        return self.checkpoint.config

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Its tensors by name."""
        return self.checkpoint.tensors

    def key(self, key: str) -> Evidence:
        """A config key of the decoder's part as evidence; it may be dotted from the top of the file."""
        if self.arch.path and value_at(self.config, key) is not None:
            return config_evidence(self.side, self.config, key, "")
        return config_evidence(self.side, self.arch.text, key, self.arch.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadModel:
    """A drafter that reads the target's hidden states. `tensors` are under their canonical names."""

    side: Side = "drafter"
    checkpoint: Checkpoint
    head: Head
    tensors: Mapping[str, TensorInfo]

    @property
    def config(self) -> Mapping[str, Any]:
        """Its config.json."""
        return self.checkpoint.config

    def key(self, key: str) -> Evidence:
        """A config key as evidence: of the whole config, or of the part with the layers."""
        if value_at(self.config, key) is None and self.head.text_path:
            return config_evidence(self.side, self.head.text, key, self.head.text_path)
        return config_evidence(self.side, self.config, key, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What else the user said: engine, method, ranks of tensor parallelism, D, longest sequence in tokens."""

    method: str | None = None
    engine: str | None = None
    tp: int | None = None
    depth: int | None = None
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A target, perhaps a drafter, and the question.

    `vocabulary` compares the tokenizers of an external drafter. `workload` is the user's text; `coverage` is the share
    of it that a reduced draft vocabulary can write. `mask_token` is what the target's tokenizer means by a block
    drafter's mask id, where it means anything.
    """

    target: Model
    drafter: Model | HeadModel | None = None
    question: Question = field(default_factory=Question)
    vocabulary: Vocabulary | None = None
    workload: Workload | None = None
    coverage: float | None = None
    mask_token: str | None = None

    @property
    def head(self) -> Head | None:
        """The drafter's head, None for an external model or none."""
        return self.drafter.head if isinstance(self.drafter, HeadModel) else None

    def models(self) -> Iterator[Model | HeadModel]:
        """Target, then drafter."""
        yield self.target
        if self.drafter is not None:
            yield self.drafter


def mtp_severity(pair: Pair) -> Severity | None:
    """How bad a broken MTP module is: as its rule says where it is asked for, doubtful where nothing is, and of no
    account where another mechanism drafts."""
    if pair.question.method == "mtp":
        return None
    return "warning" if pair.drafter is None and pair.question.method is None else "note"


def seen_at(side: Literal["target", "drafter", "asked"], file: str, key: str, value: Any = None) -> Evidence:
    """What was seen; texts of other people's files are cut and made printable."""
    return Evidence(side=side, file=short(file), key=short(key), value=brief(value))


def asked(key: str, value: Any) -> Evidence:
    """A flag of the command as evidence."""
    return seen_at("asked", "command", f"--{key}", value)


def config_evidence(side: Side, config: Mapping[str, Any], key: str, path: str) -> Evidence:
    """A dotted key of a config, with what stands there."""
    return seen_at(side, "config.json", f"{path}.{key}" if path else key, value_at(config, key))


def tensor_evidence(side: Side, info: TensorInfo) -> Evidence:
    """A tensor's name, dtype and shape."""
    return seen_at(side, info.file, info.name, f"{info.dtype} {list(info.shape[:MOST_DIMENSIONS])}")


def absent_evidence(side: Side, file: str, key: str) -> Evidence:
    """Something that should be there."""
    return seen_at(side, file, key)


def value_at(config: Mapping[str, Any], key: str) -> Any:
    """The value under a dotted key, None where it is absent."""
    return Fields(config).get(key)


def elsewhere(config: Mapping[str, Any], name: str) -> str:
    """Where a key stands that was not found where it belongs, in words; empty where it is nowhere."""
    for key, part in config.items():
        if isinstance(part, Mapping) and part.get(name) is not None:
            return f" ({key}.{name} is there, which no engine reads)"
    return ""


def short(text: str, limit: int = LONGEST_NAME) -> str:
    """A text of somebody else's in one line, printable, and no longer than this."""
    cut = text if len(text) <= limit else text[: limit - 3] + "..."
    return "".join(c if c.isprintable() else "?" for c in " ".join(cut.split()))


def brief(value: Any, depth: int = 3) -> Any:
    """A value short enough to show, and such that any record can hold it: no NaN, no long lists, no deep nesting."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, str):
        return short(value)
    if isinstance(value, int) and abs(value) > LARGEST_SHOWN:
        return short(f"{value:.3e}" if abs(value) < 10**300 else "a very large number")
    if not isinstance(value, list | Mapping):
        return value
    if not depth:
        return "..."
    if isinstance(value, list):
        more = [f"... {len(value)} in all"] if len(value) > MOST_ITEMS else []
        return [brief(item, depth - 1) for item in value[:MOST_ITEMS]] + more
    return {short(str(key)): brief(value[key], depth - 1) for key in list(value)[:MOST_ITEMS]}


def listed(names: Sequence[str], most: int = 4) -> str:
    """A few names, and how many more there are."""
    shown = ", ".join(short(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
