"""The top of the page: the choice, its gain, what it rests on, and what to mind."""

from dataclasses import replace

import pytest

from codraft.core.schema import AcceptanceRecord, Confirmation, DecisionPoint
from codraft.report import Study
from codraft.report.advice import advice, warnings
from codraft.report.page import plain
from codraft.report.study import Book
from codraft.report.verdict import Scale, cards, headline, summary

from tests.report import sample


def said(study: Study) -> str:
    """Advice and warnings as text."""
    book = Book(study)
    return " ".join(plain(line) for line in (*advice(book), *warnings(book)))


def with_confirmation(study: Study, **changes: float) -> Study:
    """The study with another confirmation."""
    found = study.decision.confirmation
    assert found is not None
    changed: Confirmation = replace(found, **changes)  # type: ignore[arg-type]
    return replace(study, decision=replace(study.decision, confirmation=changed))


def with_first_point(study: Study, point: DecisionPoint) -> Study:
    """The study with another first load."""
    return replace(study, decision=replace(study.decision, points=[point, *study.decision.points[1:]]))


def acceptance_of(study: Study) -> AcceptanceRecord:
    assert study.acceptance is not None
    return study.acceptance


def test_the_headline_follows_the_schedule_load_by_load() -> None:
    assert (
        plain(headline(Book(sample.full())))
        == "Up to B = 1 run suffix with D = 8 (1.67 times); up to B = 4 leave drafting off"
    )


def test_off_everywhere_is_said_first() -> None:
    assert plain(headline(Book(sample.minimal()))) == "Leave speculative decoding off: no drafter pays at B = 4"


def test_one_choice_for_all_loads_names_its_gains() -> None:
    found = sample.full()
    lone = replace(found.decision, points=found.decision.points[:1], schedule=found.decision.schedule[:1])
    words = plain(headline(Book(replace(found, decision=lone))))
    assert words == "Run suffix with D = 8: 1.67 times as fast as plain decoding"


def test_a_study_without_loads_has_a_headline() -> None:
    assert plain(headline(Book(sample.bare()))) == "No load was decided"


def test_the_summary_states_gain_AL_break_even_proof_and_basis() -> None:
    found = sample.full()
    best = found.decision.points[0].best
    assert best is not None
    words = plain(summary(Book(found))[0])
    for text in (
        f"AL {best.AL:.2f} tokens",
        f"{best.break_even_AL:.2f} would break even",
        f"predicted {best.speedup:.2f} times",
        "of these answers, generated both ways: measured 1.63 times",
        "predicted for them 1.58 times",
        "Step times: torch, AMD EPYC, 2 cores, cpu, float32.",
    ):
        assert text in words


def test_an_off_load_says_what_is_missing_and_what_to_do() -> None:
    words = said(sample.full())
    assert "At B = 4, S = 200: run plain decoding" in words
    assert "comes closest: AL 1.21 where 1.22 tokens per step would break even" in words
    assert "verification, which is no longer free" in words
    assert "coding (AL 1.36)" in words
    assert "writing" not in words


def test_an_off_load_that_drafting_spoils_blames_the_drafter() -> None:
    found = sample.full()
    point = found.decision.points[0]
    slow = [c for c in point.candidates if c.drafter == "external"]
    words = said(with_first_point(found, replace(point, candidates=slow, best=None)))
    assert "Most of the extra time is drafting" in words


def test_draft_length_is_given_in_the_words_of_engines() -> None:
    words = said(sample.full())
    assert "Up to B = 1, suffix with D = 8: num_speculative_tokens = 8 (vLLM)" in words
    assert "num_draft_tokens = 9 (SGLang" in words


def test_each_load_has_a_card_and_only_the_confirmed_one_a_measurement() -> None:
    book = Book(sample.full())
    first, second = cards(book, Scale(book))
    assert (first.off, second.off) == (False, True)
    assert [strip.look for strip in first.strips] == ["predicted", "measured"]
    assert [strip.look for strip in second.strips] == ["predicted"]


def test_strips_share_one_scale_that_holds_all_of_them() -> None:
    book = Book(sample.full())
    scale = Scale(book)
    for card in cards(book, scale):
        for strip in card.strips:
            ends = (strip.dot, *(strip.band or ()))
            assert all(0 < end < 100 for end in ends)
            assert (strip.dot > scale.at(1.0)) != card.off


def test_the_records_warnings_are_said_load_by_load() -> None:
    point = sample.full().decision.points[0]
    changed = with_first_point(sample.full(), replace(point, warnings=["look here", "and there"]))
    lines = [plain(line) for line in warnings(Book(changed))]
    assert "At B = 1, S = 200: look here; and there." in lines
    assert any(line.startswith("At B = 4, S = 200: external makes decoding slower") for line in lines)
    same = [plain(line) for line in warnings(Book(sample.full()))]
    assert any(line.startswith("At B = 1, S = 200; B = 4, S = 200: external makes") for line in same)


def test_notes_of_the_basis_are_warnings() -> None:
    found = sample.full()
    basis = {**found.decision.basis, "dtype": "float32, since this CPU has no fast bfloat16", "drafting": "in them"}
    words = said(replace(found, decision=replace(found.decision, basis=basis)))
    assert "dtype: float32, since this CPU has no fast bfloat16" in words
    assert "drafting: in them" in words


def test_an_interval_below_one_is_a_warning() -> None:
    point = sample.full().decision.points[0]
    assert point.best is not None
    low = replace(point.best, speedup_ci95=(0.94, 1.7))
    candidates = [low, *point.candidates[1:]]
    words = said(with_first_point(sample.full(), replace(point, best=low, candidates=candidates)))
    assert "the interval of the gain reaches down to 0.94 times" in words


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"signed_error": 0.25}, "The prediction lies 25 % above what generating measured"),
        ({"signed_error": -0.25}, "The prediction lies 25 % below what generating measured"),
        ({"measured": 0.9, "predicted": 1.2}, "Generating was slower with drafting"),
        ({"identical_outputs": 5}, "Only 5 of 6 answers were identical"),
    ],
)
def test_a_confirmation_that_disagrees_is_a_warning(changes: dict[str, float], sentence: str) -> None:
    assert sentence not in said(sample.full()).replace("\u00a0", " ")
    assert sentence in said(with_confirmation(sample.full(), **changes)).replace("\u00a0", " ")


def test_what_acceptance_left_out_is_said() -> None:
    found = sample.full()
    record = acceptance_of(found)
    prompts = replace(record.prompts, skipped_long=3, skipped_short=1, num_conversations=1, written_by="other")
    words = said(replace(found, acceptance=replace(record, prompts=prompts))).replace("\u00a0", " ")
    for text in ("3 answers longer than", "1 answer too short", "no interval", "written by other"):
        assert text in words


def test_drafted_steps_are_refused_in_words() -> None:
    found = sample.full()
    record = acceptance_of(found)
    engine = replace(record.results[0], basis="drafted_steps", curve=[])
    words = said(replace(found, acceptance=replace(record, results=[engine])))
    assert "AL of ngram counts drafted steps only" in words
