"""Bad input: exit code 2, one sentence on stderr that names the slip, nothing on stdout, nothing written."""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from safetensors.torch import load_file, save_file

from codraft.cli.main import VERBS, main

Complaint = Callable[..., str]
FIGURES = ["--acceptance", "al.csv", "--timing", "steps.csv"]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in."""
    desk = tmp_path / "desk"
    desk.mkdir()
    monkeypatch.chdir(desk)
    (desk / "ok.jsonl").write_text('{"prompt": "hello"}\n', encoding="utf-8")
    (desk / "streams.jsonl").write_text('{"prompt_ids": [1, 2], "output_ids": [3, 4, 256]}\n', encoding="utf-8")
    (desk / "al.csv").write_text("drafter,D,AL\nngram,1,1.5\n", encoding="utf-8")
    rows = ["B,S,D,t_step_s", "1,256,0,1", "1,256,1,1", "4,256,0,1", "4,256,1,1", "4,512,0,1"]
    (desk / "steps.csv").write_text("\n".join(rows), encoding="utf-8")
    return desk


def files_of(folder: Path) -> dict[str, bytes | None]:
    """Every path below a folder with its bytes."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def complaint(desk: Path, capsys: pytest.CaptureFixture[str]) -> Complaint:
    """Runs a command that must fail as bad input does, and returns its sentence."""

    def run(*argv: str, after: int = 0) -> str:
        """`after`: stages that may be reported on stderr before the sentence."""
        before = files_of(desk)
        capsys.readouterr()
        code = main(argv)
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert code == 2
        assert out == ""
        assert "Traceback" not in err
        assert [line.startswith("codraft: ") for line in lines] == [False] * after + [True]
        assert files_of(desk) == before
        return lines[-1].removeprefix("codraft: ")

    return run


def test_an_unknown_verb_is_answered_with_the_verbs(complaint: Complaint) -> None:
    assert (
        complaint("acept", "x")
        == "unknown verb 'acept'; choose one of tune, inspect, accept, profile, advise, frontier, "
        "generate, train, convert, report, or see `codraft --help`"
    )


def test_a_line_break_in_an_argument_stays_on_one_line(complaint: Complaint) -> None:
    assert complaint("two\nlines").startswith("unknown verb 'two lines'")


