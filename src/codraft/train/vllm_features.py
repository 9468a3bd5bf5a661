"""Features by vLLM, for targets that one process cannot hold: the same shards, written in vLLM's own environment."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, write_failure
from codraft.train.data.vllm_writer import last_line, stop
from codraft.train.features import check_folder, description, shards_of
from codraft.train.identity import weights_id
from codraft.train.tokens import TokenFile

JOB, LOG = "vllm.job.json", "vllm.log"


def write_by_vllm(
    data: TokenFile,
    layers: Sequence[int],
    folder: Path,
    store: torch.dtype,
    *,
    python: Path,
    target_folder: Path,
    dtype: str,
    engine: Mapping[str, Any],
    progress: Callable[[int, int], None],
) -> int:
    """All shards that are not there yet; how many were written. SpecError with vLLM's last words where it fails."""
    told = description(data, layers, store, weights_id(target_folder))
    check_folder(folder, told)
    shards = shards_of(data.lengths)
    left = [one for one in shards if not (folder / one.name).exists()]
    job = {
        "target": str(target_folder.absolute()),
        "dtype": dtype,
        "store": told["dtype"],
        "layers": told["taps"],
        "folder": str(folder.absolute()),
        "shards": [
            {"name": one.name, "rows": [data.row(row).ids.tolist() for row in range(one.first, one.last)]}
            for one in left
        ],
        "engine": dict(engine),
    }
    if left:
        with atomic_write(folder / JOB) as file:
            json.dump(job, file)
        run(python, folder, len(shards) - len(left), len(shards), progress)
        (folder / JOB).unlink()
    return len(left)


def run(python: Path, folder: Path, done: int, total: int, progress: Callable[[int, int], None]) -> None:
    """The worker to its end, telling of every shard."""
    script = resources.files("codraft.engines.workers") / "vllm_features.py"
    log = folder / LOG
    try:
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [str(python), str(script), str(folder / JOB)], stdout=subprocess.PIPE, stderr=errors, text=True
            )
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    if line.startswith('{"tokens":'):
                        done += 1
                        progress(done, total)
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
