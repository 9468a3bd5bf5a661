"""Every mechanism in one acceptance job: the files that users have, replay against live, what loading takes."""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.core.spec import parse_drafters
from codraft.replay import job as job_module
from codraft.replay.job import AcceptJob, Mode, Workbench, measure
from codraft.replay.streams import save_streams

from tests.mechanisms import Mechanisms
from tests.study.desk import ListUi

TOKENS, DEPTHS = 12, [1, 3]


@pytest.fixture
def job(mechanisms: Mechanisms, tmp_path: Path) -> AcceptJob:
    prompts = tmp_path / "prompts.jsonl"
    rows = [{"prompt": "abc abc"}, {"turns": ["xyz", "more"]}, {"prompt": "a"}]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return AcceptJob(
        target=str(mechanisms.target),
        drafters=parse_drafters(mechanisms.drafters),
        depths=DEPTHS,
        prompts=[str(prompts)],
        max_new_tokens=TOKENS,
        dtype="float64",
    )


def test_every_mechanism_takes_the_same_steps_by_replay_and_live(job: AcceptJob, mechanisms: Mechanisms) -> None:
    modes: tuple[Mode, ...] = ("replay", "live")
    replayed, decoded = (measure(Workbench(replace(job, mode=mode), ListUi())) for mode in modes)
    assert [result.drafter.name for result in replayed.results] == mechanisms.names
    for one, other in zip(replayed.results, decoded.results, strict=True):
        assert one.drafter == other.drafter
        assert one.curve == other.curve, one.drafter.name
        assert [point.D for point in one.curve] == DEPTHS
        assert sum(point.accepted for point in one.curve) > 0, f"{one.drafter.name} never drafts a right token"
        assert one.curve[1].accepted < one.curve[1].drafted, f"{one.drafter.name} never drafts a wrong token"
    by_name = {result.drafter.name: result.curve for result in replayed.results}
    assert by_name["mtp"] == by_name["mtp-apart"]


class Clock:
    """Stands still unless something is said to take time."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.patch = patch
        patch.setattr(time, "perf_counter", lambda: self.now)

    def slow(self, name: str, seconds: float) -> None:
        """Calls of this name in replay/job.py take so long."""
        call: Callable[..., Any] = getattr(job_module, name)

        def slowly(*args: Any, **kwargs: Any) -> Any:
            self.now += seconds
            return call(*args, **kwargs)

        self.patch.setattr(job_module, name, slowly)


@pytest.mark.parametrize("source", ["prompts", "streams"])
def test_loading_counts_the_target_and_every_drafter_once(
    source: str, job: AcceptJob, mechanisms: Mechanisms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for the target first: the streams that it writes, or a head that borrows its ends."""
    if source == "streams":
        save_streams(tmp_path / "s.jsonl", Workbench(job, ListUi()).streams, job.target)
        job = replace(job, prompts=[], streams=tmp_path / "s.jsonl", max_new_tokens=None)
    clock = Clock(monkeypatch)
    clock.slow("load_card", 1.0)
    clock.slow("load_model", 100.0)
    clock.slow("build", 10.0)
    clock.slow("write_streams", 1000.0)
    bench = Workbench(job, ListUi())
    record = measure(bench)
    assert bench.timings_s["load"] == 101.0 + 10.0 * len(mechanisms.drafters)
    assert record.timings_s["load"] == bench.timings_s["load"]


BROKEN: dict[str, dict[str, Any]] = {
    "eagle3": {"rms_norm_eps": "x"},
    "dflash": {"block_size": 10**9},
    "dspark": {"markov_head_type": "magic"},
}


@pytest.mark.parametrize("mechanism", BROKEN)
def test_a_broken_head_is_refused_before_anything_is_loaded_or_written(
    mechanism: str, job: AcceptJob, mechanisms: Mechanisms, tmp_path: Path
) -> None:
    """Also where it is not the first."""
    [whole] = [spec for spec in job.drafters if spec.name == mechanism]
    [path] = whole.model_paths()
    folder = tmp_path / "broken"
    shutil.copytree(path, folder)
    config = json.loads((folder / "config.json").read_text()) | BROKEN[mechanism]
    (folder / "config.json").write_text(json.dumps(config))
    broken = parse_drafters(["ngram", f"{mechanism}:{folder}"])
    ui = ListUi()
    with pytest.raises(SpecError, match=next(iter(BROKEN[mechanism]))):
        measure(Workbench(replace(job, drafters=broken), ui))
    assert ui.titles == []


def test_drawn_drafts_of_greedy_streams_are_refused_before_any_drafter_is_loaded(
    job: AcceptJob, tmp_path: Path
) -> None:
    save_streams(tmp_path / "s.jsonl", Workbench(job, ListUi()).streams, job.target)
    [path] = next(spec for spec in job.drafters if spec.name == "eagle3").model_paths()
    drafters = parse_drafters([f"eagle3:{path}", f"eagle3:{path},draft=sample,name=drawn"])
    job = replace(job, prompts=[], streams=tmp_path / "s.jsonl", max_new_tokens=None, drafters=drafters)
    ui = ListUi()
    with pytest.raises(SpecError, match="drafter 'drawn': draft=sample needs --temperature above 0"):
        measure(Workbench(job, ui))
    assert ui.titles == []
