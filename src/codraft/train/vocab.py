"""Draft vocabularies: which of the target's tokens a head with a small output can draft.

A smaller output head makes a draft step cheaper. A token outside is never drafted, so the text stays the target's and
AL pays. The vocabulary is what the published builders take [EAGLE-3]: the tokens most frequent in what the target
wrote, ids ascending. Two things are added: special and byte tokens are always in, however rare, so that a draft can end
and can spell anything; and nothing is left to the order of a sort. `coverage.py` says what one costs in AL.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from codraft.core.errors import SpecError
from codraft.core.record import read_record
from codraft.core.training import DraftVocabularyRecord
from codraft.formats.source import open_source
from codraft.formats.vocab import BYTE_LEVEL, Vocab, source_vocab

if TYPE_CHECKING:
    from codraft.decode.hf.load import Card

Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

# How the two kinds of tokenizer spell the 256 bytes: as one character each, or as <0x00> to <0xFF>.
BYTE_CHARACTERS = frozenset(chr(BYTE_LEVEL.get(byte, byte)) for byte in range(256))
BYTE_PIECES = frozenset(f"<0x{byte:02X}>" for byte in range(256))
# Characters that stand for a space and a newline where bytes have characters, and are hardly in another vocabulary.
STAND_INS = frozenset({chr(BYTE_LEVEL[ord(" ")]), chr(BYTE_LEVEL[ord("\n")])})


@dataclass(frozen=True, slots=True, eq=False)
class DraftVocabulary:
    """`target_ids` [V'] ascending, out of the target's `vocab_size`; draft id j stands for target_ids[j]."""

    target_ids: Ids
    vocab_size: int

    def __len__(self) -> int:
        return len(self.target_ids)

    @property
    def d2t(self) -> Ids:
        """[V'] offsets, as files have them (formats/draftmap.py): target id = j + d2t[j]."""
        return self.target_ids - np.arange(len(self.target_ids))

    @property
    def t2d(self) -> Mask:
        """[V] whether a target id is in."""
        marks = np.zeros(self.vocab_size, dtype=bool)
        marks[self.target_ids] = True
        return marks


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Ids that every draft vocabulary of a target holds, ascending; none in both."""

    special: Ids
    byte: Ids

    @property
    def ids(self) -> Ids:
        """All of them."""
        return np.union1d(self.special, self.byte)


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A vocabulary, and how many of its ids were never seen and only fill it up."""

    vocabulary: DraftVocabulary
    unseen: int


def kept_tokens(vocab: Vocab | None, eos_ids: Collection[int], vocab_size: int) -> Kept:
    """Special and byte tokens that have a row in the output head. Without tokenizer files: those that end a text."""
    strings, added = ({}, frozenset[int]()) if vocab is None else (vocab.strings, vocab.added)
    special = {i for i in {*added, *eos_ids} if i < vocab_size}
    known = set(strings.values())
    # A few byte-level vocabularies lack bytes that no UTF-8 text holds.
    spelt = BYTE_PIECES if known & BYTE_PIECES else BYTE_CHARACTERS if known >= STAND_INS else frozenset[str]()
    byte = {i for i, token in strings.items() if token in spelt and i < vocab_size} - special
    return Kept(np.array(sorted(special), dtype=np.int64), np.array(sorted(byte), dtype=np.int64))


def kept_of(card: "Card") -> Kept:
    """Those of a model, by its tokenizer files."""
    return kept_tokens(source_vocab(open_source(str(card.folder))), card.eos_ids, card.vocab_size)


def check_size(size: int, kept: Kept, vocab_size: int) -> int:
    """A size that holds what must be kept, and that the target's vocabulary has."""
    least = max(1, len(kept.ids))
    if not least <= size <= vocab_size:
        raise SpecError(
            f"size must be in {least}..{vocab_size}: special and byte tokens are always kept, and the target has no "
            f"more; got {size}"
        )
    return size


def build(counts_V: Ids, kept: Kept, size: int) -> Built:
    """`kept`, then the most frequent of `counts_V`, ties by id.

    Ids that were not seen come last, lowest first: byte pairs are numbered in the order they were merged, the frequent
    ones before the rare. SpecError where `size` cannot be.
    """
    check_size(size, kept, len(counts_V))
    ranked = np.argsort(-counts_V, kind="stable")
    ranked = ranked[~np.isin(ranked, kept.ids)]
    chosen = ranked[: size - len(kept.ids)]
    ids = np.sort(np.concatenate((kept.ids, chosen))).astype(np.int64)
    return Built(DraftVocabulary(ids, len(counts_V)), int((counts_V[chosen] == 0).sum()))


def read_draft_vocabulary(path: Path, vocab_size: int) -> DraftVocabulary:
    """A file that `codraft train vocab -o` wrote, for a target of `vocab_size`. SpecError for any other."""
    record = read_record(path, DraftVocabularyRecord)
    again = "make it again with: codraft train vocab"
    if record.vocab_size != vocab_size:
        raise SpecError(
            f"{path} is for a vocabulary of {record.vocab_size}, the target's is {vocab_size}; make one for this "
            "target with: codraft train vocab"
        )
    try:
        ids = np.array(record.target_ids, dtype=np.int64)
    except OverflowError:
        raise SpecError(f"{path}: target_ids must be in 0..{vocab_size - 1}; {again}") from None
    if not len(ids):
        raise SpecError(f"{path}: target_ids is empty; {again}")
    outside = ids[(ids < 0) | (ids >= vocab_size)]
    if len(outside):
        raise SpecError(f"{path}: target_ids holds {outside[0]}, must be in 0..{vocab_size - 1}; {again}")
    steps = np.diff(ids)
    if (steps <= 0).any():
        at = int(np.flatnonzero(steps <= 0)[0])
        what = "twice" if len(np.unique(ids)) < len(ids) else "out of order"
        raise SpecError(f"{path}: target_ids must ascend, none twice; {ids[at + 1]} is {what}; {again}")
    return DraftVocabulary(ids, vocab_size)
