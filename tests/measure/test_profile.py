"""The profiling job on a tiny model, and the machine's best rates from its kernels."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.core.record import read_record, write_record
from codraft.core.schema import AttentionPoint, GemmPoint, HardwareRecord, TimingRecord
from codraft.core.spec import Sampling, parse_drafters
from codraft.measure.profile import ProfileJob, hardware_of, run_profile
from codraft.replay.streams import Progress

from tests.build import provenance


class SilentUi:
    """Keeps the titles."""

    def __init__(self) -> None:
        self.titles: list[str] = []

    @contextmanager
    def stage(self, title: str) -> Iterator[Progress]:
        self.titles.append(title)
        yield lambda done, total: None


@pytest.fixture
def job(tiny_model_dir: Path, tmp_path: Path) -> ProfileJob:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "abc abc"}\n{"turns": ["xyz", "more"]}\n')
    return ProfileJob(
        target=str(tiny_model_dir),
        drafters=parse_drafters(["ngram", "suffix", f"external:{tiny_model_dir},layers=1"]),
        prompts=[str(prompts)],
        batches=[1, 2],
        contexts=[20, 40],
        depths=[2],
        rounds=1,
        sampling=Sampling(seed=7),
        dtype="float64",
    )


def gemm(M: int, n: int, k: int, t_s: float) -> GemmPoint:
    return GemmPoint(
        layer="x", n=n, k=k, M=M, t_s=t_s, p10=t_s, p90=t_s, num_samples=3, flops_per_s=2 * M * n * k / t_s
    )


def attention(bytes_per_s: float) -> AttentionPoint:
    return AttentionPoint(
        B=1, S=8, D=0, rows=2, t_s=1.0, p10=1.0, p90=1.0, num_samples=3, flops_per_s=9e9, bytes_per_s=bytes_per_s
    )


def test_a_profile_times_every_load_with_plain_decoding_first(job: ProfileJob, tmp_path: Path) -> None:
    ui = SilentUi()
    record = run_profile(job, ui)
    assert [(p.S, p.B, p.D) for p in record.points] == [(S, B, D) for S in (20, 40) for B in (1, 2) for D in (0, 2)]
    for point in record.points:
        assert set(point.t_draft_s) == ({"ngram", "suffix", "external"} if point.D else set())
        assert point.shares is not None
    assert (record.ragged, record.gemm, record.attention) == ("padded", None, None)
    assert (record.provenance.dtype, record.provenance.seeds) == ("float64", [7])
    assert set(record.provenance.input_hashes) == {"prompts"}
    write_record(record, tmp_path / "profile.json")
    assert read_record(tmp_path / "profile.json", TimingRecord) == record
    assert "time steps at B = 2, S = 40" in ui.titles


def test_a_profile_takes_kernels_at_its_own_contexts_too(job: ProfileJob, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def kernels(model: Any, contexts: Any, progress: Any) -> tuple[list[GemmPoint], list[AttentionPoint]]:
        asked.append(contexts)
        return [gemm(1, 4, 4, 1.0)], [attention(1.0)]

    monkeypatch.setattr("codraft.measure.profile.time_kernels", kernels)
    record = run_profile(replace(job, kernels=True, contexts=[40], batches=[1], drafters=[]), SilentUi())
    assert asked == [[40, 256, 1024, 4096]]
    assert record.gemm == [gemm(1, 4, 4, 1.0)]
    assert record.attention == [attention(1.0)]


def test_the_prompts_are_part_of_where_a_profile_comes_from(job: ProfileJob, tmp_path: Path) -> None:
    small = replace(job, contexts=[20], batches=[1], drafters=[])
    first = run_profile(small, SilentUi())
    (tmp_path / "other.jsonl").write_text('{"prompt": "abd"}\n')
    second = run_profile(replace(small, prompts=[str(tmp_path / "other.jsonl")]), SilentUi())
    assert first.provenance.input_hashes != second.provenance.input_hashes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rounds": 0}, "--rounds must be at least 1; got 0"),
        ({"batches": []}, "at least one --batch"),
        ({"contexts": []}, "at least one --batch and one --context"),
    ],
)
def test_a_profile_of_nothing_is_refused(change: dict[str, Any], words: str, job: ProfileJob) -> None:
    with pytest.raises(SpecError, match=words):
        replace(job, **change)


@pytest.mark.parametrize(("dtype", "size"), [("float64", 8), ("float32", 4), ("bfloat16", 2), ("float16", 2)])
def test_hardware_is_the_best_rate_that_any_kernel_reached(dtype: str, size: int) -> None:
    """Weights stream in a GEMM of one row; more rows only count for arithmetic."""
    record = timing(dtype, [gemm(1, 100, 50, 0.5), gemm(1, 10, 10, 0.5), gemm(8, 900, 900, 0.5)], [attention(30.0)])
    found = hardware_of(record)
    assert (found.bytes_per_s, found.flops_per_s) == (100 * 50 * size / 0.5, 2 * 8 * 900 * 900 / 0.5)
    assert found.name == "chip, 2 cores, cpu"
    assert (found.gemm, found.attention) == (record.gemm, record.attention)
    assert found.schema == HardwareRecord.SCHEMA
    assert hardware_of(timing(dtype, [gemm(1, 1, 1, 1.0)], [attention(30.0), attention(70.0)])).bytes_per_s == 70


def test_hardware_of_a_model_without_attention_is_that_of_its_gemms() -> None:
    assert hardware_of(timing("float32", [gemm(1, 3, 5, 1.0)], [])).bytes_per_s == 60


def timing(dtype: str, gemms: list[GemmPoint], attentions: list[AttentionPoint]) -> TimingRecord:
    place = {"cpu": "chip", "cores": 2, "device": "cpu"}
    return TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=replace(provenance(), machine=place, dtype=dtype),
        target="t",
        ragged="padded",
        points=[],
        gemm=gemms,
        attention=attentions,
    )
