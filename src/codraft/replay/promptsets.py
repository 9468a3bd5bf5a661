"""Where prompts come from: names of known sets, files, prepared folders, each with a category where one is asked for.

`NAME_OR_PATH[/CATEGORY]`. A file comes before a name, a name before a folder, and all of them before a category. The
open sets are downloaded once, pinned by commit and sha256, into the cache folder. SPEED-Bench may not be passed on
and most of its rows are filled by its own preparation script, so it is read where that script left it.
"""

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.formats.download import fetch_file
from codraft.formats.hub import cache_root, fetch_dataset
from codraft.formats.rows import parquet_module

RAW = "https://raw.githubusercontent.com"
BUILT_IN = {"demo": "demo.jsonl"}
SPEED = "speed-bench"
SPEED_REPO = "nvidia/SPEED-Bench"
SPEED_CONFIGS = ("qualitative", *(f"throughput_{k}k" for k in (1, 2, 8, 16, 32)))
# The unfilled rows begin with "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH".
PLACEHOLDER = re.compile(
    r"benchmark\s+data\s+should\s+be\s+fetched|fetched\s+from\s+the\s+source\s+using\s+specdec[\s_-]*bench", re.I
)
PLACEHOLDER_REACH = 400

Files = dict[str, Path]


@dataclass(frozen=True, slots=True)
class OpenSet:
    """One file of a public GitHub repository at one commit."""

    repo: str
    commit: str
    path: str
    sha256: str

    def address(self, base: str) -> str:
        """Where its bytes are."""
        return f"{base}/{self.repo}/{self.commit}/{self.path}"


OPEN_SETS = {
    "spec-bench": OpenSet(
        "hemingkx/Spec-Bench",
        "fd2c1cd7d2201ef71db4c5f4e455008f017967bf",
        "data/spec_bench/question.jsonl",
        "4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04",
    ),
    "mt-bench": OpenSet(
        "lm-sys/FastChat",
        "0e6d3e4beaab66f4d3f93db72541a4abab8af28d",
        "fastchat/llm_judge/data/mt_bench/question.jsonl",
        "119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
    ),
    "humaneval": OpenSet(
        "openai/human-eval",
        "6d43fb980f9fee3c892a914eda09951f772ad10d",
        "data/HumanEval.jsonl.gz",
        "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
    ),
    "gsm8k": OpenSet(
        "openai/grade-school-math",
        "3101c7d5072418e28b9008a6636bde82a006892c",
        "grade_school_math/data/test.jsonl",
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
    ),
}


@dataclass(frozen=True, slots=True)
class Source:
    """Files by what their rows are called in messages and records; the category that is asked for, if one is."""

    files: Files
    category: str | None = None


def locate(text: str, base: str = RAW) -> Source:
    """The files behind `NAME_OR_PATH[/CATEGORY]`; `base` is where the open sets are downloaded from."""
    text = text.rstrip("/") or text
    if files := resolve(text, base):
        return Source(files)
    parent, _, category = text.rpartition("/")
    if files := resolve_parent(text, parent, base):
        return Source(files, category)
    names = ", ".join([*BUILT_IN, *OPEN_SETS, f"{SPEED}/{SPEED_CONFIGS[0]}"])
    raise SpecError(f"no prompt file {text}; give a JSONL file or a built-in set: {names}")


def resolve(name: str, base: str) -> Files:
    """Files of a path or of a known name; none where it is neither."""
    path = existing(name)
    if path is not None and os.path.isfile(path):
        return {str(path): path}
    if name in BUILT_IN:
        return {name: Path(str(resources.files("codraft.replay") / "data" / BUILT_IN[name]))}
    if name in OPEN_SETS:
        return {name: fetch_open_set(name, base)}
    if path is not None and os.path.isdir(path):
        return {str(file): file for file in files_in(path)}
    if name == SPEED:
        raise SpecError(f"prompts {SPEED}: name a configuration too: {SPEED}/ and one of {', '.join(SPEED_CONFIGS)}")
    parent, _, config = name.rpartition("/")
    if config not in SPEED_CONFIGS:
        return {}
    if parent == SPEED:
        return fetch_speed_bench(config)
    below = existing(str(Path(parent, "speed", config)))
    return {str(file): file for file in files_in(below)} if below is not None and os.path.isdir(below) else {}


