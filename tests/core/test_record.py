"""Records: what is written is what is read, and nothing unmeasured stands in them."""

import errno
import json
import sys
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.acceptance import Acceptance, StepLog, curve_point
from codraft.core.errors import SpecError
from codraft.core.provenance import Record, provenance
from codraft.core.record import (
    check_destination,
    dumps,
    emit,
    hash_of,
    read_record,
    squeeze_lists,
    to_json,
    write_record,
)
from codraft.core.schema import (
    AcceptanceRecord,
    AcceptanceResult,
    AttentionPoint,
    Candidate,
    Confirmation,
    DecisionPoint,
    DecisionRecord,
    DomainCurve,
    DrafterInfo,
    FrontierPoint,
    FrontierRecord,
    GemmPoint,
    Generated,
    GenerationRecord,
    Guideline,
    HardwareRecord,
    Mechanism,
    ScheduleEntry,
    TimingPoint,
    TimingRecord,
)

from tests import build


def an_acceptance_record() -> AcceptanceRecord:
    curve = [build.point(D, [(D, 1), (0, 0)], [(D, 0)]) for D in (1, 2)]
    expected = curve_point([[Acceptance(0.3 * Acceptance.from_log(StepLog.of([(0, 1, 1, True)]), 1).counts, 0.3)]])
    assert expected is not None
    domains = {"maths [1]": DomainCurve(num_prompts=1, curve=curve)}
    full = replace(build.result("ngram", *curve), cold=curve[:1], domains=domains)
    return build.acceptance_record(full, build.result("ngram-2", expected))


def a_generation_record() -> GenerationRecord:
    output = Generated(
        index=0,
        turn=0,
        prompt_ids=[1, 2],
        output_ids=[3],
        text='line\u2028separated "[\n] \x85',
        stop_reason="eos",
        steps=0,
        drafted_steps=0,
        drafted=0,
        accepted=0,
        seconds=0.1,
        prefill_s=0.1,
    )
    return GenerationRecord(
        schema=GenerationRecord.SCHEMA,
        provenance=build.provenance(),
        target="demo",
        drafter=DrafterInfo(name="external", mechanism="external", id="demo-noisy", options={"draft": "greedy"}),
        D=4,
        sampling={"temperature": 0.5},
        outputs=[output],
    )


def a_timing_record() -> TimingRecord:
    """Step times and nothing else."""
    return TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=build.provenance(),
        target="demo",
        ragged="packed",
        points=[build.timing(0, 0.01, sys=0.001), build.timing(1, 0.011, ngram=0.0001)],
    )


GEMM = GemmPoint(layer="down", n=6, k=4, M=1, t_s=1e-6, p10=9e-7, p90=2e-6, num_samples=3, flops_per_s=4.8e7)
ATTENTION = AttentionPoint(
    B=1, S=256, D=3, rows=12, t_s=1e-5, p10=1e-5, p90=2e-5, num_samples=3, flops_per_s=1e9, bytes_per_s=1e8
)


def a_full_timing_record() -> TimingRecord:
    """Step times with spread and shares, and the kernels."""
    plain, drafted = a_timing_record().points
    shares = {"ffn": 0.5, "projections": 0.25, "attention": 0.25, "other": 0.0}
    spreads = {"ngram": (0.00009, 0.0002)}
    return replace(
        a_timing_record(),
        ragged="padded",
        points=[replace(plain, shares=shares), replace(drafted, t_sys_spread_s=(0.0, 0.1), t_draft_spread_s=spreads)],
        gemm=[GEMM],
        attention=[ATTENTION],
    )


def a_hardware_record() -> HardwareRecord:
    return HardwareRecord(
        schema=HardwareRecord.SCHEMA,
        provenance=build.provenance(),
        name="none, 2 cores, cpu",
        bytes_per_s=1e8,
        flops_per_s=1e9,
        gemm=[GEMM, replace(GEMM, M=2)],
        attention=[ATTENTION],
    )


