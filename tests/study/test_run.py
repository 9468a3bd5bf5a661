"""The whole main job on a tiny model: what it leaves, what is used again, what an interruption costs."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.cli.main import main
from codraft.core.errors import SpecError
from codraft.core.provenance import Record
from codraft.core.record import read_record, write_record
from codraft.core.schema import AcceptanceRecord, DecisionRecord, FrontierRecord, TimingRecord
from codraft.study.run import Study
from codraft.study.spec import StudySpec, read_study

from tests.study.desk import ListUi, instant_kernels, run

LAUNCH = ["sglang", "trtllm", "vllm"]


def records(folder: Path) -> dict[str, bytes]:
    """What lies in a study's records."""
    return {path.stem: path.read_bytes() for path in sorted((folder / "records").glob("*.json"))}


def context_of(folder: Path) -> int:
    """The context at which the study's first load was timed."""
    return read_record(folder / "records" / "timing.json", TimingRecord).points[0].S


@pytest.mark.usefixtures("real_steps", "real_page")
def test_a_study_ends_with_a_decision_and_leaves_everything_in_its_folder(spec: StudySpec, tmp_path: Path) -> None:
    """Real step times, and the real page."""
    spec = replace(spec, batch=[1, 2])
    folder = tmp_path / "s"
    decision, _ = run(spec, folder)
    acceptance = read_record(folder / "records" / "acceptance.json", AcceptanceRecord)
    timing = read_record(folder / "records" / "timing.json", TimingRecord)
    frontier = read_record(folder / "records" / "frontier.json", FrontierRecord)
    S = context_of(folder)
    loads = {f"timing-b1-s{S}", f"timing-b2-s{S}"}
    assert set(records(folder)) == {"acceptance", *loads, "kernels", "timing", "decision", "frontier"}
    assert read_record(folder / "records" / "decision.json", DecisionRecord) == decision
    assert read_study(folder / "study.toml") == spec
    assert sorted(path.name for path in folder.iterdir() if not path.name.startswith("streams-")) == [
        "launch",
        "records",
        "report.html",
        "study.toml",
    ]
    assert "<html" in (folder / "report.html").read_text(encoding="utf-8")
    assert {path.name.partition(".")[0].partition("-")[0] for path in (folder / "launch").iterdir()} == set(LAUNCH)

    names = ["ngram", "suffix", "external"]
    assert [result.drafter.name for result in acceptance.results] == names
    assert [result.cold is not None for result in acceptance.results] == [False, True, False]
    assert [point.D for point in acceptance.results[0].curve] == [1, 3]
    assert {"a", "b"} <= set(acceptance.results[0].domains)
    assert [(p.B, p.D) for p in timing.points] == [(B, D) for B in (1, 2) for D in range(4)], "shorter drafts too"
    assert all(set(p.t_draft_s) == set(names) for p in timing.points if p.D)
    assert (timing.gemm, timing.attention) == instant_kernels(None)
    assert [(point.B, point.S) for point in decision.points] == [(1, S), (2, S)]
    for point in decision.points:
        assert {(c.drafter, c.D) for c in point.candidates} == {(name, D) for name in names for D in (1, 3)}
        assert [c.speedup for c in point.candidates] == sorted((c.speedup for c in point.candidates), reverse=True)
        assert [g.id for g in point.guidelines] == [1, 2, 3, 4, 5]
    assert decision.schedule[-1].max_batch == 2
    assert len(frontier.points) == 2 * (1 + 6)
    assert frontier.provenance.machine == decision.provenance.machine
    assert decision.confirmation is not None


def test_the_targets_own_copy_accepts_every_draft_and_is_confirmed(spec: StudySpec, tmp_path: Path) -> None:
    decision, ui = run(replace(spec, confirm_prompts=2), tmp_path / "s")
    curve = {c.D: c for c in decision.points[0].candidates if c.drafter == "external"}
    assert curve[3].AL > curve[1].AL > 1.8
    assert "confirm external at D = 3 against plain decoding" in ui.titles
    assert decision.confirmation is not None
    assert decision.confirmation.identical_outputs == decision.confirmation.num_outputs == 2
    expected = decision.confirmation.predicted / decision.confirmation.measured - 1
    assert decision.confirmation.signed_error == pytest.approx(expected)


