"""People's own figures: what a CSV or a record says, and how a slip in it is named."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.record import to_json, write_record
from codraft.core.schema import AcceptanceRecord, AcceptanceResult, TimingPoint, TimingRecord
from codraft.cost.bring import read_acceptance, read_timing
from codraft.cost.choose import decide
from codraft.cost.curves import CurveAt, DrafterCurve, curves_of, full_drafts

from tests import build

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes lines (or bytes) to a file and returns its path."""

    def file(*lines: str, name: str = "figures.csv", raw: bytes | None = None) -> Path:
        path = tmp_path / name
        path.write_bytes("\n".join(lines).encode() if raw is None else raw)
        return path

    return file


def step_times(path: Path) -> dict[tuple[int, int, int], tuple[float, float, dict[str, float]]]:
    """(T_verif, T_sys, T_draft by drafter) by (B, S, D)."""
    return {(p.B, p.S, p.D): (p.t_verif_s, p.t_sys_s, p.t_draft_s) for p in read_timing(path).points}


def refusal(read: Callable[[Path], object], path: Path) -> str:
    """The sentence that a file is refused with."""
    with pytest.raises(SpecError) as caught:
        read(path)
    sentence = str(caught.value)
    assert str(path) in sentence
    assert "\n" not in sentence
    return sentence.replace(str(path), "FILE")


# AL curves.


def test_AL_curves_are_read_by_drafter_and_in_the_order_of_D(write: Write) -> None:
    path = write("D,drafter,AL", "4,b,2.5", "2,a,1.5", "1,a,1", "64,a,65")
    assert read_acceptance(path) == [
        DrafterCurve(name="b", points=[CurveAt(D=4, AL=2.5, lengths=full_drafts(4))]),
        DrafterCurve(
            name="a", points=[CurveAt(D=D, AL=AL, lengths=full_drafts(D)) for D, AL in ((1, 1.0), (2, 1.5), (64, 65.0))]
        ),
    ]


def test_an_interval_is_read_where_it_is_given(write: Write) -> None:
    path = write("drafter,D,AL,AL_low,AL_high", "a,1,1.5,1.25,1.75", "a,2,1.5,,")
    assert [point.AL_ci95 for point in read_acceptance(path)[0].points] == [(1.25, 1.75), None]


def test_rows_of_a_domain_are_left_aside_but_for_all(write: Write) -> None:
    path = write("drafter,D,AL,domain", "a,1,1.9,maths", "a,1,1.5,all", "a,2,1.7,", "b,1,1.9,maths")
    assert [(curve.name, [p.AL for p in curve.points]) for curve in read_acceptance(path)] == [("a", [1.5, 1.7])]


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbfdrafter,D,AL\r\na,1,1.5\r\n",
        b" drafter , D , AL \n a , 1 , 1.5 \n\n",
        b'drafter,D,AL\n"a","1","1.5"',
    ],
    ids=["with a byte-order mark and Windows lines", "with spaces", "with quotes"],
)
def test_a_table_may_come_from_a_spreadsheet(raw: bytes, write: Write) -> None:
    assert read_acceptance(write(raw=raw)) == [
        DrafterCurve(name="a", points=[CurveAt(D=1, AL=1.5, lengths=full_drafts(1))])
    ]