def test_an_argument_that_is_not_UTF_8_is_refused(complaint: Complaint) -> None:
    assert "an argument is not UTF-8 text" in complaint("accept", "caf\udce9", "-d", "ngram")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["accept", "x", "--nope", "3"], ["Unknown option: --nope", "see `codraft accept --help`"]),
        (["accept"], ["TARGET", "see `codraft accept --help`"]),
        (["accept", "x", "y", "-d", "ngram"], ["y", "see `codraft accept --help`"]),
        (["accept", "x", "-d"], ["-d requires an argument"]),
        (["accept", "x", "-d", "ngram", "-D", "2.5"], ["-D", "'2.5' is not a whole number"]),
        (["accept", "x", "-d", "ngram", "--seed", "1e3"], ["--seed", "'1e3' is not a whole number"]),
        (["accept", "x", "-d", "ngram", "--temperature", "warm"], ["--temperature", "warm"]),
        (["accept", "x"], ["no drafter given; use --drafter"]),
        (["accept", "x", "-d", "ngrm"], ["unknown mechanism 'ngrm'", "external, eagle3"]),
        (["accept", "x", "-d", "eagle3"], ["eagle3 needs a model, as eagle3:PATH_OR_ID"]),
        (["accept", "x", "-d", "suffix,max_tree_depth=1"], ["max_tree_depth must be in 2..512; got 1"]),
        (["accept", "x", "-d", "external:y,layers=0"], ["layers must be at least 1; got 0"]),
        (["accept", "x", "-d", "ngram,n_mx=3"], ["unknown option 'n_mx'", "n_max"]),
        (["accept", "x", "-d", "external"], ["external needs a model, as external:PATH_OR_ID"]),
        (["accept", "x", "-d", "ngram,name=a", "-d", "ngram,name=a"], ["two drafters are named 'a'"]),
        (["accept", "x", "-d", "ngram", "-D", "0"], ["D (--depth) must be in 1..64; got 0"]),
        (["accept", "x", "-d", "ngram", "-D", "-1"], ["D (--depth) must be in 1..64; got -1"]),
        (["accept", "x", "-d", "ngram", "-D", "65"], ["D (--depth) must be in 1..64; got 65"]),
        (["accept", "x", "-d", "ngram", "--temperature", "-0.5"], ["temperature must be a number >= 0", "-0.5"]),
        (["accept", "x", "-d", "ngram", "--temperature", "nan"], ["temperature must be a number >= 0", "nan"]),
        (["accept", "x", "-d", "ngram", "--top-p", "1.1"], ["top-p must be above 0 and at most 1", "1.1"]),
        (["accept", "x", "-d", "ngram", "--top-p", "0"], ["top-p must be above 0 and at most 1"]),
        (["accept", "x", "-d", "ngram", "--top-k", "-1"], ["top-k must be >= 0", "-1"]),
        (["accept", "x", "-d", "ngram", "--seed", "-1"], ["seed must be in 0..2**63 - 1; got -1"]),
        (["accept", "x", "-d", "ngram", "-p", "ok.jsonl", "--streams", "s"], ["either --prompts or --streams"]),
        (["accept", "x", "-d", "ngram", "--mode", "dead"], ["--mode must be one of replay, live, engine; got 'dead'"]),
        (["accept", "x", "-d", "ngram", "--mode", "engine"], ["--mode engine is not in this version"]),
        (["accept", "x", "-d", "ngram", "--dtype", "int4"], ["dtype must be one of auto, float32", "int4"]),
        (["accept", "x", "-d", "ngram", "--batch", "0"], ["--batch must be at least 1; got 0"]),
        (["accept", "x", "-d", "ngram", "--max-new-tokens", "0"], ["--max-new-tokens must be at least 1; got 0"]),
        (["accept", "x", "-d", "ngram", "--save-streams", "."], ["cannot write .: it is a folder"]),
        (["generate", "x"], ["give either --prompt TEXT or --prompts FILE[:N]"]),
        (["generate", "x", "--prompt", "a", "-p", "ok.jsonl"], ["give either --prompt TEXT or --prompts FILE[:N]"]),
        (["generate", "x", "--prompt", "a", "-D", "3"], ["-D 3 needs a --drafter"]),
        (["generate", "x", "--prompt", "a", "-D", "-1"], ["D (--depth) must be in 0..64; got -1"]),
        (["generate", "x", "--prompt", "a", "-D", "65", "-d", "ngram"], ["D (--depth) must be in 0..64; got 65"]),
        (["generate", "x", "--prompt", "a", "-d", "ngram", "-d", "ngram"], ["at most one --drafter; got 2"]),
        (["generate", "x", "--prompt", "a", "--max-new-tokens", "0"], ["--max-new-tokens must be at least 1; got 0"]),
        (["generate", "x", "--prompt", "a", "--dtype", "int4"], ["dtype must be one of auto, float32", "int4"]),
        (["tune", "x", "-D", "0..65"], ["--depth '0..65': values must be in 0..64"]),
        (["tune", "x", "-D", "4..1"], ["--depth '4..1': 4..1 runs backwards"]),
        (["tune", "x", "-D", "many"], ["--depth 'many' is not a list; write it as 1,2,4 or 0..8"]),
        (["tune", "x", "--batch", "0"], ["--batch '0': values must be in 1 and above"]),
        (["tune", "x", "--rounds", "0"], ["--rounds must be at least 1; got 0"]),
        (["tune", "x", "--confirm-prompts", "0"], ["--confirm-prompts must be at least 1; got 0"]),
        (["tune", "x", "-p", "ok.jsonl", "--streams", "s"], ["either --prompts or --streams"]),
        (["tune", "x", "-D", "0"], ["--depth needs at least one D above 0"]),
        (["tune", "x", "--batch", "1,,2"], ["--batch '1,,2' is not a list"]),
        (["tune", "x", "--context", "0"], ["--context '0': values must be in 1 and above"]),
        (["tune", "x", "--temperature", "-1"], ["temperature must be a number >= 0"]),
        (["tune", "x", "--plan", "--json", "-"], ["--plan makes no record; drop --json"]),
        (["tune", "x", "--acceptance", "none.csv"], ["cannot read none.csv: No such file"]),
        (["tune", "x", "--timing", "al.csv"], ["al.csv: unknown column 'AL'"]),
        (["tune", "x", "-d", "suffix", "--acceptance", "al.csv"], ["holds drafter 'ngram', which no --drafter names"]),
        (["profile"], ["TARGET", "see `codraft profile --help`"]),
        (["profile", "x", "--engine", "vllm"], ["--engine must be torch in this version; got 'vllm'"]),
        (["profile", "x", "-d", "ngrm"], ["unknown mechanism 'ngrm'"]),
        (["profile", "x", "-D", "0..65"], ["--depth '0..65': values must be in 0..64"]),
        (["profile", "x", "--batch", "0"], ["--batch '0': values must be in 1 and above"]),
        (["profile", "x", "--context", "1"], ["--context '1': values must be in 2 and above"]),
        (["profile", "x", "--context", "many"], ["--context 'many' is not a list"]),
        (["profile", "x", "--rounds", "0"], ["--rounds must be at least 1; got 0"]),
        (["profile", "x", "--top-p", "2"], ["top-p must be above 0 and at most 1"]),
        (["profile", "x", "--dtype", "int4"], ["dtype must be one of auto, float32", "int4"]),
        (["profile", "x", "--hardware-out", "."], ["cannot write .: it is a folder"]),
        (["advise"], ["--acceptance", "see `codraft advise --help`"]),
        (["advise", "--acceptance", "al.csv"], ["--timing", "see `codraft advise --help`"]),
        (["frontier", "--timing", "steps.csv"], ["--acceptance", "see `codraft frontier --help`"]),
        (["advise", *FIGURES, "--tile", "many"], ["--tile", "'many' is not a whole number"]),
        (["convert", "x", "--to", "zlab"], ["--output", "see `codraft convert --help`"]),
        (["convert", "x", "-o", "out"], ["--to", "see `codraft convert --help`"]),
        (["convert", "x", "--to", "zlab", "-o", "ok.jsonl"], ["cannot write ok.jsonl: it is a file"]),
        (["convert", "x", "--to", "zlab", "-o", "."], ["the folder holds files already"]),
        (["convert", "x", "--to", "zlab", "-o", "out", "--engine", "ollama"], ["--engine", "ollama"]),
        (["report"], ["STUDY", "see `codraft report --help`"]),
        (["report", "none"], ["none is no study folder (it has no study.toml)", "codraft tune TARGET -o none"]),
        (["report", "ok.jsonl"], ["ok.jsonl is no study folder"]),
    ],
    ids=" ".join,
)
def test_a_command_that_cannot_be_is_refused_before_any_work(
    argv: list[str], words: list[str], complaint: Complaint
) -> None:
    sentence = complaint(*argv)
    for word in words:
        assert word in sentence


