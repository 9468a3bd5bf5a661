"""The whole main job on a tiny model: the decision, its proof, and what is used again."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.cli.main import main
from codraft.core.errors import SpecError
from codraft.core.record import read_record
from codraft.core.schema import AcceptanceRecord, DecisionRecord, TimingRecord
from codraft.replay.streams import Progress
from codraft.study.run import Study
from codraft.study.spec import StudySpec, read_study


class ListUi:
    """Remembers the stages' titles; can be told to fail at one."""

    def __init__(self, fail_at: str | None = None) -> None:
        self.titles: list[str] = []
        self.fail_at = fail_at

    @contextmanager
    def stage(self, title: str) -> Iterator[Progress]:
        if self.fail_at and title.startswith(self.fail_at):
            raise KeyboardInterrupt
        self.titles.append(title)
        yield lambda done, total: None

    def measured(self) -> set[str]:
        """The first words of all stages that do work."""
        return {title.split()[0] for title in self.titles if "used again" not in title}


@pytest.fixture
def spec(tiny_model_dir: Path, tmp_path: Path) -> StudySpec:
    prompts = tmp_path / "prompts.jsonl"
    rows = [
        {"id": str(i), "category": "ab"[i % 2], "turns": ["abc abc abc " * (1 + i % 2)] + ["more"] * (i == 0)}
        for i in range(4)
    ]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return StudySpec(
        target=str(tiny_model_dir),
        drafters=["ngram,n_min=1", f"external:{tiny_model_dir}"],
        prompts=[str(prompts)],
        max_new_tokens=10,
        depth=[1, 3],
        rounds=2,
        confirm_prompts=2,
        dtype="float64",
    )


def run(spec: StudySpec, folder: Path, fail_at: str | None = None) -> tuple[DecisionRecord, ListUi]:
    ui = ListUi(fail_at)
    return Study(spec, folder, ui).run(), ui


def test_a_study_ends_with_a_decision_and_leaves_every_record(spec: StudySpec, tmp_path: Path) -> None:
    decision, _ = run(spec, tmp_path / "s")
    folder = tmp_path / "s" / "records"
    acceptance = read_record(folder / "acceptance.json", AcceptanceRecord)
    timing = read_record(folder / "timing.json", TimingRecord)
    assert read_record(folder / "decision.json", DecisionRecord) == decision
    assert read_study(tmp_path / "s" / "study.toml") == spec
    assert [result.drafter.name for result in acceptance.results] == ["ngram", "external"]
    assert [point.D for point in acceptance.results[0].curve] == [1, 3]
    assert {"a", "b"} <= set(acceptance.results[0].domains)
    assert [point.D for point in timing.points] == [0, 1, 2, 3], "shorter drafts must be timed too"
    assert set(timing.points[1].t_draft_s) == {"ngram", "external"}
    point = decision.points[0]
    assert {(c.drafter, c.D) for c in point.candidates} == {
        ("ngram", 1),
        ("ngram", 3),
        ("external", 1),
        ("external", 3),
    }
    assert [c.speedup for c in point.candidates] == sorted((c.speedup for c in point.candidates), reverse=True)
    assert len(point.guidelines) == 5
    assert len(decision.schedule) == 1


def test_the_targets_own_copy_accepts_every_draft(spec: StudySpec, tmp_path: Path) -> None:
    decision, _ = run(spec, tmp_path / "s")
    curve = {c.D: c for c in decision.points[0].candidates if c.drafter == "external"}
    assert curve[3].AL > curve[1].AL > 1.8
    assert decision.confirmation is not None
    assert decision.confirmation.identical_outputs == decision.confirmation.num_outputs == 2
    expected = decision.confirmation.predicted / decision.confirmation.measured - 1
    assert decision.confirmation.signed_error == pytest.approx(expected)


def test_an_unchanged_study_measures_nothing_again(spec: StudySpec, tmp_path: Path) -> None:
    first, _ = run(spec, tmp_path / "s")
    again, ui = run(spec, tmp_path / "s")
    assert again == first
    assert ui.measured() == set()


