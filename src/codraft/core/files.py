"""Files that are either whole or absent."""

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from codraft.core.errors import SpecError

# Where JSON text may spell half a character, which no file or tokenizer can take.
HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[str]]:
    """Text file that appears under `path` only when the block ends well; an error leaves what was there before."""
    handle: IO[str] | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = tempfile.NamedTemporaryFile(  # noqa: SIM115 (closed below, then renamed)
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", suffix=".part", delete=False
        )
        yield handle
        handle.flush()
        os.fsync(handle.fileno())
        handle.close()
        os.chmod(handle.name, 0o644)
        os.replace(handle.name, path)
    except OSError as error:
        discard(handle)
        raise SpecError(write_failure(path, error)) from error
    except BaseException:
        discard(handle)
        raise


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
    """Fail before the work, not after it, when `path` could not be written."""
    made: Path | None = None
    try:
        if path.is_dir():
            raise SpecError(f"cannot write {path}: it is a folder; name a file")
        made = missing_ancestor(path.parent)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        if made is not None:
            remove_empty(path.parent, made)


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
        part = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part"))
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
