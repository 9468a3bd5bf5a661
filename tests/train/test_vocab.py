"""Draft vocabularies: what is in one, what it covers, the AL it allows, and the file it is kept in."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.cli.train_vocab import vocab
from codraft.core.errors import SpecError
from codraft.core.files import sha256_file
from codraft.core.record import read_record
from codraft.core.training import DraftVocabularyRecord, TrainVocabRecord
from codraft.decode.hf.load import load_card
from codraft.formats.draftmap import plain_map, read_draft_map
from codraft.formats.vocab import Vocab
from codraft.train import coverage
from codraft.train.coverage import Assessment, Facts, assess
from codraft.train.tokens import Origin, Row, TokenFile, write_tokens
from codraft.train.vocab import BYTE_CHARACTERS, Kept, build, kept_of, kept_tokens, read_draft_vocabulary

V, EOS = 12, 0
NOTHING = np.zeros(0, dtype=np.int64)
KEPT = Kept(special=np.array([EOS]), byte=NOTHING)
ORIGIN = Origin(target="toy", vocab_size=V, template="ids")
FACTS = Facts(
    id="toy", vocab_size=V, hidden=16, eos_ids=frozenset({EOS}), kept=KEPT, text=lambda ids: " ".join(map(str, ids))
)
# One row: what is said and whether the target wrote it, span by span.
Spans = Sequence[tuple[Sequence[int], bool]]
Make = Callable[..., TokenFile]


def row(*spans: tuple[Sequence[int], bool], category: str | None = None) -> Row:
    ids = np.array([i for said, _ in spans for i in said], dtype=np.int64)
    return Row(ids, np.array([written for said, written in spans for _ in said], dtype=bool), category)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Rows as a token file."""

    def write(*rows: Row, origin: Origin = ORIGIN) -> TokenFile:
        path = tmp_path / "tokens.safetensors"
        write_tokens(path, rows, origin)
        return TokenFile(path)

    return write


# What is in a vocabulary.


