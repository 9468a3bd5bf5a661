"""A folder of results that is whole or absent, and never takes another one's place."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.files import PART, missing_ancestor, part_name, remove_empty, write_failure


def check_new_folder(path: Path) -> None:
    """Refuse before the work a place where no new folder can be: a file, or a folder that holds something."""
    goal = Path(os.path.realpath(path))
    made = None
    try:
        if goal.exists() and not goal.is_dir():
            raise SpecError(f"cannot write {path}: it is a file; name a folder that does not exist yet")
        if goal.is_dir() and any(goal.iterdir()):
            raise SpecError(f"cannot write {path}: the folder holds files already; name one that does not exist yet")
        made = missing_ancestor(goal.parent)
        goal.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(tempfile.mkdtemp(dir=goal.parent, prefix=part_name(goal), suffix=PART))
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        if made is not None:
            remove_empty(goal.parent, made)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its name when the block ends well; an error leaves nothing. `path` may be there
    as an empty folder, or lead to one."""
    goal = Path(os.path.realpath(path))
    part: Path | None = None
    made = None
    try:
        made = missing_ancestor(goal.parent)
        goal.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=goal.parent, prefix=part_name(goal), suffix=PART))
        yield part
        part.chmod(0o755)
        # Over a folder that holds something, or a file, the system refuses this by itself.
        os.rename(part, goal)
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)
        if made is not None:
            remove_empty(goal.parent, made)
