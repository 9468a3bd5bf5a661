"""`tune`: what its flags ask for, a study from brought figures, and a plan that does nothing."""

from pathlib import Path
from typing import Any

import pytest

import codraft.study.run
from codraft.cli.main import main
from codraft.core.record import read_record
from codraft.core.schema import DecisionRecord, FrontierRecord
from codraft.study.spec import StudySpec

from tests.cli import figures


class AskedError(Exception):
    """Ends a command at the point where its study would run."""

    def __init__(self, spec: StudySpec, folder: Path) -> None:
        super().__init__()
        self.spec, self.folder = spec, folder


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with figures for them."""
    monkeypatch.chdir(tmp_path)
    figures.bring(tmp_path)
    return tmp_path


def asked(monkeypatch: pytest.MonkeyPatch, *argv: str) -> AskedError:
    """The study that a command line asks for."""

    def stop(spec: StudySpec, folder: Path, _ui: object) -> Any:
        raise AskedError(spec, folder)

    monkeypatch.setattr(codraft.study.run, "Study", stop)
    with pytest.raises(AskedError) as caught:
        main(["tune", *argv])
    return caught.value


def test_by_default_the_two_drafters_that_need_no_model_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = asked(monkeypatch, "a/b")
    assert made.spec == StudySpec(target="a/b", drafters=["ngram", "suffix"], prompts=["demo:12"])
    assert (made.spec.batch, made.spec.context, made.spec.depth) == ([1], None, list(range(9)))
    assert (made.spec.kernels, made.spec.acceptance, made.spec.timing) == (True, None, None)
    assert made.folder == Path("study-a-b")


def test_the_demo_has_the_trained_drafters_and_a_second_load_besides(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By paths that are short where one stands in the repository; without them the target's own layers stand in."""
    for mechanism in ("eagle3", "external"):
        folder = tmp_path / "models" / f"smollm2-135m-{mechanism}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    monkeypatch.setattr("codraft.formats.shipped.MODELS", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    made = asked(monkeypatch, "demo").spec
    trained = ["external:models/smollm2-135m-external", "eagle3:models/smollm2-135m-eagle3"]
    assert (made.drafters, made.batch) == (["ngram", "suffix", *trained], [1, 4])
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert asked(monkeypatch, "demo").spec.drafters[-1] == f"eagle3:{tmp_path}/models/smollm2-135m-eagle3"
    monkeypatch.setattr("codraft.formats.shipped.MODELS", tmp_path / "none")
    made = asked(monkeypatch, "demo").spec
    assert made.drafters == ["ngram", "suffix", "external:demo,layers=8"]
    made = asked(monkeypatch, "demo", "-d", "ngram", "--batch", "2").spec
    assert (made.drafters, made.batch) == (["ngram"], [2])


def test_every_flag_reaches_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "x -d suffix -d ngram --streams s.jsonl -D 1,3 --batch 16,1,4 --context 512,256 --max-new-tokens 9"
    more = "--temperature 0.5 --top-p 0.9 --top-k 7 --seed 3 --dtype float64 --rounds 2 --confirm-prompts 4"
    rest = "--no-kernels --skip-long --timing t.json -o out/s"
    made = asked(monkeypatch, *words.split(), *more.split(), *rest.split())
    assert made.folder == Path("out/s")
    assert made.spec == StudySpec(
        target="x",
        drafters=["suffix", "ngram"],
        prompts=[],
        streams="s.jsonl",
        max_new_tokens=9,
        depth=[1, 3],
        batch=[1, 4, 16],
        context=[256, 512],
        temperature=0.5,
        top_p=0.9,
        top_k=7,
        seed=3,
        dtype="float64",
        rounds=2,
        confirm_prompts=4,
        kernels=False,
        skip_long=True,
        timing="t.json",
    )
    brought = asked(monkeypatch, "x", "-d", "ngram", "--streams", "s.jsonl", "-D", "1", "--acceptance", "a.csv")
    assert (brought.spec.acceptance, brought.spec.batch) == ("a.csv", [1])


def test_with_both_halves_brought_a_workload_is_refused() -> None:
    assert main(["tune", "x", "--acceptance", "a.csv", "--timing", "t.csv", "--streams", "s.jsonl"]) == 2


def test_a_study_from_brought_figures_decides_as_advise_does(
    desk: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(tiny_model_dir), *figures.FLAGS, "-o", "study[/b]", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (desk / "r.json").write_text(out, encoding="utf-8")
    record = read_record(desk / "r.json", DecisionRecord)
    assert main(["advise", *figures.FLAGS, "--target", str(tiny_model_dir), "--json", "a.json"]) == 0
    advised = read_record(desk / "a.json", DecisionRecord)
    assert (record.points, record.schedule, record.basis) == (advised.points, advised.schedule, advised.basis)
    assert (record.confirmation, len(record.mechanisms)) == (None, 7)
    assert main(["frontier", *figures.FLAGS, "--json", "f.json"]) == 0
    study = desk / "study[" / "b]"
    frontier = read_record(study / "records" / "frontier.json", FrontierRecord)
    assert frontier.points == read_record(desk / "f.json", FrontierRecord).points
    assert sorted(path.name for path in study.iterdir()) == [
        "brought",
        "launch",
        "records",
        "report.html",
        "study.toml",
    ]
    assert err.startswith(f"codraft tune {tiny_model_dir} -> study[/b]\n")
    assert "Report: study[/b]/report.html   launch files: study[/b]/launch   records: study[/b]/records" in err


def test_times_that_name_no_drafter_are_said_to_hold_the_drafting(
    desk: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "al.csv").write_text("drafter,D,AL\nngram,2,1.4\n", encoding="utf-8")
    (desk / "whole.csv").write_text("B,S,D,t_step_s\n1,256,0,1\n1,256,2,1.1\n", encoding="utf-8")
    words = ["tune", str(tiny_model_dir), "--acceptance", "al.csv", "--timing", "whole.csv", "-o", "study"]
    assert main([*words, "--json", "r.json"]) == 0
    assert "  drafting: the step times name no drafter" in capsys.readouterr().err
    assert "drafting" in read_record(desk / "r.json", DecisionRecord).basis


def test_a_plan_names_every_part_and_leaves_nothing(
    desk: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "p.jsonl").write_text('{"prompt": "abc"}\n', encoding="utf-8")
    before = sorted(desk.rglob("*"))
    words = ["tune", str(tiny_model_dir), "-d", "ngram", "-p", "p.jsonl", "-D", "2", "--batch", "1,4", "-o", "s[/b]"]
    assert main([*words, "--plan"]) == 0
    out, err = capsys.readouterr()
    assert (out, sorted(desk.rglob("*"))) == ("", before)
    lines = err.splitlines()
    assert lines[0].startswith("plan of s[/b]")
    parts = [line.split()[0] for line in lines[2:-1]]
    assert parts == ["streams", "acceptance", "timing", "timing", "kernels", "decision"]
    assert all("to do" in line for line in lines[2:-1])
    assert "replay of ngram, D up to 2" in err
    assert "B = 4, S = the typical context" in err
    assert lines[-1].startswith("About ")
    assert lines[-1].endswith("nothing in the study was run or written.")
    assert main([*words, "--plan", "--no-kernels", "--context", "16"]) == 0
    err = capsys.readouterr().err
    assert "kernels" not in err
    assert "B = 4, S = 16," in err


def test_a_plan_for_brought_figures_measures_nothing(
    desk: Path, tiny_model_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", str(tiny_model_dir), *figures.FLAGS, "--plan"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().err.splitlines()[2:-1]] == ["decision"]
