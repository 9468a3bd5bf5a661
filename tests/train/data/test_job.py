"""The data job from prompts to a token file, on a tiny random model whose text nobody could read."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.core.record import dumps, read_record
from codraft.core.spec import Sampling
from codraft.core.traindata import RowsInfo, TrainDataRecord
from codraft.decode.hf.load import load_card, load_model
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import Writing, write_streams
from codraft.train.data.job import DataJob, run_data
from codraft.train.data.rounds import Answer
from codraft.train.data.work import work_folder
from codraft.train.tokens import TokenFile

from tests.train.data.letters import Quiet

ROWS = [
    {"turns": ["Name a river.", "Another?"], "category": "geo"},
    {"messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]},
    {"turns": ["name a RIVER.", " ANOTHER?"]},
    {"conversations": [{"from": "gpt", "value": "x"}, {"from": "human", "value": "Sum?"}], "category": "maths"},
    {"prompt": "z" * 200},
    {"messages": [{"role": "user", "content": None}]},
]
WARM = Sampling(temperature=1.0, seed=5)


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of prompts, half of them no use."""
    path = tmp_path_factory.mktemp("prompts") / "p.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS) + "no json\n")
    return path


@pytest.fixture(scope="module")
def openers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Beginnings of short turns: the tiny model's window holds no long ones."""
    path = tmp_path_factory.mktemp("openers") / "o.json"
    path.write_text(json.dumps({"question": ["Who ", "What "], "open": [""]}))
    return path


def job(target: Path, output: Path, **more: Any) -> DataJob:
    """A job for the tiny model, 12 tokens an answer."""
    return DataJob(target=str(target), output=output, **{"max_new_tokens": 12, "batch": 2, **more})


def run(target: Path, output: Path, **more: Any) -> TrainDataRecord:
    """Run it and take its record, which can be read again."""
    record = run_data(job(target, output, **more), Quiet())
    path = output.with_suffix(".json")
    path.write_text(dumps(record), encoding="utf-8")
    assert read_record(path, TrainDataRecord) == record
    return record


def balanced(info: RowsInfo | None) -> RowsInfo:
    """Rows in = kept + dropped."""
    assert info is not None
    assert info.rows == info.kept + sum(info.dropped.values())
    return info


def test_prompt_rows_become_rows_of_the_targets_answers(tiny_model_dir: Path, tmp_path: Path, prompts: Path) -> None:
    output = tmp_path / "t.safetensors"
    record = run(tiny_model_dir, output, prompts=[str(prompts)])
    info = balanced(record.prompts)
    assert info.dropped == {"duplicate": 1, "over_long": 1, "null_content": 1, "broken_json": 1}
    assert info.repaired == {"assistant_first": 1, "sharegpt_keys": 1}
    file = TokenFile(output)
    # What replay would write for the same prompts: turn by turn behind the target's own answers.
    kept = prompts.with_name("kept.jsonl")
    kept.write_text("".join(json.dumps(row) + "\n" for row in (ROWS[0], ROWS[1], {"prompt": "Sum?"})))
    target, codec = load_model(str(tiny_model_dir)), TextCodec(load_card(str(tiny_model_dir)).tokenizer)
    how = Writing(sampling=Sampling(), max_new_tokens=12, tail=0, batch=1, window=128)
    streams = write_streams(target, codec, load_prompts([str(kept)]).conversations, how).streams
    assert len(file) == len(streams) == record.file_rows
    for index, stream in enumerate(streams):
        row = file.row(index)
        assert row.ids.tolist() == stream.prompt_ids + stream.output_ids
        assert row.mask.tolist() == [False] * len(stream.prompt_ids) + [True] * len(stream.output_ids)
    assert file.rows_by_category() == {"": 1, "geo": 2, "maths": 1}
    assert record.supervised_tokens == file.num_supervised
    assert record.tokens == file.num_tokens
    assert record.sha256 == file.sha256
    assert {name: part.rows for name, part in record.categories.items()} == {"none": 1, "geo": 2, "maths": 1}
    assert not output.with_name("t.safetensors.work").exists()