@pytest.mark.parametrize("name", ["figures.tsv", "FIGURES.TSV"])
def test_a_tsv_has_tabs_between_its_cells(name: str, write: Write) -> None:
    path = write("drafter\tD\tAL", "a,1\t1\t1.5", name=name)
    assert [(curve.name, curve.points[0].AL) for curve in read_acceptance(path)] == [("a,1", 1.5)]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([""], "FILE: column 'drafter' is missing; needed: drafter, D, AL"),
        (["drafter,AL", "a,1.5"], "FILE: column 'D' is missing; needed: drafter, D, AL"),
        (
            ["drafter,D,AL,tau", "a,1,1.5,2"],
            "FILE: unknown column 'tau'; known: drafter, D, AL, AL_low, AL_high, domain",
        ),
        (["drafter,D,AL,D", "a,1,1.5,1"], "FILE: column 'D' is there twice"),
        (["drafter;D;AL", "a;1;1.5"], "FILE: unknown column 'drafter;D;AL'"),
        (["drafter,D,AL", "a,1,1.5,9"], "FILE, line 2: more cells than columns"),
        (["drafter,D,AL", "a,1,1.5", "a,2"], "FILE, line 3: 'AL' is empty"),
        (["drafter,D,AL", ",1,1.5"], "FILE, line 2: 'drafter' is empty"),
        (["drafter,D,AL", "a,1.0,1.5"], "FILE, line 2: D must be a whole number; got '1.0'"),
        (["drafter,D,AL", "a,0,1"], "FILE, line 2: D must be in 1..64; got 0"),
        (["drafter,D,AL", "a,65,1"], "FILE, line 2: D must be in 1..64; got 65"),
        (["drafter,D,AL", "a,2,3.5"], "FILE, line 2: AL must be at least 1 and at most 3; got 3.5"),
        (["drafter,D,AL", "a,2,0.9"], "FILE, line 2: AL must be at least 1 and at most 3; got 0.9"),
        (["drafter,D,AL", "a,2,nan"], "FILE, line 2: AL must be at least 1 and at most 3; got nan"),
        (["drafter,D,AL", "a,2,inf"], "FILE, line 2: AL must be at least 1 and at most 3; got inf"),
        (["drafter,D,AL", "a,2,high"], "FILE, line 2: AL must be a number; got 'high'"),
        (["drafter,D,AL", "a,2,2.5", "a,2,2.5"], "FILE, line 3: D = 2 of 'a' is there twice; keep one row"),
        (["drafter,D,AL,AL_low", "a,2,2.5,2"], "FILE, line 2: 'AL_high' is empty"),
        (["drafter,D,AL,AL_low,AL_high", "a,2,2.5,,2.7"], "FILE, line 2: 'AL_low' is empty"),
        (
            ["drafter,D,AL,AL_low,AL_high", "a,2,2.5,2.6,2.7"],
            "FILE, line 2: AL_low must be at least 1 and at most 2.5; got 2.6",
        ),
        (
            ["drafter,D,AL,AL_low,AL_high", "a,2,2.5,2,2.4"],
            "FILE, line 2: AL_high must be at least 2.5 and at most 3; got 2.4",
        ),
        (["drafter,D,AL"], "FILE has no row without a domain (or with domain 'all')"),
        (["drafter,D,AL,domain", "a,1,1.5,maths"], "FILE has no row without a domain (or with domain 'all')"),
    ],
    ids=str,
)
def test_AL_curves_that_cannot_be_are_refused_by_line_and_column(lines: list[str], sentence: str, write: Write) -> None:
    assert refusal(read_acceptance, write(*lines)).startswith(sentence)


# Step times.


def test_parts_of_a_step_are_read_with_the_drafting_of_every_drafter(write: Write) -> None:
    path = write(
        "B,S,D,t_verif_s,t_sys_s,drafter,t_draft_s",
        "1,256,0,0.01,0.001,,",
        "1,256,4,0.02,0.002,a,0.003",
        "1,256,4,0.02,0.002,b,0",
        "8,0,0,0.05,,,",
    )
    assert step_times(path) == {
        (1, 256, 0): (0.01, 0.001, {}),
        (1, 256, 4): (0.02, 0.002, {"a": 0.003, "b": 0.0}),
        (8, 0, 0): (0.05, 0.0, {}),
    }
    timing = read_timing(path)
    assert (timing.ragged, timing.basis) == ("packed", {"engine": "your own figures", "machine": str(path)})
    assert [(p.x, p.num_samples, p.p10, p.p90) for p in timing.points] == [
        (1, 1, 0.01, 0.01),
        (5, 1, 0.02, 0.02),
        (8, 1, 0.05, 0.05),
    ]


def test_points_come_in_the_order_of_B_S_and_D(write: Write) -> None:
    path = write("B,S,D,t_verif_s", "2,64,1,4", "2,64,0,3", "1,64,2,2", "1,64,0,1", "1,32,0,1")
    assert list(step_times(path)) == [(1, 32, 0), (1, 64, 0), (1, 64, 2), (2, 64, 0), (2, 64, 1)]


