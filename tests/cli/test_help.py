"""Help and version come at once: without models, and without what only models need."""

import subprocess
import sys

import pytest

from codraft import __version__
from codraft.cli.main import HELP, PARTS, VERBS, main

# Runs `main` with the given words and names the heavy modules that it took in.
PROBE = """
import sys
from codraft.cli.main import main
code = main(sys.argv[1:])
heavy = [name for name in ("torch", "transformers", "pydantic", "numpy") if name in sys.modules]
print("HEAVY", heavy)
raise SystemExit(code)
"""


def probe(*words: str) -> subprocess.CompletedProcess[str]:
    """`codraft WORDS` in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", PROBE, *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([verb, "--help"] for verb in VERBS)])
def test_help_and_version_import_nothing_that_only_models_need(words: list[str]) -> None:
    done = probe(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "HEAVY []" in done.stdout


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_verb_and_the_exit_codes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert (out, err) == (HELP, "")
    for verb in VERBS:
        assert f"\n  {verb} " in out
    assert "Exit codes: 0 done, 1 a stated threshold failed, 2 usage or input error, 3 " in out


@pytest.mark.parametrize("words", [["--version"], ["version"]])
def test_version_is_the_packages(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr() == (f"{__version__}\n", "")


# The flags that the contract promises, verb by verb.
FLAGS = {
    "accept": (
        "--drafter --prompts --streams --save-streams --max-new-tokens --depth --temperature --top-p --top-k --seed "
        "--mode --dtype --domains --skip-long --json"
    ),
    "generate": (
        "--drafter --prompt --prompts --depth --max-new-tokens --temperature --seed --dtype --skip-long --json"
    ),
    "tune": (
        "--drafter --prompts --streams --batch --context --depth --max-new-tokens --rounds --confirm-prompts --kernels "
        "--no-kernels --acceptance --timing --plan --output --temperature --top-p --top-k --seed --dtype --skip-long "
        "--json"
    ),
    "profile": (
        "--drafter --batch --context --depth --engine --prompts --rounds --kernels --hardware-out --temperature "
        "--top-p --top-k --seed --dtype --json"
    ),
    "advise": "--acceptance --timing --batch --context --target --tile --json",
    "inspect": "--method --engine --depth --tp --context --prompts --full --json",
    "frontier": "--acceptance --timing --batch --context --json",
    "train": (
        "--data --output --from --recipe --loss --weights --decay --drafts --follow --anchors --block-size "
        "--confidence --noise --optimizer --lr --muon-lr --weight-decay --clip --warmup --decline --epochs --init "
        "--layers --ffn --taps "
        "--draft-vocab --markov-rank --mask-token --batch-tokens --accumulate --max-length --max-steps --shortlist "
        "--features --autocast --checkpointing --parallel --eval-every --save-every --held-out --depth --select --seed "
        "--dtype --json"
    ),
    "convert": "--to --output --target --engine --json",
    "report": "--output --json",
}
# Those of a verb's own commands.
PART_FLAGS = {
    "train data": (
        "--prompts --self-written --openers --streams --max-new-tokens --batch --writer --vllm-python --vllm-set "
        "--temperature --top-p --top-k --also-sampled --also-temperature --seed --limit-tokens --dtype --output --json"
    ),
    "train show": "--row --rows --target --max-new-tokens",
    "train plan": "--data --recipe --loss --layers --batch-tokens --features --json",
    "train vocab": "--data --size --sizes --output --json",
    "train features": "--data --output --layers --store --writer --vllm-python --vllm-set --dtype --json",
}
SHORT = {
    "-D": ("accept", "generate", "tune", "profile", "inspect", "train"),
    "-o": ("tune", "convert", "report", "train"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verbs_help_names_every_flag_of_the_contract(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main([verb, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    words = set(out.replace(",", " ").split())
    assert set(FLAGS[verb].split()) <= words
    for flag, verbs in SHORT.items():
        assert (flag in words) == (verb in verbs)
    assert {word for word in words if word.startswith("--no-")} == ({"--no-kernels"} if verb == "tune" else set())


@pytest.mark.parametrize("command", PART_FLAGS)
def test_the_commands_of_a_verb_have_a_help_of_their_own(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main([*command.split(), "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert f"Usage: codraft {command} " in out
    assert set(PART_FLAGS[command].split()) <= set(out.replace(",", " ").split())


def test_the_flags_of_every_verb_are_promised() -> None:
    assert FLAGS.keys() == VERBS.keys()
    assert PART_FLAGS.keys() == {f"{verb} {part}" for verb, parts in PARTS.items() for part in parts}


def test_the_verbs_that_take_figures_say_what_a_table_holds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    for verb in ("advise", "frontier"):
        main([verb, "--help"])
        out = capsys.readouterr().out
        assert "drafter,D,AL[,AL_low,AL_high][,domain]" in out
        assert "B,S,D and t_verif_s[,t_sys_s][,drafter,t_draft_s], or t_step_s" in out
        assert f"codraft {verb} --acceptance al.csv --timing steps.csv" in out


def test_python_m_codraft_is_codraft() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "codraft", "nonsense"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("codraft: unknown verb 'nonsense'; choose one of tune, inspect, accept, profile")