@given(st.lists(st.integers(0, 5), min_size=2, max_size=30), st.data())
def test_a_vocabulary_holds_what_is_kept_and_then_the_most_frequent(counts: list[int], data: st.DataObject) -> None:
    """Against a loop that takes one id at a time: the highest count, the lowest id among equals."""
    ids = range(len(counts))
    kept = data.draw(st.lists(st.sampled_from(ids), unique=True, max_size=len(counts) // 2))
    size = data.draw(st.integers(max(1, len(kept)), len(counts)))
    chosen = set(kept)
    unseen = 0
    while len(chosen) < size:
        best = max((i for i in ids if i not in chosen), key=lambda i: (counts[i], -i))
        unseen += counts[best] == 0
        chosen.add(best)
    built = build(np.array(counts), Kept(np.array(sorted(kept), dtype=np.int64), NOTHING), size)
    assert built.vocabulary.target_ids.tolist() == sorted(chosen)
    assert built.vocabulary.target_ids.dtype == np.int64
    assert built.unseen == unseen


@given(st.sets(st.integers(0, 40), min_size=2))
def test_maps_are_read_back_as_the_ids_they_were_made_from(ids: set[int]) -> None:
    vocab_size = 41
    counts = np.isin(np.arange(vocab_size), list(ids)).astype(np.int64)
    made = build(counts, Kept(NOTHING, NOTHING), len(ids)).vocabulary
    assert made.d2t.dtype == np.int64
    assert [j + offset for j, offset in enumerate(made.d2t.tolist())] == sorted(ids)
    assert np.flatnonzero(made.t2d).tolist() == sorted(ids)
    assert made.t2d.dtype == bool
    found = read_draft_map(made.d2t, made.t2d, vocab_size, len(ids))
    assert np.asarray(found.target_ids).tolist() == sorted(ids)
    # A buffer of distinct offsets may also be a list of ids; all others are offsets, and engines read no others.
    if len(set(made.d2t.tolist())) < len(ids):
        assert (found.form, found.problems) == ("offset", [])
    if plain := plain_map(made.d2t.tobytes(), made.t2d.tobytes(), vocab_size, len(ids)):
        assert list(plain.target_ids) == sorted(ids)


@pytest.mark.parametrize("size", [0, 2, 13])
def test_a_size_without_room_for_what_is_kept_or_beyond_the_target_is_refused(size: int) -> None:
    with pytest.raises(SpecError, match=rf"size must be in 3\.\.12: .*; got {size}$"):
        build(np.zeros(V, dtype=np.int64), Kept(np.array([0, 7]), np.array([3])), size)


def test_byte_tokens_are_known_by_either_spelling() -> None:
    pieces = {0: "<s>", 1: "<0x00>", 2: "<0xFF>", 3: "a", 4: "\u0120", 5: "\u010a", 6: "<0xfg>"}
    kept = kept_tokens(Vocab(file="x", strings=pieces, added=frozenset({0})), {3}, 7)
    assert (kept.special.tolist(), kept.byte.tolist(), kept.ids.tolist()) == ([0, 3], [1, 2], [0, 1, 2, 3])
    characters = {0: "<s>", 1: "\u0120", 2: "\u010a", 3: "a", 4: "\u0120a", 5: "\u00e9", 6: "\u4e2d"}
    kept = kept_tokens(Vocab(file="x", strings=characters, added=frozenset({0, 9})), {0}, 7)
    assert (kept.special.tolist(), kept.byte.tolist()) == ([0], [1, 2, 3, 5])  # 9 has no row in the head
    words = kept_tokens(Vocab(file="x", strings={0: "[CLS]", 1: "a", 2: "b"}, added=frozenset({0})), (), 3)
    assert words.byte.tolist() == []
    assert kept_tokens(None, {2}, 3).ids.tolist() == [2]


def test_all_bytes_and_specials_of_a_real_tokenizer_are_kept(tiny_model_dir: Path) -> None:
    card = load_card(str(tiny_model_dir))
    kept = kept_of(card)
    assert len(BYTE_CHARACTERS) == 256
    assert (len(kept.byte), len(kept.special)) == (256, 4)
    assert kept.ids.tolist() == list(range(card.vocab_size))


# What it covers, and the AL it allows.


def brute_ceiling(rows: Sequence[Row], inside: set[int], D: int, tail: int) -> tuple[int, int]:
    """(steps, accepted) by drafting token for token, as live decoding would with that drafter."""
    steps = accepted = 0
    for one in rows:
        spans: list[list[int]] = [[]]
        for i, written in zip(one.ids.tolist(), one.mask.tolist(), strict=True):
            if written:
                spans[-1].append(i)
            elif spans[-1]:
                spans.append([])
        for span in spans:
            ended = EOS in span
            span = span[: span.index(EOS) + 1] if ended else span
            p, stop = 0, len(span) if ended else len(span) - tail
            while p < stop - 1:
                steps += 1
                taken = 0
                while taken < D and p + taken + 1 < len(span) and span[p + taken + 1] in inside:
                    taken += 1
                    if span[p + taken] == EOS:
                        break
                accepted += taken
                p += taken + 1
    return steps, accepted


spans = st.lists(
    st.tuples(st.lists(st.integers(0, V - 1), min_size=1, max_size=20), st.booleans()), min_size=1, max_size=4
)


@settings(max_examples=60)
@given(st.lists(spans, min_size=1, max_size=12), st.integers(1, V))
def test_coverage_and_ceiling_are_those_of_a_plain_loop(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[tuple[list[int], bool]]], size: int
) -> None:
    rows = [row(*text) for text in texts]
    written = [i for one in rows for i in one.ids[one.mask].tolist()]
    path = tmp_path_factory.mktemp("data") / "tokens.safetensors"
    write_tokens(path, rows, ORIGIN)
    if not written:
        with pytest.raises(SpecError, match="no supervised token"):
            assess(TokenFile(path), FACTS, [size])
        return
    found = assess(TokenFile(path), FACTS, [size])
    inside = set(found.vocabularies[0].target_ids.tolist())
    report = found.reports[0]
    assert report.counted.all.tokens == len(written)
    assert report.counted.all.coverage == pytest.approx(sum(i in inside for i in written) / len(written))
    curve = {point.D: point for point in report.counted.all.curve}
    for D in range(1, 9):
        steps, accepted = brute_ceiling(rows, inside, D, tail=8)
        assert (D in curve) == (steps > 0)
        if steps:
            assert curve[D].steps == steps
            assert pytest.approx(1 + accepted / steps) == curve[D].AL
    held = rows[9::10]
    if held and any(one.mask.any() for one in held):
        assert report.held_out is not None
        counts = np.bincount([i for k, one in enumerate(rows) if k % 10 != 9 for i in one.ids[one.mask]], minlength=V)
        apart = set(build(counts, KEPT, size).vocabulary.target_ids.tolist())
        text = [i for one in held for i in one.ids[one.mask].tolist()]
        assert report.held_out.all.coverage == pytest.approx(sum(i in apart for i in text) / len(text))
        steps, accepted = brute_ceiling(held, apart, 3, tail=8)
        assert [point.AL for point in report.held_out.all.curve if point.D == 3] == (
            [pytest.approx(1 + accepted / steps)] if steps else []
        )
    else:
        assert report.held_out is None


def ceiling(found: Assessment) -> dict[int, float]:
    return {point.D: point.AL for point in found.reports[0].counted.all.curve}


def test_a_missing_token_ends_a_draft_and_is_the_targets_own(make: Make) -> None:
    """1 1 5 1 1 5 ...: at D = 2 two drafts and the target's 5; at D = 8 the same, since no draft passes the 5."""
    file = make(row(([7, 7], False), ([1, *[1, 1, 5] * 10, EOS], True)))
    found = assess(file, FACTS, [2])  # EOS and 1
    assert found.vocabularies[0].target_ids.tolist() == [EOS, 1]
    assert found.reports[0].counted.all.coverage == 22 / 32
    # Ten steps of 1 1 5, and one that accepts the EOS and adds nothing.
    assert ceiling(found)[2] == ceiling(found)[8] == 1 + 21 / 11
    # 1 5 | 1 1 | 5 1 | 1 5 | ...: at D = 1 a step in three meets the 5 as a draft.
    assert (
        ceiling(found)[1]
        == 1 + brute_ceiling([file.row(0)], {0, 1}, 1, 8)[1] / (brute_ceiling([file.row(0)], {0, 1}, 1, 8)[0])
    )


def test_the_whole_vocabulary_allows_every_draft_up_to_the_ends_of_streams(make: Make) -> None:
    cut = assess(make(row(([3], False), ([1, 2] * 409, True))), FACTS, [V])
    assert ceiling(cut) == {D: 1 + D for D in range(1, 9)}  # its last 8 tokens are looked into only
    ended = assess(make(row(([1, 2, 3, 4, EOS], True))), FACTS, [V])
    # One draft of four, the EOS among them, and no bonus; three and the EOS as a bonus; two of two; four steps of 1.
    assert [ceiling(ended)[D] for D in (1, 2, 3, 4, 5)] == [2, 2.5, 4, 5, 5]
    assert ended.whole.counted.all.curve == ended.reports[0].counted.all.curve


def test_spans_of_one_row_are_streams_of_their_own(make: Make) -> None:
    file = make(row(([1, 1, EOS], True), ([9], False), ([1, 1, EOS], True), ([9], False), ([4], True)))
    found = assess(file, FACTS, [V])
    assert (found.data.spans, found.data.short_spans) == (3, 1)
    assert [point.steps for point in found.reports[0].counted.all.curve] == [2] * 8


def test_a_vocabulary_counted_on_a_text_flatters_itself(make: Make) -> None:
    """Every row has a token of its own: what is counted is covered, what is held out is not."""
    rows = [row(([k] * 12 + [EOS], True)) for k in [1, 2, 3, 4, 5, 6, 7, 8, 9, 11]]
    report = assess(make(*rows), FACTS, [11]).reports[0]
    assert report.counted.all.coverage == 1
    assert report.held_out is not None
    assert report.held_out.all.coverage == 1 / 13
    assert [point.AL for point in report.held_out.all.curve][1:3] == [1 + 1 / 12, 1 + 1 / 12]
    assert report.held_out.all.rows == 1


def test_ids_that_fill_a_vocabulary_are_the_lowest_and_are_told(make: Make) -> None:
    found = assess(make(row(([8, 8, 9, EOS], True))), FACTS, [6])
    assert found.vocabularies[0].target_ids.tolist() == [0, 1, 2, 3, 8, 9]
    assert (found.reports[0].unseen, found.data.distinct, found.data.supervised) == (3, 3, 4)
    assert "3 ids" in found.notes[0]


def test_prompts_are_not_counted(make: Make) -> None:
    found = assess(make(row(([5] * 50, False), ([2, 3, EOS], True))), FACTS, [3])
    assert found.vocabularies[0].target_ids.tolist() == [0, 2, 3]


def test_parts_by_category_and_language_add_up(make: Make) -> None:
    rows = [row(([k % 3 + 1] * 5 + [EOS], True), category="ab"[k % 2]) for k in range(20)]
    found = assess(make(*rows), FACTS, [2, 3], language_of=lambda text: "one" if text.startswith("1") else "other")
    for report in found.reports:
        for parts in (report.counted.categories, report.counted.languages):
            assert len(parts) == 2
            assert sum(part.tokens for part in parts) == report.counted.all.tokens
            covered = sum(part.tokens * part.coverage for part in parts)
            assert covered == pytest.approx(report.counted.all.tokens * report.counted.all.coverage)
            assert parts[0].tokens >= parts[1].tokens
    one = next(part for part in found.reports[0].counted.languages if part.name == "one")
    assert one.rows == 7
    assert one.coverage == 1  # token 1 is the most frequent beside EOS
    assert assess(make(*[replace(r, category=None) for r in rows]), FACTS, [2]).reports[0].counted.categories == []


def test_of_much_text_whole_blocks_of_rows_are_walked_and_all_is_counted(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(([k % 9 + 1] * 5 + [EOS], True)) for k in range(40)]
    everything = assess(make(*rows), FACTS, [4])
    monkeypatch.setattr(coverage, "MOST_WALKED", 120)  # of 240
    monkeypatch.setattr(coverage, "CHUNK", 50)
    some = assess(make(*rows), FACTS, [4])
    assert (everything.data.walked_rows, some.data.walked_rows) == (40, 20)
    assert some.vocabularies[0].target_ids.tolist() == everything.vocabularies[0].target_ids.tolist()
    assert some.reports[0].counted.all.coverage == everything.reports[0].counted.all.coverage
    held = some.reports[0].held_out
    assert held is not None
    assert held.all.curve  # a held-out row in every block
    chosen = [one for k, one in enumerate(rows) if k // 10 in (0, 2)]
    steps, accepted = brute_ceiling(chosen, set(some.vocabularies[0].target_ids.tolist()), 2, 8)
    assert 1 + accepted / steps == some.reports[0].counted.all.curve[1].AL


def test_text_of_another_vocabulary_is_refused(make: Make) -> None:
    file = make(row(([1], True)), origin=replace(ORIGIN, vocab_size=13))
    with pytest.raises(SpecError, match=r"of a vocabulary of 13 \(toy\), the target's is 12; name the target"):
        assess(file, FACTS, [3])


# The file and the verb.


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    """Rows in bytes of the tiny model's tokenizer."""
    rng = np.random.default_rng(0)
    rows = [
        row((rng.integers(0, 200, 9).tolist(), False), (rng.integers(0, 100, 30).tolist(), True)) for _ in range(20)
    ]
    path = tmp_path / "answers.safetensors"
    write_tokens(path, rows, Origin(target="tiny", vocab_size=260, template="chat"))
    return path


@pytest.fixture
def roomy(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """The tiny model with 40 more rows than tokens, so that a vocabulary can be smaller than the whole."""
    folder = tmp_path / "roomy"
    folder.mkdir()
    for file in tiny_model_dir.iterdir():
        if file.suffix == ".json":
            (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 300}))
    return folder


def test_the_verb_writes_a_file_that_training_reads(
    roomy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    path = tmp_path / "answers.safetensors"
    rows = [
        row((rng.integers(0, 200, 9).tolist(), False), (rng.integers(240, 300, 30).tolist(), True)) for _ in range(20)
    ]
    write_tokens(path, rows, Origin(target="tiny", vocab_size=300, template="chat"))
    out = tmp_path / "vocab.json"
    assert vocab(str(roomy), data=path, size=280, output=out, json="-") == 0
    said = capsys.readouterr()
    record = json.loads(said.out)
    assert record["schema"] == TrainVocabRecord.SCHEMA
    assert record["provenance"]["input_hashes"]["data"] == sha256_file(path)
    assert record["sizes"][0]["head_bytes"] == 280 * 32 * 2
    assert record["whole"]["size"] == 300
    assert "280" in said.err
    assert "4 special and 256 byte tokens, the 20 most frequent others" in said.err
    assert "the text was written by tiny" in said.err
    kept = read_record(out, DraftVocabularyRecord)
    ids = read_draft_vocabulary(out, 300)
    assert ids.target_ids.tolist() == kept.target_ids
    assert len(ids) == 280
    assert set(range(260)) <= set(kept.target_ids)
    assert json.loads(json.dumps(record["sizes"][0])) == json.loads(out.read_text())["report"]


def test_sizes_are_compared_in_one_record(roomy: Path, tmp_path: Path) -> None:
    path = tmp_path / "answers.safetensors"
    write_tokens(path, [row(([270, 271], True))], Origin(target="tiny", vocab_size=300, template="chat"))
    out = tmp_path / "r.json"
    assert vocab(str(roomy), data=path, sizes="261,270", json=str(out)) == 0
    record = read_record(out, TrainVocabRecord)
    assert [(one.size, one.counted.all.coverage) for one in record.sizes] == [(261, 0.5), (270, 1.0)]
    assert record.whole.counted.all.curve == []  # two tokens without an end hold no step


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"size": 10, "sizes": "10,20"}, "give --size or --sizes, not both"),
        ({"sizes": "10,20", "output": Path("v.json")}, "--output takes one vocabulary; choose it with --size"),
        ({"sizes": "10,x"}, "--sizes '10,x' is not a list"),
        ({"size": 259}, r"size must be in 260\.\.260: .*; got 259"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    options: dict[str, Any], sentence: str, tiny_model_dir: Path, answers: Path
) -> None:
    with pytest.raises(SpecError, match=sentence):
        vocab(str(tiny_model_dir), data=answers, **options)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"schema": "codraft.timing/1"}, "expected a 'codraft.draft_vocabulary/1' record"),
        ({"vocab_size": 299}, "is for a vocabulary of 299, the target's is 300"),
        ({"target_ids": []}, "target_ids is empty"),
        ({"target_ids": [3, 300]}, r"holds 300, must be in 0\.\.299"),
        ({"target_ids": [-1, 3]}, r"holds -1, must be in 0\.\.299"),
        ({"target_ids": [2**70]}, r"must be in 0\.\.299"),
        ({"target_ids": [3, 4, 4]}, "4 is twice"),
        ({"target_ids": [3, 5, 4]}, "4 is out of order"),
        ({"target_ids": [3, 4.5]}, "target_ids"),
        ({"extra": 1}, "unknown option 'extra'"),
    ],
)
def test_a_file_that_is_no_draft_vocabulary_is_refused(
    change: dict[str, Any], sentence: str, roomy: Path, tmp_path: Path
) -> None:
    path, out = tmp_path / "answers.safetensors", tmp_path / "vocab.json"
    write_tokens(path, [row(([270, 271], True))], Origin(target="tiny", vocab_size=300, template="chat"))
    vocab(str(roomy), data=path, size=262, output=out)
    assert len(read_draft_vocabulary(out, 300)) == 262
    out.write_text(json.dumps(json.loads(out.read_text()) | change))
    with pytest.raises(SpecError, match=sentence):
        read_draft_vocabulary(out, 300)