def test_the_first_token_of_an_answer_and_its_end_are_supervised_and_no_other(tiny_model_dir: Path) -> None:
    tokenizer = load_card(str(tiny_model_dir)).tokenizer
    prompt = "<|user|>Hi<|end|><|assistant|>"
    whole = prompt + "Yes.<|end|>"
    prompt_ids, ids = tokenizer(prompt)["input_ids"], tokenizer(whole)["input_ids"]
    row = Answer(0, prompt_ids, ids[len(prompt_ids) :], True, None).row()
    marked = "".join(
        f"[{piece}]" if supervised else piece
        for piece, supervised in zip(tokenizer.convert_ids_to_tokens(row.ids.tolist()), row.mask, strict=True)
    )
    assert marked == "<|user|>Hi<|end|><|assistant|>[Y][e][s][.][<|end|>]"


@pytest.mark.parametrize("sampling", [Sampling(), WARM], ids=["greedy", "warm"])
def test_a_killed_job_goes_on_to_the_same_file(
    tiny_model_dir: Path, tmp_path: Path, prompts: Path, openers: Path, sampling: Sampling
) -> None:
    asked: dict[str, Any] = {
        "prompts": [str(prompts)], "self_written": 6, "openers": openers, "sampling": sampling, "also_sampled": 0.5,
    }  # fmt: skip
    whole, killed = tmp_path / "whole.safetensors", tmp_path / "killed.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        # Keep the work folder of the run that is not killed: the killed one's is a beginning of it.
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        first = run(tiny_model_dir, whole, **asked)
    work = tmp_path / "whole.safetensors.work"
    content = (work / "answers.jsonl").read_bytes()
    ends = [i + 1 for i, byte in enumerate(content) if byte == ord("\n")]
    for cut in (ends[0] + 9, ends[2], len(content) - 2):
        folder = tmp_path / "killed.safetensors.work"
        shutil.copytree(work, folder)
        (folder / "answers.jsonl").write_bytes(content[:cut])
        second = run(tiny_model_dir, killed, **asked)
        assert killed.read_bytes() == whole.read_bytes()
        assert second.resumed_answers == sum(end <= cut for end in ends)
        assert (second.prompts, second.self_written) == (first.prompts, first.self_written)
        killed.unlink()
    assert not folder.exists()


def test_the_target_writes_its_own_user_turns(tiny_model_dir: Path, tmp_path: Path, openers: Path) -> None:
    record = run(tiny_model_dir, tmp_path / "t.safetensors", self_written=16, openers=openers)
    assert record.self_written is not None
    info = balanced(record.self_written.turns)
    assert (info.rows, record.prompts) == (16, None)
    assert 0 < info.kept < 16
    assert info.dropped["not_ended"] > 0
    assert record.self_written.openers == {"question": 2, "open": 1}
    assert record.conversations == record.file_rows == info.kept
    assert sum(record.languages["asked"].values()) == info.kept
    assert set(record.categories) <= {"question", "open"}


def test_a_share_of_the_conversations_is_answered_once_more(
    tiny_model_dir: Path, tmp_path: Path, prompts: Path
) -> None:
    plain = run(tiny_model_dir, tmp_path / "p.safetensors", prompts=[str(prompts)])
    both = run(tiny_model_dir, tmp_path / "b.safetensors", prompts=[str(prompts)], also_sampled=1.0)
    assert both.conversations == plain.conversations
    assert both.file_rows == 2 * plain.file_rows
    assert [one["temperature"] for one in both.sampling] == [0.0, 1.0]


def test_a_limit_ends_the_writing_and_says_which_rows_were_not_reached(
    tiny_model_dir: Path, tmp_path: Path, prompts: Path
) -> None:
    record = run(tiny_model_dir, tmp_path / "t.safetensors", prompts=[str(prompts)], limit_tokens=1, batch=1)
    info = balanced(record.prompts)
    assert (info.kept, info.dropped["limit"], record.file_rows) == (1, 2, 1)


