"""Exit codes: what a verb returns or raises, and what the shell is told."""

import subprocess
import sys
from pathlib import Path

import pytest

import codraft.cli.accept
from codraft.cli.main import main
from codraft.core.errors import CapabilityError, SpecError


@pytest.mark.parametrize(("returned", "code"), [(0, 0), (1, 1), (None, 0)])
def test_the_verbs_answer_is_the_exit_code(returned: object, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codraft.cli.accept, "accept", lambda: returned)
    assert main(["accept"]) == code


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (SpecError("D is 9; give less"), 2, "codraft: D is 9; give less\n"),
        (CapabilityError("pip install it"), 3, "codraft: pip install it\n"),
        (KeyboardInterrupt(), 130, "codraft: interrupted; what was finished is kept, and nothing is half-written\n"),
        (SpecError("two\nlines\u2028or three"), 2, "codraft: two lines or three\n"),
    ],
)
def test_an_error_is_one_sentence_and_its_own_exit_code(
    error: BaseException,
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        raise error

    monkeypatch.setattr(codraft.cli.accept, "accept", fail)
    assert main(["accept"]) == code
    assert capsys.readouterr() == ("", sentence)


def test_an_error_that_is_ours_is_not_dressed_up_as_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(codraft.cli.accept, "accept", fail)
    with pytest.raises(ZeroDivisionError):
        main(["accept"])


# `accept` writes to a pipe whose reader has gone.
READER_GONE = """
import os, sys
import codraft.cli.accept
from codraft.cli.main import main

def accept() -> int:
    print("x" * 100_000, flush=True)
    return 0

codraft.cli.accept.accept = accept
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
raise SystemExit(main(["accept"]))
"""


def test_a_reader_that_goes_away_ends_the_command_without_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READER_GONE], stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (141, "")


def test_being_ended_is_as_being_interrupted(tmp_path: Path) -> None:
    """Half-written folders go, as they do after Ctrl-C."""
    script = f"""
import os, signal, sys, time
from pathlib import Path
import codraft.cli.main as command
from codraft.formats.outfolder import new_folder
def run(argv):
    with new_folder(Path({str(tmp_path / "out")!r})) as part:
        (part / "file").write_text("half")
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
command.run = run
sys.exit(command.main())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr.startswith("codraft: interrupted; ")
    assert list(tmp_path.iterdir()) == []
