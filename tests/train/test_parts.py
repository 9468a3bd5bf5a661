"""Parts of training: batches, optimizers, features on disk, memory savers, plans, what is written."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from codraft.cli.train import BatchFlags, MeasureFlags, RecipeFlags, ShapeFlags, job_of
from codraft.core.errors import SpecError
from codraft.decode.hf.load import load_card
from codraft.train import features as feature_files
from codraft.train import plan as planning
from codraft.train.batches import BatchPlan, Schedule
from codraft.train.checkpoint import load_target, open_trainable, write_fresh
from codraft.train.features import Offline, Online, default_layers, filled, shards_of, write_features
from codraft.train.fresh import Shape, block_taps, spread
from codraft.train.job import TrainJob
from codraft.train.muon import Muon, orthogonalised
from codraft.train.optim import share_of_rate
from codraft.train.recipe import PUBLISHED, SHORT, Recipe, recipe_of
from codraft.train.tokens import TokenFile

from tests.train import teaching
from tests.train.teaching import MECHANISMS, job, losses, run


@pytest.fixture(scope="module")
def data(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of the tiny target."""
    return teaching.write_answers(tiny_model_dir, tmp_path_factory.mktemp("data") / "tokens.safetensors")


@given(st.lists(st.integers(1, 40), min_size=1, max_size=60), st.integers(8, 64), st.integers(0, 3))
def test_an_epoch_holds_every_row_once_in_batches_that_fit(lengths: list[int], batch_tokens: int, epoch: int) -> None:
    plan = BatchPlan(lengths=np.array(lengths), batch_tokens=batch_tokens, seed=7)
    batches = plan.epoch(epoch)
    assert Counter(row for batch in batches for row in batch) == Counter(range(len(lengths)))
    for batch in batches:
        held = sum(lengths[row] for row in batch)
        assert held <= batch_tokens or len(batch) == 1
    assert plan.epoch(epoch) == batches


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 30))
def test_processes_share_a_step_as_one_would_accumulate_it(world: int, accumulate: int, rows: int) -> None:
    plan = BatchPlan(lengths=np.full(rows, 5), batch_tokens=10, seed=1)
    alone = Schedule(plan, accumulate * world, 0, 1)
    shared = [Schedule(plan, accumulate, rank, world) for rank in range(world)]
    for step in range(7):
        parts = [one.step(step) for one in shared]
        together = [parts[rank][i] for i in range(accumulate) for rank in range(world)]
        assert together == alone.step(step)


@given(st.lists(st.integers(1, 9000), max_size=40))
def test_passes_hold_every_sequence_once_and_little_padding(lengths: list[int]) -> None:
    groups = feature_files.passes(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) == 1 or max(lengths[i] for i in group) * len(group) <= feature_files.PASS_TOKENS


def test_a_fraction_of_an_epoch_is_a_fraction_of_its_steps() -> None:
    plan = BatchPlan(lengths=np.full(100, 10), batch_tokens=20, seed=0)
    schedule = Schedule(plan, 1, 0, 1)
    assert [schedule.steps(epochs) for epochs in (0.5, 1, 2.5)] == [25, 50, 125]
    assert Schedule(plan, 5, 0, 2).steps(2) == 10


