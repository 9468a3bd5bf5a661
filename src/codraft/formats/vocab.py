"""Vocabularies from tokenizer files, and where two of them differ. No torch, no transformers."""

import json
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError

Vocab = dict[int, str]


def read_vocab(folder: Path) -> Vocab | None:
    """id -> token string of a folder's tokenizer.json (added tokens included), None where there is no such file."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        vocab = model_vocab(data["model"])
        vocab.update({int(token["id"]): str(token["content"]) for token in data.get("added_tokens") or []})
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise SpecError(f"{path} is not a tokenizer file that can be read ({error}); check the download") from error
    return vocab


def model_vocab(model: dict[str, Any]) -> Vocab:
    """Base vocabulary: a token -> id table (BPE, WordPiece, WordLevel) or a list of (token, score) (Unigram)."""
    table = model["vocab"]
    if isinstance(table, dict):
        return {int(i): str(token) for token, i in table.items()}
    return {i: str(entry[0]) for i, entry in enumerate(table)}


def difference(ours: Vocab, theirs: Vocab) -> list[int]:
    """Ids that do not mean the same string in both, ascending. Padding of the embedding has no ids here."""
    return sorted(i for i in ours.keys() | theirs.keys() if ours.get(i) != theirs.get(i))
