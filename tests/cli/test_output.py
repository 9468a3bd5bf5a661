"""What a verb leaves: exactly one record where it was asked for, words for people on stderr."""

import json
import shutil
from pathlib import Path

import pytest

from codraft.cli.main import attached, main
from codraft.core.record import read_record
from codraft.core.schema import AcceptanceRecord, GenerationRecord


@pytest.mark.parametrize("argv", [["--json", "-", "-D", "2"], ["-D", "2", "--json", "-"], ["--json=-", "-D", "2"]])
def test_json_to_stdout_is_one_record_and_nothing_else(
    argv: list[str], tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["generate", str(tiny_model_dir), "-d", "ngram", "--prompt", "abab", "--max-new-tokens", "6", *argv]
    assert main(words) == 0
    out, err = capsys.readouterr()
    (tmp_path / "r.json").write_text(out, encoding="utf-8")
    record = read_record(tmp_path / "r.json", GenerationRecord)
    assert (record.target, record.D, record.drafter and record.drafter.name) == (str(tiny_model_dir), 2, "ngram")
    assert [len(output.output_ids) for output in record.outputs] == [6]
    assert "6 tokens (length)" in err


def test_json_to_a_file_leaves_stdout_empty(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "r.json"
    assert main(["generate", str(tiny_model_dir), "--prompt", "a", "--max-new-tokens", "2", "--json", str(path)]) == 0
    assert capsys.readouterr().out == ""
    record = read_record(path, GenerationRecord)
    assert (record.D, record.drafter) == (0, None)
    assert [path.name for path in path.parent.iterdir()] == ["r.json"]


def test_a_prompt_may_begin_with_a_hyphen(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    words = [
        "generate",
        str(tiny_model_dir),
        "--prompt",
        "- a list",
        "--raw",
        "--max-new-tokens",
        "2",
        "--json",
        str(path),
    ]
    assert main(words) == 0
    assert len(read_record(path, GenerationRecord).outputs[0].prompt_ids) == len("- a list")


def test_names_with_brackets_are_shown_as_they_are(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(tiny_model_dir, tmp_path / "m[" / "b]")
    row = {"prompt_ids": [1, 2], "output_ids": [3, 4, 3, 4, 256], "category": "[/b] maths", "target": "[/c]"}
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    words = ["accept", "m[/b]", "-d", "ngram", "-D", "2", "--streams", "s.jsonl", "--domains", "--json", "r.json"]
    assert main(words) == 0
    err = capsys.readouterr().err
    assert "m[/b]: 1 streams of 1 conversations" in err
    assert "these streams were written by [/c]: AL holds for m[/b] only" in err
    assert "[/b] maths (1 prompts): AL by D" in err
    record = read_record(tmp_path / "r.json", AcceptanceRecord)
    assert set(record.results[0].domains) == {"[/b] maths", "context 0..255"}
    assert [point.D for point in record.results[0].curve] == [1, 2]


def test_a_drafter_that_remembers_is_shown_cold_as_well(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = json.dumps({"prompt_ids": [1, 2], "output_ids": [*range(3, 11), 256]}) + "\n"
    (tmp_path / "s.jsonl").write_text(row * 2, encoding="utf-8")
    words = ["accept", str(tiny_model_dir), "-d", "suffix", "-d", "ngram", "-D", "2"]
    assert main([*words, "--streams", str(tmp_path / "s.jsonl"), "--json", str(tmp_path / "r.json")]) == 0
    suffix, ngram = read_record(tmp_path / "r.json", AcceptanceRecord).results
    # The second answer is the first again: remembered, its drafts are right; cold, nothing ever repeats.
    assert suffix.cold is not None
    assert [point.AL for point in suffix.cold] == [1.0, 1.0]
    assert suffix.curve[0].AL > 1
    assert ngram.cold is None
    err = capsys.readouterr().err
    assert err.count("cold (nothing remembered of other streams): AL by D  1.00  1.00") == 1


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["x", "--json", "-"], ["x", "--json=-"]),
        (["x", "--json", "-", "--raw"], ["x", "--json=-", "--raw"]),
        (["--prompt", "- a", "-D", "2"], ["--prompt=- a", "-D", "2"]),
        (["--prompt", "-a\n"], ["--prompt=-a\n"]),
        (["--json", "--raw"], ["--json", "--raw"]),
        (["--json=x", "-"], ["--json=x", "-"]),
        (["-", "--json"], ["-", "--json"]),
        (["--temperature", "-1"], ["--temperature", "-1"]),
        ([], []),
    ],
)
def test_a_lone_hyphen_and_words_with_spaces_belong_to_the_flag_before_them(
    argv: list[str], expected: list[str]
) -> None:
    assert attached(argv) == expected