def test_the_rate_rises_and_falls_as_asked() -> None:
    for decline in ("cosine", "linear"):
        how = recipe_of("short", "mtp", {"warmup": 0.1, "decline": decline})
        shares = [share_of_rate(step, 100, how) for step in range(100)]
        assert shares[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
        assert max(shares) == shares[9] == pytest.approx(shares[10])
        assert shares[10:] == sorted(shares[10:], reverse=True)
        assert 0 < shares[-1] < 0.03
    constant = recipe_of("short", "mtp", {"warmup": 0.0, "decline": "constant"})
    assert {share_of_rate(step, 50, constant) for step in range(50)} == {1.0}


@pytest.mark.parametrize("mechanism", ["eagle3", "external"])
def test_what_is_adapted_moves_slowly_unless_told_otherwise(mechanism: str, tmp_path: Path) -> None:
    """A tenth of a fresh one's rates, and nothing that only a fresh one needs."""

    def recipe(source: str | None, name: str | None = None) -> Recipe:
        flags = (RecipeFlags(), ShapeFlags(), BatchFlags(), MeasureFlags())
        asked: TrainJob = job_of(mechanism, "demo", tmp_path, tmp_path, source, name, *flags, 0, "auto")
        return asked.recipe

    fresh, adapted = recipe(None), recipe("head")
    assert adapted.muon_lr == pytest.approx(fresh.muon_lr / 10)
    assert adapted.lr == pytest.approx(fresh.lr / 10)
    assert adapted.copying == 0
    assert recipe("head", "short") == replace(fresh, copying=0)


@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (8, 8)])
def test_muon_steps_along_the_nearest_orthogonal_matrix(shape: tuple[int, int]) -> None:
    """Singular vectors stay, singular values come near 1 [Jordan24]; and as torch's own Muon, but for its bfloat16."""
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(*shape, generator=generator)
    U, _, V = torch.linalg.svd(matrix, full_matrices=False)
    found = orthogonalised(matrix)
    inner = U.T @ found @ V.T
    assert torch.allclose(inner, torch.diag(inner.diagonal()), atol=1e-4)
    assert 0.6 < float(inner.diagonal().min()) <= float(inner.diagonal().max()) < 1.3
    weights = [nn.Parameter(matrix.clone()) for _ in range(2)]
    ours, theirs = Muon([weights[0]], lr=0.1), torch.optim.Muon([weights[1]], lr=0.1, weight_decay=0.0)
    for _ in range(3):
        gradient = torch.randn(*shape, generator=generator)
        for weight, optimizer in zip(weights, (ours, theirs), strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(weights[0], weights[1], rtol=0.05, atol=0.02)


@pytest.mark.parametrize(("name", "mechanism"), [(n, m) for n, table in PUBLISHED.items() for m in table])
def test_every_published_recipe_is_a_sound_one(name: str, mechanism: str) -> None:
    """Made when the module is read; so is what a flag changes."""
    assert recipe_of(name, mechanism, {"lr": 1.0}).lr == 1.0
    assert recipe_of(name, mechanism, {}) == PUBLISHED[name][mechanism]


def test_a_recipe_that_is_none_is_refused() -> None:
    assert SHORT.keys() == set(MECHANISMS)
    with pytest.raises(SpecError, match="--recipe eagle: no such recipe for dflash; choose of short, adapt, specforge"):
        recipe_of("eagle", "dflash", {})
    for change, told in (
        ({"lr": 0.0}, "--lr"), ({"drafts": 0}, "--drafts"), ({"block_size": 1}, "--block-size"),
        ({"optimizer": "sgd"}, "--optimizer"), ({"warmup": 1.0}, "--warmup"), ({"loss": "no"}, "--loss"),
        ({"optimizer": "muon", "muon_lr": 0.0}, "--muon-lr"), ({"decay": 2.0}, "--decay"),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=told):
            recipe_of("short", "eagle3", change)


def test_features_from_disk_are_those_of_the_target_beside(
    tiny_model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order of rows, cut, over shard borders; `final` by way of the last layer; a missing shard is written
    again, the others are left alone."""
    monkeypatch.setattr(feature_files, "SHARD_TOKENS", 60)
    target, file = load_target(str(tiny_model_dir), "float32"), TokenFile(data)
    layers = default_layers(target.num_layers)
    shards = shards_of(file.lengths)
    assert len(shards) > 3
    assert write_features(target, file, layers, tmp_path, torch.float32) == len(shards)
    first, last = tmp_path / shards[0].name, tmp_path / shards[-1].name
    stamp = first.stat().st_mtime_ns
    last.unlink()
    with pytest.raises(SpecError, match="lacks 1 of"):
        Offline(tmp_path, file, [1], target)
    assert write_features(target, file, layers, tmp_path, torch.float32) == 1
    assert first.stat().st_mtime_ns == stamp
    taps: list[Any] = [1, "final", 0]
    written, beside = Offline(tmp_path, file, taps, target), Online(target, file, taps)
    rows, lengths = [11, 0, 5, 6], [20, 3, 7, 20]
    for tap, states in beside.features(rows, lengths).items():
        torch.testing.assert_close(written.features(rows, lengths)[tap], states, rtol=1e-5, atol=1e-5)
    some = TokenFile(data, 8)
    assert (len(some), some.num_tokens) == (8, int(file.lengths[:8].sum()))
    assert some.num_supervised == sum(int(file.row(row).mask.sum()) for row in range(8))
    assert 8 <= filled(file.lengths, 8) in {one.last for one in shards}
    for one in shards[-2:]:
        (tmp_path / one.name).unlink()
    for tap, states in Offline(tmp_path, some, taps, target).features([7, 0], [20, 3]).items():
        torch.testing.assert_close(beside.features([7, 0], [20, 3])[tap], states, rtol=1e-5, atol=1e-5)
    with pytest.raises(SpecError, match="whose dtype were"):
        write_features(target, file, layers, tmp_path, torch.bfloat16)
    other = teaching.write_answers(tiny_model_dir, tmp_path / "other.safetensors", count=5)
    with pytest.raises(SpecError, match="of other rows"):
        Offline(tmp_path, TokenFile(other), [1], target)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_features_written_before_and_feed_forwards_computed_twice_change_nothing(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    target, file = load_target(str(tiny_model_dir), "float32"), TokenFile(data)
    write_features(target, file, default_layers(target.num_layers), tmp_path / "features", torch.float32)
    # The usual taps of so shallow a target have its embedding among them, which is never written.
    shape = Shape(layers=(1,), markov_rank=8, taps=(0, 1))
    plain = job(mechanism, tiny_model_dir, data, tmp_path / "plain", shape=shape)
    saving = replace(plain, output=tmp_path / "saving", checkpointing=True, features=tmp_path / "features")
    run(plain)
    run(saving)
    assert losses(saving.output) == pytest.approx(losses(plain.output), rel=1e-4)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bfloat16_arithmetic_learns_too_and_keeps_its_weights_in_float32(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    rough = job(mechanism, tiny_model_dir, data, tmp_path / "rough", autocast=True, max_steps=50, eval_every=50)
    run(rough)
    curve = losses(rough.output)
    assert curve[-1] < 0.8 * curve[0]
    state = load_file(rough.output / "run" / "state.safetensors")
    assert {value.dtype for name, value in state.items() if name.startswith("model.")} == {torch.float32}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_fresh_drafter_opens_as_any_other_and_is_written_back_as_it_was(
    mechanism: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """The same config, the same names and shapes; of every tensor that is not learnt the same values."""
    from codraft.train.checkpoint import export

    target, card = load_target(str(tiny_model_dir), "float32"), load_card(str(tiny_model_dir))
    shape = Shape(target_ids=torch.arange(0, 260, 4), block_size=4, mask_token_id=257, markov_rank=4, layers=(1,))
    write_fresh(mechanism, target, card, shape, tmp_path / "fresh")
    trainable = open_trainable(mechanism, str(tmp_path / "fresh"), target, card)
    assert trainable.parameters
    moved = {name: p.detach() + 1 for name, p in trainable.parameters.items()}
    (tmp_path / "out").mkdir()
    export(trainable, moved, tmp_path / "out", torch.float32)
    before, after = load_file(tmp_path / "fresh/model.safetensors"), load_file(tmp_path / "out/model.safetensors")
    assert before.keys() == after.keys()
    learnt = {trainable.stored[name] for name in moved}
    for name, value in before.items():
        expected = value.float() + 1 if name in learnt else value
        assert torch.equal(after[name].float(), expected.float()), name
    assert (tmp_path / "out/config.json").read_bytes() == (tmp_path / "fresh/config.json").read_bytes()


def test_layers_are_spread_over_the_target() -> None:
    assert spread(30, 6) == (0, 6, 12, 17, 23, 29)
    assert spread(30, 1) == (29,)
    assert block_taps(36, 5) == (1, 9, 17, 25, 33)
    assert block_taps(30) == (1, 14, 26)
    assert block_taps(9, 1) == (4,)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_plan_counts_what_a_run_really_has(mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    """Weights that learn within norms and biases, bytes on disk of features and state, steps."""
    asked = job(mechanism, tiny_model_dir, data, tmp_path / "out", optimizer="adamw")
    card, file = load_card(str(tiny_model_dir)), TokenFile(data)
    sizes, work = planning.sizes_of(asked, card), planning.work_of(asked, file)
    finished = run(asked)
    facts = json.loads((asked.output / "codraft.json").read_text())
    assert facts["parameters"] == pytest.approx(sizes.learnt, rel=0.05)
    assert work.steps == finished.bench.loop.steps
    terms = {term.name: term.value for term in planning.disk(asked, sizes, work)}
    target = load_target(str(tiny_model_dir), "float32")
    layers = default_layers(target.num_layers)
    write_features(target, file, layers, tmp_path / "features", torch.bfloat16)
    written = sum(one.stat().st_size for one in (tmp_path / "features").glob("*.safetensors"))
    if mechanism in ("eagle3", "dflash", "dspark"):
        per_layer = terms["features, if written once"] / 4
        assert written / len(layers) == pytest.approx(per_layer, rel=0.2)
    state = (asked.run / "state.safetensors").stat().st_size
    assert state == pytest.approx(terms["state"], rel=0.25)


def test_a_drafter_that_is_adapted_keeps_its_layout_and_begins_where_it_was(
    tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    """`--from`: the AL before the first step is the AL that it had."""
    first = job("dflash", tiny_model_dir, data, tmp_path / "first", max_steps=20, eval_every=20, loss="ce")
    run(first)
    again = replace(job("dflash", tiny_model_dir, data, tmp_path / "second", loss="ce"), source=str(first.output))
    found = run(again)
    before = json.loads((first.output / "codraft.json").read_text())["held_out"]["AL"]["3"]
    # Weights were rounded to bfloat16 on the way.
    assert found.progress.points[0][1] == pytest.approx(before, rel=0.1)
    assert (again.output / "config.json").read_bytes() == (first.output / "config.json").read_bytes()
    assert json.loads((again.output / "codraft.json").read_text())["from"] == str(first.output)


def test_a_target_of_another_vocabulary_is_refused(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    from codraft.train.tokens import Origin, write_tokens

    file = TokenFile(data)
    rows = [file.row(i) for i in range(len(file))]
    write_tokens(tmp_path / "t.safetensors", rows, Origin(target="other", vocab_size=500, template="raw"))
    with pytest.raises(SpecError, match=r"500 tokens \(other\)"):
        run(job("mtp", tiny_model_dir, tmp_path / "t.safetensors", tmp_path / "out"))


def test_nothing_to_learn_stops_before_the_first_step(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    from codraft.train.tokens import Origin, Row, write_tokens

    file = TokenFile(data)
    rows = [Row(file.row(i).ids, np.zeros(len(file.row(i).ids), dtype=bool)) for i in range(len(file))]
    write_tokens(tmp_path / "t.safetensors", rows, Origin(target="x", vocab_size=260, template="raw"))
    with pytest.raises(SpecError, match=r"holds a step to measure|nothing to learn"):
        run(job("mtp", tiny_model_dir, tmp_path / "t.safetensors", tmp_path / "out"))
    assert not (tmp_path / "out").exists()