VERB_TAILS = {
    "accept": ["-d", "ngram", "-p", "ok.jsonl"],
    "generate": ["--prompt", "a"],
    "tune": ["-p", "ok.jsonl"],
    "profile": ["-p", "ok.jsonl"],
}
COMMANDS = {
    **{verb: [verb, "x", *tail] for verb, tail in VERB_TAILS.items()},
    "advise": ["advise", *FIGURES],
    "frontier": ["frontier", *FIGURES],
    "inspect": ["inspect", "no-such-model"],
    "train": ["train", "eagle3", "x", "--data", "none.safetensors", "-o", "out"],
    "convert": ["convert", "no-such-head", "--to", "zlab", "-o", "out"],
    "report": ["report", "x"],
}
each_verb = pytest.mark.parametrize("verb", VERB_TAILS)
each_command = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def test_every_verb_is_among_the_commands() -> None:
    assert COMMANDS.keys() == VERBS.keys()


@each_command
def test_a_json_destination_that_is_a_folder_is_refused(command: list[str], complaint: Complaint) -> None:
    assert complaint(*command, "--json", ".") == "cannot write .: it is a folder; name a file"


@each_command
def test_a_json_destination_without_permission_is_refused_before_any_work(
    command: list[str], complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    sentence = complaint(*command, "--json", "new/record.json")
    assert sentence == "cannot write new/record.json: no write permission there; choose another place"


def test_a_json_destination_with_too_long_a_name_is_refused(complaint: Complaint) -> None:
    assert os.strerror(errno.ENAMETOOLONG) in complaint("generate", "x", "--prompt", "a", "--json", "x" * 300)


@each_verb
def test_a_model_folder_that_is_missing_is_refused(verb: str, complaint: Complaint) -> None:
    banner = 1 if verb == "tune" else 0
    sentence = complaint(verb, "/no/such/model", *VERB_TAILS[verb], after=banner)
    assert sentence == "model '/no/such/model' is neither a folder here nor a hub id (owner/name); check the path"


@each_verb
def test_a_folder_that_is_no_model_is_refused(verb: str, desk: Path, complaint: Complaint) -> None:
    (desk / "empty").mkdir()
    sentence = complaint(verb, "empty", *VERB_TAILS[verb], after=1 if verb == "tune" else 0)
    assert sentence.startswith("model folder empty has no config.json")


def test_a_file_is_no_model(complaint: Complaint) -> None:
    assert complaint("generate", "ok.jsonl", "--prompt", "a").startswith("model ok.jsonl is a file; name the folder")


@pytest.mark.parametrize("text", ["{", "[]", "", "{}", '{"model_type": "no-such-model"}'])
def test_a_config_that_makes_no_sense_is_refused(text: str, desk: Path, complaint: Complaint) -> None:
    (desk / "m").mkdir()
    (desk / "m" / "config.json").write_text(text, encoding="utf-8")
    assert complaint("generate", "m", "--prompt", "a").startswith("cannot load model m: ")


def test_a_hub_that_cannot_be_reached_is_one_sentence(complaint: Complaint) -> None:
    sentence = complaint("generate", "owner/name", "--prompt", "a")
    assert sentence.startswith("model 'owner/name' is not a folder here and the hub cannot be reached")


BAD_PROMPTS = {
    "an empty file": ("", ": ", "has no rows; give at least one prompt"),
    "a broken line": ('{"prompt": "a"}\n{"prompt": \n', "bad.jsonl, line 2: ", "not valid JSON"),
    "a row without a prompt": ('{"prompt": "a"}\n\n{"text": "b"}\n', "bad.jsonl, line 3: ", "no prompt in this row"),
    "a list": ('["a"]\n', "bad.jsonl, line 1: ", "expected a JSON object, found list"),
    "half a character": ('{"prompt": "a\\ud83d"}\n', "bad.jsonl, line 1: ", "half of a surrogate pair"),
}


@pytest.mark.parametrize("verb", ["accept", "generate"])
@pytest.mark.parametrize(("text", "where", "words"), BAD_PROMPTS.values(), ids=BAD_PROMPTS.keys())
def test_a_prompt_file_that_cannot_be_used_is_named_with_its_line(
    verb: str, text: str, where: str, words: str, desk: Path, complaint: Complaint
) -> None:
    (desk / "bad.jsonl").write_text(text, encoding="utf-8")
    drafter = ["-d", "ngram"] if verb == "accept" else []
    sentence = complaint(verb, "x", *drafter, "-p", "bad.jsonl")
    assert "bad.jsonl" in sentence
    assert where in sentence or where == ": "
    assert words in sentence


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("none.jsonl", "no prompt file none.jsonl; give a JSONL file or a built-in set: demo"),
        ("demo:0", "--prompts demo:0: N must be at least 1; got 0"),
        (".", "prompts . is a folder; name a JSONL file in it"),
        ("What is the capital of a country that I describe? " * 8, "no prompt file What is the capital"),
    ],
    ids=["missing", "no rows asked", "a folder", "a prompt for a file"],
)
def test_prompts_that_are_no_file_are_refused(source: str, words: str, complaint: Complaint) -> None:
    assert complaint("generate", "x", "-p", source).startswith(words)