def test_drafting_at_D_0_is_no_drafting(write: Write) -> None:
    path = write("B,S,D,t_verif_s,drafter,t_draft_s", "1,1,0,1,a,0.5")
    assert step_times(path) == {(1, 1, 0): (1.0, 0.0, {})}


def test_whole_steps_that_name_no_drafter_are_everybodys(write: Write) -> None:
    path = write("B,S,D,t_step_s", "1,256,0,0.01", "1,256,4,0.02")
    assert step_times(path) == {(1, 256, 0): (0.01, 0.0, {}), (1, 256, 4): (0.02, 0.0, {})}
    assert read_timing(path).basis == {
        "engine": "your own figures",
        "machine": str(path),
        "drafting": "the step times name no drafter: drafting is taken to be in them",
    }


def test_whole_steps_of_every_drafter_come_out_as_they_were_given(write: Write) -> None:
    path = write("B,S,D,t_step_s,drafter", "1,256,0,0.010,", "1,256,4,0.020,a", "1,256,4,0.050,b", "1,256,2,0.015,a")
    curves = [
        DrafterCurve(name="a", points=[CurveAt(D=D, AL=2.0, lengths=full_drafts(D)) for D in (2, 4)]),
        DrafterCurve(name="b", points=[CurveAt(D=D, AL=4.0, lengths=full_drafts(D)) for D in (2, 4)]),
    ]
    timing = read_timing(path)
    (made,), _ = decide(curves, timing.points, None, timing.ragged, whole_steps=timing.whole_steps)
    steps = {(c.drafter, c.D): c.t_step_s for c in made.candidates}
    assert any("b was not priced at D = 2" in line for line in made.warnings)
    assert steps == pytest.approx({("a", 2): 0.015, ("a", 4): 0.02, ("b", 4): 0.05})
    assert made.plain["t_step_s"] == 0.01


def test_whole_steps_at_D_0_may_be_told_by_drafter(write: Write) -> None:
    path = write("B,S,D,t_step_s,drafter", "1,256,0,0.011,a", "1,256,0,0.010,b", "1,256,1,0.02,a")
    assert step_times(path)[1, 256, 0] == (0.010, 0.0, {})
    path = write("B,S,D,t_step_s,drafter", "1,256,0,0.011,", "1,256,0,0.010,b", "1,256,1,0.02,a")
    assert step_times(path)[1, 256, 0] == (0.011, 0.0, {})


def test_a_drafters_whole_step_is_an_average_over_real_steps_and_is_not_averaged_again(write: Write) -> None:
    path = write("B,S,D,t_step_s,drafter", "1,256,0,0.010,", "1,256,4,0.030,", "1,256,4,0.012,a")
    # One step in ten drafts: the pass of 5 tokens would be averaged down to 0.012, a's own step is that already.
    seldom = [0.9, 0.0, 0.0, 0.0, 0.1]
    curves = [DrafterCurve(name=name, points=[CurveAt(D=4, AL=1.3, lengths=seldom)]) for name in ("a", "other")]
    timing = read_timing(path)
    (made,), _ = decide(curves, timing.points, None, timing.ragged, whole_steps=timing.whole_steps)
    steps = {c.drafter: c.t_step_s for c in made.candidates}
    assert steps == pytest.approx({"a": 0.012, "other": 0.012})
    assert {c.drafter for c in made.candidates if c.t_verif_s is None} == {"a", "other"}


def test_a_whole_step_stands_beside_the_pass_that_all_share(write: Write) -> None:
    path = write(
        "B,S,D,t_verif_s,t_sys_s,t_step_s,drafter",
        "1,256,0,0.01,,,",
        "1,256,4,0.02,0.005,,",
        "1,256,4,,,0.04,a",
        "1,256,4,,,0.025,b",
    )
    verify, sys, draft = step_times(path)[1, 256, 4]
    assert (verify, sys) == (0.02, 0.005)
    assert draft == {}
    assert read_timing(path).whole_steps == {(1, 256, 4, "a"): 0.04, (1, 256, 4, "b"): 0.025}


