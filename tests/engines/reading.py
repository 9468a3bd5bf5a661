"""Decisions for the tests of launch files, and how to read what comes out."""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]

from codraft.core.schema import DrafterInfo, ScheduleEntry
from codraft.core.spec import ExternalSpec, NgramSpec, SuffixSpec, options_of
from codraft.engines.launch import launch_files

BASIS = {"engine": "torch", "machine": "AMD EPYC, 2 cores, cpu"}
NAMES = ["vllm.sh", "sglang.sh", "trtllm.yaml", "trtllm.sh"]
TITLES = {"vllm.sh": "vLLM", "sglang.sh": "SGLang", "trtllm.yaml": "TensorRT-LLM", "trtllm.sh": "TensorRT-LLM"}

NGRAM = DrafterInfo(name="ngram", mechanism="ngram", options=options_of(NgramSpec()))
SUFFIX = DrafterInfo(name="suffix", mechanism="suffix", options=options_of(SuffixSpec()))
SMALL = DrafterInfo(
    name="external", mechanism="external", id="org/small", options=options_of(ExternalSpec(path="org/small"))
)
HEADS = {
    mechanism: DrafterInfo(name=mechanism, mechanism=mechanism, id=f"org/{mechanism}", options={})
    for mechanism in ("eagle3", "mtp", "dflash", "dspark")
}
DRAFTERS = {drafter.mechanism: drafter for drafter in (NGRAM, SUFFIX, SMALL, *HEADS.values())}


def entry(max_batch: int, drafter: str | None = None, D: int = 0) -> ScheduleEntry:
    return ScheduleEntry(max_batch=max_batch, drafter=drafter, D=D)


def files(
    *schedule: ScheduleEntry,
    target: str = "org/target",
    drafters: Sequence[DrafterInfo] = (*DRAFTERS.values(),),
    basis: Mapping[str, str] = BASIS,
) -> dict[str, str]:
    return {file.name: file.text for file in launch_files(target, schedule, drafters, basis=basis)}


def words(script: str) -> list[str]:
    """The arguments of the script's one command; `$@` and the like stay as they are written."""
    return shlex.split(script.replace("\\\n", ""), comments=True)


def after(arguments: Sequence[str], flag: str) -> str:
    return arguments[arguments.index(flag) + 1]


def vllm_config(script: str) -> Any:
    return json.loads(after(words(script), "--speculative-config"))


def trtllm_config(text: str) -> Any:
    return yaml.safe_load(text)["speculative_config"]


def said(text: str) -> str:
    """All comments as one line, wrapping undone."""
    return " ".join(line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#"))


def assert_parses(texts: Mapping[str, str]) -> None:
    assert list(texts) == NAMES
    for name, text in texts.items():
        assert text.startswith("# timed with ")
        if name.endswith(".sh"):
            result = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
            assert result.returncode == 0, result.stderr.decode()
            arguments = words(text)
            if "--speculative-config" in arguments:
                json.loads(after(arguments, "--speculative-config"))
        else:
            assert isinstance(yaml.safe_load(text), dict)
