"""What a study was asked, kept as `study.toml` in its folder."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write
from codraft.core.spec import Sampling, check_positive, load, sampling_of

NEW_TOKENS = 48
ROUNDS = 5
CONFIRM_PROMPTS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySpec:
    """One study. Drafters and prompts are as on the command line; sampling that is not set is as the streams say.

    `context` None is the workload's own typical context; with a `timing` of the user's own, an empty `batch` and no
    `context` are all that it holds. `acceptance` and `timing` are files of the user's own figures,
    which stand in for ours.
    """

    target: str
    drafters: list[str]
    prompts: list[str] = field(default_factory=list)
    streams: str | None = None
    max_new_tokens: int | None = None
    depth: list[int] = field(default_factory=lambda: list(range(9)))
    batch: list[int] = field(default_factory=lambda: [1])
    context: list[int] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    dtype: str = "auto"
    rounds: int = ROUNDS
    confirm_prompts: int = CONFIRM_PROMPTS
    kernels: bool = True
    skip_long: bool = False
    acceptance: str | None = None
    timing: str | None = None

    def __post_init__(self) -> None:
        check_positive(self.rounds, "rounds")
        check_positive(self.confirm_prompts, "confirm_prompts")

    def sampling(self) -> Sampling | None:
        """What was asked, None where nothing was."""
        return sampling_of(self.temperature, self.top_p, self.top_k, self.seed)


def write_study(spec: StudySpec, path: Path) -> None:
    """TOML of the fields that are set."""
    with atomic_write(path) as handle:
        handle.write("# What this study was asked. Same folder, same questions: finished records are used again.\n")
        for key, value in asdict(spec).items():
            if value is not None:
                handle.write(f"{key} = {toml_value(value)}\n")


def toml_value(value: object) -> str:
    """A scalar or flat list as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    import json

    # JSON leaves DEL as it is, which TOML forbids.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def read_study(path: Path) -> StudySpec:
    """A study file; unknown keys are errors."""
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{path} is not valid TOML ({error}); mend it or start a new study folder") from error
    return load(StudySpec, data, str(path))