@given(st.floats(1e-6, 10), st.floats(0, 10), st.floats(0, 10))
def test_a_decision_from_parts_is_that_from_whole_steps(verify: float, sys: float, draft: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        parts, whole = Path(folder) / "parts.csv", Path(folder) / "whole.csv"
        parts.write_text(
            f"B,S,D,t_verif_s,t_sys_s,drafter,t_draft_s\n1,1,0,1,,,\n1,1,1,{verify!r},{sys!r},a,{draft!r}\n"
        )
        whole.write_text(f"B,S,D,t_step_s,drafter\n1,1,0,1,\n1,1,1,{verify + sys + draft!r},a\n")
        curve = DrafterCurve(name="a", points=[CurveAt(D=1, AL=1.5, lengths=full_drafts(1))])
        timings = [read_timing(path) for path in (parts, whole)]
        one, other = (decide([curve], t.points, None, whole_steps=t.whole_steps)[0][0].candidates[0] for t in timings)
        assert one.speedup == pytest.approx(other.speedup)


PARTS = "B,S,D,t_verif_s,t_sys_s,drafter,t_draft_s"
ALL = "B,S,D,t_verif_s,t_sys_s,t_step_s,drafter,t_draft_s"


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([""], "FILE: column 'B' is missing; needed: B, S, D"),
        (["B,S,D,t_verif_ms", "1,1,0,1"], "FILE: unknown column 't_verif_ms'; known: B, S, D, t_verif_s, t_sys_s"),
        (["B,S,D", "1,1,0"], "FILE, line 2: give t_verif_s or t_step_s (a whole step), one of the two"),
        (["B,S,D,t_verif_s"], "FILE holds no step times; give at least D = 0 and one D above it"),
        ([ALL, "1,1,0,1,,1,,"], "FILE, line 2: give t_verif_s or t_step_s (a whole step), one of the two"),
        ([ALL, "1,1,0,,0.5,1,,"], "FILE, line 2: t_step_s is a whole step; leave t_sys_s and t_draft_s empty"),
        ([ALL, "1,1,4,,,1,a,0.1"], "FILE, line 2: t_step_s is a whole step; leave t_sys_s and t_draft_s empty"),
        ([PARTS, "1,1,4,1,,,0.1"], "FILE, line 2: t_draft_s needs a drafter"),
        ([PARTS, "1,1,4,1,,a,"], "FILE, line 2: 't_draft_s' is empty"),
        ([PARTS, "0,1,0,1,,,"], "FILE, line 2: B must be in 1..65536; got 0"),
        ([PARTS, "65537,1,0,1,,,"], "FILE, line 2: B must be in 1..65536; got 65537"),
        ([PARTS, "1,-1,0,1,,,"], "FILE, line 2: S must be in 0..1000000000; got -1"),
        ([PARTS, "1,1,65,1,,,"], "FILE, line 2: D must be in 0..64; got 65"),
        ([PARTS, "1,1,-1,1,,,"], "FILE, line 2: D must be in 0..64; got -1"),
        ([PARTS, "1,1,0.5,1,,,"], "FILE, line 2: D must be a whole number; got '0.5'"),
        ([PARTS, "1,1,0,0,,,"], "FILE, line 2: t_verif_s must be above 0; got 0"),
        ([PARTS, "1,1,0,-1,,,"], "FILE, line 2: t_verif_s must be above 0; got -1"),
        ([PARTS, "1,1,0,nan,,,"], "FILE, line 2: t_verif_s must be above 0; got nan"),
        ([PARTS, "1,1,0,inf,,,"], "FILE, line 2: t_verif_s must be above 0; got inf"),
        ([PARTS, "1,1,0,10ms,,,"], "FILE, line 2: t_verif_s must be a number; got '10ms'"),
        ([PARTS, "1,1,0,1,-0.1,,"], "FILE, line 2: t_sys_s must be at least 0; got -0.1"),
        ([PARTS, "1,1,1,1,,a,-0.1"], "FILE, line 2: t_draft_s must be at least 0; got -0.1"),
        (["B,S,D,t_step_s", "1,1,0,0"], "FILE, line 2: t_step_s must be above 0; got 0"),
        (["B,S,D,t_step_s,drafter", "1,1,1,0,a"], "FILE, line 2: t_step_s must be above 0; got 0"),
        (
            ["B,S,D,t_verif_s", "1,256,0,1", "1,512,4,2"],
            "FILE: B = 1, S = 512 has D = 4 but no row with D = 0; plain decoding is the measure",
        ),
        (
            ["B,S,D,t_verif_s", "1,1,0,1", "1,1,0,1", "1,1,0,2"],
            "FILE, line 4: another row of the same B, S and D gives 1.0, this one 2.0",
        ),
        (
            [PARTS, "1,1,1,1,,a,0.1", "1,1,1,1,,a,0.2"],
            "FILE, line 3: another row of the same B, S and D gives 0.1, this one 0.2",
        ),
        (
            ["B,S,D,t_step_s,drafter", "1,1,1,1,a", "1,1,1,2,a"],
            "FILE, line 3: another row of the same B, S and D gives 1.0, this one 2.0",
        ),
        (
            [ALL, "1,1,0,1,,,,", "1,1,2,3,,,a,1", "1,1,2,,,5,a,"],
            "FILE: B = 1, S = 1, D = 2: t_step_s of 'a' is 5, and other rows give 4; keep one of the two",
        ),
    ],
    ids=str,
)
def test_step_times_that_cannot_be_are_refused_by_line_and_column(
    lines: list[str], sentence: str, write: Write
) -> None:
    assert refusal(read_timing, write(*lines)).startswith(sentence)


