"""Figures that people bring in place of what a study would measure."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.core.record import read_record
from codraft.core.schema import AcceptanceRecord, DecisionRecord, TimingRecord
from codraft.study.run import Study
from codraft.study.spec import StudySpec

from tests.study.desk import ListUi, run

AL = "drafter,D,AL\nngram,1,1.2\nngram,3,1.4\nsuffix,1,1.3\n"
STEPS = "B,S,D,t_verif_s,drafter,t_draft_s\n"
STEPS += "1,50,0,1,,\n1,50,1,1.1,ngram,0\n1,50,1,1.1,suffix,0.1\n1,50,3,1.2,ngram,0\n1,50,3,1.2,suffix,0.1\n"

Bring = Callable[..., StudySpec]


@pytest.fixture
def bring(spec: StudySpec, tmp_path: Path) -> Bring:
    """The study's question with these files beside it."""

    def brought(acceptance: str | None = None, timing: str | None = None) -> StudySpec:
        found = replace(spec, drafters=["ngram,n_min=1", "suffix"], kernels=False)
        if acceptance is not None:
            (tmp_path / "al.csv").write_text(acceptance)
            found = replace(found, acceptance=str(tmp_path / "al.csv"))
        if timing is not None:
            (tmp_path / "steps.csv").write_text(timing)
            found = replace(found, timing=str(tmp_path / "steps.csv"))
        return found

    return brought


def test_figures_of_both_kinds_decide_without_any_model(bring: Bring, tmp_path: Path, makes: list[str]) -> None:
    decision, ui = run(bring(AL, STEPS), tmp_path / "s")
    assert makes == ["decision", "frontier"]
    assert ui.titles == []
    found = {(c.drafter, c.D): c.speedup for c in decision.points[0].candidates}
    assert found == pytest.approx({("ngram", 1): 1.2 / 1.1, ("ngram", 3): 1.4 / 1.2, ("suffix", 1): 1.3 / 1.2})
    assert decision.confirmation is None
    assert decision.basis["engine"] == "your own figures"
    run(bring(AL, STEPS), tmp_path / "s")
    assert makes == ["decision", "frontier"], "unchanged figures are not decided upon twice"


@pytest.mark.parametrize("which", ["acceptance", "timing", "both"])
def test_a_decision_follows_the_figures_that_were_brought(
    which: str, bring: Bring, tmp_path: Path, makes: list[str]
) -> None:
    run(bring(AL, STEPS), tmp_path / "s")
    makes.clear()
    al = AL if which == "timing" else AL.replace("1.4", "1.6")
    steps = STEPS if which == "acceptance" else STEPS.replace("1,50,3,1.2", "1,50,3,1.25")
    decision, _ = run(bring(al, steps), tmp_path / "s")
    assert makes == ["decision", "frontier"]
    best = decision.points[0].best
    assert best is not None
    expected = {"acceptance": 1.6 / 1.2, "timing": 1.4 / 1.25, "both": 1.6 / 1.25}
    assert best.speedup == pytest.approx(expected[which])


