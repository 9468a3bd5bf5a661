"""Every example runs, as its page says."""

from pathlib import Path

import pytest

from codraft.cli.main import main

FIGURES = Path(__file__).parents[1] / "examples" / "own-figures"
FILES = ["--acceptance", str(FIGURES / "al.csv"), "--timing", str(FIGURES / "steps.csv")]


def test_own_figures_decide_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["advise", *FILES]) == 0
    said = capsys.readouterr().err
    assert "Verdict at B = 1, S = 193: ngram with D = 8" in said
    assert "Verdict at B = 4, S = 193: ngram with D = 4" in said


def test_own_figures_have_a_frontier(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["frontier", *FILES]) == 0
    assert "ngram" in capsys.readouterr().err


def test_the_inspected_pair_has_the_troubles_that_the_page_names(capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(__file__).parents[1] / "examples" / "inspect"
    assert main(["inspect", str(folder / "target"), str(folder / "head")]) == 1
    said = capsys.readouterr().err
    assert "1 error, 3 warnings, 2 notes." in said
    for code in ("tie.reduced", "taps.convention", "positions.drafter", "rope.theta"):
        assert f" {code}: " in said
