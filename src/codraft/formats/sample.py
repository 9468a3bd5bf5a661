"""A sample of the user's text in a model's tokens, and how much of it a part of the vocabulary covers."""

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.jsonfile import place, printable, read_whole
from codraft.formats.source import Source

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
STDERR = 2
STDERR_LOCK = Lock()


def sample_ids(source: Source, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each whole text, without special tokens around it.

    SpecError where the source has no tokenizer.json that works, CapabilityError without the tokenizers package.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise CapabilityError("cutting a text into tokens needs: pip install tokenizers") from error
    if TOKENIZER not in source.sizes():
        raise SpecError(f"{source.label} has no {TOKENIZER}, so text cannot be cut into tokens; leave the prompts out")
    raw = read_whole(source, TOKENIZER)
    try:
        with muted():
            return token_ids(Tokenizer.from_buffer(raw), texts)
    except BaseException as error:
        # What Rust code panics with is no Exception, and its class cannot be imported.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise SpecError(
            f"{place(source, TOKENIZER)} is refused by the tokenizers package ({printable(str(error))}); check the "
            f"download"
        ) from error


def token_ids(tokenizer: "Tokenizer", texts: Sequence[str]) -> list[list[int]]:
    """Ids of whole texts: a file may ask for its texts to be cut or filled up to a length."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [list(found.ids) for found in tokenizer.encode_batch(texts, add_special_tokens=False)]


@contextmanager
def muted() -> Iterator[None]:
    """Nothing reaches the process's stderr meanwhile: Rust code writes there before it panics. One thread at a time,
    or one would restore what another has muted."""
    with STDERR_LOCK:
        try:
            kept = os.dup(STDERR)
        except OSError:  # closed: nothing can be written there
            yield
            return
        try:
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), STDERR)
            yield
        finally:
            os.dup2(kept, STDERR)
            os.close(kept)


def coverage(token_ids: Collection[int], target_ids: Collection[int]) -> float | None:
    """Share of a text's tokens that are among `target_ids`; None for no tokens. For a draft vocabulary, and the text
    that the target writes, no position's acceptance can on average be higher."""
    import numpy as np

    if not len(token_ids):
        return None
    return float(np.isin(np.fromiter(token_ids, np.int64), np.fromiter(target_ids, np.int64)).mean())
