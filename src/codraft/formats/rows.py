"""Rows of JSONL, gzipped JSONL and parquet files, numbered from 1. The suffix tells the format; else it is JSONL."""

import gzip
import importlib
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.files import parse_row, read_jsonl

Row = dict[str, Any]
# Rows of a parquet file held twice at a time; a row of 32K tokens is about 130 KB.
BATCH_ROWS = 128


def read_rows(path: Path, needed: Collection[str], wanted: Collection[str]) -> Iterator[tuple[str, int, Row]]:
    """("line" or "row", its number, the row). A parquet file must have a column of `needed`; only those and `wanted`
    are read of it."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        yield from (("row", number, row) for number, row in read_parquet(path, needed, wanted))
    else:
        lines = read_gzip(path) if suffix == ".gz" else read_jsonl(path)
        yield from (("line", number, row) for number, row in lines)


def read_gzip(path: Path) -> Iterator[tuple[int, Row]]:
    """As `read_jsonl`, from a gzip file; one that is cut or damaged is a SpecError."""
    try:
        with gzip.open(path, "rt", encoding="utf-8-sig") as handle:
            for number, line in enumerate(handle, start=1):
                if line.strip():
                    yield number, parse_row(path, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SpecError(f"cannot read {path}: it is not a whole gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"cannot read {path}: its content is not UTF-8 text; give gzipped JSONL") from error


def read_parquet(path: Path, needed: Collection[str], wanted: Collection[str]) -> Iterator[tuple[int, Row]]:
    """(row number, those of its columns that are known and not null)."""
    parquet = parquet_module(f"{path} is a parquet file")
    arrow_error = importlib.import_module("pyarrow").ArrowException
    try:
        # An open file: no part of its path is taken for an address or a partition.
        with path.open("rb") as handle:
            file = parquet.ParquetFile(handle)
            names = file.schema_arrow.names
            usable = any(name in needed for name in names)
            columns = [name for name in names if name in needed or name in wanted]
            batches = file.iter_batches(BATCH_ROWS, columns=columns, use_threads=False) if usable else ()
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield number, {key: value for key, value in row.items() if value is not None}
    except (OSError, ValueError, ArithmeticError, arrow_error) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise SpecError(f"cannot read {path}: not a parquet file of rows ({reason}); fetch it again") from error
    if not usable:
        raise SpecError(
            f"{path} has no column of {', '.join(needed)}, only {', '.join(names) or 'none'}; name a file that has one"
        )


def parquet_module(what: str) -> Any:
    """pyarrow.parquet, imported only now; without it a CapabilityError that begins with `what`."""
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise CapabilityError(
            f"{what}, and reading it needs pyarrow, which is not installed: pip install 'codraft[parquet]'"
        ) from error
