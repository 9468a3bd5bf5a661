"""The work folder of a data job: what the target has written so far. It goes when the token file is whole."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, sha256_text, write_failure
from codraft.formats.hub import cache_root

JOB = "job.json"
LOCK = "lock"


@contextmanager
def work_folder(output: Path, job: Mapping[str, Any]) -> Iterator[Path]:
    """`OUTPUT.work` beside the output, or one in the cache folder where that cannot be.

    `job` is what decides the texts. A folder that was begun with another job, or that another process is writing in, is
    refused. When the block ends well the folder is removed; else it stays, and the same job goes on in it.
    """
    folder = make(output)
    with alone(folder):
        check_same(folder / JOB, job)
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def make(output: Path) -> Path:
    """The folder, made where it is not there yet."""
    beside = output.with_name(f"{output.name}.work")
    try:
        beside.mkdir(parents=True, exist_ok=True)
        (beside / LOCK).touch()
    except OSError:
        beside = cache_root() / "train" / sha256_text(str(output.absolute()))[:16]
        try:
            beside.mkdir(parents=True, exist_ok=True)
            (beside / LOCK).touch()
        except OSError as error:
            raise SpecError(write_failure(beside, error)) from error
    return beside


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """SpecError where another process writes there. The lock goes with the process, however that ends."""
    with (folder / LOCK).open("r+") as file:
        # Windows has no such lock; two jobs in one folder are then the user's to avoid.
        with suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SpecError(f"another codraft is writing in {folder}; wait for it, or name another output") from (
                    error
                )
        yield


def check_same(path: Path, job: Mapping[str, Any]) -> None:
    """SpecError where the folder holds the texts of another job, naming what differs."""
    now = json.loads(json.dumps(job))
    if not path.exists():
        with atomic_write(path) as file:
            json.dump(now, file, indent=2)
        return
    try:
        begun = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"cannot read {path}; delete its folder and start anew") from error
    differing = sorted(key for key in begun.keys() | now.keys() if begun.get(key) != now.get(key))
    if differing:
        key = differing[0]
        raise SpecError(
            f"{path.parent} was begun with another {key} ({str(begun.get(key))[:80]}, now {str(now.get(key))[:80]}); "
            "use the same flags to go on with it, or delete it to start anew"
        )
