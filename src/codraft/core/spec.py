"""What a user asks for, as plain frozen dataclasses, and the strict loading of them.

Only this module knows pydantic: extras are forbidden, so a misspelt key is an error that names itself.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeVar, get_args

from codraft.core.errors import SpecError

MECHANISMS = ("external", "eagle3", "mtp", "dflash", "dspark", "ngram", "suffix")
MAX_DEPTH = 64

# Whether a mechanism's drafters come from a checkpoint of their own; `WINDOWED` whether that has a context window.
Path = Literal["none", "optional", "needed"]
Draft = Literal["greedy", "sample"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the target draws a token: temperature 0 is greedy; filters apply as top-k, then top-p, after temperature."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise SpecError(f"temperature must be a number >= 0 (0 is greedy); got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise SpecError(f"top-p must be above 0 and at most 1 (1 keeps every token); got {self.top_p}")
        if self.top_k < 0:
            raise SpecError(f"top-k must be >= 0 (0 keeps every token); got {self.top_k}")
        if not 0 <= self.seed < 2**63:
            raise SpecError(f"seed must be in 0..2**63 - 1; got {self.seed}")

    @property
    def greedy(self) -> bool:
        """True where the target's token is its argmax."""
        return self.temperature == 0


def sampling_of(temperature: float | None, top_p: float | None, top_k: int | None, seed: int | None) -> Sampling | None:
    """What was asked, None where nothing was."""
    if temperature is None and top_p is None and top_k is None and seed is None:
        return None
    return Sampling(
        temperature=0.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=0 if top_k is None else top_k,
        seed=0 if seed is None else seed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramSpec:
    """Drafts what followed an earlier copy of the last n tokens, longest n first."""

    PATH: ClassVar[Path] = "none"
    WINDOWED: ClassVar[bool] = False
    mechanism: Literal["ngram"] = "ngram"
    name: str = "ngram"
    n_min: int = 2
    n_max: int = 4
    occurrence: Literal["earliest", "latest"] = "latest"

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded: none."""
        return ()

    def __post_init__(self) -> None:
        if not 1 <= self.n_min <= self.n_max <= 64:
            raise SpecError(f"ngram needs 1 <= n_min <= n_max <= 64; got n_min={self.n_min}, n_max={self.n_max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixSpec:
    """Drafts the most frequent continuation of a suffix seen before, in this request or in earlier outputs.

    Defaults are vLLM's.
    """

    PATH: ClassVar[Path] = "none"
    WINDOWED: ClassVar[bool] = False
    mechanism: Literal["suffix"] = "suffix"
    name: str = "suffix"
    max_tree_depth: int = 24
    max_cached_requests: int = 10_000
    max_spec_factor: float = 1.0
    min_token_prob: float = 0.1

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded: none."""
        return ()

    def __post_init__(self) -> None:
        if not 2 <= self.max_tree_depth <= 512:
            raise SpecError(f"suffix: max_tree_depth must be in 2..512; got {self.max_tree_depth}")
        if not 0 <= self.max_cached_requests <= 1_000_000:
            raise SpecError(
                f"suffix: max_cached_requests must be in 0..1000000 (0 remembers no other request); "
                f"got {self.max_cached_requests}"
            )
        if not 0 < self.max_spec_factor <= MAX_DEPTH:
            raise SpecError(
                f"suffix: max_spec_factor must be above 0 and at most {MAX_DEPTH}; got {self.max_spec_factor}"
            )
        if not 0 <= self.min_token_prob <= 1:
            raise SpecError(f"suffix: min_token_prob must be in 0..1; got {self.min_token_prob}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalSpec:
    """A causal language model with the target's vocabulary; `layers` keeps its first decoder layers only."""

    PATH: ClassVar[Path] = "needed"
    WINDOWED: ClassVar[bool] = True
    path: str
    mechanism: Literal["external"] = "external"
    name: str = "external"
    draft: Draft = "greedy"
    layers: int | None = None

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded."""
        return (self.path,)

    def __post_init__(self) -> None:
        check_positive(self.layers, "external: layers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Spec:
    """A head of one decoder layer over features of several target layers."""

    PATH: ClassVar[Path] = "needed"
    WINDOWED: ClassVar[bool] = False
    path: str
    mechanism: Literal["eagle3"] = "eagle3"
    name: str = "eagle3"
    draft: Draft = "greedy"

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded."""
        return (self.path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpSpec:
    """Multi-token-prediction modules: of the target's own checkpoint, or of another folder where `path` is given.

    `feedback` is what a step hands to the next, a module's output before or after its last norm; None: as vLLM 0.32
    does it for the family.
    """

    PATH: ClassVar[Path] = "optional"
    WINDOWED: ClassVar[bool] = False
    path: str | None = None
    mechanism: Literal["mtp"] = "mtp"
    name: str = "mtp"
    draft: Draft = "greedy"
    feedback: Literal["pre_norm", "post_norm"] | None = None

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded beside the target."""
        return () if self.path is None else (self.path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class DflashSpec:
    """A block of masks filled in one pass. `resize`: D drafts take a block as long as they need, as vLLM runs it;
    `truncate`: the block keeps the size it was trained with, and its first D drafts are used."""

    PATH: ClassVar[Path] = "needed"
    WINDOWED: ClassVar[bool] = False
    path: str
    mechanism: Literal["dflash"] = "dflash"
    name: str = "dflash"
    draft: Draft = "greedy"
    block: Literal["resize", "truncate"] = "resize"

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded."""
        return (self.path,)


@dataclass(frozen=True, slots=True, kw_only=True)
class DsparkSpec:
    """As dflash, with a serial head over the block. A draft ends before the first token whose confidence is below
    `confidence`; or where `timing`, a timing record of codraft, says that another token does not pay."""

    PATH: ClassVar[Path] = "needed"
    WINDOWED: ClassVar[bool] = False
    path: str
    mechanism: Literal["dspark"] = "dspark"
    name: str = "dspark"
    draft: Draft = "greedy"
    block: Literal["resize", "truncate"] = "resize"
    confidence: float | None = None
    timing: str | None = None

    def model_paths(self) -> tuple[str, ...]:
        """Models to be loaded."""
        return (self.path,)

    def __post_init__(self) -> None:
        if self.confidence is not None and not 0 <= self.confidence <= 1:
            raise SpecError(f"dspark: confidence must be in 0..1; got {self.confidence}")
        if self.confidence is not None and self.timing is not None:
            raise SpecError("dspark: give confidence= or timing=, not both; each says by itself where a draft ends")


DrafterSpec = NgramSpec | SuffixSpec | ExternalSpec | Eagle3Spec | MtpSpec | DflashSpec | DsparkSpec
DRAFTER_SPECS: Mapping[str, type[DrafterSpec]] = {
    "ngram": NgramSpec,
    "suffix": SuffixSpec,
    "external": ExternalSpec,
    "eagle3": Eagle3Spec,
    "mtp": MtpSpec,
    "dflash": DflashSpec,
    "dspark": DsparkSpec,
}


def windowed_models(specs: Sequence[DrafterSpec]) -> list[str]:
    """Models among them whose own context window bounds a text: a language model's does. A head's only echoes what it
    was trained with; engines raise it to the target's [vLLM]."""
    return [path for spec in specs if spec.WINDOWED for path in spec.model_paths()]


def side_files(specs: Sequence[DrafterSpec]) -> list[str]:
    """Files beside the models that decide what these draft: an option `timing` names one."""
    return [path for spec in specs if (path := getattr(spec, "timing", None)) is not None]


def options_of(spec: DrafterSpec) -> dict[str, Any]:
    """The spec's options for a record: all but mechanism, name and path."""
    hidden = ("mechanism", "name", "path")
    return {key: value for key, value in asdict(spec).items() if key not in hidden and value is not None}


def load(kind: type[T], data: Any, where: str, *, strict: bool = True) -> T:
    """`data` (parsed TOML or JSON) as a `kind`; unknown keys, wrong types and NaN are SpecErrors.

    `strict=False` is for option strings, where "3" may stand for 3.
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    try:
        kind.__pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)  # type: ignore[attr-defined]
        if strict:
            return TypeAdapter(kind).validate_json(json.dumps(data, default=str), strict=True)
        return TypeAdapter(kind).validate_python(data)
    except ValidationError as error:
        raise SpecError(f"{where}: {first_problem(error.errors()[0], kind)}") from error


def first_problem(problem: Mapping[str, Any], kind: type[Any]) -> str:
    """One pydantic problem as a sentence with its dotted path."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
        known = ", ".join(field.name for field in fields(kind) if field.name not in ("mechanism", "path"))
        return f"unknown option '{key}'" + (f"; known here: {known}" if len(problem["loc"]) == 1 else "")
    if problem["type"] in ("missing", "missing_argument"):
        return f"'{key}' is missing"
    if problem["type"] == "value_error":
        return str(problem["ctx"]["error"])
    found = f"{key}={problem['input']!r}" if key else repr(problem["input"])
    return f"{found}: {problem['msg'][:1].lower()}{problem['msg'][1:]}"


def parse_drafter(text: str) -> DrafterSpec:
    """`MECHANISM[:PATH_OR_ID][,key=value...]` as a spec; the name is as written or the mechanism's."""
    head, *pairs = text.split(",")
    mechanism, colon, path = head.partition(":")
    if mechanism not in MECHANISMS:
        raise SpecError(f"unknown mechanism '{mechanism}' in '{text}'; choose one of: {', '.join(MECHANISMS)}")
    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise SpecError(f"drafter '{text}': option '{pair}' is not key=value")
        if key in options or key in ("mechanism", "path"):
            raise SpecError(f"drafter '{text}': option '{key}' is given twice or not an option")
        options[key] = value
    kind = DRAFTER_SPECS[mechanism]
    if kind.PATH == "needed" and not path:
        raise SpecError(f"drafter '{text}': {mechanism} needs a model, as {mechanism}:PATH_OR_ID")
    if path and kind.PATH != "none":
        options["path"] = path
    elif colon:
        why = "takes no model" if kind.PATH == "none" else "is given no model after the colon"
        raise SpecError(f"drafter '{text}': {mechanism} {why}; write {mechanism}[,key=value...]")
    if "name" in options and not re.fullmatch(r"[\w.+-]{1,64}", options["name"]):
        raise SpecError(f"drafter '{text}': name must be 1 to 64 letters (of any script), digits or any of . _ + -")
    return load(kind, options, f"drafter '{text}'", strict=False)


def parse_drafters(texts: Sequence[str]) -> list[DrafterSpec]:
    """All drafters of a command; unnamed repeats of a mechanism become `NAME-2`, `NAME-3`, ..."""
    specs = [(parse_drafter(text), ",name=" in text) for text in texts]
    taken: set[str] = set()
    for spec, named in specs:
        if named and spec.name in taken:
            raise SpecError(f"two drafters are named '{spec.name}'; give each its own name=")
        if named:
            taken.add(spec.name)
    result = []
    for spec, named in specs:
        if not named:
            name, count = spec.name, 1
            while name in taken:
                count += 1
                name = f"{spec.name}-{count}"
            taken.add(name)
            spec = replace(spec, name=name)
        result.append(spec)
    return result


def parse_list(text: str, field: str, *, lowest: int, highest: int | None = None) -> list[int]:
    """`1,2,4` or `0..8` (or both mixed) as sorted distinct whole numbers."""
    top = "" if highest is None else f"..{highest}"
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(-?\d{1,9})(?:\.\.(-?\d{1,9}))?\s*", part)
        if match is None:
            raise SpecError(f"{field} '{text}' is not a list; write it as 1,2,4 or 0..8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise SpecError(f"{field} '{text}': {first}..{last} runs backwards")
        if first < lowest or (highest is not None and last > highest):
            raise SpecError(f"{field} '{text}': values must be in {lowest}{top or ' and above'}")
        if last - first >= 100_000:
            raise SpecError(f"{field} '{text}': more than 100000 values")
        numbers.update(range(first, last + 1))
    return sorted(numbers)


def check_depth(D: int, *, lowest: int) -> int:
    """D in its allowed range."""
    if not lowest <= D <= MAX_DEPTH:
        raise SpecError(f"D (--depth) must be in {lowest}..{MAX_DEPTH}; got {D}")
    return D


def check_positive(value: int | None, field_name: str) -> None:
    """At least 1 where given."""
    if value is not None and value < 1:
        raise SpecError(f"{field_name} must be at least 1; got {value}")


def check_choice(value: str, field: str, kind: Any) -> str:
    """`value` if it is one of the Literal `kind`'s."""
    allowed = get_args(kind)
    if value not in allowed:
        raise SpecError(f"{field} must be one of {', '.join(allowed)}; got '{value}'")
    return value
