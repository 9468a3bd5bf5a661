"""`codraft convert` as people and programs meet it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from codraft.cli.main import main
from codraft.core.conversion import ConversionRecord
from codraft.core.files import sha256_file
from codraft.core.record import read_record

from tests.formats.heads import made
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import pair
from tests.served import serving_hub

# Runs `main` with the given words and names the heavy modules that it took in.
PROBE = """
import sys
from codraft.cli.main import main
code = main(sys.argv[1:])
print("HEAVY", [name for name in ("torch", "transformers") if name in sys.modules])
raise SystemExit(code)
"""


def written(name: str, folder: Path) -> tuple[Path, Path]:
    """A base pair as files: target and drafter."""
    two = pair(name) if name in ("eagle3", "dflash", "dspark") else ALL[name]()
    assert two.drafter is not None
    return two.target.write(folder / "target"), two.drafter.write(folder / "head")


def test_a_head_is_written_in_another_layout_and_what_was_done_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, head = written("eagle3", tmp_path)
    words = ["convert", str(head), "--to", "speculators", "--target", str(target), "-o", str(tmp_path / "out")]
    assert main([*words, "--json", str(tmp_path / "r.json")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[1] == f"{head} (eagle3, safeailab) -> {tmp_path / 'out'} (speculators)"
    assert lines[2].startswith("  16 tensors, ")
    assert "reads the outputs of layers [1, 5, 8]" in said.err
    assert "eagle_aux_hidden_state_layer_ids [2, 6, 9] (inputs)" in said.err
    assert f"embed_tokens.weight copied from {target} (model.embed_tokens.weight)" in said.err
    record = read_record(tmp_path / "r.json", ConversionRecord)
    assert (record.mechanism, record.from_format, record.to_format) == ("eagle3", "safeailab", "speculators")
    assert (record.input, record.output, record.target) == (str(head), str(tmp_path / "out"), str(target))
    assert record.filled == ["embed_tokens.weight"]
    assert record.taps is not None
    assert (record.taps.outputs, record.taps.inputs) == ([1, 5, 8], [2, 6, 9])
    assert {file.name: file.sha256 for file in record.files} == {
        path.name: sha256_file(path) for path in (tmp_path / "out").iterdir()
    }
    assert sum(file.bytes for file in record.files) == sum(p.stat().st_size for p in (tmp_path / "out").iterdir())
    assert record.tensors == len(made.stored(tmp_path / "out"))


def test_stdout_holds_the_record_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, head = written("dflash", tmp_path)
    assert main(["convert", str(head), "--to", "zlab", "-o", str(tmp_path / "out"), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "codraft.convert/1"


def test_no_torch_is_needed(tmp_path: Path) -> None:
    target, head = written("eagle3", tmp_path)
    words = ["convert", str(head), "--to", "speculators", "--target", str(target), "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "HEAVY []" in done.stdout


def test_what_cannot_be_is_one_sentence_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, head = written("dflash", tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert main(["convert", str(head), "--to", "speculators", "-o", str(tmp_path / "new" / "out")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert [line for line in said.err.splitlines() if line.startswith("codraft: ")] == [
        f"codraft: {head} has no embedding (embed_tokens.weight), and speculators files hold a copy of the target's; "
        "name the target with --target"
    ]
    assert sorted(tmp_path.rglob("*")) == before


def test_an_output_that_holds_something_is_left_alone_and_an_empty_one_is_filled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, head = written("dflash", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    assert main(["convert", str(head), "--to", "zlab", "-o", str(out)]) == 0
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert main(["convert", str(head), "--to", "zlab", "-o", str(out)]) == 2
    assert "the folder holds files already" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.iterdir()} == before


def test_killed_in_the_middle_nothing_stands_under_the_name(tmp_path: Path) -> None:
    _, head = written("dflash", tmp_path)
    # The writer stops for good at its second tensor.
    stuck = """
import os, sys, time
import codraft.formats.safewrite as w
from codraft.cli.main import main
real, count = w.pieces, [0]
def slow(item):
    count[0] += 1
    if count[0] == 2:
        print("half", flush=True)
        time.sleep(600)
    yield from real(item)
w.pieces = slow
main(sys.argv[1:])
"""
    words = ["convert", str(head), "--to", "zlab", "-o", str(tmp_path / "out")]
    process = subprocess.Popen([sys.executable, "-c", stuck, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "out").exists()
    assert main(words) == 0
    assert len(made.stored(tmp_path / "out")) > 20


def test_an_interrupt_takes_the_half_written_folder_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, head = written("dflash", tmp_path)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("codraft.formats.heads.convert.write_raw", interrupted)
    assert main(["convert", str(head), "--to", "zlab", "-o", str(tmp_path / "out")]) == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["head", "target"]


def test_a_hub_id_is_read_by_ranges(tmp_path: Path) -> None:
    """In a process of its own, since huggingface_hub reads its settings when it is imported."""
    target, head = written("eagle3", tmp_path)
    words = ["convert", "o/head", "--to", "speculators", "--target", "o/target", "-o", str(tmp_path / "out")]
    with serving_hub({"o/target": target, "o/head": head}) as hub:
        done = subprocess.run(
            [sys.executable, "-m", "codraft", *words, "--json", "-"],
            capture_output=True, text=True, check=False, env=hub.environment(tmp_path / "cache"),
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["target"] == "o/target"
    local = tmp_path / "local"
    assert main(["convert", str(head), "--to", "speculators", "--target", str(target), "-o", str(local)]) == 0
    assert made.stored(tmp_path / "out") == made.stored(local)
    verifier = made.config_of(tmp_path / "out")["speculators_config"]["verifier"]
    assert verifier["name_or_path"] == "o/target"


def test_help_lists_the_layouts_of_every_mechanism(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from codraft.formats.heads.spellings import LAYOUTS

    monkeypatch.setenv("COLUMNS", "200")
    main(["convert", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for mechanism, families in LAYOUTS.items():
        part = said[said.index(f"{mechanism}: {families[0]}") :]
        assert all(family in part for family in families)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_without_permission_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shut").mkdir(mode=0o500)
    assert main(["convert", "no-such-head", "--to", "zlab", "-o", str(tmp_path / "shut" / "out")]) == 2
    assert "no write permission there" in capsys.readouterr().err


def test_the_output_is_no_place_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, head = written("dflash", tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    convert = ["convert", str(head), "--to", "zlab", "-o"]
    for words, said in (
        ([*convert, ""], "the folder holds files already"),
        ([*convert, str(head / "inside")], "which is only read; name a folder outside of it"),
        ([*convert, str(tmp_path / "out"), "--json", str(tmp_path / "out" / "r.json")], "name a file outside of it"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
        assert sorted(tmp_path.rglob("*")) == before


def test_a_loop_of_links_is_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, head = written("dflash", tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    for out in ("loop", "loop/x"):
        assert main(["convert", str(head), "--to", "zlab", "-o", str(tmp_path / out)]) == 2
        assert "cannot write" in capsys.readouterr().err


def test_nothing_is_written_into_the_targets_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, head = written("dflash", tmp_path)
    out = target / "inside"
    words = ["convert", str(head), "--to", "speculators", "--target", str(target), "-o", str(out)]
    assert main(words) == 2
    assert "which is only read" in capsys.readouterr().err
    assert not out.exists()