def test_loads_without_a_single_sequence_are_not_confirmed(spec: StudySpec, tmp_path: Path) -> None:
    decision, ui = run(replace(spec, batch=[2, 4]), tmp_path / "s")
    assert decision.confirmation is None
    assert "confirm" not in ui.measured()
    assert [point.B for point in decision.points] == [2, 4]


def test_contexts_are_those_asked_for(spec: StudySpec, tmp_path: Path) -> None:
    decision, _ = run(replace(spec, batch=[1, 2], context=[50, 20]), tmp_path / "s")
    assert [(point.B, point.S) for point in decision.points] == [(1, 20), (1, 50), (2, 20), (2, 50)]
    assert {"timing-b1-s20", "timing-b1-s50", "timing-b2-s20", "timing-b2-s50"} <= set(records(tmp_path / "s"))


def test_an_unchanged_study_measures_nothing_again(
    spec: StudySpec, done: Path, finished: Path, makes: list[str]
) -> None:
    """Wherever its folder is moved to."""
    again, ui = run(spec, done)
    assert again == read_record(finished / "records" / "decision.json", DecisionRecord)
    assert makes == []
    assert ui.measured() == set(), "no model was loaded"
    assert records(done) == records(finished)


def test_page_and_launch_files_are_written_anew_by_every_run(spec: StudySpec, done: Path) -> None:
    files = [done / "report.html", *(done / "launch").iterdir()]
    before = {path: path.read_bytes() for path in files}
    for path in files:
        path.unlink()
    run(spec, done)
    assert {path: path.read_bytes() for path in files} == before


MEASURED = ["acceptance", "timing-b1-s{S}", "timing", "decision", "frontier"]


@pytest.mark.parametrize(
    ("change", "made_again"),
    [
        ({"confirm_prompts": 2}, ["decision", "frontier"]),
        ({"rounds": 3}, MEASURED[1:]),
        ({"batch": [1, 2]}, ["timing-b2-s{S}", "timing", "decision", "frontier"]),
        ({"context": [33]}, ["timing-b1-s33", "timing", "decision", "frontier"]),
        ({"kernels": False}, ["timing", "decision", "frontier"]),
        ({"dtype": "float32"}, [*MEASURED[:2], "kernels", *MEASURED[2:]]),
        ({"depth": [1, 2]}, MEASURED),
        ({"seed": 5, "temperature": 0.5}, MEASURED),
        ({"drafters": ["ngram,n_max=2"]}, MEASURED),
    ],
)
def test_a_changed_question_remakes_what_depends_on_it(
    change: dict[str, Any], made_again: list[str], spec: StudySpec, done: Path, makes: list[str]
) -> None:
    _, ui = run(replace(spec, **change), done)
    S = context_of(done)
    assert makes == [name.format(S=S) for name in made_again]
    rewritten = bool({"depth", "seed", "dtype"} & set(change))
    assert ("write" in ui.measured()) == rewritten, "streams are kept where they can be"
    assert [title for title in ui.titles if "asked something else before" in title] == [
        "this study was asked something else before: "
        + "; ".join(f"{key} {getattr(spec, key)} -> {change[key]}" for key in sorted(change, key=order(spec)))
    ]


def order(spec: StudySpec) -> Callable[[str], int]:
    """Where a question stands among the others."""
    names = list(type(spec).__dataclass_fields__)
    return names.index


def test_a_question_asked_before_is_answered_from_its_records(
    spec: StudySpec, done: Path, finished: Path, makes: list[str]
) -> None:
    run(replace(spec, batch=[1, 2]), done)
    makes.clear()
    again, ui = run(spec, done)
    assert makes == ["timing", "decision", "frontier"]
    assert again.points == read_record(finished / "records" / "decision.json", DecisionRecord).points
    assert "time" not in ui.measured()


