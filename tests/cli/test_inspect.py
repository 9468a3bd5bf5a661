"""`codraft inspect` as people and programs meet it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codraft.cli.main import main
from codraft.core.inspection import HeadSummary, InspectionRecord, ModelSummary
from codraft.core.record import read_record

from tests.checkpoints import write_tokenizer
from tests.models.inspect.pairs import pair
from tests.served import serving_hub


@pytest.fixture
def eagle3(tmp_path: Path) -> list[str]:
    """A target and a head that fit."""
    return written("eagle3", tmp_path)


def written(name: str, folder: Path) -> list[str]:
    """A base pair as files; its two paths."""
    two = pair(name)
    paths = [two.target.write(folder / "target")]
    if two.drafter is not None:
        paths.append(two.drafter.write(folder / "drafter"))
    return [str(path) for path in paths]


def changed(folder: Path, key: str, value: Any) -> None:
    """One key of a config written anew."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config[key] = value
    path.write_text(json.dumps(config), encoding="utf-8")


def test_a_pair_that_fits_exits_with_0(eagle3: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", *eagle3, "--method", "eagle3"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "12 layers: 12 full attention; 12 dense FFN; hidden 64; 8 query heads, 4 KV heads of 8, G = 2" in said.err
    assert "(eagle3, safeailab layout)" in said.err
    assert "error" not in said.err


def test_an_error_exits_with_1_and_says_what_was_seen_and_what_to_do(
    eagle3: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(tmp_path / "drafter", "tie_word_embeddings", True)
    assert main(["inspect", *eagle3]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "1 error, " in said
    assert "error tie.reduced: tie_word_embeddings is true, and 128 of 512 tokens are drafted seen drafter" in said
    assert "config.json: tie_word_embeddings = true; drafter config.json: draft_vocab_size = 128 leads to Head" in said
    assert 'do Write "tie_word_embeddings": false' in said


def test_the_worst_comes_first(eagle3: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(tmp_path / "drafter", "tie_word_embeddings", True)
    changed(tmp_path / "drafter", "max_position_embeddings", 2048)
    main(["inspect", *eagle3])
    lines = [line.split()[0] for line in capsys.readouterr().err.splitlines() if line[:1] in "ewn" and ": " in line]
    assert lines == sorted(lines, key=["error", "warning", "note"].index)
    assert len(set(lines)) == 3


def test_notes_are_one_line_each_unless_asked_for_in_full(
    eagle3: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["inspect", *eagle3])
    short = capsys.readouterr().err
    main(["inspect", *eagle3, "--full"])
    full = capsys.readouterr().err
    assert "leads to" not in short
    assert full.count("leads to") == full.count("\nnote")


def test_the_record_holds_both_models_and_every_finding(eagle3: list[str], tmp_path: Path) -> None:
    changed(tmp_path / "drafter", "tie_word_embeddings", True)
    assert main(["inspect", *eagle3, "--engine", "vllm", "--json", str(tmp_path / "r.json")]) == 1
    record = read_record(tmp_path / "r.json", InspectionRecord)
    assert isinstance(record.target, ModelSummary)
    assert isinstance(record.drafter, HeadSummary)
    assert (record.engine, record.drafter.mechanism, record.drafter.taps) == ("vllm", "eagle3", [1, 5, 8])
    assert [f.code for f in record.findings if f.severity == "error"] == ["tie.reduced"]
    assert all(f.message and f.consequence and f.fix and f.evidence for f in record.findings)
    assert record.provenance.input_hashes.keys() == {
        "target_config", "target_headers", "drafter_config", "drafter_headers",
    }  # fmt: skip


def test_stdout_holds_the_record_alone(eagle3: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", *eagle3, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "codraft.inspection/1"


def test_two_models_are_compared_by_their_tokenizers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = written("external", tmp_path)
    assert main(["inspect", *paths, "--method", "draft_model"]) == 0
    assert "Vocabulary: equal" in capsys.readouterr().err
    table = json.loads((tmp_path / "target" / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"]
    write_tokenizer(tmp_path / "drafter", {token: len(table) - 1 - i for token, i in table.items()})
    assert main(["inspect", *paths, "--json", str(tmp_path / "r.json")]) == 1
    assert "vocab.permuted" in capsys.readouterr().err
    found = read_record(tmp_path / "r.json", InspectionRecord).vocabulary
    assert found is not None
    # Reversed ids mean the same string nowhere; the built-in prompts say what that costs.
    assert (found.verdict, found.sample, found.affected_share) == ("permuted", "demo", 1.0)


def test_prompts_are_held_against_positions_and_the_draft_vocabulary(
    eagle3: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(tmp_path / "drafter", "max_position_embeddings", 8)
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "ab"}\n{"prompt": "far too long for it"}\n', encoding="utf-8")
    assert main(["inspect", *eagle3, "-p", str(prompts)]) == 1
    said = capsys.readouterr().err
    assert "positions.workload: 1 of 2 prompts (50%) are longer, up to 19 tokens" in said
    assert "draft_vocab.coverage" in said


def test_nothing_heavy_is_imported(eagle3: list[str]) -> None:
    """No torch, no transformers; no numpy where only a target is looked at."""
    for paths, unwanted in ((eagle3, ("torch", "transformers")), (eagle3[:1], ("torch", "transformers", "numpy"))):
        probe = (
            "import sys; from codraft.cli.main import main; main(['inspect', *sys.argv[1:]]); "
            f"sys.exit(' '.join(name for name in {unwanted!r} if name in sys.modules) or 0)"
        )
        done = subprocess.run([sys.executable, "-c", probe, *paths], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr[-500:]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--method", "eagle9"], "--method 'eagle9' is not known; choose one of external, eagle3"),
        (["--engine", "tgi"], "vllm"),
        (["-D", "0"], "must be in 1..64"),
        (["--tp", "0"], "--tp must be at least 1"),
        (["--context", "-5"], "--context"),
        (["-p", "no-such-file.jsonl"], "no-such-file.jsonl"),
        (["--json", "/"], "it is a folder"),
    ],
)
def test_a_wrong_flag_is_one_sentence(
    flags: list[str], words: str, eagle3: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", *eagle3, *flags]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_head_in_the_targets_place_is_refused(eagle3: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", eagle3[1]]) == 2
    assert "is a drafter's head (eagle3, seen by" in capsys.readouterr().err


@pytest.mark.parametrize("damage", [b"", b'\x08\x00\x00\x00\x00\x00\x00\x00{"a": 1', b"\xff" * 64])
def test_a_damaged_file_is_one_sentence_and_leaves_no_record(
    damage: bytes, eagle3: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "drafter" / "model.safetensors").write_bytes(damage)
    assert main(["inspect", *eagle3, "--json", str(tmp_path / "r.json")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("codraft: ")
    assert said.count("\n") == 1
    assert not (tmp_path / "r.json").exists()


def test_a_hub_id_is_read_by_ranges(eagle3: list[str], tmp_path: Path) -> None:
    """In a process of its own, since huggingface_hub reads its settings when it is imported."""
    with serving_hub({"o/target": Path(eagle3[0]), "o/head": Path(eagle3[1])}) as hub:
        done = subprocess.run(
            [sys.executable, "-m", "codraft", "inspect", "o/target", "o/head", "--json", "-"],
            capture_output=True, text=True, check=False, env=hub.environment(tmp_path / "cache"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["target"]["id"], record["drafter"]["id"]) == ("o/target", "o/head")
    assert record["drafter"]["taps"] == [1, 5, 8]
