"""`codraft train data` and `codraft train show` as a user sees them."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from codraft.cli import data_table, mask_view
from codraft.cli.train_data import data, parse_settings
from codraft.cli.train_show import show
from codraft.core.errors import SpecError
from codraft.train.tokens import Origin, Row, write_tokens


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Two rows of use and one of none."""
    path = tmp_path / "p.jsonl"
    rows = [{"prompt": "Name [red]a[/red] river.\x1b[31m"}, {"messages": []}, {"turns": ["a", "b"]}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def marked(tokenizer_dir: Path, tmp_path: Path) -> Path:
    """A token file of two rows, the first with two answers and text that a terminal would obey."""
    from codraft.decode.hf.load import load_card

    tokenizer = load_card(str(tokenizer_dir)).tokenizer
    parts = [("<|user|>Hi\x1b[31m<|end|><|assistant|>", 0), ("Yes é[b]<|end|>", 1), ("<|user|>?<|end|>", 0), ("No", 1)]
    ids = [(i, bool(answer)) for text, answer in parts for i in tokenizer(text)["input_ids"]]
    row = Row(np.array([i for i, _ in ids]), np.array([m for _, m in ids]), "talk")
    path = tmp_path / "t.safetensors"
    other = Row(np.array(tokenizer("Second")["input_ids"]), np.array([True] * 6))
    write_tokens(path, [row, other], Origin(target=str(tokenizer_dir), vocab_size=260, template="chat"))
    return path


def test_without_colour_brackets_mark_what_is_supervised(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(str(marked(tiny_model_dir, tmp_path)), row=1) == 0
    out = capsys.readouterr().out
    assert "2 rows" in out
    assert "talk 1" in out
    shown = out.partition("--- row 1")[2].partition("\n")[2].strip()
    assert shown == "<|user|>Hi\\x1b[31m<|end|><|assistant|>[[Yes é[b]<|end|>]]<|user|>?<|end|>[[No]]"


def test_on_a_terminal_colours_do(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(file=io.StringIO(), force_terminal=True, color_system="standard", width=200, highlight=False)
    monkeypatch.setattr(mask_view, "screen", lambda: terminal)
    show(str(marked(tiny_model_dir, tmp_path)), row=1)
    assert isinstance(terminal.file, io.StringIO)
    shown = terminal.file.getvalue().partition("--- row 1")[2]
    assert "[[" not in shown
    assert "\x1b[1;32mYes é[b]" in shown
    assert "\x1b[1;32mHi" not in shown


@pytest.mark.parametrize("flags,rows", [({}, [1, 2]), ({"rows": 1}, [1]), ({"row": 2}, [2])])
def test_rows_are_chosen(
    tiny_model_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flags: dict[str, Any],
    rows: list[int],
) -> None:
    show(str(marked(tiny_model_dir, tmp_path)), **flags)
    out = capsys.readouterr().out
    assert [n for n in (1, 2) if f"--- row {n}:" in out] == rows


def test_a_row_that_is_not_there_is_refused(tiny_model_dir: Path, tmp_path: Path, prompts: Path) -> None:
    path = marked(tiny_model_dir, tmp_path)
    with pytest.raises(SpecError, match=r"--row must be in 1\.\.2"):
        show(str(path), row=3)
    with pytest.raises(SpecError, match=r"--row must be in 1\.\.3"):
        show(str(prompts), row=4)
    with pytest.raises(SpecError, match="not both"):
        show(str(path), row=1, rows=2)
    with pytest.raises(SpecError, match="--rows must be at least 1"):
        show(str(path), rows=0)


def test_rows_of_prompts_are_shown_with_what_became_of_them(prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(str(prompts)) == 0
    out = capsys.readouterr().out
    assert f"{prompts}, line 1: kept (1 turn) Name [red]a[/red] river.\\x1b[31m" in out
    assert f"{prompts}, line 2: dropped, empty" in out
    assert f"{prompts}, line 3: kept (2 turns) a" in out
    assert "3 rows = 2 kept + 1 dropped" in out


def test_with_a_target_rows_that_do_not_fit_it_are_shown_so(
    tiny_model_dir: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    show(str(prompts), row=1, target=str(tiny_model_dir), max_new_tokens=120)
    assert "dropped, over_long" in capsys.readouterr().out


def test_data_writes_the_file_and_one_record(
    tiny_model_dir: Path,
    tmp_path: Path,
    prompts: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Console(file=io.StringIO(), width=200)
    monkeypatch.setattr(data_table, "console", told)
    output = tmp_path / "t.safetensors"
    code = data(str(tiny_model_dir), output=output, prompts=[str(prompts)], max_new_tokens=8, json="-")
    record = json.loads(capsys.readouterr().out)
    assert (code, record["schema"], record["output"]) == (0, "codraft.train_data/1", str(output))
    assert record["prompts"] == {"rows": 3, "kept": 2, "dropped": {"empty": 1}, "repaired": {}}
    assert isinstance(told.file, io.StringIO)
    assert "3 rows = 2 kept + 1 dropped (1 empty)" in told.file.getvalue()
    assert output.exists()


def test_flags_on_writing_are_refused_beside_streams(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="without flags on how to write them"):
        data("demo", output=tmp_path / "t", streams=tmp_path / "s.jsonl", temperature=1.0)


def test_settings_of_vllm_are_json_or_text() -> None:
    assert parse_settings(["a=8", "b=true", "c=auto", 'd={"x": 1}']) == {"a": 8, "b": True, "c": "auto", "d": {"x": 1}}
    for wrong in (["a"], ["=1"], ["a b=1"], ["a=1", "a=2"]):
        with pytest.raises(SpecError, match="--vllm-set"):
            parse_settings(wrong)