def test_a_changed_checkpoint_is_measured_anew(
    spec: StudySpec, tiny_model_dir: Path, tmp_path: Path, makes: list[str]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(tiny_model_dir, model)
    own = replace(spec, target=str(model), drafters=["ngram"])
    run(own, tmp_path / "s")
    weights = next(model.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes())
    makes.clear()
    _, ui = run(own, tmp_path / "s")
    assert len(makes) == len(MEASURED) + 1, "the kernels too"
    assert "write" in ui.measured()


STAGES = ["write streams", "replay external", "time steps at B = 2", "confirm external"]
WRITES = ["streams", "acceptance", "timing-b1", "kernels", "timing.", "decision", "launch", "page"]


def kill_at_write(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends when this file is about to be written."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    if name in ("streams", "launch", "page"):
        function = {"streams": "save_streams", "launch": "launch_files", "page": "write_page"}[name]
        monkeypatch.setattr(f"codraft.study.run.{function}", killed)
        return

    def write(record: Record, path: Path) -> None:
        if path.name.startswith(name):
            raise KeyboardInterrupt
        write_record(record, path)

    monkeypatch.setattr("codraft.study.store.write_record", write)


@pytest.mark.parametrize(
    ("kind", "at"), [*(("stage", title) for title in STAGES), *(("write", name) for name in WRITES)]
)
def test_a_study_killed_anywhere_goes_on_where_it_was(
    kind: str, at: str, spec: StudySpec, finished_for_two: Path, tmp_path: Path, makes: list[str]
) -> None:
    """At most the record in the making is lost, and the end is that of a study that nothing interrupted."""
    spec = replace(spec, batch=[1, 2])
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if kind == "write":
            kill_at_write(at, patch)
        run(spec, tmp_path / "s", fail_at=at if kind == "stage" else None)
    assert not list((tmp_path / "s").rglob("*.part"))
    decision, ui = run(spec, tmp_path / "s")
    twice = [name for name in set(makes) if makes.count(name) > 1]
    assert len(makes) <= len(set(makes)) + 1
    assert len(twice) <= 1
    assert len(set(makes)) == 7
    assert ("write" in ui.measured()) == (at in ("write streams", "streams")), "streams outlive the interruption"
    assert all((tmp_path / "s" / name).exists() for name in ("report.html", "launch", "study.toml"))
    assert told(decision) == told(read_record(finished_for_two / "records" / "decision.json", DecisionRecord))
    assert launch_of(tmp_path / "s") == launch_of(finished_for_two)
    assert workload(tmp_path / "s") == workload(finished_for_two)


def workload(folder: Path) -> Any:
    """What the acceptance record says was measured, and found."""
    record = read_record(folder / "records" / "acceptance.json", AcceptanceRecord)
    return record.prompts, record.sampling, [(result.curve, result.cold, result.domains) for result in record.results]


def told(decision: DecisionRecord) -> Any:
    """All of a decision but what a clock said of the confirmation."""
    assert decision.confirmation is not None
    proof = decision.confirmation
    return (
        decision.points,
        decision.schedule,
        decision.basis,
        decision.mechanisms,
        (proof.drafter, proof.D, proof.predicted, proof.identical_outputs, proof.num_pairs),
    )


def launch_of(folder: Path) -> dict[str, str]:
    """The launch files' texts."""
    return {path.name: path.read_text() for path in (folder / "launch").iterdir()}


RUBBISH = [b"", b"\xff\x00", b'{"schema": "codraft.timing/1"}']
PARTS = ["acceptance", "timing-b1-s{S}", "kernels", "timing", "decision", "frontier"]


@pytest.mark.parametrize(
    ("name", "rubbish"), [*((name, None) for name in PARTS), *(("timing-b1-s{S}", text) for text in RUBBISH)]
)
def test_a_spoilt_record_is_made_again(
    name: str, rubbish: bytes | None, spec: StudySpec, done: Path, finished: Path, makes: list[str]
) -> None:
    """And with it what rests on it, unless it came out the same; None is a record cut off in the middle."""
    path = done / "records" / f"{name.format(S=context_of(done))}.json"
    path.write_bytes(path.read_bytes()[:200] if rubbish is None else rubbish)
    again, _ = run(spec, done)
    assert makes[0] == path.stem
    assert again.points == read_record(finished / "records" / "decision.json", DecisionRecord).points
    assert path.read_bytes().startswith(b'{\n  "schema"')
    if name in ("timing", "frontier"):
        assert makes == [name], "joined from the same parts, it is the same"
    if name == "acceptance":
        assert makes == ["acceptance", "decision", "frontier"], "no step is timed again"


def test_a_record_under_the_name_of_another_load_is_no_record_of_it(
    spec: StudySpec, done: Path, makes: list[str]
) -> None:
    S = context_of(done)
    folder = done / "records"
    shutil.copy(folder / f"timing-b1-s{S}.json", folder / f"timing-b2-s{S}.json")
    decision, _ = run(replace(spec, batch=[1, 2]), done)
    assert makes[0] == f"timing-b2-s{S}"
    assert [point.B for point in decision.points] == [1, 2]


def test_records_of_another_study_are_not_used(spec: StudySpec, done: Path, tmp_path: Path, makes: list[str]) -> None:
    """All but the kernels, which depend on the machine and the target alone."""
    shutil.copytree(done / "records", tmp_path / "other" / "records")
    run(replace(spec, max_new_tokens=6), tmp_path / "other")
    S = context_of(tmp_path / "other")
    assert makes == [name.format(S=S) for name in MEASURED]


@pytest.mark.parametrize("loss", ["cut", "facts", "facts spoilt"])
def test_streams_that_cannot_be_read_are_written_again(
    loss: str, spec: StudySpec, done: Path, finished: Path, makes: list[str]
) -> None:
    """The same target writes the same answers, so nothing but the acceptance that was lost here is made anew."""
    [streams] = done.glob("streams-*.jsonl")
    (done / "records" / "acceptance.json").unlink()
    before = streams.read_bytes()
    match loss:
        case "cut":
            streams.write_bytes(before[: len(before) // 2])
        case "facts":
            streams.with_suffix(".json").unlink()
        case "facts spoilt":
            streams.with_suffix(".json").write_text('{"nam')
    _, ui = run(spec, done)
    assert "write" in ui.measured()
    assert makes == ["acceptance", "decision", "frontier"]
    assert streams.read_bytes() == before
    assert workload(done) == workload(finished)


def test_answers_left_out_are_counted_also_after_an_interruption(spec: StudySpec, tmp_path: Path) -> None:
    prompts = tmp_path / "long.jsonl"
    prompts.write_text(Path(spec.prompts[0]).read_text() + json.dumps({"prompt": "abc " * 99}) + "\n")
    asked = replace(spec, prompts=[str(prompts)], skip_long=True)
    with pytest.raises(KeyboardInterrupt):
        run(asked, tmp_path / "s", fail_at="replay ngram")
    run(asked, tmp_path / "s")
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert (acceptance.prompts.skipped_long, acceptance.prompts.num_prompts) == (1, 5)
    assert acceptance.prompts.name == str(prompts)


def test_what_a_killed_process_left_half_written_is_swept_away(spec: StudySpec, done: Path) -> None:
    left = [done / "records" / ".timing.json.abc.part", done / ".report.html.abc.part"]
    for path in left:
        path.write_text("{")
    run(spec, done)
    assert not any(path.exists() for path in left)


def edit(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a record by hand."""
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def test_a_decision_follows_the_step_times_that_somebody_edited(spec: StudySpec, done: Path, makes: list[str]) -> None:
    name = f"timing-b1-s{context_of(done)}"

    def slower(data: dict[str, Any]) -> None:
        for point in data["points"]:
            point["t_sys_s"] = 9.0

    edit(done / "records" / f"{name}.json", slower)
    decision, _ = run(spec, done)
    assert makes == ["timing", "decision", "frontier"]
    assert decision.points[0].plain["t_step_s"] == pytest.approx(9 + 1.01)


def test_a_decision_follows_the_acceptance_that_somebody_edited(spec: StudySpec, done: Path, makes: list[str]) -> None:
    def better(data: dict[str, Any]) -> None:
        data["results"][0]["curve"][0]["AL"] = 1.875

    edit(done / "records" / "acceptance.json", better)
    decision, _ = run(spec, done)
    assert makes == ["decision", "frontier"]
    assert {(c.drafter, c.D): c.AL for c in decision.points[0].candidates}["ngram", 1] == 1.875


def test_a_frontier_follows_its_decision(spec: StudySpec, done: Path, makes: list[str]) -> None:
    edit(done / "records" / "decision.json", lambda data: data["basis"].update(engine="mine"))
    run(spec, done)
    assert makes == ["frontier"]
    assert read_record(done / "records" / "frontier.json", FrontierRecord).basis["engine"] == "mine"


def test_a_spoilt_study_file_is_one_sentence(spec: StudySpec, done: Path) -> None:
    (done / "study.toml").write_text("target = ")
    with pytest.raises(SpecError, match="is not valid TOML"):
        run(spec, done)


def test_drafts_that_are_drawn_go_through_the_whole_job(spec: StudySpec, tiny_model_dir: Path, tmp_path: Path) -> None:
    drawn = replace(spec, drafters=[f"external:{tiny_model_dir},draft=sample"], temperature=0.8, seed=3)
    decision, _ = run(drawn, tmp_path / "s")
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert acceptance.results[0].basis == "expected_steps"
    assert decision.points[0].candidates


@pytest.mark.usefixtures("real_steps")
def test_the_command_writes_the_decision_and_tells_it(
    spec: StudySpec, tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["tune", str(tiny_model_dir), "-d", "ngram,n_min=1", "-p", spec.prompts[0], "-D", "1..2", "--rounds", "1"]
    argv += ["--max-new-tokens", "8", "--confirm-prompts", "1", "--no-kernels", "-o", str(tmp_path / "s")]
    assert main([*argv, "--json", "-"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((tmp_path / "s" / "records" / "decision.json").read_text())
    for words in ("break-even", "Confirmed by generating", "identical token"):
        assert words in err


def test_streams_of_logs_are_tuned_with_their_own_sampling(spec: StudySpec, tmp_path: Path) -> None:
    run(replace(spec, temperature=0.7, seed=2), tmp_path / "first")
    written = next((tmp_path / "first").glob("streams-*.jsonl"))
    logs = replace(spec, prompts=[], streams=str(written), max_new_tokens=None)
    run(logs, tmp_path / "s")
    acceptance = read_record(tmp_path / "s" / "records" / "acceptance.json", AcceptanceRecord)
    assert (acceptance.sampling["temperature"], acceptance.sampling["seed"]) == (0.7, 2)
    assert not list((tmp_path / "s").glob("streams-*.jsonl")), "a study copies no logs"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"drafters": ["external:{target},layers=3"]}, r"layers must be in 1\.\.2, the layers of"),
        ({"drafters": ["external:{target},draft=sample"]}, "draft=sample needs --temperature above 0"),
        ({"context": [20, 94]}, "--context 94: at most 93 tokens fit the window"),
        ({"target": "nowhere/to/be/found"}, "nowhere/to/be/found"),
        ({"prompts": ["none.jsonl"]}, r"none\.jsonl"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(
    change: dict[str, Any], words: str, spec: StudySpec, tmp_path: Path
) -> None:
    if "drafters" in change:
        change = {"drafters": [text.format(target=spec.target) for text in change["drafters"]]}
    with pytest.raises(SpecError, match=words):
        run(replace(spec, **change), tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["study.toml", "records", "launch", "report.html"])
def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(
    name: str, spec: StudySpec, tmp_path: Path
) -> None:
    """A file where a folder should be, or a folder where a file should be."""
    path = tmp_path / "s" / name
    path.parent.mkdir()
    if "." in name:
        path.mkdir()
    else:
        path.write_text("")
    ui = ListUi()
    with pytest.raises(SpecError, match="cannot write"):
        Study(spec, tmp_path / "s", ui).run()
    assert ui.titles == []


def test_a_study_of_plain_decoding_alone_is_refused(spec: StudySpec, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="at least one D above 0"):
        Study(replace(spec, depth=[0]), tmp_path / "s", ListUi())
    assert not (tmp_path / "s").exists()
