"""`advise` and `frontier`: a decision from figures at hand, without a model and without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from codraft.cli.main import main
from codraft.cli.tables import guideline_lines
from codraft.core.files import sha256_file
from codraft.core.provenance import Record
from codraft.core.record import read_record, write_record
from codraft.core.schema import DecisionRecord, FrontierRecord, Guideline, TimingRecord

from tests import build
from tests.cli import figures


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in, with figures for them."""
    monkeypatch.chdir(tmp_path)
    figures.bring(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("verb", "kind"), [("advise", DecisionRecord), ("frontier", FrontierRecord)])
def test_json_to_stdout_is_one_record_and_nothing_else(
    verb: str, kind: type[Record], desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *figures.FLAGS, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (desk / "r.json").write_text(out, encoding="utf-8")
    record = read_record(desk / "r.json", kind)
    assert record.provenance.command[0] == "codraft"
    assert json.loads(out)["schema"] == kind.SCHEMA
    assert kind.SCHEMA not in err
    assert "ngram" in err


# Runs a verb in a fresh process and names the modules that only models need.
PROBE = """
import sys
from codraft.cli.main import main
from codraft.cli.tables import guideline_lines
code = main(sys.argv[1:])
print("HEAVY", [name for name in ("torch", "transformers", "tokenizers") if name in sys.modules])
raise SystemExit(code)
"""


@pytest.mark.parametrize("verb", ["advise", "frontier"])
def test_figures_are_weighed_without_torch(verb: str, desk: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, verb, *figures.FLAGS, "--json", "r.json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "HEAVY []\n")
    assert (desk / "r.json").exists()


def advised(desk: Path, *argv: str) -> DecisionRecord:
    """The decision that `advise` leaves."""
    assert main(["advise", *figures.FLAGS, *argv, "--json", "r.json"]) == 0
    return read_record(desk / "r.json", DecisionRecord)


def test_the_decision_is_the_known_one_with_off_in_the_schedule(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = advised(desk)
    on, off = record.points
    assert on.best is not None
    assert (on.best.drafter, on.best.D, off.best) == ("ngram", 2, None)
    assert on.best.speedup == pytest.approx(1.25)
    assert on.best.speedup_ci95 == pytest.approx((1.2 / 1.12, 1.6 / 1.12))
    assert [(entry.max_batch, entry.drafter, entry.D) for entry in record.schedule] == [(1, "ngram", 2), (4, None, 0)]
    err = capsys.readouterr().err
    assert "B = 1, S = 256: plain decoding takes 1000.0 ms a step, 1.0 tokens/s  (steps.csv)" in err
    assert "Verdict at B = 1, S = 256: ngram with D = 2, predicted 1.25 times plain decoding (AL 1.40" in err
    assert "Verdict at B = 4, S = 256: off: no candidate gains 2% or more over plain decoding (closest: ngram at" in err
    assert "[/b] deep makes decoding slower at every D here: at best 0.83 times (D = 2), although its AL" in err
    assert "Schedule by load: up to B = 1: ngram with D = 2; up to B = 4: off" in err
    assert (
        "guideline 4 (raise D while it pays) applies -> 2 (best 2, loss 0%): raising D of ngram one by one pays up to "
        "D = 2" in err
    )
    assert (
        "guideline 1 (fill the linear layers) does not apply -> 2 (best 2, loss 0%): T_verif at D = 2 is 1.13 times "
        "that at D = 0" in err
    )


def test_guidelines_are_a_line_each_and_the_shares_of_a_pass_stand_once_below_them(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    advised(desk, "--batch", "1")
    lines = [line.strip() for line in capsys.readouterr().err.splitlines()]
    first = next(i for i, line in enumerate(lines) if line.startswith("guideline 1"))
    assert [line.split()[1] for line in lines[first : first + 5]] == ["1", "2", "3", "4", "5"]
    assert lines[first + 5] == "FFN and attention shares are unknown: neither measured nor those of a dense transformer"
    assert sum("shares are unknown" in line for line in lines) == 1


def test_guidelines_whose_reasons_end_differently_keep_their_whole_reasons() -> None:
    rules = [Guideline(id=i, premise="", applies=False, reason=f"why {i}; shares {i}") for i in (1, 2)]
    names = {1: "fill the linear layers", 2: "fill one attention tile"}
    lines = [f"guideline {i} ({name}) does not apply: why {i}; shares {i}" for i, name in names.items()]
    assert guideline_lines(rules) == lines
    assert guideline_lines([]) == []


def test_a_record_of_advice_names_its_figures_and_measures_nothing_itself(desk: Path) -> None:
    record = advised(desk)
    assert record.basis == {"engine": "your own figures", "machine": "steps.csv"}
    assert record.provenance.engine == {"name": "your own figures"}
    hashes = {"acceptance": "al.csv", "timing": "steps.csv"}
    assert record.provenance.input_hashes == {key: sha256_file(desk / file)[:16] for key, file in hashes.items()}
    assert (record.target, record.confirmation, record.mechanisms) == ("unnamed", None, [])


def test_only_the_asked_loads_are_decided(desk: Path) -> None:
    assert [point.B for point in advised(desk, "--batch", "4").points] == [4]
    assert [point.B for point in advised(desk, "--batch", "1,4", "--context", "256").points] == [1, 4]


def test_the_targets_heads_and_the_tile_give_guidelines_2_and_3(desk: Path) -> None:
    config = {
        "num_attention_heads": 96,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "hidden_size": 96,
        "intermediate_size": 8,
        "vocab_size": 8,
    }
    (desk / "m").mkdir()
    (desk / "m" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    two, three = advised(desk, "--target", "m", "--tile", "128").points[0].guidelines[1:3]
    assert (two.value, two.optimum) == (1, 2)
    assert two.loss == pytest.approx(1 - (1.25 / 1.08) / 1.25)
    assert (three.value, three.loss) == (4, None)
    without = advised(desk, "--target", "m").points[0].guidelines[1]
    assert (without.value, "tile is unknown" in without.reason) == (None, True)
    assert advised(desk, "--target", "m").target == "m"


def test_records_will_do_as_well_as_tables(desk: Path) -> None:
    curve = [build.point(1, [(1, 1), (1, 0)], [(1, 1)])]
    write_record(build.acceptance_record(build.result("ngram", *curve)), desk / "al.json")
    points = [build.timing(0, 1.0), build.timing(1, 1.25, ngram=0.0)]
    record = TimingRecord(
        schema=TimingRecord.SCHEMA, provenance=build.provenance(), target="demo", ragged="padded", points=points
    )
    write_record(record, desk / "steps.json")
    words = ["advise", "--acceptance", "al.json", "--timing", "steps.json", "--json", "r.json"]
    assert main(words) == 0
    made = read_record(desk / "r.json", DecisionRecord)
    assert made.basis == {"engine": "torch", "machine": "none, 2 cores, unknown"}
    (candidate,) = made.points[0].candidates
    assert [candidate.AL, candidate.speedup] == pytest.approx([5 / 3, 4 / 3])


def test_times_that_name_no_drafter_are_said_to_hold_the_drafting(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (desk / "steps.csv").write_text("B,S,D,t_step_s\n1,256,0,1\n1,256,2,1.1\n", encoding="utf-8")
    assert "drafting" in advised(desk).basis
    assert "  drafting: the step times name no drafter" in capsys.readouterr().err


def test_the_frontier_marks_the_ways_that_nobody_beats_and_shows_no_others(
    desk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["frontier", *figures.FLAGS, "--json", "r.json"]) == 0
    record = read_record(desk / "r.json", FrontierRecord)
    assert len(record.points) == 8
    marked = [(p.B, p.drafter, p.D) for p in record.points if p.frontier]
    assert marked == [(1, "ngram", 2), (4, None, 0)]
    assert [p.B for p in record.points if p.plain_frontier] == [1, 4]
    err = capsys.readouterr().err
    assert err.splitlines()[0].startswith("S = 256")
    assert [line.split() for line in err.splitlines()[2:]] == [
        ["1", "ngram", "2", "1.40", "1.25", "1.25", "yes"],
        ["1", "off", "0", "1.00", "1", "1", "of", "plain", "decoding", "only"],
        ["4", "off", "0", "1.00", "0.5", "2", "yes"],
    ]


def test_the_frontier_may_be_that_of_one_load(desk: Path) -> None:
    assert main(["frontier", *figures.FLAGS, "--batch", "4", "--json", "r.json"]) == 0
    assert {p.B for p in read_record(desk / "r.json", FrontierRecord).points} == {4}


def test_the_frontier_names_the_decision_that_it_comes_from(desk: Path) -> None:
    for file, extra in (("a.json", []), ("b.json", []), ("c.json", ["--batch", "4"])):
        assert main(["frontier", *figures.FLAGS, *extra, "--json", file]) == 0
    one, same, other = (
        read_record(desk / file, FrontierRecord).provenance.input_hashes for file in ("a.json", "b.json", "c.json")
    )
    assert one.keys() == {"decision"}
    assert one == same != other