MECHANISM = Mechanism(
    mechanism="ngram",
    inputs="tokens",
    generation="one look-up",
    memory_bytes=0,
    memory="none",
    cost="little",
    training="none",
    fits="edits",
    measured_as=["ngram"],
)


def a_decision_record() -> DecisionRecord:
    best = replace(build.candidate("ngram", 2, 1.5, 1.25), AL_ci95=(1.25, 1.75), speedup_ci95=(1.0, 1.5), bytes=0)
    guidelines = [
        Guideline(id=1, premise="GEMMs", applies=True, value=0, optimum=2, loss=0.2, reason="flat"),
        Guideline(id=2, premise="attention", applies=False, reason="no tile"),
        Guideline(id=5, premise="two", applies=True, value="off", optimum="off", loss=0.0, reason="slow"),
    ]
    on = DecisionPoint(
        B=1,
        S=256,
        plain={"t_step_s": 0.01},
        best=best,
        verdict="ngram",
        warnings=["x slows down"],
        candidates=[best, build.candidate("x", 1, 1.0, 0.5)],
        guidelines=guidelines,
    )
    return DecisionRecord(
        schema=DecisionRecord.SCHEMA,
        provenance=build.provenance(),
        target="demo",
        basis={"engine": "torch", "machine": "none"},
        points=[on, replace(on, B=8, best=None)],
        schedule=[
            ScheduleEntry(max_batch=1, drafter="ngram", D=2),
            ScheduleEntry(max_batch=8, drafter=None, D=0),
        ],
        confirmation=Confirmation(
            drafter="ngram",
            D=2,
            predicted=1.25,
            measured=1.2,
            signed_error=0.04,
            plain_tokens_per_s=100.0,
            drafted_tokens_per_s=120.0,
            num_pairs=1,
            identical_outputs=1,
            num_outputs=1,
        ),
        mechanisms=[MECHANISM, replace(MECHANISM, mechanism="external", memory_bytes=None, measured_as=[])],
    )


def a_frontier_record() -> FrontierRecord:
    plain = FrontierPoint(
        B=1,
        S=256,
        drafter=None,
        D=0,
        AL=1.0,
        tokens_per_s_user=100.0,
        tokens_per_s=100.0,
        frontier=False,
        plain_frontier=True,
    )
    return FrontierRecord(
        schema=FrontierRecord.SCHEMA,
        provenance=build.provenance(),
        target="demo",
        basis={"engine": "torch", "machine": "none"},
        points=[plain, replace(plain, drafter="ngram", D=2, AL=1.5, frontier=True, plain_frontier=False)],
    )


RECORDS: list[Record] = [
    an_acceptance_record(),
    a_generation_record(),
    a_timing_record(),
    a_full_timing_record(),
    a_hardware_record(),
    a_decision_record(),
    a_frontier_record(),
]
by_schema = pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.schema)


@by_schema
def test_a_record_read_back_is_equal(record: Record, tmp_path: Path) -> None:
    write_record(record, tmp_path / "r.json")
    assert read_record(tmp_path / "r.json", type(record)) == record


@by_schema
def test_a_record_read_and_written_again_is_the_same_text_with_the_same_hash(record: Record, tmp_path: Path) -> None:
    write_record(record, tmp_path / "r.json")
    again = read_record(tmp_path / "r.json", type(record))
    assert dumps(again) == dumps(record)
    assert hash_of(again) == hash_of(record)


def nulls_in(data: Any) -> list[str]:
    """Keys whose value is null, anywhere."""
    if isinstance(data, dict):
        own = [key for key, value in data.items() if value is None]
        return own + [key for value in data.values() for key in nulls_in(value)]
    return [key for item in data for key in nulls_in(item)] if isinstance(data, list) else []


