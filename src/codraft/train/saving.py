"""Files of tensors that are whole or absent, that others may read, and one sentence where the disk says no."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from codraft.core.errors import SpecError
from codraft.core.files import PART, part_name, write_failure

# What the system calls a failed write, in the words of a library that has no errno.
NUMBERED = re.compile(r"os error (\d+)")
NAMED = {"No space left": errno.ENOSPC, "File too large": errno.EFBIG, "quota": errno.EDQUOT}


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """A name to write to, whose file takes the place of `path` at the end, readable by all: safetensors lets nobody but
    the maker of a file read it, and engines run under other names. SpecError where it cannot be written."""
    part = path.with_name(f"{part_name(path)}{os.getpid()}{PART}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield part
        part.chmod(0o644)
        os.replace(part, path)
    except SafetensorError as error:
        raise SpecError(write_failure(path, told_by_system(error))) from error
    except OSError as error:
        raise SpecError(write_failure(path, error)) from error
    finally:
        part.unlink(missing_ok=True)


def told_by_system(error: SafetensorError) -> OSError:
    """What stands behind an error of safetensors, which is none of the system's own."""
    text = str(error)
    numbered = NUMBERED.search(text)
    named = (number for words, number in NAMED.items() if words in text)
    number = int(numbered[1]) if numbered else next(named, errno.EIO)
    return OSError(number, os.strerror(number))