@pytest.mark.parametrize(
    ("change", "made_again"),
    [
        ({"confirm_prompts": 1}, {"load", "confirm"}),
        ({"rounds": 3}, {"load", "time", "confirm"}),
        ({"depth": [1, 2]}, {"load", "write", "replay", "time", "confirm"}),
        ({"seed": 5, "temperature": 0.5}, {"load", "write", "replay", "time", "confirm"}),
    ],
)
def test_a_changed_question_remakes_what_depends_on_it(
    change: dict[str, Any], made_again: set[str], spec: StudySpec, tmp_path: Path
) -> None:
    run(spec, tmp_path / "s")
    _, ui = run(replace(spec, **change), tmp_path / "s")
    assert ui.measured() - {"this"} == made_again
    assert any("asked something else before" in title for title in ui.titles)


def test_a_changed_drafter_keeps_the_streams(spec: StudySpec, tmp_path: Path) -> None:
    run(spec, tmp_path / "s")
    _, ui = run(replace(spec, drafters=["ngram,n_max=2"]), tmp_path / "s")
    assert "write" not in ui.measured()
    assert "replay" in ui.measured()


def test_a_changed_checkpoint_is_measured_anew(spec: StudySpec, tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model)
    own = replace(spec, target=str(model), drafters=["ngram"])
    run(own, tmp_path / "s")
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes())
    _, ui = run(own, tmp_path / "s")
    assert {"write", "replay", "time", "confirm"} <= ui.measured()


@pytest.mark.parametrize("at", ["replay external", "time", "confirm"])
def test_an_interrupted_study_goes_on_where_it_was(at: str, spec: StudySpec, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(spec, tmp_path / "s", fail_at=at)
    assert not list((tmp_path / "s").rglob("*.part"))
    _, ui = run(spec, tmp_path / "s")
    assert "write" not in ui.measured(), "streams outlive the interruption"
    assert ("replay" in ui.measured()) == (at == "replay external")


def test_a_spoilt_record_is_made_again(spec: StudySpec, tmp_path: Path) -> None:
    run(spec, tmp_path / "s")
    path = tmp_path / "s" / "records" / "timing.json"
    path.write_text(path.read_text()[:100])
    _, ui = run(spec, tmp_path / "s")
    assert "time" in ui.measured()
    assert "replay" not in ui.measured()
    read_record(path, TimingRecord)


def test_a_spoilt_study_file_is_one_sentence(spec: StudySpec, tmp_path: Path) -> None:
    run(spec, tmp_path / "s")
    (tmp_path / "s" / "study.toml").write_text("target = ")
    with pytest.raises(SpecError, match="is not valid TOML"):
        run(spec, tmp_path / "s")


def test_drafts_that_are_drawn_go_through_the_whole_job(spec: StudySpec, tiny_model_dir: Path, tmp_path: Path) -> None:
    drawn = replace(spec, drafters=[f"external:{tiny_model_dir},draft=sample"], temperature=0.8, seed=3)
    decision, _ = run(drawn, tmp_path / "s")
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert acceptance.results[0].basis == "expected_steps"
    assert decision.points[0].candidates


def test_the_command_prints_a_verdict_and_writes_the_decision(
    spec: StudySpec, tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["tune", str(tiny_model_dir), "-d", "ngram,n_min=1", "-p", spec.prompts[0], "-D", "1..2", "--rounds", "1"]
    argv += ["--max-new-tokens", "8", "--confirm-prompts", "1", "-o", str(tmp_path / "s"), "--json", "-"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == "codraft.decision/1"
    for words in ("Verdict at B = 1:", "break-even AL", "guideline 5", "Confirmed by generating", "identical token"):
        assert words in err


def test_streams_of_logs_are_tuned_with_their_own_sampling(spec: StudySpec, tmp_path: Path) -> None:
    run(replace(spec, temperature=0.7, seed=2), tmp_path / "first")
    written = next((tmp_path / "first").glob("streams-*.jsonl"))
    logs = replace(spec, prompts=[], streams=str(written), max_new_tokens=None)
    run(logs, tmp_path / "s")
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert (acceptance.sampling["temperature"], acceptance.sampling["seed"]) == (0.7, 2)