def test_another_codraft_decides_anew(
    bring: Bring, tmp_path: Path, makes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(bring(AL, STEPS), tmp_path / "s")
    makes.clear()
    monkeypatch.setattr("codraft.study.run.__version__", "99")
    run(bring(AL, STEPS), tmp_path / "s")
    assert makes == ["decision", "frontier"]


def test_a_decision_upon_brought_figures_is_of_the_target_that_was_named(
    bring: Bring, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Same figures, same folder, another target: its name and its shape are other ones."""
    shutil.copytree(tiny_model_dir, tmp_path / "other")
    run(bring(AL, STEPS), tmp_path / "s")
    decision, _ = run(replace(bring(AL, STEPS), target=str(tmp_path / "other")), tmp_path / "s")
    assert decision.target == str(tmp_path / "other")


@pytest.mark.parametrize("change", [{"depth": [1]}, {"batch": [1]}, {"context": [50]}])
def test_a_decision_upon_brought_figures_is_of_the_depths_and_loads_that_were_asked(
    change: dict[str, list[int]], bring: Bring, tmp_path: Path
) -> None:
    steps = STEPS + STEPS.partition("\n")[2].replace("1,50,", "2,80,")
    asked = replace(bring(AL, steps), batch=[])
    whole, _ = run(asked, tmp_path / "s")
    assert [(point.B, point.S) for point in whole.points] == [(1, 50), (2, 80)]
    some, _ = run(replace(asked, **change), tmp_path / "s")  # type: ignore[arg-type]
    assert some.points != whole.points
    assert {c.D for point in some.points for c in point.candidates} == ({1} if "depth" in change else {1, 3})


def test_brought_curves_meet_step_times_measured_here(bring: Bring, tmp_path: Path, makes: list[str]) -> None:
    decision, ui = run(bring(acceptance=AL), tmp_path / "s")
    timing = read_record(tmp_path / "s" / "records" / "timing.json", TimingRecord)
    assert makes == [f"timing-b1-s{timing.points[0].S}", "timing", "decision", "frontier"]
    assert "replay" not in ui.measured()
    assert {(c.drafter, c.D): c.AL for c in decision.points[0].candidates} == {
        ("ngram", 1): 1.2,
        ("ngram", 3): 1.4,
        ("suffix", 1): 1.3,
    }
    assert decision.confirmation is None, "what was brought was not measured on these prompts"


def test_brought_step_times_meet_curves_measured_here(bring: Bring, tmp_path: Path, makes: list[str]) -> None:
    decision, ui = run(bring(timing=STEPS), tmp_path / "s")
    assert makes == ["acceptance", "decision", "frontier"]
    assert "time" not in ui.measured()
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert {(c.drafter, c.D): c.AL for c in decision.points[0].candidates} == {
        (result.drafter.name, point.D): point.AL for result in acceptance.results for point in result.curve
    }
    assert decision.points[0].plain["t_step_s"] == 1
    assert decision.confirmation is None


def test_records_of_a_study_brought_to_another_decide_the_same(spec: StudySpec, finished: Path, tmp_path: Path) -> None:
    records = finished / "records"
    brought = replace(spec, acceptance=str(records / "acceptance.json"), timing=str(records / "timing.json"))
    decision, ui = run(brought, tmp_path / "s")
    first = read_record(records / "decision.json", DecisionRecord)
    assert [strip(c) for c in decision.points[0].candidates] == [strip(c) for c in first.points[0].candidates]
    assert decision.schedule == first.schedule
    assert ui.titles == []


def strip(candidate: object) -> object:
    """Without the drafter's memory, which only a drafter at hand can tell."""
    return replace(candidate, bytes=None)  # type: ignore[type-var]


def test_curves_of_a_drafter_that_nobody_named_are_refused_before_anything_is_written(
    bring: Bring, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match=r"al\.csv holds drafter 'eagle3', which no --drafter names \(given: ngram, s"):
        run(bring(acceptance=AL + "eagle3,1,1.5\n"), tmp_path / "s")
    assert not (tmp_path / "s").exists()
    decision, _ = run(bring(AL + "eagle3,1,1.5\n", STEPS + "1,50,1,1.1,eagle3,0.2\n"), tmp_path / "s")
    assert ("eagle3", 1) in {(c.drafter, c.D) for c in decision.points[0].candidates}
    assert [m.measured_as for m in decision.mechanisms if m.mechanism == "eagle3"] == [["eagle3"]]


def test_step_times_that_leave_out_a_drafter_are_refused_before_anything_is_measured(
    bring: Bring, tmp_path: Path
) -> None:
    steps = "".join(line + "\n" for line in STEPS.splitlines() if "suffix" not in line)
    words = r"steps\.csv has no drafting time of 'suffix' \(timed: ngram\); add it, or"
    with pytest.raises(SpecError, match=f"{words} give"):
        Study(bring(timing=steps), tmp_path / "s", ListUi())
    with pytest.raises(SpecError, match=rf"{words} take it out of .*al\.csv"):
        Study(bring(AL, steps), tmp_path / "s", ListUi())
    assert not (tmp_path / "s").exists()
    renamed = replace(bring(timing=steps), drafters=["ngram,n_min=1", "suffix,name=ngram-2"])
    with pytest.raises(SpecError, match="no drafting time of 'ngram-2'"):
        Study(renamed, tmp_path / "s", ListUi())


def test_step_times_that_name_no_drafter_fit_any(bring: Bring, tmp_path: Path) -> None:
    decision, _ = run(bring(timing="B,S,D,t_step_s\n1,9,0,1\n1,9,1,1.1\n"), tmp_path / "s")
    assert {(c.drafter, c.D) for c in decision.points[0].candidates} == {("ngram", 1), ("suffix", 1)}
    assert all(1 <= c.t_step_s <= 1.1 for c in decision.points[0].candidates), "some steps drafted nothing"
    assert "drafting" in decision.basis


def test_a_study_keeps_a_copy_of_what_was_brought(bring: Bring, tmp_path: Path) -> None:
    run(bring(AL, STEPS), tmp_path / "s")
    brought = {path.name: path.read_text() for path in (tmp_path / "s" / "brought").iterdir()}
    assert brought == {"acceptance.csv": AL, "timing.csv": STEPS}