def test_where_nothing_is_supervised_nothing_is_written(
    tiny_model_dir: Path, tmp_path: Path, prompts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "t.safetensors"
    end = next(iter(load_card(str(tiny_model_dir)).eos_ids))
    from codraft.train.data.answers import Written
    from codraft.train.data.writers import TorchWriter

    def ended(self: TorchWriter, group: Sequence[Any], *_: Any) -> dict[str, Written]:
        return {w.key: Written([end], "eos") for w in group}

    monkeypatch.setattr(TorchWriter, "_write_batch", ended)
    with pytest.raises(SpecError, match=r"no supervised token.*nothing was written"):
        run_data(job(tiny_model_dir, output, prompts=[str(prompts)]), Quiet())
    assert not output.exists()


def test_answers_of_logs_become_a_token_file(tiny_model_dir: Path, tmp_path: Path) -> None:
    end = next(iter(load_card(str(tiny_model_dir)).eos_ids))
    rows = [
        {"prompt_ids": [1, 2, 3], "output_ids": [4, 5, 6, end, 9], "category": "a"},
        {"prompt_ids": [1], "output_ids": list(range(20))},
        {"prompt_ids": [1], "output_ids": [7]},
        {"prompt_ids": [1] * 125, "output_ids": [4, 5, 6, 7]},
    ]
    path = tmp_path / "logs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    output = tmp_path / "t.safetensors"
    record = run(tiny_model_dir, output, streams=path, max_new_tokens=None)
    assert balanced(record.prompts).dropped == {"over_long": 1, "no_supervised_token": 1}
    file = TokenFile(output)
    assert [file.row(i).ids.tolist() for i in range(len(file))] == [[1, 2, 3, 4, 5, 6, end], [1, *range(20)]]
    assert [file.row(i).spans() for i in range(len(file))] == [[(3, 7)], [(1, 21)]]
    assert (record.writer, record.tokens_per_s) == ("streams", None)


@pytest.mark.parametrize(
    "more,told",
    [
        ({}, "nothing to answer"),
        ({"streams": Path("x"), "prompts": ["y"]}, "--streams holds answers already"),
        ({"prompts": ["y"], "openers": Path("x")}, "--openers are for"),
        ({"self_written": 0}, "--self-written must be at least 1"),
        ({"prompts": ["y"], "limit_tokens": 0}, "--limit-tokens must be at least 1"),
        ({"prompts": ["y"], "also_sampled": 1.5}, "--also-sampled must be in 0..1"),
        ({"prompts": ["y"], "also_sampled": 0.5, "also_temperature": 0.0}, "--also-temperature must be above 0"),
        ({"prompts": ["y"], "vllm_options": {"a": 1}}, "--vllm-set is for"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, more: dict[str, Any], told: str) -> None:
    with pytest.raises(SpecError, match=told):
        job(tmp_path, tmp_path / "t.safetensors", **more)


def test_rows_that_are_all_no_use_are_refused_before_the_model_is_loaded(tiny_model_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"x": 1}\n{"messages": []}\n')
    with pytest.raises(SpecError, match=r"no prompt is left to be answered: 1 \w+, 1 \w+"):
        run_data(job(tiny_model_dir, tmp_path / "t.safetensors", prompts=[str(path)]), Quiet())
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_file_is_not_overwritten(tiny_model_dir: Path, tmp_path: Path, prompts: Path) -> None:
    output = tmp_path / "t.safetensors"
    output.write_text("mine")
    with pytest.raises(SpecError, match="exists already"):
        run_data(job(tiny_model_dir, output, prompts=[str(prompts)]), Quiet())


def test_a_work_folder_takes_one_job_and_one_process(tmp_path: Path) -> None:
    output = tmp_path / "t.safetensors"
    with pytest.raises(KeyboardInterrupt), work_folder(output, {"seed": 1}) as folder:
        (folder / "answers.jsonl").touch()
        with pytest.raises(SpecError, match="another codraft is writing"), work_folder(output, {"seed": 1}):
            pass
        raise KeyboardInterrupt
    assert (folder / "answers.jsonl").exists()
    with pytest.raises(SpecError, match=r"another seed \(1, now 2\)"), work_folder(output, {"seed": 2}):
        pass
    with work_folder(output, {"seed": 1}) as again:
        assert again == folder
    assert not folder.exists()