def test_streams_that_are_no_file_are_refused(tiny_model_dir: Path, complaint: Complaint) -> None:
    sentence = complaint("accept", str(tiny_model_dir), "-d", "ngram", "--streams", "none.jsonl")
    assert sentence == "cannot read none.jsonl: No such file or directory; check the path"


def test_a_stream_with_ids_of_another_vocabulary_is_named_with_its_line(
    tiny_model_dir: Path, desk: Path, complaint: Complaint
) -> None:
    (desk / "s.jsonl").write_text('{"prompt_ids": [1], "output_ids": [260, 1, 256]}\n', encoding="utf-8")
    sentence = complaint("accept", str(tiny_model_dir), "-d", "ngram", "--streams", "s.jsonl")
    assert sentence == "s.jsonl, line 1: 'output_ids' holds id 260, outside the target's vocabulary of 260"


def test_a_stream_longer_than_the_window_is_named_by_length_and_count(
    tiny_model_dir: Path, desk: Path, complaint: Complaint
) -> None:
    row = {"prompt_ids": [1] * 100, "output_ids": [2] * 40}
    (desk / "s.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    sentence = complaint("accept", str(tiny_model_dir), "-d", "ngram", "--streams", "s.jsonl")
    assert "stream 0 has 140 tokens, more than the model's window of 128 (1 of 1 are too long)" in sentence


@pytest.mark.parametrize("verb", ["accept", "generate"])
def test_a_prompt_longer_than_the_window_is_named_by_line_and_count(
    verb: str, tiny_model_dir: Path, desk: Path, complaint: Complaint
) -> None:
    (desk / "long.jsonl").write_text('{"prompt": "a"}\n' + json.dumps({"prompt": "b" * 200}) + "\n", encoding="utf-8")
    drafter = ["-d", "ngram"] if verb == "accept" else []
    sentence = complaint(
        verb,
        str(tiny_model_dir),
        *drafter,
        "-p",
        "long.jsonl",
        "--max-new-tokens",
        "8",
        "--json",
        "r.json",
        after=1 if verb == "accept" else 0,
    )
    assert sentence.startswith("long.jsonl, line 2: a prompt of 203 tokens and ")
    assert (
        "do not fit the model's window of 128 (1 of 2 prompts are too long); shorten it, or use --skip-long" in sentence
    )


# A prompt and an answer that fit the tiny model's window.
SHORT = ["--prompt", "a", "--max-new-tokens", "4"]


def test_prompts_that_are_all_too_long_are_refused_even_where_they_may_be_skipped(
    tiny_model_dir: Path, complaint: Complaint
) -> None:
    sentence = complaint("generate", str(tiny_model_dir), "--prompt", "b" * 200, "--skip-long")
    assert sentence.startswith("every prompt is too long for the window of 128")


def copy_of(model: Path, folder: Path) -> Path:
    """A checkpoint to be spoilt."""
    shutil.copytree(model, folder)
    return folder


def test_truncated_weights_are_refused(tiny_model_dir: Path, desk: Path, complaint: Complaint) -> None:
    weights = copy_of(tiny_model_dir, desk / "m") / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert complaint("generate", "m", *SHORT).startswith("cannot load model m: ")


def test_a_folder_without_weights_is_refused(tiny_model_dir: Path, desk: Path, complaint: Complaint) -> None:
    (copy_of(tiny_model_dir, desk / "m") / "model.safetensors").unlink()
    assert complaint("generate", "m", *SHORT).startswith("cannot load model m: ")


def test_a_model_that_lacks_a_tensor_is_refused(tiny_model_dir: Path, desk: Path, complaint: Complaint) -> None:
    """transformers would run it on noise."""
    file = copy_of(tiny_model_dir, desk / "m") / "model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    tensors.pop(name)
    save_file(tensors, file, metadata={"format": "pt"})
    said = complaint("generate", "m", *SHORT)
    assert said.startswith("cannot load model m: its files lack 1 tensors")
    assert name in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vocab", "m", "--data", "ok.jsonl", "-o", "ok.jsonl"], "--data and --output are both ok.jsonl"),
        (["vocab", "m", "--data", "t", "-o", "v", "--json", "./v"], "lies where"),
        (["plan", "mtp", "m", "--data", "ok.jsonl", "--json", "ok.jsonl"], "--data and --json are both ok.jsonl"),
        (["mtp", "m", "--data", "ok.jsonl", "-o", "out", "--json", "ok.jsonl"], "--data and --json are both ok.jsonl"),
        (["mtp", "m", "--data", "t", "-o", "out", "--json", "out/model.safetensors"], "lies where --output is written"),
        (["features", "m", "--data", "ok.jsonl", "-o", "../desk/ok.jsonl"], "--data and --output are both"),
        (["data", "m", "-p", "ok.jsonl:4", "-o", "t", "--json", "ok.jsonl"], "--prompts and --json are both ok.jsonl"),
        (["data", "m", "--streams", "streams.jsonl", "-o", "streams.jsonl"], "--streams and --output are both"),
    ],
)
def test_nothing_that_is_read_is_written_over(words: list[str], said: str, complaint: Complaint) -> None:
    assert said in complaint("train", *words)


