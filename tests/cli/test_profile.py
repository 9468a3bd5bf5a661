"""`profile`: step times of a tiny model, and what is written where."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import codraft.measure.profile
from codraft.cli.main import main
from codraft.core.record import read_record
from codraft.core.schema import AttentionPoint, GemmPoint, HardwareRecord, TimingRecord

from tests import build

GEMM = GemmPoint(layer="down", n=10, k=20, M=1, t_s=1e-6, p10=1e-6, p90=2e-6, num_samples=3, flops_per_s=4e8)
ATTENTION = AttentionPoint(
    B=1, S=256, D=0, rows=2, t_s=1e-5, p10=1e-5, p90=2e-5, num_samples=3, flops_per_s=1e9, bytes_per_s=1e8
)


def test_every_load_and_D_is_timed_and_D_0_besides(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "abcabc"}) + "\n", encoding="utf-8")
    words = ["profile", str(tiny_model_dir), "-d", "ngram", "-p", str(tmp_path / "p.jsonl"), "--rounds", "1"]
    assert main([*words, "--batch", "1,2", "--context", "8,16", "-D", "2", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    (tmp_path / "r.json").write_text(out, encoding="utf-8")
    record = read_record(tmp_path / "r.json", TimingRecord)
    loads = [(B, S, D) for S in (8, 16) for B in (1, 2) for D in (0, 2)]
    assert [(p.B, p.S, p.D) for p in record.points] == loads
    assert [p.x for p in record.points] == [B * (1 + D) for B, _, D in loads]
    assert [p.t_draft_s.keys() for p in record.points] == [({"ngram"} if D else set()) for *_, D in loads]
    assert {p.num_samples for p in record.points} == {1}
    assert (record.ragged, record.gemm, record.attention) == ("padded", None, None)
    assert "B = 2, S = 16 (1 samples each, 1 of ngram's drafting)" in err
    assert "T_draft ngram" in err


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The jobs that `profile` hands over, each answered with a record of made-up figures."""
    jobs: list[Any] = []

    def answer(job: Any, _ui: object) -> TimingRecord:
        jobs.append(job)
        place = {"cpu": "none", "cores": 2, "device": "cpu"}
        return TimingRecord(
            schema=TimingRecord.SCHEMA,
            provenance=replace(build.provenance(), machine=place, dtype="float32"),
            target="x[/b]",
            ragged="padded",
            points=[build.timing(0, 0.01), build.timing(1, 0.015, sys=0.001)],
            gemm=[GEMM, replace(GEMM, M=64, flops_per_s=8e9)] if job.kernels else None,
            attention=[ATTENTION, replace(ATTENTION, D=1, rows=4, t_s=3e-5)] if job.kernels else None,
        )

    monkeypatch.setattr(codraft.measure.profile, "run_profile", answer)
    return jobs


def test_what_is_asked_is_what_is_timed(asked: list[Any]) -> None:
    assert main(["profile", "x"]) == 0
    assert main(["profile", "y", "-d", "ngram", "--batch", "1,4", "--context", "64", "-D", "1,3", "--rounds", "2"]) == 0
    assert main(["profile", "y", "--kernels", "-p", "a:3", "--seed", "5", "--dtype", "float64"]) == 0
    plain, full, other = asked
    assert (plain.target, plain.drafters, plain.batches, plain.contexts) == ("x", [], [1], [256])
    assert (plain.depths, plain.rounds, plain.prompts, plain.kernels) == (list(range(9)), 7, ["demo"], False)
    assert [spec.name for spec in full.drafters] == ["ngram"]
    assert (full.batches, full.contexts, full.depths, full.rounds) == ([1, 4], [64], [1, 3], 2)
    assert (other.kernels, other.prompts, other.sampling.seed, other.dtype) == (True, ["a:3"], 5, "float64")


def test_the_hardware_record_holds_the_best_that_the_kernels_reached_and_implies_them(
    asked: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "new" / "hw.json"
    assert main(["profile", "x", "--hardware-out", str(file)]) == 0
    assert asked[0].kernels
    record = read_record(file, HardwareRecord)
    # One row of a GEMM streams its 10 x 20 weights of 4 bytes in 1 us.
    assert [record.bytes_per_s, record.flops_per_s] == pytest.approx([8e8, 8e9])
    assert record.name == "none, 2 cores, cpu"
    assert (len(record.gemm), len(record.attention)) == (2, 2)


def test_tables_tell_spread_growth_and_share_of_the_best(asked: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "x", "--kernels", "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["schema"] == TimingRecord.SCHEMA
    lines = [line.split() for line in err.splitlines()]
    assert "x[/b] on none, 2 cores, cpu, float32" in err
    assert ["1", "2", "15.0", "ms", "15.0", "ms..15.0", "ms", "1.50", "1.0", "ms", "-"] in lines
    assert ["64", "1", "us", "1", "us..2", "us", "8.0", "100%"] in lines
    assert ["1", "1", "us", "1", "us..2", "us", "0.4", "5%"] in lines
    assert ["1", "4", "30", "us", "10", "us..20", "us", "3.00", "0.10"] in lines
