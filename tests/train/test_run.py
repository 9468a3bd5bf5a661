"""Whole runs on a tiny target: what is learnt, what a kill changes (nothing), what comes out."""

import json
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from codraft.cli.train import ShapeFlags
from codraft.core.errors import SpecError
from codraft.core.inspection import HeadSummary
from codraft.models.inspect.job import inspect
from codraft.train import run as running
from codraft.train.evaluate import evaluate
from codraft.train.fresh import Shape
from codraft.train.held import HeldOut, stream_of
from codraft.train.kinds import COPYING, KINDS, refuse_idle
from codraft.train.recipe import Recipe
from codraft.train.state import FILE

from tests.train import teaching
from tests.train.teaching import MECHANISMS, job, losses, run


@pytest.fixture(scope="module")
def data(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of the tiny target."""
    return teaching.write_answers(tiny_model_dir, tmp_path_factory.mktemp("data") / "tokens.safetensors")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_drafter_learns_what_it_sees_again_and_again(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    """On the rows that it learns from AL comes near to all that its drafts allow; the loss goes down."""
    asked = job(
        mechanism, tiny_model_dir, data, tmp_path / "out", max_steps=150, eval_every=150, loss="ce", decline="constant"
    )
    finished = run(asked)
    curve = losses(asked.output)
    assert curve[-1] < 0.3 * curve[0]
    # Held-out rows are other text, so measure on rows that were learnt.
    bench, length = finished.bench, asked.max_length
    learnt = [row for row in range(len(bench.data)) if row not in bench.held.rows]
    streams = [stream_of(bench.data, row, bench.card.eos_ids, 3, length) for row in learnt]
    seen = HeldOut(learnt, [stream for stream in streams if stream is not None])
    found = evaluate(bench.trainable, seen, bench.source, bench.card.eos_ids, [3])
    assert found.curve[0].AL > 3.0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_killed_run_ends_as_if_it_had_never_been_killed(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights bit for bit, losses to the last digit; killed once between two saves and once in the first steps."""
    whole = job(mechanism, tiny_model_dir, data, tmp_path / "whole")
    run(whole)
    broken = job(mechanism, tiny_model_dir, data, tmp_path / "broken")
    for kill_at in (1, 3, 4):
        saves = running.Run.save

        def dies(self: running.Run, kill_at: int = kill_at, save: Callable[[running.Run], None] = saves) -> None:
            if self.progress.step > kill_at:
                raise KeyboardInterrupt
            save(self)

        with monkeypatch.context() as patch:
            patch.setattr(running.Run, "save", dies)
            with pytest.raises(KeyboardInterrupt):
                run(broken)
    run(broken)
    assert losses(broken.output) == losses(whole.output)
    one, other = (load_file(asked.output / "run" / FILE) for asked in (whole, broken))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (whole.output / "model.safetensors").read_bytes() == (broken.output / "model.safetensors").read_bytes()


def test_the_best_checkpoint_by_AL_is_kept_and_not_the_last(
    tiny_model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in pain.md J2: the loss falls on, AL has peaked."""
    asked = job("eagle3", tiny_model_dir, data, tmp_path / "out", max_steps=6, eval_every=2)
    fake = iter([1.1, 1.9, 1.4, 1.2])
    measured = evaluate

    def told(*args: object) -> object:
        result = measured(*args)  # type: ignore[arg-type]
        AL = next(fake)
        for point in result.curve:
            object.__setattr__(point, "AL", AL)
        return result

    monkeypatch.setattr(running, "evaluate", told)
    finished = run(asked)
    facts = json.loads((asked.output / "codraft.json").read_text())
    assert finished.progress.best_step == 2
    assert facts["training"]["step"] == 2
    assert facts["held_out"]["AL"]["3"] == 1.9


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_folders_are_called_as_people_like(mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    """Commas, colons and blanks part options of a drafter on the command line, and nothing here."""
    first = job(mechanism, tiny_model_dir, data, tmp_path / "a head: 3,5 epochs", max_steps=1, copying=0)
    run(first)
    run(job(mechanism, tiny_model_dir, data, tmp_path / "out", max_steps=1, copying=0, source=str(first.output)))
    assert (tmp_path / "out" / "model.safetensors").stat().st_mode & 0o777 == 0o644
    # What codraft trains, codraft knows.
    record = inspect(str(tiny_model_dir), str(tmp_path / "out"))
    errors = [finding.code for finding in record.findings if finding.severity == "error"]
    assert not [code for code in errors if not code.startswith("weights.")], (
        "one step is no training, and all else fits"
    )
    assert isinstance(record.drafter, HeadSummary) != KINDS[mechanism].whole_model


@pytest.mark.parametrize(
    ("mechanism", "changes", "word"),
    [
        ("external", {"shape": Shape(layers=(0, 99))}, "--layers: 99 is none of the target's layers"),
        ("eagle3", {"shape": Shape(taps=(0, 99))}, "--taps: 99 is none of the target's layers"),
        ("dflash", {"shape": Shape(taps=(99,))}, "--taps: 99 is none of the target's layers"),
        ("eagle3", {"draft_vocab": Path("none.json")}, "none.json"),
        ("eagle3", {"features": Path("none")}, "none"),
    ],
)
def test_nothing_stays_of_a_run_that_is_refused(
    mechanism: str, changes: dict[str, Any], word: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    """Whoever mends a flag can take the same folder."""
    there = tmp_path / "there"
    there.mkdir()
    for output in (tmp_path / "out", there):
        with pytest.raises(SpecError, match=word):
            run(job(mechanism, tiny_model_dir, data, output, **changes))
    assert not (tmp_path / "out").exists()
    assert not list(there.iterdir())


def test_what_a_run_was_made_of_is_what_it_goes_on_with(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    """Weights of the target and of the drafter it began as, told by what they hold, not by where they lie."""
    target, head = tmp_path / "target", tmp_path / "head"
    shutil.copytree(tiny_model_dir, target)
    run(job("mtp", target, data, head, max_steps=1))
    asked = job("mtp", target, data, tmp_path / "out", max_steps=2, source=str(head), copying=0)
    run(asked)
    for folder, word in ((head, "from_weights"), (target, "target_weights")):
        weights = folder / "model.safetensors"
        kept = weights.read_bytes()
        weights.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
        with pytest.raises(SpecError, match=word):
            run(asked)
        weights.write_bytes(kept)
    run(asked)


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_finished_run_whose_drafter_is_gone_says_so(
    harm: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    asked = job("mtp", tiny_model_dir, data, tmp_path / "out", max_steps=1)
    run(asked)
    weights = asked.output / "model.safetensors"
    whole = weights.read_bytes()
    weights.unlink()
    if harm == "cut":
        weights.write_bytes(whole[:-100])
    with pytest.raises(SpecError, match="is not what this run wrote there"):
        run(asked)


def test_what_diverges_is_told_and_not_saved(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    asked = job("eagle3", tiny_model_dir, data, tmp_path / "out", lr=1e30, copying=0, save_every=1)
    with pytest.raises(SpecError, match=r"step \d+ diverged: .*--lr"):
        run(asked)
    assert not any(value.isnan().any() for value in load_file(asked.output / "model.safetensors").values())


@pytest.mark.parametrize("left", [[], ["begin", "fresh"], [".asked.json.x.part"]])
def test_a_run_that_was_killed_as_it_began_begins_again(
    left: list[str], tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    asked = job("mtp", tiny_model_dir, data, tmp_path / "out", max_steps=1, copying=0)
    asked.run.mkdir(parents=True)
    for name in left:
        (asked.run / name).mkdir()
    run(asked)
    other = job("mtp", tiny_model_dir, data, tmp_path / "other", max_steps=1, copying=0)
    (other.run / "mine").mkdir(parents=True)
    with pytest.raises(SpecError, match="holds files of something else"):
        run(other)


def test_a_full_disk_is_a_sentence(
    tiny_model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors has an error of its own for that."""

    def full(*_: Any, **__: Any) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("codraft.train.state.save_file", full)
    with pytest.raises(SpecError, match=r"state\.safetensors: the disk is full"):
        run(job("mtp", tiny_model_dir, data, tmp_path / "out", max_steps=1, copying=0))


def test_another_question_is_another_run(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    run(job("mtp", tiny_model_dir, data, tmp_path / "out", max_steps=2))
    with pytest.raises(SpecError, match=r"asked something else \(lr was 0.01, now 0.003\)"):
        run(job("mtp", tiny_model_dir, data, tmp_path / "out", max_steps=2, lr=3e-3))
    with pytest.raises(SpecError, match=r"asked something else \(mechanism was"):
        run(job("eagle3", tiny_model_dir, data, tmp_path / "out", max_steps=2))


def test_the_log_tells_where_the_time_went_and_AL_by_domain_here_and_on_the_board(
    tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    asked = job("dspark", tiny_model_dir, data, tmp_path / "out", held_out=4)
    run(asked)
    rows = [json.loads(line) for line in (asked.run / "log.jsonl").read_text().splitlines()]
    steps, evaluations = ([row for row in rows if row["kind"] == kind] for kind in ("step", "evaluation"))
    assert [row["step"] for row in steps] == list(range(6))
    assert [row["step"] for row in evaluations] == [0, 3, 6]
    for row in steps:
        assert row["seconds"].keys() == {"data", "forward", "head", "backward", "optimizer"}
        assert row["tokens_per_s"] > 0
        assert len(row["accuracy"]) == len(row["nll"]) == 3
    assert {"even", "odd"} <= evaluations[0]["domains"].keys()
    board = EventAccumulator(str(asked.run / "tensorboard"))
    board.Reload()
    assert {"loss", "tokens_per_s", "AL/3", "seconds/forward"} <= set(board.Tags()["scalars"])
    seen = [(event.step, event.value) for event in board.Scalars("loss")]
    assert seen == [(row["step"] + 1, pytest.approx(row["loss"], rel=1e-5)) for row in steps]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_drafter_learns_in_float32_beside_a_target_in_bfloat16(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    """As `auto` loads it on a GPU; measured on the way too, by the target's own ends."""
    asked = job(mechanism, tiny_model_dir, data, tmp_path / "out", dtype="bfloat16", max_steps=2, eval_every=1)
    finished = run(asked)
    assert finished.bench.target.model.dtype == torch.bfloat16
    assert {p.dtype for p in finished.bench.trainable.parameters.values()} == {torch.float32}
    assert len(losses(asked.output)) == 2


@pytest.mark.parametrize("mechanism", ["dflash", "eagle3"])
def test_blocks_are_measured_at_one_D_on_the_way_and_the_best_one_at_all(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of another size is another pass for each D; a serial head's unroll says them all."""
    asked = job(mechanism, tiny_model_dir, data, tmp_path / "out")
    asked_for: list[list[int]] = []
    measured = evaluate

    def noted(*args: object) -> object:
        asked_for.append(list(args[4]))  # type: ignore[call-overload]
        return measured(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "evaluate", noted)
    run(asked)
    one = [[3]] * 3 + [[1, 2, 3]] if mechanism == "dflash" else [[1, 2, 3]] * 3
    assert asked_for == one
    facts = json.loads((asked.output / "codraft.json").read_text())
    assert set(facts["held_out"]["AL"]) == {"1", "2", "3"}
    assert "| D | 1 | 2 | 3 |" in (asked.output / "README.md").read_text()
    run(asked)
    assert asked_for == one


def test_a_state_that_was_cut_is_told_and_not_taken(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    asked = job("mtp", tiny_model_dir, data, tmp_path / "out", max_steps=2)
    run(asked)
    state = asked.run / FILE
    state.write_bytes(state.read_bytes()[:-9])
    with pytest.raises(SpecError, match=r"cannot read .*delete the folder"):
        run(asked)


@pytest.mark.parametrize("mechanism", ["eagle3", "mtp", "external"])
def test_weights_over_a_block_are_refused_where_drafts_come_one_by_one(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    with pytest.raises(SpecError, match="--weights dpace"):
        job(mechanism, tiny_model_dir, data, tmp_path / "out", weights="dpace")


@pytest.mark.parametrize(
    ("mechanism", "recipe_flags", "shape_flags", "source", "words"),
    [
        ("eagle3", ["block_size"], [], None, "--block-size is of dflash, dspark and means nothing for eagle3"),
        ("dflash", ["drafts", "lr"], [], None, "--drafts is of eagle3, mtp"),
        ("external", [], ["taps"], None, "--taps is of eagle3, dflash, dspark"),
        ("external", [], ["init"], None, "--init"),
        ("mtp", [], ["ffn"], "head", "--ffn shapes a fresh drafter"),
        ("ngram", [], [], None, "cannot train 'ngram'"),
    ],
)
def test_flags_that_would_change_nothing_are_refused(
    mechanism: str, recipe_flags: list[str], shape_flags: list[str], source: str | None, words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        refuse_idle(mechanism, recipe_flags, shape_flags, source)


def test_flags_that_a_mechanism_has_are_taken() -> None:
    for mechanism, kind in KINDS.items():
        refuse_idle(mechanism, [*kind.recipe, "lr", "loss", "epochs"], kind.shape, None)
        refuse_idle(mechanism, kind.recipe - COPYING, [], "head")
    every = {word for kind in KINDS.values() for word in kind.shape}
    assert every == {field.name for field in fields(ShapeFlags)}
    assert {word for kind in KINDS.values() for word in kind.recipe} <= {field.name for field in fields(Recipe)}
