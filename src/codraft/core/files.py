"""Files that are either whole or absent."""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from codraft.core.errors import SpecError

# Where JSON text may spell half a character, which no file or tokenizer can take.
HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
# Names under which a process finds its own open files.
OPEN_FILE = re.compile(r"(?:/dev/fd|/proc/(?:self|thread-self)/fd)/(\d{1,9})")
STANDARD_FILES = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
REFUSED = ((stat.S_ISDIR, "a folder"), (stat.S_ISSOCK, "a socket"), (stat.S_ISBLK, "a block device"))
# As many as Linux follows.
MOST_LINKS = 40
PART = ".part"
# Characters of a file's name that its temporary file's name begins with: 20 of four bytes fit on every file system.
SHOWN_NAME = 20


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[str]]:
    """Text file that appears under `path` only when the block ends well; an error leaves what was there before.

    A link is followed. What lies there and is no regular file (a pipe, a terminal, one of this process's open files)
    stays, and is given the text when the block ends well; BrokenPipeError where nobody reads it any more.
    """
    try:
        goal, lasting = destination(path)
        with poured(goal) if lasting else replaced(goal) as handle:
            yield handle
    except BrokenPipeError:
        raise
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error


@contextmanager
def replaced(goal: Path) -> Iterator[IO[str]]:
    """Text that takes a regular file's place, or that of none, in one step."""
    handle: IO[str] | None = None
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        handle = part_file(goal)
        yield handle
        handle.flush()
        os.fsync(handle.fileno())
        handle.close()
        os.chmod(handle.name, 0o644)
        os.replace(handle.name, goal)
    except BaseException:
        discard(handle)
        raise


@contextmanager
def poured(goal: Path) -> Iterator[IO[str]]:
    """Text for a pipe, a device or an open file, held back until it is whole."""
    content = io.BytesIO()
    handle = io.TextIOWrapper(content, encoding="utf-8", write_through=True)
    yield handle
    handle.flush()
    number = open_file(goal)
    # Nothing is created: if the pipe has gone meanwhile, no file shall take its place.
    file = os.open(goal, os.O_WRONLY) if number is None else os.dup(number)
    with open(file, "wb") as stream:
        stream.write(content.getbuffer())


def part_file(goal: Path, *, delete: bool = False) -> IO[str]:
    """A temporary file that can take the place of `goal`."""
    name = part_name(goal)
    return tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=goal.parent, prefix=name, suffix=PART, delete=delete)


def part_name(goal: Path) -> str:
    """How the names of temporary files begin: cut, so that they fit wherever `goal` does."""
    return f".{goal.name[:SHOWN_NAME]}."


def destination(path: Path) -> tuple[Path, bool]:
    """(where the links of `path` lead, whether what lies there stays and is written into).

    SpecError for what cannot be written into at all; OSError where it cannot be told.
    """
    goal = followed(path)
    if open_file(goal) is not None:
        return goal, True
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return goal, False
    for is_kind, kind in REFUSED:
        if is_kind(mode):
            raise SpecError(f"cannot write {path}: it is {kind}; name a file")
    lasting = not stat.S_ISREG(mode)
    # The links of other processes' open files lead to names that do not exist.
    return path if lasting else goal, lasting


def followed(path: Path) -> Path:
    """Where the links of a name lead, there or not; the name of an open file stays."""
    for _ in range(MOST_LINKS):
        if open_file(path) is not None or not path.is_symlink():
            return path
        path = path.parent / os.readlink(path)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def open_file(path: Path) -> int | None:
    """The number of one of this process's open files, if `path` names one. To open it by that name would cut a regular
    file short behind the back of the shell that opened it, and fails for a socket."""
    name = os.path.abspath(path)
    match = OPEN_FILE.fullmatch(name)
    return int(match[1]) if match else STANDARD_FILES.get(name)


def discard(handle: IO[str] | None) -> None:
    """Close and delete a half-written temporary file."""
    if handle is not None:
        with suppress(OSError):
            handle.close()
        with suppress(OSError):
            os.unlink(handle.name)


def write_failure(path: Path, error: OSError) -> str:
    """One sentence for a failed write."""
    if error.errno == errno.ENOSPC:
        return f"cannot write {path}: the disk is full; free some space or choose another place"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"cannot write {path}: no write permission there; choose another place"
    return f"cannot write {path}: {error.strerror or error}; choose another place"


def check_writable(path: Path) -> None:
    """Fail before the work, not after it, when `path` could not be written. Pipes and devices are not opened: whoever
    reads a pipe would take that for its end."""
    goal, made = path, None
    try:
        goal, lasting = destination(path)
        if lasting:
            check_lasting(goal)
            return
        made = missing_ancestor(goal.parent)
        goal.parent.mkdir(parents=True, exist_ok=True)
        with part_file(goal, delete=True):
            pass
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        if made is not None:
            remove_empty(goal.parent, made)


def check_lasting(goal: Path) -> None:
    """OSError where a pipe, a device or an open file cannot be written into."""
    number = open_file(goal)
    if number is not None:
        os.write(number, b"")
    elif not os.access(goal, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def remove_empty(folder: Path, top: Path) -> None:
    """Remove `folder` and its parents up to `top`, as far as they are empty: somebody may be using them already."""
    with suppress(OSError):
        while True:
            folder.rmdir()
            if folder == top:
                return
            folder = folder.parent


def missing_ancestor(folder: Path) -> Path | None:
    """The topmost folder that does not exist yet on the way to `folder`, None where all exist."""
    missing = None
    while not folder.exists():
        missing, folder = folder, folder.parent
    return missing


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Folder that appears under `path` only when the block ends well. A finished `path` is never replaced."""
    part: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=part_name(path), suffix=PART))
        yield part
        part.chmod(0o755)
        try:
            os.rename(part, path)
        except OSError:
            # Another process finished the same folder first: its copy is as good as ours.
            if not path.is_dir():
                raise
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        if part is not None:
            shutil.rmtree(part, ignore_errors=True)


def sha256_text(text: str) -> str:
    """Hex digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as handle:
            while block := handle.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    return digest.hexdigest()


def read_jsonl(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, row) of every non-empty line; a broken line is a SpecError that names it."""
    try:
        with path.open(encoding="utf-8-sig") as handle:
            for number, line in enumerate(handle, start=1):
                if line.strip():
                    yield number, parse_row(path, number, line)
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"cannot read {path}: it is not UTF-8 text (byte {error.start}); save it as UTF-8") from error


def parse_row(path: Path, number: int, line: str) -> dict[str, Any]:
    """One JSON object of a JSONL file."""
    try:
        row = json.loads(line)
        if HALF_PAIR.search(line):
            json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{path}, line {number}: text holds half of a surrogate pair (a character cut in two); mend or remove "
            f"the line"
        ) from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            reason = error.msg
        else:
            reason = "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"
        raise SpecError(f"{path}, line {number}: not valid JSON ({reason}); mend or remove the line") from error
    if not isinstance(row, dict):
        raise SpecError(f"{path}, line {number}: expected a JSON object, found {type(row).__name__}")
    return row