# Files that are no tables, and records.

READERS: list[Callable[[Path], object]] = [read_acceptance, read_timing]
each_reader = pytest.mark.parametrize("read", READERS, ids=["acceptance", "timing"])


@each_reader
@pytest.mark.parametrize("name", ["none.csv", "none.json"])
def test_a_file_that_is_not_there_is_named(read: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    assert refusal(read, tmp_path / name) == "cannot read FILE: No such file or directory; check the path"


@each_reader
@pytest.mark.parametrize("name", ["folder.csv", "folder"])
def test_a_folder_is_no_table(read: Callable[[Path], object], name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    assert refusal(read, tmp_path / name) == "cannot read FILE: Is a directory; check the path"


@each_reader
@pytest.mark.parametrize("raw", [b"\xff\xfe\x00\x01", b"B,S,D,t_verif_s\n1,1,0,\xff\n", b'drafter,D,AL\n"a,1'])
def test_a_file_that_is_no_text_is_no_table(read: Callable[[Path], object], raw: bytes, write: Write) -> None:
    assert refusal(read, write(raw=raw)).startswith(("FILE is not a CSV in UTF-8 (", "FILE: "))


@each_reader
@pytest.mark.parametrize("raw", [b"", b"\xff\xfe", b"B,S,D,t_verif_s\n1,1,0,1\n"])
def test_a_file_that_is_neither_CSV_by_its_name_nor_a_record_is_refused(
    read: Callable[[Path], object], raw: bytes, write: Write
) -> None:
    assert refusal(read, write(name="figures.json", raw=raw)).startswith("FILE is not a JSON record")


A = build.result("a", build.point(1, [(1, 1), (1, 0)]), build.point(2, [(2, 2), (0, 0)], [(2, 1)]))


def a_timing_record(*points: TimingPoint) -> TimingRecord:
    """A record of these points."""
    return TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=build.provenance(),
        target="demo",
        ragged="padded",
        points=list(points),
    )


def test_an_acceptance_record_gives_its_own_curves(tmp_path: Path) -> None:
    write_record(build.acceptance_record(A), tmp_path / "r.json")
    assert read_acceptance(tmp_path / "r.json") == curves_of([A])


def test_a_timing_record_gives_its_points_and_what_they_rest_on(tmp_path: Path) -> None:
    points = [build.timing(0, 0.01, sys=0.001), build.timing(1, 0.02, a=0.003)]
    write_record(a_timing_record(*points), tmp_path / "r.json")
    timing = read_timing(tmp_path / "r.json")
    assert (timing.points, timing.ragged) == (points, "padded")
    assert timing.basis == {"engine": "torch", "machine": "none, 2 cores, unknown"}


def test_a_record_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    write_record(build.acceptance_record(A), tmp_path / "r.json")
    assert "expected a 'codraft.timing/1' record" in refusal(read_timing, tmp_path / "r.json")
    write_record(a_timing_record(build.timing(0, 1.0)), tmp_path / "r.json")
    assert "expected a 'codraft.acceptance/1' record" in refusal(read_acceptance, tmp_path / "r.json")


def spoilt(result: AcceptanceResult, **changes: Any) -> AcceptanceResult:
    """With its last point changed."""
    return replace(result, curve=[*result.curve[:-1], replace(result.curve[-1], **changes)])


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (spoilt(A, AL=3.5), "FILE: AL of 'a' at D = 2 must be in 1..3; got 3.5"),
        (spoilt(A, AL=0.5), "FILE: AL of 'a' at D = 2 must be in 1..3; got 0.5"),
        (spoilt(A, steps=0), "FILE: counts of 'a' at D = 2 do not add up to its 0 steps"),
        (spoilt(A, steps=0, counts=[[0] * 3] * 3), "FILE: counts of 'a' at D = 2 do not add up to its 0 steps"),
        (spoilt(A, steps=4), "FILE: counts of 'a' at D = 2 do not add up to its 4 steps"),
        (spoilt(A, counts=[[1, 0], [1, 1]]), "FILE: counts of 'a' at D = 2 do not add up to its 3 steps"),
        (replace(A, basis="drafted_steps"), "FILE: AL of 'a' leaves out the steps without a draft"),
    ],
)
def test_a_record_whose_AL_may_not_enter_a_speedup_is_refused(
    result: AcceptanceResult, sentence: str, tmp_path: Path
) -> None:
    write_record(build.acceptance_record(build.result("fine", build.point(1, [(1, 1)])), result), tmp_path / "r.json")
    assert refusal(read_acceptance, tmp_path / "r.json").startswith(sentence)


