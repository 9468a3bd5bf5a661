"""What a draft vocabulary costs in AL: the tokens it covers, and the AL that no head with it can pass.

The ceiling is the AL of a drafter that is right wherever the vocabulary has the token, walked along what the target
wrote as replay walks any drafter. Coverage alone does not give it: a missing token that stands alone is the one that
the target adds to a step which ends early; in a cluster (a name, a number, another language) each takes a step of its
own. Text that was counted flatters a vocabulary made from the counts; the held-out figures count nine rows of ten, and
measure on the tenth.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from codraft.core.errors import SpecError
from codraft.core.provenance import Provenance, provenance
from codraft.core.training import (
    CeilingPoint,
    DraftVocabularyRecord,
    TrainVocabRecord,
    VocabularyData,
    VocabularyMeasure,
    VocabularyPart,
    VocabularyReport,
)
from codraft.replay.streams import Progress, TokenStream, shape_stream
from codraft.replay.walk import walk
from codraft.train.tokens import Row, TokenFile
from codraft.train.vocab import Built, DraftVocabulary, Ids, Kept, Mask, build, check_size, kept_of

if TYPE_CHECKING:
    from codraft.decode.hf.load import Card

DEPTHS = tuple(range(1, 9))
# One row in so many is held out.
FOLD = 10
# Tokens counted at once.
CHUNK = 1_000_000
# Supervised tokens walked for the ceilings; more text would take long and change no digit that is shown.
MOST_WALKED = 2_000_000
# Bytes of a weight of the output head, as heads are served.
WEIGHT_BYTES = 2
UNNAMED = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """What has to be known of the target. `text` turns ids into what a language guess reads."""

    id: str
    vocab_size: int
    hidden: int
    eos_ids: frozenset[int]
    kept: Kept
    text: Callable[[Sequence[int]], str]

    @classmethod
    def of(cls, card: "Card") -> "Facts":
        """Of a model's config and tokenizer."""
        return cls(
            id=card.id,
            vocab_size=card.vocab_size,
            hidden=card.sizes.hidden,
            eos_ids=card.eos_ids,
            kept=kept_of(card),
            text=lambda ids: str(card.tokenizer.decode(list(ids), skip_special_tokens=True)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """[V] how often the target wrote each token: in all rows, and in those that are not held out."""

    all_V: Ids
    counted_V: Ids


@dataclass(slots=True, eq=False)
class Tally:
    """Sums over rows: steps and accepted tokens for each of the depths."""

    depths: tuple[int, ...]
    rows: int = 0
    tokens: int = 0
    inside: int = 0
    steps_D: Ids = field(init=False)
    accepted_D: Ids = field(init=False)

    def __post_init__(self) -> None:
        self.steps_D = np.zeros(len(self.depths), dtype=np.int64)
        self.accepted_D = np.zeros(len(self.depths), dtype=np.int64)

    def add(self, other: "Tally") -> None:
        """Take in the sums of other rows."""
        self.rows += other.rows
        self.tokens += other.tokens
        self.inside += other.inside
        self.steps_D += other.steps_D
        self.accepted_D += other.accepted_D

    def part(self, name: str) -> VocabularyPart:
        """The ratios; needs at least one token."""
        curve = [
            CeilingPoint(D=D, AL=1 + accepted / steps, steps=steps)
            for D, steps, accepted in zip(self.depths, self.steps_D.tolist(), self.accepted_D.tolist(), strict=True)
            if steps
        ]
        return VocabularyPart(
            name=name, rows=self.rows, tokens=self.tokens, coverage=self.inside / self.tokens, curve=curve
        )


@dataclass(slots=True, eq=False)
class Tallies:
    """One vocabulary's, in all and by part."""

    t2d: Mask
    total: Tally
    categories: dict[str, Tally] = field(default_factory=dict)
    languages: dict[str, Tally] = field(default_factory=dict)

    def add(self, tally: Tally, category: str, language: str | None) -> None:
        """Take in one row."""
        self.total.add(tally)
        self.categories.setdefault(category, Tally(tally.depths)).add(tally)
        if language is not None:
            self.languages.setdefault(language, Tally(tally.depths)).add(tally)

    def measure(self) -> VocabularyMeasure | None:
        """The ratios; None where no row was taken in."""
        if not self.total.tokens:
            return None
        return VocabularyMeasure(
            all=self.total.part("all"), categories=parts_of(self.categories), languages=parts_of(self.languages)
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Assessment:
    """Vocabularies in the order asked for, and what each costs; `whole` is the target's own."""

    data: VocabularyData
    vocabularies: list[DraftVocabulary]
    reports: list[VocabularyReport]
    whole: VocabularyReport
    notes: list[str]


def supervised(row: Row) -> Ids:
    """Ids that the target wrote."""
    return row.ids[row.mask]


def rows_of(file: TokenFile) -> Iterator[tuple[int, Row]]:
    """Every row with its place."""
    for index in range(len(file)):
        yield index, file.row(index)


def is_held_out(index: int) -> bool:
    """The last of every ten rows."""
    return index % FOLD == FOLD - 1


def count(file: TokenFile, vocab_size: int) -> Counts:
    """How often each token was written. SpecError where the file is of another vocabulary, or no token counts."""
    if file.origin.vocab_size != vocab_size:
        raise SpecError(
            f"{file.path} holds tokens of a vocabulary of {file.origin.vocab_size} ({file.origin.target}), the "
            f"target's is {vocab_size}; name the target that wrote it"
        )
    sums = np.zeros((2, vocab_size), dtype=np.int64)
    waiting: tuple[list[Ids], list[Ids]] = ([], [])
    size = 0
    for index, row in rows_of(file):
        ids = supervised(row)
        waiting[is_held_out(index)].append(ids)
        size += len(ids)
        if size >= CHUNK or index == len(file) - 1:
            for held, parts in enumerate(waiting):
                if parts:
                    sums[held] += np.bincount(np.concatenate(parts), minlength=vocab_size)
                parts.clear()
            size = 0
    if not sums.any():
        raise SpecError(f"{file.path} has no supervised token, so there is nothing to count; look at it with: "
                        "codraft train show")  # fmt: skip
    return Counts(all_V=sums.sum(axis=0), counted_V=sums[0])


def streams_of(row: Row, eos_ids: frozenset[int], tail: int) -> list[TokenStream]:
    """Every run that the target wrote as a stream: one that ends is known to its end, of a cut one the last `tail`
    tokens are looked into only."""
    return [
        shape_stream({}, [], row.ids[first:last].tolist(), eos_ids, tail, "", number, None)
        for number, (first, last) in enumerate(row.spans(), start=1)
    ]


def runs_inside(inside_T: Mask) -> Ids:
    """[T - 1] tokens of the vocabulary that follow each token without a gap."""
    T = len(inside_T)
    gap_T = np.where(inside_T, T, np.arange(T))
    next_gap_T = np.minimum.accumulate(gap_T[::-1])[::-1]
    return (next_gap_T[1:] - np.arange(1, T)).astype(np.int64)


def tally_row(
    ids: Ids, streams: Sequence[TokenStream], t2d: Mask, eos_ids: frozenset[int], depths: tuple[int, ...]
) -> Tally:
    """One row's supervised `ids` and the `streams` to walk, held against a vocabulary."""
    tally = Tally(depths, rows=1, tokens=len(ids), inside=int(t2d[ids].sum()))
    for stream in streams:
        anchors = stream.num_anchors()
        if anchors < 1:
            continue
        run_A = runs_inside(t2d[np.array(stream.output_ids)])
        end = len(stream.output_ids) - 1 if stream.output_ids[-1] in eos_ids else None
        for k, D in enumerate(depths):
            log = walk(np.full(len(run_A), D), run_A, D, anchors, end)
            tally.steps_D[k] += len(log.anchor_N)
            tally.accepted_D[k] += int(log.accepted_N.sum())
    return tally


def assess(
    file: TokenFile,
    facts: Facts,
    sizes: Sequence[int],
    *,
    depths: tuple[int, ...] = DEPTHS,
    language_of: Callable[[str], str] | None = None,
    progress: Progress | None = None,
) -> Assessment:
    """Build a vocabulary of every size, and measure it on the rows of a file."""
    for size in sizes:
        check_size(size, facts.kept, facts.vocab_size)
    counts = count(file, facts.vocab_size)
    # The target's own vocabulary comes last, for comparison.
    built = [build(counts.all_V, facts.kept, size) for size in (*sizes, facts.vocab_size)]
    held = [build(counts.counted_V, facts.kept, len(one.vocabulary)) for one in built]
    full = [Tallies(one.vocabulary.t2d, Tally(depths)) for one in built]
    part = [Tallies(one.vocabulary.t2d, Tally(depths)) for one in held]
    data = measure(file, facts, full, part, language_of, progress, int((counts.all_V > 0).sum()))
    reports = [report(one, facts, *tallies) for one, *tallies in zip(built, full, part, strict=True)]
    return Assessment(
        data=data,
        vocabularies=[one.vocabulary for one in built[:-1]],
        reports=reports[:-1],
        whole=reports[-1],
        notes=notes_of(file, facts, data, built[:-1]),
    )


def measure(
    file: TokenFile,
    facts: Facts,
    full: Sequence[Tallies],
    part: Sequence[Tallies],
    language_of: Callable[[str], str] | None,
    progress: Progress | None,
    distinct: int,
) -> VocabularyData:
    """Fill the tallies: `full` by all rows, `part` by those held out."""
    depths = full[0].total.depths
    total = file.num_supervised
    every = -(-total // MOST_WALKED)
    spans = short = walked = 0
    for index, row in rows_of(file):
        ids = supervised(row)
        if len(ids):
            streams = streams_of(row, facts.eos_ids, max(depths))
            spans += len(streams)
            short += sum(stream.num_anchors() < 1 for stream in streams)
            # Blocks of ten, so that each holds its held-out row.
            chosen = index // FOLD % every == 0
            walked += chosen
            streams = streams if chosen else []
            language = None if language_of is None else language_of(facts.text(ids.tolist()))
            for one in (*full, *part) if is_held_out(index) else full:
                one.add(tally_row(ids, streams, one.t2d, facts.eos_ids, depths), row.category or UNNAMED, language)
        if progress:
            progress(index + 1, len(file))
    return VocabularyData(
        file=str(file.path), rows=len(file), tokens=file.num_tokens, supervised=total, distinct=distinct,
        spans=spans, short_spans=short, walked_rows=walked,
    )  # fmt: skip


def report(built: Built, facts: Facts, full: Tallies, part: Tallies) -> VocabularyReport:
    """One vocabulary's figures."""
    counted = full.measure()
    assert counted is not None  # `count` refuses a file without a supervised token
    size = len(built.vocabulary)
    return VocabularyReport(
        size=size,
        special=len(facts.kept.special),
        byte=len(facts.kept.byte),
        unseen=built.unseen,
        head_bytes=size * facts.hidden * WEIGHT_BYTES,
        counted=counted,
        held_out=part.measure(),
    )


def parts_of(parts: Mapping[str, Tally]) -> list[VocabularyPart]:
    """Largest first; none where rows have no names."""
    if set(parts) <= {UNNAMED}:
        return []
    return [tally.part(name) for name, tally in sorted(parts.items(), key=lambda item: (-item[1].tokens, item[0]))]


def notes_of(file: TokenFile, facts: Facts, data: VocabularyData, built: Sequence[Built]) -> list[str]:
    """What the reader should know before trusting the figures."""
    notes = [
        f"size {len(one.vocabulary)}: the text holds too few distinct tokens ({data.distinct}), so {one.unseen} ids "
        "that it does not hold fill the vocabulary, lowest first"
        for one in built
        if one.unseen
    ]
    if file.origin.target != facts.id:
        notes.append(f"the text was written by {file.origin.target}; the figures hold for its answers")
    if data.rows < FOLD:
        notes.append(f"{data.rows} rows are too few to hold one in {FOLD} out; the figures flatter the vocabulary")
    if not len(facts.kept.byte):
        notes.append("no byte tokens were found in the tokenizer's files, so none are kept for being bytes")
    return notes


def origin(file: TokenFile) -> Provenance:
    """Where the figures come from: the text."""
    return provenance(engine={"name": "counts"}, input_hashes={"data": file.sha256})


def size_record(found: Assessment, facts: Facts, file: TokenFile) -> TrainVocabRecord:
    """All sizes, for `--json`."""
    return TrainVocabRecord(
        schema=TrainVocabRecord.SCHEMA,
        provenance=origin(file),
        target=facts.id,
        vocab_size=facts.vocab_size,
        hidden=facts.hidden,
        data=found.data,
        sizes=found.reports,
        whole=found.whole,
        notes=found.notes,
    )


def draft_record(found: Assessment, facts: Facts, file: TokenFile) -> DraftVocabularyRecord:
    """The first size with its ids, for `--draft-vocab`."""
    return DraftVocabularyRecord(
        schema=DraftVocabularyRecord.SCHEMA,
        provenance=origin(file),
        target=facts.id,
        vocab_size=facts.vocab_size,
        target_ids=found.vocabularies[0].target_ids.tolist(),
        data=found.data,
        report=found.reports[0],
        notes=found.notes,
    )
