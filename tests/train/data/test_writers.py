"""Writers: the target's own texts, appended as they end, and nothing written twice.

vLLM itself can't run in this environment: a script stands for its Python. It knows nothing of vLLM's and only keeps
the agreement on files; that vLLM keeps it is for the engine tests and for real runs.
"""

import json
import os
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.spec import Sampling
from codraft.train.data.answers import Wanted, Written, append_answers, read_answers
from codraft.train.data.vllm_writer import VllmWriter, vllm_version
from codraft.train.data.writers import TorchWriter, batches

from tests.toy import EOS, ToyTarget, greedy_text

GREEDY, WARM = Sampling(), Sampling(temperature=1.0, seed=3)
ENDS = frozenset([EOS])

FAKE = """#!{python}
import json, os, sys
if sys.argv[1] == "-c":
    print("0.fake")
    sys.exit(0)
job = json.load(open(sys.argv[2]))
failing = os.path.exists(job["target"] + "/fail")
print("INFO something that vLLM says")
limit, done = job.get("limit_tokens"), 0
for n, line in enumerate(open(job["requests"])):
    row = json.loads(line)
    if limit is not None and done >= limit:
        break
    if failing and n == 2:
        print("Traceback", file=sys.stderr)
        sys.exit("ValueError: no memory left")
    ids = [row["prompt_ids"][0] + 1, 5, job["eos_ids"][0]]
    done += len(ids)
    answer = dict(key=row["key"], output_ids=ids, stop_reason="eos")
    open(job["out"], "a").write(json.dumps(answer) + "\\n")
    print(json.dumps(dict(tokens=len(ids))), flush=True)
"""


def wanted(count: int, *, sampling: Sampling = GREEDY, tokens: int = 12) -> list[Wanted]:
    """Prompts of unlike lengths."""
    return [Wanted(f"w-{i}", i, [1 + i % 6] * (1 + i % 4), tokens, sampling) for i in range(count)]


def note(seen: list[tuple[int, int]]) -> Any:
    """A progress callback that remembers."""
    return lambda done, total: seen.append((done, total))


def silent(done: int, total: int) -> None:
    """A progress callback."""


def torch_writer(batch: int = 3, seed: int = 0) -> tuple[TorchWriter, ToyTarget]:
    """A writer over a toy, with the toy."""
    toy = ToyTarget(8, seed)
    return TorchWriter(lambda: toy, batch), toy


def test_greedy_answers_are_the_targets_own(tmp_path: Path) -> None:
    writer, toy = torch_writer()
    texts = writer.write(wanted(7), tmp_path / "a.jsonl", ENDS, silent)
    assert len(texts) == 7
    for w in wanted(7):
        whole = greedy_text(toy, list(w.prompt_ids), w.max_tokens)
        end = whole.index(EOS) + 1 if EOS in whole else len(whole)
        assert texts[w.key].output_ids == whole[:end]
        assert (texts[w.key].stop_reason == "eos") == (texts[w.key].output_ids[-1] == EOS)


def test_the_stop_tokens_are_those_that_are_given(tmp_path: Path) -> None:
    writer, toy = torch_writer()
    stops = frozenset([EOS, 3])
    texts = writer.write(wanted(7), tmp_path / "a.jsonl", stops, silent)
    assert any(text.output_ids[-1] == 3 for text in texts.values())
    assert all(3 not in text.output_ids[:-1] for text in texts.values())
    assert toy.eos_ids == ENDS


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
@pytest.mark.parametrize("cut", [0, 1, 40, 150, 290])
def test_a_run_killed_anywhere_writes_what_an_uninterrupted_one_does(
    tmp_path: Path, sampling: Sampling, cut: int
) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    expected = torch_writer()[0].write(wanted(8, sampling=sampling), whole, ENDS, silent)
    out.write_bytes(whole.read_bytes()[:cut])
    assert torch_writer()[0].write(wanted(8, sampling=sampling), out, ENDS, silent) == expected
    assert sorted(out.read_bytes().splitlines()) == sorted(whole.read_bytes().splitlines())