@by_schema
def test_a_field_that_was_not_measured_is_absent(record: Record) -> None:
    data = json.loads(dumps(record))
    assert set(nulls_in(data)) <= {"best", "drafter"}
    assert "git" not in data["provenance"]
    assert "dtype" not in data["provenance"]


ABSENT: list[tuple[Record, list[str | int], set[str]]] = [
    (a_timing_record(), [], {"gemm", "attention"}),
    (a_timing_record(), ["points", 1], {"shares", "t_sys_spread_s", "t_draft_spread_s"}),
    (an_acceptance_record(), ["results", 1], {"cold"}),
    (a_decision_record(), ["points", 0, "candidates", 1], {"AL_ci95", "speedup_ci95", "bytes"}),
    (a_decision_record(), ["points", 0, "guidelines", 1], {"value", "optimum", "loss"}),
    (a_decision_record(), ["mechanisms", 1], {"memory_bytes"}),
]


def inside(data: Any, path: list[str | int]) -> Any:
    """What lies at a path of keys and indices."""
    for key in path:
        data = data[key]
    return data


@pytest.mark.parametrize(("record", "path", "names"), ABSENT)
def test_a_new_field_that_was_not_measured_is_left_out_and_read_as_not_measured(
    record: Record, path: list[str | int], names: set[str], tmp_path: Path
) -> None:
    write_record(record, tmp_path / "r.json")
    assert names & set(inside(json.loads((tmp_path / "r.json").read_text()), path)) == set()
    again = read_record(tmp_path / "r.json", type(record))
    for key in path:
        again = again[key] if isinstance(key, int) else getattr(again, key)  # type: ignore[index]
    assert [getattr(again, name) for name in sorted(names)] == [None] * len(names)


def test_a_measured_zero_stands_as_zero() -> None:
    data = to_json(a_decision_record())
    guidelines = data["points"][0]["guidelines"]
    assert (guidelines[0]["value"], guidelines[2]["loss"]) == (0, 0.0)
    assert (data["points"][0]["candidates"][0]["bytes"], data["mechanisms"][0]["memory_bytes"]) == (0, 0)
    assert to_json(a_full_timing_record())["points"][0]["shares"]["other"] == 0.0


def test_a_guideline_that_names_a_D_keeps_a_number_and_one_that_names_a_drafter_a_text(tmp_path: Path) -> None:
    write_record(a_decision_record(), tmp_path / "r.json")
    first, _, last = read_record(tmp_path / "r.json", DecisionRecord).points[0].guidelines
    assert (first.value, first.optimum, last.value, last.optimum) == (0, 2, "off", "off")


# Fields that may be left out; every other one was measured or asked, and has no default.
OPTIONAL: dict[type, set[str]] = {
    TimingPoint: {"t_sys_spread_s", "t_draft_spread_s", "t_draft_num_samples", "shares"},
    TimingRecord: {"gemm", "attention"},
    GemmPoint: set(),
    AttentionPoint: set(),
    HardwareRecord: set(),
    AcceptanceResult: {"cold", "domains", "timings_s"},
    Candidate: {"AL_ci95", "speedup_ci95", "bytes", "t_verif_s", "t_draft_s", "t_sys_s"},
    Guideline: {"value", "optimum", "loss"},
    DecisionPoint: set(),
    ScheduleEntry: set(),
    Mechanism: {"memory_bytes"},
    DecisionRecord: {"confirmation"},
    FrontierPoint: set(),
    FrontierRecord: set(),
}


@pytest.mark.parametrize("kind", OPTIONAL, ids=lambda kind: kind.__name__)
def test_a_measured_field_has_no_default(kind: type) -> None:
    left_out = {f.name for f in fields(kind) if f.default is not MISSING or f.default_factory is not MISSING}
    assert left_out == OPTIONAL[kind]


def test_plain_decoding_on_the_frontier_stands_as_null_and_cannot_be_left_out(tmp_path: Path) -> None:
    data = json.loads(dumps(a_frontier_record()))
    assert data["points"][0]["drafter"] is None
    del data["points"][0]["drafter"]
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SpecError, match=r"'points\.0\.drafter' is missing"):
        read_record(tmp_path / "r.json", FrontierRecord)