def test_a_tokenizer_that_cannot_be_read_is_refused(tiny_model_dir: Path, desk: Path, complaint: Complaint) -> None:
    (copy_of(tiny_model_dir, desk / "m") / "tokenizer.json").write_text("{", encoding="utf-8")
    assert complaint("generate", "m", "--prompt", "a").startswith("cannot load model m: ")


def swapped(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """The same tokenizer with the meanings of ids 3 and 5 exchanged."""
    vocab = tokenizer["model"]["vocab"]
    by_id = {i: token for token, i in vocab.items()}
    vocab[by_id[3]], vocab[by_id[5]] = 5, 3
    return tokenizer


@pytest.mark.parametrize("verb", ["accept", "generate"])
def test_a_drafter_of_another_vocabulary_is_refused_with_the_ids_that_differ(
    verb: str, tiny_model_dir: Path, desk: Path, complaint: Complaint
) -> None:
    file = copy_of(tiny_model_dir, desk / "other") / "tokenizer.json"
    file.write_text(json.dumps(swapped(json.loads(file.read_text(encoding="utf-8")))), encoding="utf-8")
    source = ["--streams", "streams.jsonl", "-D", "1"] if verb == "accept" else SHORT
    sentence = complaint(verb, str(tiny_model_dir), "-d", "external:other", *source)
    assert "drafter 'external': its tokenizer differs from the target's in 2 ids (id 3 is " in sentence
    assert "id 5 is " in sentence
    assert sentence.endswith("an external drafter needs the target's vocabulary")


def test_a_drafter_without_a_tokenizer_must_at_least_have_as_many_ids(
    tiny_model_dir: Path, desk: Path, complaint: Complaint
) -> None:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig.from_pretrained(tiny_model_dir)
    config.vocab_size = 200
    with torch.random.fork_rng():
        LlamaForCausalLM(config).save_pretrained(desk / "small")
    sentence = complaint("generate", str(tiny_model_dir), "-d", "external:small", *SHORT)
    assert "drafter 'external': vocabulary of 200 against the target's 260" in sentence


def test_drawn_drafts_need_a_drawing_target(tiny_model_dir: Path, complaint: Complaint) -> None:
    drafter = f"external:{tiny_model_dir},draft=sample"
    sentence = complaint("generate", str(tiny_model_dir), "-d", drafter, *SHORT)
    assert "draft=sample needs --temperature above 0" in sentence


both = pytest.mark.parametrize("verb", ["advise", "frontier"])


@both
@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--batch", "3"], "--batch 3: not among the timed B (1, 4)"),
        (["--batch", "1..4"], "--batch 2: not among the timed B (1, 4)"),
        (["--batch", "0"], "--batch '0': values must be in 1 and above"),
        (["--context", "128"], "--context 128: not among the timed S (256, 512)"),
        (["--batch", "1", "--context", "512"], "--context 512: not among the timed S (256)"),
        (["--context", "all"], "--context 'all' is not a list; write it as 1,2,4 or 0..8"),
    ],
)
def test_a_load_that_was_not_timed_is_refused_with_those_that_were(
    verb: str, argv: list[str], sentence: str, complaint: Complaint
) -> None:
    assert complaint(verb, *FIGURES, *argv) == sentence