def test_what_is_written_is_not_written_again(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    torch_writer()[0].write(wanted(8), out, ENDS, silent)
    content = out.read_bytes()

    def never() -> ToyTarget:
        raise AssertionError("the target was loaded")

    seen: list[tuple[int, int]] = []
    assert len(TorchWriter(never, 3).write(wanted(8), out, ENDS, note(seen))) == 8
    assert out.read_bytes() == content
    assert seen[-1] == (8, 8)


@pytest.mark.parametrize("limit", [0, 1, 30, 10_000])
def test_a_limit_ends_between_batches_in_a_resumed_run_too(tmp_path: Path, limit: int) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    expected = torch_writer()[0].write(wanted(12), whole, ENDS, silent, limit)
    tokens = [len(text.output_ids) for text in expected.values()]
    assert len(expected) == 12 or sum(tokens) >= limit > sum(tokens) - 3 * 12
    out.write_bytes(whole.read_bytes()[:70] if expected else b"")
    assert torch_writer()[0].write(wanted(12), out, ENDS, silent, limit) == expected


def test_batches_hold_every_text_once_with_one_sampling_and_like_lengths() -> None:
    both = [*wanted(10), *(Wanted(f"s-{i}", 50 + i, [2] * (1 + i % 5), 5, WARM) for i in range(7))]
    made = list(batches(both, 4))
    assert sorted(w.key for group in made for w in group) == sorted(w.key for w in both)
    assert all(len(group) <= 4 and len({w.sampling for w in group}) == 1 for group in made)
    spans = sorted((len(g[0].prompt_ids), len(g[-1].prompt_ids)) for g in made if g[0].sampling == GREEDY)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))


def test_a_torn_line_is_cut_off(tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    append_answers(out, [("a", Written([1, 2], "length")), ("b", Written([3], "eos"))])
    size = out.stat().st_size
    with out.open("ab") as file:
        file.write(b'{"key": "c", "output')
    assert read_answers(out) == {"a": Written([1, 2], "length"), "b": Written([3], "eos")}
    assert out.stat().st_size == size


@pytest.mark.parametrize("line", ["{}", "[]", "x", '{"key": "a", "output_ids": [1], "stop_reason": "tired"}'])
def test_a_whole_line_that_is_no_answer_is_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text(line + "\n")
    with pytest.raises(SpecError, match="no answer"):
        read_answers(tmp_path / "a.jsonl")


def vllm_writer(tmp_path: Path) -> VllmWriter:
    """A writer whose Python is a script."""
    python = tmp_path / "python"
    python.write_text(FAKE.format(python=sys.executable))
    python.chmod(0o755)
    return VllmWriter(python=python, model=tmp_path, dtype="float32", batch=4, seed=0, work=tmp_path)


def expected_of(group: Sequence[Wanted]) -> dict[str, Written]:
    """What the script writes."""
    return {w.key: Written([w.prompt_ids[0] + 1, 5, EOS], "eos") for w in group}


def test_vllm_is_given_a_job_and_its_answers_are_read(tmp_path: Path) -> None:
    writer, seen = vllm_writer(tmp_path), list[tuple[int, int]]()
    assert vllm_version(writer.python) == "0.fake"
    assert writer.write(wanted(6), tmp_path / "a.jsonl", ENDS, note(seen)) == expected_of(wanted(6))
    assert seen == [(n, 6) for n in range(7)]
    job = json.loads((tmp_path / "vllm.job.json").read_text())
    assert (job["max_model_len"], job["max_num_seqs"], job["eos_ids"]) == (16, 4, [EOS])
    assert "limit_tokens" not in job


def test_vllm_writes_only_what_is_left_and_no_more_than_the_limit(tmp_path: Path) -> None:
    writer, out = vllm_writer(tmp_path), tmp_path / "a.jsonl"
    append_answers(out, expected_of(wanted(2)).items())
    with out.open("a") as file:
        file.write('{"key": "w-2", "outp')
    found = writer.write(wanted(6), out, ENDS, silent, limit=9)
    assert len(found) == 3
    assert found.keys() >= {"w-0", "w-1"}
    assert writer.write(wanted(6), out, ENDS, silent, limit=9) == found
    assert writer.write(wanted(6), out, ENDS, silent) == expected_of(wanted(6))


def test_where_vllm_fails_its_last_line_is_told_and_what_it_wrote_is_kept(tmp_path: Path) -> None:
    writer, out = vllm_writer(tmp_path), tmp_path / "a.jsonl"
    (tmp_path / "fail").touch()
    with pytest.raises(SpecError, match=r"code 1 \(ValueError: no memory left\).*vllm.log"):
        writer.write(wanted(6), out, ENDS, silent)
    assert read_answers(out) == expected_of(wanted(2))
    os.remove(tmp_path / "fail")
    assert writer.write(wanted(6), out, ENDS, silent) == expected_of(wanted(6))


def test_a_python_without_vllm_and_what_is_no_python_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(CapabilityError, match="has no vLLM"):
        vllm_version(Path(sys.executable))
    with pytest.raises(SpecError, match="is no program"):
        vllm_version(tmp_path / "none")
