"""JSON files of a checkpoint, read strictly and within bounds."""

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from codraft.core.errors import SpecError
from codraft.core.files import HALF_PAIR

if TYPE_CHECKING:
    from codraft.formats.source import Source

CONFIG_LIMIT_BYTES = 16 << 20
INDEX_FILE = "model.safetensors.index.json"
INDEX_SUFFIX = ".safetensors.index.json"
# The index of a mixture of experts with 100,000 tensors has 15 MB.
INDEX_LIMIT_BYTES = 128 << 20
LFS_POINTER = b"version https://git-lfs"
TOKENIZER_LIMIT_BYTES = 64 << 20
# Real configs have fewer than ten levels; what works on their data may call itself once a level.
MAX_DEPTH = 64
# The largest models have 300,000 tensors with names of 100 characters.
MAX_TENSORS = 1_000_000
MAX_NAME = 4096


def read_json(
    source: "Source", name: str, limit_bytes: int = CONFIG_LIMIT_BYTES, *, duplicates_ok: bool = False
) -> dict[str, Any]:
    """The JSON object in a file of the source, of at most MAX_DEPTH levels. A key that stands twice is refused, unless
    `duplicates_ok` (faster for large files; the last one counts). Infinity and NaN are numbers."""
    where = place(source, name)
    size = source.sizes().get(name)
    if size is None:
        raise SpecError(f"{source.label} has no {quoted(name)}; check the download")
    if size > limit_bytes:
        raise SpecError(
            f"{where} has {size} bytes, and at most {limit_bytes} are read; check that it is the right file"
        )
    data = parse_object(source.read(name, 0, size), where, duplicates_ok=duplicates_ok)
    if is_deeper(data, MAX_DEPTH):
        raise SpecError(f"{where} is nested more than {MAX_DEPTH} levels deep; mend it or fetch it again")
    return data


def is_deeper(data: Any, levels: int) -> bool:
    """Does JSON data have more levels of lists and objects than that?"""
    level = [data]
    for _ in range(levels):
        inner = (value.values() if type(value) is dict else value for value in level)
        level = [value for values in inner for value in values if type(value) in (dict, list)]
    return bool(level)


def read_whole(source: "Source", name: str) -> bytes:
    """A tokenizer file, if it may be what its name says."""
    size = source.sizes()[name]
    if size > TOKENIZER_LIMIT_BYTES:
        raise SpecError(
            f"{place(source, name)} has {size} bytes, and at most {TOKENIZER_LIMIT_BYTES} are read; check the file"
        )
    raw = source.read(name)
    if raw.startswith(LFS_POINTER):
        raise SpecError(f"{place(source, name)} is a Git LFS pointer; fetch the file itself with git lfs pull")
    return raw


def read_weight_map(source: "Source", name: str = INDEX_FILE) -> dict[str, str]:
    """Tensor -> safetensors file of an index, within MAX_TENSORS. Every file is a relative name that stays inside the
    source."""
    table = read_json(source, name, INDEX_LIMIT_BYTES).get("weight_map")
    where = place(source, name)
    if not isinstance(table, dict) or not all(isinstance(file, str) for file in table.values()):
        raise SpecError(f"{where} has no weight_map of tensor and file names; fetch it again")
    if len(table) > MAX_TENSORS:
        raise SpecError(f"{where} names more than {MAX_TENSORS} tensors; check that it is the right file")
    for name in table:
        if len(name) > MAX_NAME:
            raise SpecError(f"{where} names {quoted(name)}, longer than {MAX_NAME} characters; fetch it again")
    for file in set(table.values()):
        if not stays_inside(file):
            raise SpecError(f"{where} names {quoted(file)}, which is no safetensors file beside it; fetch it again")
    return table


def stays_inside(file: str) -> bool:
    """Is this the relative name of a safetensors file, with no way out of its folder?"""
    parts = file.split("/")
    return (
        file.endswith(".safetensors")
        and len(file) <= MAX_NAME
        and file.isprintable()
        and not ("\\" in file or ":" in file or any(part in ("", ".", "..") for part in parts))
    )


def parse_object(raw: bytes, where: str, *, duplicates_ok: bool = False) -> dict[str, Any]:
    """The JSON object in `raw`; `where` begins the refusals."""
    if raw.startswith(LFS_POINTER):
        raise SpecError(f"{where} is a Git LFS pointer and not the file itself; fetch it with git lfs pull")
    try:
        text = raw.decode()
        data = json.loads(text, object_pairs_hook=None if duplicates_ok else unique)
        if "\\u" in text and HALF_PAIR.search(text):
            json.dumps(data, ensure_ascii=False).encode()
    except DuplicateKeyError as error:
        raise SpecError(f"{where} names {quoted(error.args[0])} twice in one object; remove one") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"{where} is not JSON that can be read ({reason(error)}); mend it or fetch it again") from error
    if not isinstance(data, dict):
        kind = {"NoneType": "null", "str": "text", "int": "number", "float": "number", "bool": "true or false"}
        found = kind.get(type(data).__name__, "list")
        raise SpecError(f"{where} holds a JSON {found}, not an object; mend it or fetch it again")
    return data


class DuplicateKeyError(Exception):
    """A key that stands twice in one JSON object."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object whose keys differ."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise DuplicateKeyError(
            next(one for one, next_one in pairwise(sorted(key for key, _ in pairs)) if one == next_one)
        )
    return table


def reason(error: ValueError | RecursionError) -> str:
    """Why a text is no JSON, in a few words."""
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, line {error.lineno}, column {error.colno}"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 text at byte {error.start}"
    if isinstance(error, UnicodeEncodeError):
        return "it holds half of a surrogate pair, a character cut in two"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number with too many digits"


def place(source: "Source", name: str) -> str:
    """A file of a source, as sentences name it."""
    return f"{source.label}/{plain(name)}"


def plain(name: str) -> str:
    """A file's name or path as it is, quoted only where it would tear a sentence."""
    return name if name.isprintable() else quoted(name, MAX_NAME)


def printable(text: str, limit: int = 200) -> str:
    """Foreign words that end up in a sentence without quotes: on one line, cut, other characters escaped."""
    words = " ".join(text.split())
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in words[:limit])


def quoted(text: str, limit: int = 100) -> str:
    """Foreign text in a sentence: on one line, short, printable."""
    return repr(text if len(text) <= limit else text[:limit] + "...")