def resolve_parent(text: str, parent: str, base: str) -> Files:
    """`resolve` of what comes before a category; a folder that cannot be read says so for the whole text."""
    try:
        return resolve(parent, base)
    except SpecError as error:
        if existing(parent) is None:
            raise
        raise SpecError(f"no prompt file {text}: {error}") from error


def existing(name: str) -> Path | None:
    """What lies under that path, if anything does; unlike Path's own, os.path's tests never raise."""
    with suppress(RuntimeError):  # nobody's home
        path = Path(name).expanduser()
        if name and os.path.exists(path):
            return path
    return None


def files_in(folder: Path) -> list[Path]:
    """The files of a prepared folder: the `test` split, else all parquet files, else its one JSONL file."""
    for pattern in ("test.parquet", "test-*-of-*.parquet", "*.parquet", "test.jsonl", "*.jsonl", "*.jsonl.gz"):
        files = sorted(f for f in folder.glob(pattern) if os.path.isfile(f) and not f.name.startswith("."))
        if len(files) > 1 and "jsonl" in pattern:
            names = ", ".join(file.name for file in files)
            raise SpecError(f"prompts {folder} is a folder; name a JSONL file in it, one of {names}")
        total = files[0].stem.rpartition("-of-")[2] if files and "-of-" in pattern else ""
        if total.isdecimal() and int(total) != len(files):
            raise SpecError(
                f"prompts {folder} is a folder with {len(files)} of the {int(total)} files of its test split; fetch "
                f"the others too"
            )
        if files:
            return files
    configs = [str(folder / config) for config in SPEED_CONFIGS if os.path.isdir(folder / config)]
    if configs:
        raise SpecError(f"prompts {folder} is a folder of several configurations; name one of {', '.join(configs)}")
    raise SpecError(f"prompts {folder} is a folder without a parquet or JSONL file in it; name a file of prompts")


def fetch_open_set(name: str, base: str = RAW) -> Path:
    """An open set's file in the cache folder, downloaded where it is not there yet."""
    pinned = OPEN_SETS[name]
    file = pinned.path.rpartition("/")[2]
    return fetch_file(
        f"prompt set '{name}'",
        pinned.address(base),
        cache_root() / "prompts" / name / file,
        sha256=pinned.sha256,
        instead=f"give the file itself: --prompts path/to/{file}",
    )


def fetch_speed_bench(config: str) -> Files:
    """One configuration: prepared in the cache folder, or else as the hub has it, with many rows unfilled."""
    name = f"{SPEED}/{config}"
    prepared = cache_root() / "prompts" / "speed" / config / "test.parquet"
    if os.path.isfile(prepared):
        return {name: prepared}
    parquet_module(f"prompt set {name} is a parquet file")
    files = fetch_dataset(SPEED_REPO, f"{config}/test*.parquet", instead=how_to_prepare(config))
    return {name if len(files) == 1 else f"{name} {file.name}": file for file in files}


def how_to_prepare(config: str = "CONFIG") -> str:
    """What to do about SPEED-Bench rows that are not there."""
    return (
        f"prepare it with the benchmark's own script (specdec_bench: prepare_data.py --dataset speed "
        f"--config {config}) and give the folder: --prompts path/to/speed/{config}"
    )


def is_placeholder(text: str) -> bool:
    """Whether a turn only says that its text is to be fetched from its source."""
    return PLACEHOLDER.search(text, 0, PLACEHOLDER_REACH) is not None