def test_expectations_over_draft_noise_may_enter_a_speedup(tmp_path: Path) -> None:
    record = build.acceptance_record(replace(A, basis="expected_steps"), build.result("empty"))
    write_record(record, tmp_path / "r.json")
    assert [len(curve.points) for curve in read_acceptance(tmp_path / "r.json")] == [2, 0]


@pytest.mark.parametrize(
    "point",
    [
        build.timing(1, 0.0),
        build.timing(1, -1.0),
        build.timing(1, 1.0, sys=-0.1),
        build.timing(1, 1.0, a=-0.1),
        build.timing(1, 1.0, B=0),
        build.timing(1, 1.0, B=65_537),
    ],
)
def test_times_that_no_machine_can_have_are_refused(point: TimingPoint, tmp_path: Path) -> None:
    write_record(a_timing_record(build.timing(0, 1.0, sys=0.0), point), tmp_path / "r.json")
    where = f"FILE: B = {point.B}, S = 256, D = 1: B must be in 1..65536, t_verif_s above 0, t_sys_s and t_draft_s at"
    assert refusal(read_timing, tmp_path / "r.json").startswith(where)


def test_kernels_alone_are_no_step_times(tmp_path: Path) -> None:
    write_record(a_timing_record(), tmp_path / "r.json")
    assert refusal(read_timing, tmp_path / "r.json").startswith("FILE holds no step times")


@pytest.mark.parametrize(
    ("kind", "path"),
    [(AcceptanceRecord, ["results", 0, "curve", 0, "AL"]), (TimingRecord, ["points", 0, "t_verif_s"])],
)
def test_NaN_in_a_record_is_refused_by_its_path(kind: type, path: list[str | int], tmp_path: Path) -> None:
    record = build.acceptance_record(A) if kind is AcceptanceRecord else a_timing_record(build.timing(0, 1.0))
    data = to_json(record)
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = float("nan")
    (tmp_path / "r.json").write_text(json.dumps(data), encoding="utf-8")
    read = read_acceptance if kind is AcceptanceRecord else read_timing
    assert refusal(read, tmp_path / "r.json").startswith(f"FILE: {'.'.join(map(str, path))}=")