def test_a_drafter_that_a_generation_did_not_have_is_absent() -> None:
    """A null has its meaning in a schedule and on a frontier alone."""
    assert "drafter" not in to_json(replace(a_generation_record(), drafter=None))


def test_a_ragged_pass_is_padded_or_packed(tmp_path: Path) -> None:
    data = {**to_json(a_timing_record()), "ragged": "sorted"}
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SpecError, match="ragged='sorted': input should be 'padded' or 'packed'"):
        read_record(tmp_path / "r.json", TimingRecord)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_figure_that_is_no_number_is_refused_by_its_path(value: str, tmp_path: Path) -> None:
    text = dumps(a_timing_record()).replace('"t_verif_s": 0.011', f'"t_verif_s": {value}')
    assert value in text
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"points\.1\.t_verif_s=.*: input should be a finite number"):
        read_record(tmp_path / "r.json", TimingRecord)


def test_a_decision_against_drafting_stands_as_null() -> None:
    data = json.loads(dumps(a_decision_record()))
    assert data["points"][1]["best"] is None
    assert data["schedule"][1] == {"max_batch": 8, "drafter": None, "D": 0}


def test_a_decision_without_its_best_is_refused(tmp_path: Path) -> None:
    data = to_json(a_decision_record())
    del data["points"][1]["best"]
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SpecError, match=r"'points.1.best' is missing"):
        read_record(tmp_path / "r.json", DecisionRecord)


def test_a_conditional_rate_that_no_step_reached_stands_as_null(tmp_path: Path) -> None:
    record = build.acceptance_record(build.result("ngram", build.point(2, [(2, 0)])))
    write_record(record, tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["results"][0]["curve"][0]["conditional"] == [
        0.0,
        None,
    ]
    assert read_record(tmp_path / "r.json", AcceptanceRecord).results[0].curve[0].conditional == [0.0, None]


def test_NaN_never_leaves_in_a_record() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        dumps(replace(a_timing_record(), points=[build.timing(0, float("nan"))]))


def test_a_record_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_record(a_timing_record(), tmp_path / "r.json")
    before = (tmp_path / "r.json").read_text()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(replace(a_timing_record(), points=[build.timing(0, float("inf"))]), tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_a_record_of_another_schema_is_refused_by_both_names(tmp_path: Path) -> None:
    write_record(a_timing_record(), tmp_path / "r.json")
    with pytest.raises(SpecError, match=r"expected a 'codraft.decision/1' record, found 'codraft.timing/1'"):
        read_record(tmp_path / "r.json", DecisionRecord)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00", "nul"])
def test_what_is_not_JSON_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match="is not a JSON record"):
        read_record(tmp_path / "r.json", TimingRecord)


@pytest.mark.parametrize("text", ["[]", "3", "{}"])
def test_JSON_without_a_schema_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match="found 'None'"):
        read_record(tmp_path / "r.json", TimingRecord)


def test_a_record_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"cannot read .*r\.json: No such file"):
        read_record(tmp_path / "r.json", TimingRecord)


LEVELS: list[tuple[Record, str]] = [
    (a_timing_record(), ""),
    (a_timing_record(), "provenance"),
    (a_full_timing_record(), "points.0"),
    (a_full_timing_record(), "gemm.0"),
    (a_full_timing_record(), "attention.0"),
    (a_hardware_record(), ""),
    (a_hardware_record(), "attention.0"),
    (an_acceptance_record(), "results.0"),
    (an_acceptance_record(), "results.0.cold.0"),
    (a_decision_record(), "points.0"),
    (a_decision_record(), "points.0.candidates.1"),
    (a_decision_record(), "points.0.guidelines.0"),
    (a_decision_record(), "mechanisms.0"),
    (a_decision_record(), "schedule.0"),
    (a_frontier_record(), ""),
    (a_frontier_record(), "points.1"),
]