BAD_FIGURES = {
    "an unknown column": (b"drafter,D,AL,tau\na,1,1.5,2\n", b"B,S,D,t_ms\n1,1,0,1\n", "unknown column '"),
    "no D = 0": (None, b"B,S,D,t_step_s\n1,1,1,1\n", "B = 1, S = 1 has D = 1 but no row with D = 0"),
    "an AL above 1 + D": (b"drafter,D,AL\na,1,2.5\n", None, "line 2: AL must be at least 1 and at most 2; got 2.5"),
    "NaN": (b"drafter,D,AL\na,1,nan\n", b"B,S,D,t_step_s\n1,1,0,NaN\n", "; got nan"),
    "an empty file": (b"", b"", " is missing; needed: "),
    "a header alone": (b"drafter,D,AL\n", b"B,S,D,t_step_s\n", "bad.csv h"),
    "bytes": (b"\xff\xfe\x00", b"\xff\xfe\x00", "is not a CSV in UTF-8 ("),
}


@both
@pytest.mark.parametrize("half", ["acceptance", "timing"])
@pytest.mark.parametrize("case", BAD_FIGURES)
def test_figures_that_cannot_be_are_refused_by_file(
    verb: str, half: str, case: str, desk: Path, complaint: Complaint
) -> None:
    acceptance, timing, words = BAD_FIGURES[case]
    raw = acceptance if half == "acceptance" else timing
    if raw is None:
        return
    (desk / "bad.csv").write_bytes(raw)
    files = {"acceptance": "al.csv", "timing": "steps.csv", half: "bad.csv"}
    sentence = complaint(verb, "--acceptance", files["acceptance"], "--timing", files["timing"], "--json", "r.json")
    assert sentence.startswith("bad.csv")
    assert words in sentence


