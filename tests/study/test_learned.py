"""The main job with every mechanism: bytes, the page, what is used again, what a cost table of dspark's bears on."""

from dataclasses import replace
from pathlib import Path

import pytest

from codraft.core.record import read_record
from codraft.core.schema import AcceptanceRecord
from codraft.study.spec import StudySpec

from tests.mechanisms import Mechanisms, write_timing
from tests.study.desk import question, run


@pytest.fixture
def asked(mechanisms: Mechanisms, tmp_path: Path) -> StudySpec:
    return question(mechanisms.target, tmp_path, drafters=mechanisms.drafters, max_new_tokens=5)


@pytest.mark.usefixtures("real_page")
def test_a_study_of_every_mechanism_measures_once_and_names_them_all(
    asked: StudySpec, mechanisms: Mechanisms, tmp_path: Path, makes: list[str]
) -> None:
    decision, _ = run(asked, tmp_path / "s")
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert [result.drafter.name for result in acceptance.results] == mechanisms.names
    candidates = {candidate.drafter: candidate for candidate in decision.points[0].candidates}
    assert set(candidates) == set(mechanisms.names)
    for name, candidate in candidates.items():
        assert candidate.bytes is not None
        own = mechanisms.heads.get(name.removesuffix("-apart"))
        if own is None:
            continue
        # Weights in the file, bytes of its header and lists of names apart, and keys and values on top.
        stored = (own / "model.safetensors").stat().st_size
        header = 8 + int.from_bytes((own / "model.safetensors").read_bytes()[:8], "little")
        assert candidate.bytes > stored - header, name
    assert candidates["mtp"].bytes == candidates["mtp-apart"].bytes
    page = (tmp_path / "s" / "report.html").read_text(encoding="utf-8")
    assert all(f">{name}<" in page for name in mechanisms.names)

    makes.clear()
    again, ui = run(asked, tmp_path / "s")
    assert again == decision
    assert makes == []
    assert ui.measured() == set(), "no model was loaded"


def test_a_changed_cost_table_is_measured_anew_on_the_same_streams(
    asked: StudySpec, mechanisms: Mechanisms, tmp_path: Path, makes: list[str]
) -> None:
    table = write_timing(tmp_path / "table.json", 1.01)
    timed = f"dspark:{mechanisms.heads['dspark']},timing={table}"
    asked = replace(asked, drafters=[timed], kernels=False, batch=[2])
    run(asked, tmp_path / "s")
    [streams] = (tmp_path / "s").glob("streams-*.jsonl")
    drafted = drafted_tokens(tmp_path / "s")

    write_timing(table, 9.0)
    makes.clear()
    _, ui = run(asked, tmp_path / "s")
    assert "acceptance" in makes
    assert "write" not in ui.measured()
    assert list((tmp_path / "s").glob("streams-*.jsonl")) == [streams]
    assert drafted_tokens(tmp_path / "s") < drafted, "a dear second token is drafted less"


def drafted_tokens(folder: Path) -> float:
    """By the only drafter, at the largest D."""
    return read_record(folder / "records" / "acceptance.json", AcceptanceRecord).results[0].curve[-1].drafted
