"""Vocabularies from tokenizer files, and where two of them differ. No torch, no transformers.

Read `compare_sources` first. Strings of byte-level tokenizers are kept in the GPT-2 alphabet (a space is U+0120),
however the file spells them, so that vocabularies from different kinds of file can be held against each other.
"""

import base64
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.inspection import Verdict, Vocabulary
from codraft.formats.jsonfile import place, printable, read_json, read_whole
from codraft.formats.sample import coverage
from codraft.formats.source import Source

Strings = dict[int, str]

TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
ADDED_TOKENS = "added_tokens.json"
MAX_ID = 2**31
NUM_EXAMPLES = 5
NUM_EXTRA = 32
SPECIAL = ("bos", "eos", "pad", "unk")
# Merges are two thirds of a file and no part of the vocabulary.
MERGES = re.compile(rb'"merges"\s*:\s*\[')
END_OF_MERGES = re.compile(rb"\]\s*\}\s*\}\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocab:
    """id -> string. `added`: ids of tokens that stand beside the trained vocabulary, special ones among them."""

    file: str
    strings: Strings
    added: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """The bytes of one file, and the tokens that files beside it add; if equal, they give the same vocabulary."""

    where: str = field(compare=False)
    file: str
    raw: bytes
    beside: Strings


def read_vocab(folder: Path) -> Strings | None:
    """id -> string of a folder's tokenizer.json (added tokens included), None where there is no such file."""
    path = folder / TOKENIZER
    if not path.is_file():
        return None
    with reading(str(path)):
        return read_tokenizer(path.read_bytes())[0]


def source_vocab(source: Source) -> Vocab | None:
    """The vocabulary of a checkpoint, None where it has no tokenizer file of a known kind."""
    files = tokenizer_files(source)
    return None if files is None else parse(files)


def tokenizer_files(source: Source) -> TokenizerFiles | None:
    """The first known tokenizer file, and the tokens that tokenizer_config.json and added_tokens.json add."""
    sizes = source.sizes()
    names = [*READERS, *sorted(name for name in sizes if name.endswith(".tiktoken") and "/" not in name)]
    file = next((name for name in names if name in sizes), None)
    if file is None:
        return None
    beside: Strings = {}
    if TOKENIZER_CONFIG in sizes:
        config = read_json(source, TOKENIZER_CONFIG)
        with reading(place(source, TOKENIZER_CONFIG)):
            beside |= declared_tokens(config)
    if ADDED_TOKENS in sizes and file != TOKENIZER:  # the tokenizers library does not read it
        table = read_json(source, ADDED_TOKENS)
        with reading(place(source, ADDED_TOKENS)):
            beside |= table_strings(table)
    return TokenizerFiles(where=place(source, file), file=file, raw=read_whole(source, file), beside=beside)


def declared_tokens(config: dict[str, Any]) -> Strings:
    """`added_tokens_decoder` of a tokenizer_config.json."""
    decoder = config.get("added_tokens_decoder") or {}
    return tokens_by_id((int(i), entry["content"]) for i, entry in decoder.items())


def parse(files: TokenizerFiles) -> Vocab:
    """Strings by id. Tokens added beside tokenizer.json fill free ids only; beside other files they stand on top."""
    with reading(files.where):
        strings, added = READERS.get(files.file, read_tiktoken)(files.raw)
        if not strings:
            raise ValueError("it holds no token")
    beside = files.beside
    strings = beside | strings if files.file == TOKENIZER else strings | beside
    return Vocab(file=files.file, strings=strings, added=frozenset(added | beside.keys()))


@contextmanager
def reading(where: str, what: str = "tokenizer file") -> Iterator[None]:
    """One sentence for whatever a malformed file causes."""
    try:
        yield
    except SpecError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise SpecError(
            f"{where} is not a {what} that can be read ({printable(reason)}); check the download"
        ) from error


# Readers of one file: bytes -> strings by id, ids of added tokens. Any error of a malformed file may leave them.


def read_tokenizer(raw: bytes) -> tuple[Strings, set[int]]:
    """tokenizer.json of the tokenizers library."""
    data = load_without_merges(raw)
    added = tokens_by_id((token["id"], token["content"]) for token in data.get("added_tokens") or [])
    return model_strings(data["model"]) | added, set(added)


def load_without_merges(raw: bytes) -> Any:
    """A tokenizer.json without its merges where they end the file, as the library writes it; else all of it."""
    start, end = MERGES.search(raw), END_OF_MERGES.search(raw[-64:])
    if start and end and raw[start.start() - 1 : start.start()] != b"\\":
        with suppress(ValueError, LookupError, TypeError):
            data = json.loads((raw[: start.end()] + raw[-64:][end.start() :]).decode("utf-8"))
            if "added_tokens" in data and "vocab" in data["model"]:
                return data
    return json.loads(raw.decode("utf-8"))


def model_strings(model: dict[str, Any]) -> Strings:
    """Base vocabulary: a token -> id table (BPE, WordPiece, WordLevel) or a list of (token, score) (Unigram)."""
    table = model["vocab"]
    if isinstance(table, dict):
        return table_strings(table)
    if not isinstance(table, list):
        raise TypeError("'vocab' is neither a table nor a list")
    return tokens_by_id((i, entry[0]) for i, entry in enumerate(table))


def table_strings(table: dict[str, Any]) -> Strings:
    """A token -> id table turned round. Checked as a whole, for speed."""
    if not set(map(type, table.values())) <= {int}:
        raise TypeError("an id is not a whole number")
    if table and (min(table.values()) < 0 or max(table.values()) >= MAX_ID):
        raise ValueError(f"an id is outside 0..{MAX_ID - 1}")
    strings = dict(zip(table.values(), table.keys(), strict=True))
    if len(strings) != len(table):
        raise ValueError("two tokens have the same id")
    return strings


def tokens_by_id(tokens: Iterable[tuple[Any, Any]]) -> Strings:
    """Strings by id, checked one by one; a token may be named twice, an id may not mean two strings."""
    strings: Strings = {}
    for i, token in tokens:
        if type(i) is not int or not 0 <= i < MAX_ID:
            raise ValueError(f"{i!r:.40} is no token id")
        if not isinstance(token, str):
            raise TypeError(f"the token of id {i} is not a string")
        if strings.setdefault(i, token) != token:
            raise ValueError(f"two tokens have id {i}")
    return strings


def read_table(raw: bytes) -> tuple[Strings, set[int]]:
    """vocab.json of a GPT-2 tokenizer."""
    table = json.loads(raw.decode("utf-8"))
    if not isinstance(table, dict):
        raise TypeError("not an object")
    return table_strings(table), set()


def read_model(raw: bytes) -> tuple[Strings, set[int]]:
    """tokenizer.model: a sentencepiece model, or tiktoken's lines under the same name (Llama 3)."""
    return read_sentencepiece(raw) if raw[:1] == b"\n" else read_tiktoken(raw)


def read_sentencepiece(raw: bytes) -> tuple[Strings, set[int]]:
    """Field 1 of a ModelProto is the pieces in order of id, each with 1: string, 3: type (3 control, 4 by the user)."""
    strings: Strings = {}
    added: set[int] = set()
    for number, piece in proto_fields(raw):
        if number == 1:
            entry = dict(proto_fields(piece))
            if entry.get(3) in (3, 4):
                added.add(len(strings))
            strings[len(strings)] = entry[1].decode("utf-8")
    return strings, added


def proto_fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """(number, value) of a protobuf message: integers as they are, everything else as bytes."""
    at = 0
    while at < len(raw):
        key, at = varint(raw, at)
        value, kind = 0, key & 7
        if kind in (0, 2):
            value, at = varint(raw, at)
        if kind == 0:
            yield key >> 3, value
            continue
        size = {1: 8, 2: value, 5: 4}.get(kind)
        if size is None or at + size > len(raw):
            raise ValueError("a field of an unknown kind" if size is None else "it ends within a field")
        yield key >> 3, raw[at : at + size]
        at += size


def varint(raw: bytes, at: int) -> tuple[int, int]:
    """A protobuf integer and where it ends."""
    value = 0
    for shift in range(0, 64, 7):
        value |= (raw[at] & 127) << shift
        at += 1
        if raw[at - 1] < 128:
            return value, at
    raise ValueError("a number has no end")


def read_tiktoken(raw: bytes) -> tuple[Strings, set[int]]:
    """tiktoken's lines: a token in base64 and its rank. Special tokens are in code and not here."""
    lines = [line.split() for line in raw.splitlines() if line]
    return tokens_by_id((int(rank), byte_level(base64.b64decode(token, validate=True))) for token, rank in lines), set()


def read_tekken(raw: bytes) -> tuple[Strings, set[int]]:
    """tekken.json (Mistral): special tokens come first, and ranks count from behind them."""
    data = json.loads(raw.decode("utf-8"))
    num_special = data["config"]["default_num_special_tokens"]
    num_base = data["config"]["default_vocab_size"] - num_special
    base = tokens_by_id(
        (entry["rank"] + num_special, byte_level(base64.b64decode(entry["token_bytes"], validate=True)))
        for entry in data["vocab"][:num_base]
    )
    special = tokens_by_id((entry["rank"], entry["token_str"]) for entry in data.get("special_tokens") or [])
    return base | special, set(special)


def byte_level(token: bytes) -> str:
    """Bytes in the GPT-2 alphabet: printable ones stand for themselves, the others for U+0100 and on."""
    return token.decode("latin-1").translate(BYTE_LEVEL)


PRINTABLE = {*range(33, 127), *range(161, 173), *range(174, 256)}
BYTE_LEVEL = {byte: 256 + n for n, byte in enumerate(b for b in range(256) if b not in PRINTABLE)}

# By file name, best first; other names end in `.tiktoken`.
READERS: dict[str, Callable[[bytes], tuple[Strings, set[int]]]] = {
    TOKENIZER: read_tokenizer,
    "vocab.json": read_table,
    "tokenizer.model": read_model,
    "tekken.json": read_tekken,
    "tiktoken.model": read_tiktoken,
}


def difference(ours: Strings, theirs: Strings) -> list[int]:
    """Ids that do not mean the same string in both, ascending. Padding of the embedding has no ids here."""
    return sorted({i for i, _ in ours.items() ^ theirs.items()})


def compare(
    target: Vocab, drafter: Vocab, rows_target: int | None = None, rows_drafter: int | None = None
) -> Vocabulary:
    """Two vocabularies id by id. Rows are those of the embeddings, None where unknown."""
    ours, theirs = target.strings, drafter.strings
    differing = difference(ours, theirs)
    conflicting = [i for i in differing if i in ours and i in theirs]
    lacking = [i for i in differing if i not in ours or i not in theirs]
    known, known_there = set(ours.values()), set(theirs.values())
    added = target.added | drafter.added
    rows = () if rows_target is None or rows_drafter is None else (rows_target, rows_drafter)
    without_row = sum(i >= min(rows) for i in ours.keys() | theirs.keys()) if rows else None
    if not differing:
        verdict: Verdict = "padded" if len(set(rows)) == 2 else "equal"
    elif not conflicting:
        verdict = "extended"
    elif all(ours[i] in known_there and theirs[i] in known for i in conflicting):
        verdict = "permuted"
    else:
        verdict = "different"
    return Vocabulary(
        verdict=verdict,
        num_target=len(ours),
        num_drafter=len(theirs),
        rows_target=rows_target,
        rows_drafter=rows_drafter,
        num_differing=len(differing),
        num_differing_added=sum(i in added for i in differing),
        examples=[
            {"id": i, "target": shown(ours.get(i)), "drafter": shown(theirs.get(i)), "added": i in added}
            for i in (conflicting + lacking)[:NUM_EXAMPLES]
        ],
        extra=[str(shown(ours.get(i, theirs.get(i)))) for i in lacking[:NUM_EXTRA]],
        shared_strings=len(known & known_there),
        safe_padding=not conflicting and without_row == 0 if rows else None,
        num_without_row=without_row,
        file_target=target.file,
        file_drafter=drafter.file,
    )


def shown(token: str | None) -> str | None:
    """A token short enough to read, and text that any file can take."""
    return None if token is None else token[:80].encode("utf-8", "backslashreplace").decode("utf-8")


def compare_sources(
    target: Source,
    drafter: Source,
    rows_target: int | None = None,
    rows_drafter: int | None = None,
    sample: Sequence[int] | None = None,
) -> Vocabulary:
    """Two checkpoints' vocabularies. Files of equal bytes are parsed only where the embeddings differ in rows; else
    nothing is counted. `sample` is a text in the target's tokens: what share of them does the drafter take for others?
    """
    special = differing_special(target, drafter)
    ours, theirs = tokenizer_files(target), tokenizer_files(drafter)
    padded = rows_target is not None and rows_drafter is not None and rows_target != rows_drafter
    if ours is None or theirs is None or (ours == theirs and not padded):
        equal = ours is not None and ours == theirs
        names = [files.file if files else None for files in (ours, theirs)]
        return Vocabulary(
            verdict="equal" if equal else "unknown", num_target=None, num_drafter=None, rows_target=rows_target,
            rows_drafter=rows_drafter, num_differing=0 if equal else None, examples=[], shared_strings=None,
            safe_padding=None, special=special, file_target=names[0], file_drafter=names[1],
            affected_share=0.0 if equal and sample else None,
        )  # fmt: skip
    mine = parse(ours)
    other = mine if ours == theirs else parse(theirs)
    found = replace(compare(mine, other, rows_target, rows_drafter), special=special)
    if sample is None:
        return found
    affected = set(difference(mine.strings, other.strings))
    if rows_drafter is not None:
        affected.update(i for i in mine.strings if i >= rows_drafter)
    return replace(found, affected_share=coverage(sample, affected))


def special_ids(source: Source) -> dict[str, int | list[int]]:
    """Ids of bos, eos, pad and unk where known: as generation_config.json has them, else config.json (its text part
    last), else the tokens that tokenizer_config.json names and lists. Ids below zero stand for none."""
    found: dict[str, int | list[int]] = {}
    for file in ("generation_config.json", "config.json", TOKENIZER_CONFIG):
        if file not in source.sizes():
            continue
        data = read_json(source, file)
        with reading(place(source, file), "config file"):
            parts = [named_ids(data)] if file == TOKENIZER_CONFIG else [data, data.get("text_config") or {}]
            for part in parts:
                ids = {name: token_ids(part.get(f"{name}_token_id")) for name in SPECIAL}
                found = {name: some[0] if len(some) == 1 else some for name, some in ids.items() if some} | found
    return found


def differing_special(target: Source, drafter: Source) -> dict[str, Any]:
    """Special tokens that both name and that are not the same ids."""
    ours, theirs = special_ids(target), special_ids(drafter)
    return {name: {"target": i, "drafter": theirs[name]} for name, i in ours.items() if theirs.get(name, i) != i}


def named_ids(config: dict[str, Any]) -> dict[str, Any]:
    """`eos_token` and so on of a tokenizer_config.json as ids, where its own list has the token."""
    ids = {token: i for i, token in declared_tokens(config).items()}
    tokens = {name: config.get(f"{name}_token") for name in SPECIAL}
    strings = {name: token["content"] if isinstance(token, dict) else token for name, token in tokens.items()}
    return {f"{name}_token_id": ids.get(token) for name, token in strings.items() if isinstance(token, str)}


def token_ids(value: Any) -> list[int]:
    """Ids of a config entry: one, several or none."""
    ids = value if isinstance(value, list) else [] if value is None else [value]
    if not all(type(i) is int for i in ids):
        raise TypeError(f"{value!r:.40} is no token id")
    return sorted({i for i in ids if i >= 0})