@pytest.mark.parametrize(("record", "where"), LEVELS, ids=lambda value: value if isinstance(value, str) else "")
def test_an_unknown_key_is_refused_at_every_level(record: Record, where: str, tmp_path: Path) -> None:
    path = [int(key) if key.isdigit() else key for key in where.split(".") if key]
    data = to_json(record)
    inside(data, path)["extra"] = 1
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SpecError, match=f"unknown option '{'.'.join([*map(str, path), 'extra'])}'"):
        read_record(tmp_path / "r.json", type(record))


def test_a_missing_field_is_refused_by_name(tmp_path: Path) -> None:
    data = to_json(a_timing_record())
    del data["points"][1]["t_sys_s"]
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SpecError, match=r"'points\.1\.t_sys_s' is missing"):
        read_record(tmp_path / "r.json", TimingRecord)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["[", "]", "],", '"', "{", "a [", "\n]", "\u2028[", "\x85", "\x1c", "  [1,\n 2]", "[]"])
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4))


@given(JSON, st.booleans())
def test_squeezing_lists_keeps_the_meaning_of_any_JSON(data: Any, ascii_only: bool) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=ascii_only)
    assert json.loads(squeeze_lists(text)) == data


def test_a_list_of_numbers_takes_one_line() -> None:
    text = json.dumps({"ids": [1, 2, 3], "rows": [[1], [2, 3]], "none": []}, indent=2)
    assert squeeze_lists(text).splitlines() == [
        "{",
        '  "ids": [1, 2, 3],',
        '  "rows": [',
        "    [1],",
        "    [2, 3]",
        "  ],",
        '  "none": []',
        "}",
    ]


def test_emit_writes_to_stdout_to_a_file_or_nowhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = a_timing_record()
    emit(record, None)
    assert capsys.readouterr() == ("", "")
    emit(record, "-")
    assert capsys.readouterr() == (dumps(record), "")
    emit(record, str(tmp_path / "r.json"))
    assert (tmp_path / "r.json").read_text(encoding="utf-8") == dumps(record)
    assert capsys.readouterr() == ("", "")


class Stdout:
    """A standard output that fails."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def write(self, _: str) -> int:
        raise self.error

    def flush(self) -> None:
        """Nothing was written."""


def test_a_full_disk_behind_stdout_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stdout(OSError(errno.ENOSPC, "full")))
    with pytest.raises(SpecError, match="cannot write stdout: the disk is full"):
        emit(a_timing_record(), "-")


def test_a_reader_of_stdout_that_went_away_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Stdout(BrokenPipeError()))
    with pytest.raises(BrokenPipeError):
        emit(a_timing_record(), "-")


def test_a_destination_that_is_a_folder_is_refused_before_the_work(tmp_path: Path) -> None:
    check_destination(None)
    check_destination("-")
    with pytest.raises(SpecError, match="it is a folder"):
        check_destination(str(tmp_path))


def test_equal_inputs_have_equal_hashes_whatever_their_order() -> None:
    assert hash_of({"a": 1, "b": [2, 3]}) == hash_of({"b": [2, 3], "a": 1})
    assert hash_of({"a": 1}) != hash_of({"a": 2})
    assert hash_of({"a": [1, 2]}) != hash_of({"a": [2, 1]})


def test_provenance_names_version_machine_engine_inputs_and_time() -> None:
    made = provenance(engine={"name": "torch"}, input_hashes={"x": "1"}, dtype="float32", device="cpu", seeds=(3,))
    assert made.machine["device"] == "cpu"
    assert made.machine["cores"] >= 1
    assert (made.engine, made.input_hashes, made.dtype, made.seeds) == (
        {"name": "torch"},
        {"x": "1"},
        "float32",
        [3],
    )
    assert made.command[0] == "codraft"
    assert made.time.endswith("+00:00")
