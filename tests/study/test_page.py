"""A study's page from its records: which records it shows, and which it refuses to show together."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.core.schema import DecisionRecord
from codraft.report.study import Study
from codraft.study.page import brought_copy, shown, write_page
from codraft.study.spec import StudySpec

from tests.study.desk import run


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Study]:
    """What the page would show."""
    seen: list[Study] = []
    monkeypatch.setattr("codraft.study.page.write_report", lambda study, path: seen.append(study))
    return seen


def test_a_page_shows_the_records_of_its_study(spec: StudySpec, finished: Path, pages: list[Study]) -> None:
    assert write_page(finished) == finished / "report.html"
    assert write_page(finished, Path("elsewhere.html")) == Path("elsewhere.html")
    [page, again] = pages
    assert page == again
    assert page.target == spec.target
    assert page.asked["depth"] == [1, 3]
    assert "streams" not in page.asked, "what was not asked is not told"
    assert page.acceptance is not None
    assert page.timing is not None
    assert page.timing.gemm is not None
    assert page.decision.confirmation is not None
    assert page.frontier is not None


def change(path: Path, key: str, value: Any) -> None:
    data = json.loads(path.read_text())
    data[key] = value
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(("kind", "key"), [("acceptance", "results"), ("timing", "points")])
def test_records_that_the_decision_does_not_rest_on_are_not_shown_with_it(
    kind: str, key: str, done: Path, pages: list[Study]
) -> None:
    """As after a run that was stopped before it decided again."""
    change(done / "records" / f"{kind}.json", key, [])
    with pytest.raises(SpecError, match=f"the decision rests on another {kind} record than that one; run codraft tune"):
        write_page(done)
    assert pages == []


def test_contradictory_records_are_one_sentence(done: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(study: Study, path: Path) -> None:
        raise KeyError("ngram")

    monkeypatch.setattr("codraft.study.page.write_report", stumble)
    with pytest.raises(SpecError, match=r"contradict each other .*ngram"):
        write_page(done)


def test_brought_records_are_shown_from_their_copy_and_tables_are_not(
    spec: StudySpec, finished: Path, tmp_path: Path, pages: list[Study]
) -> None:
    shutil.copy(finished / "records" / "timing.json", tmp_path / "mine.json")
    (tmp_path / "al.csv").write_text("drafter,D,AL\nngram,1,1.2\n")
    asked = replace(spec, timing=str(tmp_path / "mine.json"), acceptance=str(tmp_path / "al.csv"))
    decision, _ = run(asked, tmp_path / "s")
    assert isinstance(decision, DecisionRecord)
    (tmp_path / "mine.json").unlink()
    (tmp_path / "al.csv").unlink()
    write_page(tmp_path / "s")
    [page] = pages
    assert page.acceptance is None
    assert page.timing is not None


def test_where_records_come_from(tmp_path: Path) -> None:
    assert shown(tmp_path, "timing", None) == tmp_path / "records" / "timing.json"
    assert shown(tmp_path, "timing", "far/away.csv") is None
    assert shown(tmp_path, "timing", "far/away.json") == tmp_path / "brought" / "timing.json"
    assert brought_copy(tmp_path, "timing", Path("far/Away.CSV")) == tmp_path / "brought" / "timing.csv"
