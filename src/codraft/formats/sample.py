"""A sample of the user's text in a model's tokens, and how much of it a part of the vocabulary covers."""

from collections.abc import Collection, Sequence

from codraft.core.errors import CapabilityError, SpecError
from codraft.formats.jsonfile import place
from codraft.formats.source import Source

TOKENIZER = "tokenizer.json"


def sample_ids(source: Source, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, without special tokens around it.

    SpecError where the source has no tokenizer.json that works, CapabilityError without the tokenizers package.
    """
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise CapabilityError("cutting a text into tokens needs: pip install tokenizers") from error
    if TOKENIZER not in source.sizes():
        raise SpecError(f"{source.label} has no {TOKENIZER}, so text cannot be cut into tokens; leave the prompts out")
    raw = source.read(TOKENIZER)
    try:
        return [list(found.ids) for found in Tokenizer.from_buffer(raw).encode_batch(texts, add_special_tokens=False)]
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise SpecError(
            f"{place(source, TOKENIZER)} is refused by the tokenizers package ({reason}); check the download"
        ) from error


def coverage(token_ids: Collection[int], target_ids: Collection[int]) -> float | None:
    """Share of a text's tokens that are among `target_ids`; None for no tokens. For a draft vocabulary, and the text
    that the target writes, no position's acceptance can on average be higher."""
    import numpy as np

    if not len(token_ids):
        return None
    return float(np.isin(np.fromiter(token_ids, np.int64), np.fromiter(target_ids, np.int64)).mean())