@both
@pytest.mark.parametrize("half", ["acceptance", "timing"])
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("none.csv", "cannot read none.csv: No such file or directory; check the path"),
        ("folder.csv", "cannot read folder.csv: Is a directory; check the path"),
        ("folder", "cannot read folder: Is a directory; check the path"),
        ("ok.jsonl", "ok.jsonl: expected a 'codraft."),
        ("streams.bin", "streams.bin is not a JSON record"),
    ],
)
def test_a_file_that_holds_no_figures_is_refused(
    verb: str, half: str, name: str, sentence: str, desk: Path, complaint: Complaint
) -> None:
    (desk / "folder").mkdir()
    (desk / "folder.csv").mkdir()
    (desk / "streams.bin").write_bytes(b"\x00\xff\x00")
    files = {"acceptance": "al.csv", "timing": "steps.csv", half: name}
    assert complaint(verb, "--acceptance", files["acceptance"], "--timing", files["timing"]).startswith(sentence)


@both
def test_AL_of_a_drafter_that_others_were_timed_without_is_refused(verb: str, desk: Path, complaint: Complaint) -> None:
    (desk / "t.csv").write_text("B,S,D,t_verif_s,drafter,t_draft_s\n1,1,0,1,,\n1,1,1,1,x,0\n", encoding="utf-8")
    sentence = complaint(verb, "--acceptance", "al.csv", "--timing", "t.csv")
    assert sentence == "no drafting time of 'ngram' at D = 1 (timed: ['x'])"


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--tile", "0"], "--tile must be at least 1; got 0"),
        (["--tile", "128"], "--tile says nothing without the target's heads; name a model folder with --target"),
        (["--target", "none"], "--target none: no config.json of a dense transformer there; name a model folder"),
        (["--target", "."], "--target .: no config.json of a dense transformer there; name a model folder"),
    ],
)
def test_heads_and_tile_that_cannot_be_are_refused(argv: list[str], sentence: str, complaint: Complaint) -> None:
    assert complaint("advise", *FIGURES, *argv).startswith(sentence)


def test_a_study_whose_folder_cannot_be_made_is_refused_before_any_work(desk: Path, complaint: Complaint) -> None:
    sentence = complaint("tune", "x", *FIGURES, "-o", "ok.jsonl/study", after=1)
    assert sentence.startswith("cannot write ok.jsonl/study/study.toml: ")


def test_a_study_without_its_records_has_no_report(desk: Path, complaint: Complaint) -> None:
    (desk / "study").mkdir()
    (desk / "study" / "study.toml").write_text('target = "x"\ndrafters = ["ngram"]\n', encoding="utf-8")
    assert complaint("report", "study").startswith("cannot read study/records/decision.json: No such file")
    assert complaint("report", "study", "-o", ".") == "cannot write .: it is a folder; name a file"
    assert complaint("report", "study", "-o", "ok.jsonl/page.html").startswith("cannot write ok.jsonl/page.html: ")


def test_a_study_file_with_a_misspelt_key_is_refused_by_name(desk: Path, complaint: Complaint) -> None:
    (desk / "study" / "records").mkdir(parents=True)
    text = 'target = "x"\ndrafters = ["ngram"]\nbatches = [1]\n'
    (desk / "study" / "study.toml").write_text(text, encoding="utf-8")
    assert complaint("report", "study").startswith("study/study.toml: unknown option 'batches'; known here: target")
