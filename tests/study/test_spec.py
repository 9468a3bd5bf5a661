"""study.toml: what was asked is what is read again."""

import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling
from codraft.study.spec import StudySpec, read_study, write_study

SPECS = st.builds(
    StudySpec,
    target=st.text(),
    drafters=st.lists(st.text(), max_size=3),
    prompts=st.lists(st.text(), max_size=3),
    streams=st.none() | st.text(),
    max_new_tokens=st.integers(-(2**63), 2**63 - 1),
    depth=st.lists(st.integers(0, 64), max_size=4),
    batch=st.lists(st.integers(1, 2**16), max_size=4),
    context=st.none() | st.lists(st.integers(2, 10**9), max_size=4),
    kernels=st.booleans(),
    acceptance=st.none() | st.text(),
    timing=st.none() | st.text(),
    temperature=st.floats(allow_nan=False),
    seed=st.integers(0, 2**63 - 1),
    skip_long=st.booleans(),
)


@given(SPECS)
def test_a_study_written_and_read_is_the_same(spec: StudySpec) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_study(spec, Path(folder) / "study.toml")
        assert read_study(Path(folder) / "study.toml") == spec


@pytest.mark.parametrize("text", ['a"b\\', "line\nline", "\x00\x1f\x7f", "\u2028\x85", "ü😀", "# no comment"])
def test_any_text_survives_in_a_study(text: str, tmp_path: Path) -> None:
    spec = StudySpec(target=text, drafters=[text])
    write_study(spec, tmp_path / "study.toml")
    assert read_study(tmp_path / "study.toml") == spec


def test_numbers_and_switches_stand_as_such_in_the_file(tmp_path: Path) -> None:
    spec = StudySpec(target="demo", drafters=[], rounds=3, depth=[0, 2], temperature=0.5, skip_long=True)
    write_study(spec, tmp_path / "study.toml")
    data = tomllib.loads((tmp_path / "study.toml").read_text(encoding="utf-8"))
    assert [data[key] for key in ("rounds", "depth", "temperature", "skip_long")] == [3, [0, 2], 0.5, True]


def test_sampling_is_asked_only_where_a_part_of_it_is() -> None:
    assert StudySpec(target="demo", drafters=[]).sampling() is None
    assert StudySpec(target="demo", drafters=[], top_k=5).sampling() == Sampling(top_k=5)


def test_a_question_that_was_not_asked_is_absent(tmp_path: Path) -> None:
    write_study(StudySpec(target="demo", drafters=["ngram"]), tmp_path / "study.toml")
    assert "streams" not in (tmp_path / "study.toml").read_text(encoding="utf-8")


def test_questions_left_out_have_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text('target = "demo"\ndrafters = ["ngram"]\n', encoding="utf-8")
    spec = read_study(tmp_path / "study.toml")
    assert spec == StudySpec(target="demo", drafters=["ngram"])
    assert (spec.depth, spec.batch, spec.context) == (list(range(9)), [1], None)
    assert (spec.kernels, spec.acceptance, spec.timing) == (True, None, None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('target = "demo"\ndrafters = []\ndept = [1]\n', "unknown option 'dept'; known here: target, drafters"),
        ('target = "demo"\n', "'drafters' is missing"),
        ("target = 3\ndrafters = []\n", "target=3: input should be a valid string"),
        ('target = "demo"\ndrafters = []\ndepth = ["x"]\n', "depth.0='x'"),
        (
            'target = "demo"\ndrafters = []\nrounds = 2026-11-29\n',
            "rounds='2026-11-29': input should be a valid integer",
        ),
        ('target = "demo"\ndrafters = []\nrounds = "3"\n', "rounds='3': input should be a valid integer"),
        ("target = \n", "is not valid TOML"),
        ("a = " + "[" * 5000, "is not valid TOML"),
    ],
)
def test_a_study_that_asks_nonsense_is_refused_by_name(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SpecError, match=r"study\.toml") as caught:
        read_study(tmp_path / "study.toml")
    assert words in str(caught.value)


def test_a_study_that_is_not_text_or_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_bytes(b"\xff")
    with pytest.raises(SpecError, match="is not valid TOML"):
        read_study(tmp_path / "study.toml")
    with pytest.raises(SpecError, match=r"cannot read .*: No such file"):
        read_study(tmp_path / "none.toml")


@pytest.mark.parametrize("name", ["rounds", "confirm_prompts"])
def test_a_study_of_no_rounds_or_no_answers_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match=f"{name} must be at least 1; got 0"):
        StudySpec(target="demo", drafters=["ngram"], **{name: 0})  # type: ignore[arg-type]
