"""What a study would do: every part, what is done of it, and nothing written."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.study import plan
from codraft.study.plan import PlanRow, make_plan
from codraft.study.run import Study
from codraft.study.spec import StudySpec

from tests.study.desk import ListUi, run


@pytest.fixture(autouse=True)
def quick_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "PROBE_BYTES", 2**16)


def planned(spec: StudySpec, folder: Path) -> list[PlanRow]:
    """The plan; no stage may be entered."""
    ui = ListUi()
    rows = make_plan(Study(spec, folder, ui))
    assert ui.titles == []
    return rows


def done(rows: list[PlanRow]) -> list[tuple[str, bool]]:
    return [(row.part, row.done) for row in rows]


def test_a_plan_names_every_part_in_order_and_writes_nothing(spec: StudySpec, tmp_path: Path) -> None:
    rows = planned(replace(spec, batch=[1, 4], context=[20, 40]), tmp_path / "s")
    assert done(rows) == [(part, False) for part in ("streams", "acceptance", *["timing"] * 4, "kernels", "decision")]
    assert all(row.seconds > 0 for row in rows)
    whats = [row.what for row in rows]
    assert whats[:2] == ["5 answers, 50 tokens", "replay of ngram, suffix, external, D up to 3"]
    assert [what.partition(", D")[0] for what in whats[2:6]] == [f"B = {B}, S = {S}" for S in (20, 40) for B in (1, 4)]
    assert whats[-1].endswith("confirmed on 1 answers")
    assert not list(tmp_path.iterdir())


def test_a_plan_leaves_out_what_is_not_asked(spec: StudySpec, tmp_path: Path) -> None:
    rows = planned(replace(spec, batch=[2], kernels=False), tmp_path / "s")
    assert [row.part for row in rows] == ["streams", "acceptance", "timing", "decision"]
    assert "S = the typical context" in rows[2].what
    assert "confirmed" not in rows[-1].what, "only a lone sequence is confirmed"


def test_all_of_a_finished_study_is_done(spec: StudySpec, finished: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    assert all(row.done for row in planned(spec, finished))
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "to_do"),
    [
        ({"batch": [1, 2]}, ["timing", "decision"]),
        ({"context": [33]}, ["timing", "decision"]),
        ({"rounds": 3}, ["timing", "decision"]),
        ({"drafters": ["ngram"]}, ["acceptance", "timing", "decision"]),
        ({"depth": [1, 2]}, ["streams", "acceptance", "timing", "decision"]),
        ({"dtype": "float32"}, ["streams", "acceptance", "timing", "kernels", "decision"]),
        ({"confirm_prompts": 2}, ["decision"]),
    ],
)
def test_what_a_changed_question_makes_anew_is_to_do(
    change: dict[str, Any], to_do: list[str], spec: StudySpec, finished: Path
) -> None:
    rows = planned(replace(spec, **change), finished)
    assert [row.part for row in rows if not row.done] == to_do


def test_a_load_at_a_context_that_was_timed_is_done(spec: StudySpec, tmp_path: Path) -> None:
    asked = replace(spec, context=[20, 40], batch=[1, 2])
    run(asked, tmp_path / "s")
    assert all(row.done for row in planned(asked, tmp_path / "s"))
    (tmp_path / "s" / "records" / "timing-b2-s40.json").unlink()
    assert [row.what[:13] for row in planned(asked, tmp_path / "s") if not row.done][:1] == ["B = 2, S = 40"]


@pytest.mark.parametrize("rubbish", [b"", b"{}", b"\xff"])
def test_a_plan_does_not_stumble_over_a_spoilt_record(rubbish: bytes, spec: StudySpec, done: Path) -> None:
    for path in (done / "records").glob("*.json"):
        path.write_bytes(rubbish)
    rows = planned(spec, done)
    assert [row.part for row in rows if not row.done] == ["acceptance", "timing", "kernels", "decision"]


def test_estimates_rest_on_the_studys_own_times_where_there_are_any(
    spec: StudySpec, done: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The instant machine of these tests takes 1.01 s for a pass of one token."""
    known = planned(replace(spec, rounds=3), done)
    monkeypatch.setattr(plan, "memory_rate", lambda: 1e12)
    guessed = planned(replace(spec, rounds=3), tmp_path / "new")
    assert plan.plain_pass_s(study(spec, done)) == pytest.approx(1.01)
    assert plan.plain_pass_s(study(spec, tmp_path / "new")) == pytest.approx(0.005, rel=0.1)
    ratio = next(row.seconds for row in known if row.part == "timing") / next(
        row.seconds for row in guessed if row.part == "timing"
    )
    assert ratio == pytest.approx(1.01 / 0.005, rel=0.1)


def study(spec: StudySpec, folder: Path) -> Study:
    from codraft.decode.hf.load import resolve_folder

    found = Study(spec, folder, ListUi())
    found.resolved = resolve_folder(spec.target)
    return found


def test_more_rounds_and_more_sequences_take_longer(
    spec: StudySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine whose memory does not change its pace meanwhile."""
    monkeypatch.setattr(plan, "plain_pass_s", lambda study: 0.01)

    def timing(**change: Any) -> float:
        rows = planned(replace(spec, **change), tmp_path / "s")
        return sum(row.seconds for row in rows if row.part == "timing")

    assert timing() < timing(rounds=9) < timing(rounds=9, batch=[1, 8])


def test_brought_figures_leave_nothing_to_measure(spec: StudySpec, finished: Path, tmp_path: Path) -> None:
    records = finished / "records"
    both = replace(spec, acceptance=str(records / "acceptance.json"), timing=str(records / "timing.json"))
    assert [row.part for row in planned(both, tmp_path / "s")] == ["decision"]
    one = replace(spec, timing=str(records / "timing.json"))
    assert [row.part for row in planned(one, tmp_path / "s")] == ["streams", "acceptance", "decision"]
    other = replace(spec, acceptance=str(records / "acceptance.json"))
    rows = planned(other, tmp_path / "s")
    assert [row.part for row in rows] == ["streams", "timing", "kernels", "decision"]
    assert "confirmed" not in rows[-1].what


def test_a_plan_over_logs_writes_no_streams(spec: StudySpec, finished: Path, tmp_path: Path) -> None:
    [written] = finished.glob("streams-*.jsonl")
    logs = replace(spec, prompts=[], streams=str(written), max_new_tokens=None)
    assert "streams" not in [row.part for row in planned(logs, tmp_path / "s")]
