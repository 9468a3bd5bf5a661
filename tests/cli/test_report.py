"""`report`: a study's page, written anew from its records."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from codraft.cli.main import main
from codraft.core.record import read_record
from codraft.core.schema import DecisionRecord

from tests.cli import figures


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path) -> Path:
    """A study from brought figures, so that nothing was measured."""
    monkeypatch.chdir(tmp_path)
    figures.bring(tmp_path)
    assert main(["tune", str(tiny_model_dir), *figures.FLAGS, "-o", "study"]) == 0
    return Path("study")


def test_the_page_is_written_anew_in_the_study(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (study / "report.html").read_text(encoding="utf-8")
    (study / "report.html").unlink()
    capsys.readouterr()
    assert main(["report", "study"]) == 0
    assert (study / "report.html").read_text(encoding="utf-8") == before
    assert capsys.readouterr() == ("", "Report: study/report.html\n")


def test_the_page_may_go_elsewhere_and_the_decision_to_stdout(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (study / "report.html").unlink()
    capsys.readouterr()
    assert main(["report", "study", "-o", "new/page[/b].html", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (tmp_path / "r.json").write_text(out, encoding="utf-8")
    decision = study / "records" / "decision.json"
    assert read_record(tmp_path / "r.json", DecisionRecord) == read_record(decision, DecisionRecord)
    assert err == "Report: new/page[/b].html\n"
    assert Path("new/page[/b].html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html")
    assert not (study / "report.html").exists()


def test_records_that_were_edited_by_hand_are_what_the_page_shows(study: Path) -> None:
    path = study / "records" / "decision.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    data["points"][0]["verdict"] = "a sentence of my own"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert main(["report", "study"]) == 0
    assert "a sentence of my own" in (study / "report.html").read_text(encoding="utf-8")


PROBE = """
import sys
from codraft.cli.main import main
code = main(sys.argv[1:])
print("HEAVY", [name for name in ("torch", "transformers", "tokenizers") if name in sys.modules])
raise SystemExit(code)
"""


def test_a_page_needs_no_torch(study: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, "report", "study"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "HEAVY []\n")
