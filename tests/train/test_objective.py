"""The loss that is computed a few anchors at a time, against the whole of it at once; and the unroll that it is of."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling, parse_drafter
from codraft.decode.hf.load import load_card
from codraft.drafters.beside import Beside
from codraft.drafters.block import stream_blocks
from codraft.drafters.registry import build
from codraft.drafters.rollout import Rollout
from codraft.train.checkpoint import Trainable, load_target, open_trainable, write_fresh
from codraft.train.features import Online
from codraft.train.feed import Feed
from codraft.train.fresh import Shape
from codraft.train.losses import LOSSES, Mix, forward_kl, parse_mix
from codraft.train.objective import columns_of, objective_of
from codraft.train.objectives import drafts
from codraft.train.objectives.drafts import Batch, Drafts, Objective, Weighing, check_weighing
from codraft.train.readout import Columns, Shortlist
from codraft.train.recipe import Recipe
from codraft.train.tokens import TokenFile

from tests.train import teaching
from tests.train.teaching import MECHANISMS, VOCAB, recipe

MIXES = ("ce", "kl", "reverse_kl", "tv", "lk_alpha", "lk", "ce=0.1,tv=1.8")
TOY: Mapping[str, Shape] = {
    "eagle3": Shape(target_ids=torch.arange(0, VOCAB, 2)),
    "mtp": Shape(),
    "dflash": Shape(layers=(2,), block_size=4, mask_token_id=257),
    "dspark": Shape(layers=(1,), block_size=3, mask_token_id=257, markov_rank=8),
    "external": Shape(layers=(0, 1)),
}


class Bench:
    """One mechanism in float64, ready to learn from three rows."""

    def __init__(self, mechanism: str, target_folder: Path, data: Path, folder: Path) -> None:
        self.target, self.card = load_target(str(target_folder), "float64"), load_card(str(target_folder))
        write_fresh(mechanism, self.target, self.card, replace(TOY[mechanism], init="random"), folder / mechanism)
        self.trainable: Trainable = open_trainable(mechanism, str(folder / mechanism), self.target, self.card)
        self.trainable.module.double()
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in self.trainable.parameters.values():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        self.data = TokenFile(data)

    def objective(self, how: Recipe, common: int | None = None, drawn: int = 0) -> tuple[Objective, Batch]:
        """As a run has it; a shortlist of the first `common` tokens, None for all."""
        columns = columns_of(self.trainable, self.target, None if common is None else torch.arange(common))
        shortlist = Shortlist(columns, drawn, seed=3)
        objective, taps = objective_of(self.trainable, self.target, how, shortlist, seed=3)
        objective.double().train()
        feed = Feed(self.data, Online(self.target, self.data, taps), self.data.lengths.clip(max=64), "cpu")
        return objective, feed.batch([0, 2, 5], 0)


@pytest.fixture(scope="module")
def data(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of the tiny target."""
    return teaching.write_answers(tiny_model_dir, tmp_path_factory.mktemp("data") / "tokens.safetensors")


@pytest.fixture(scope="module")
def benches(tiny_model_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """By mechanism, each made once."""
    folder, made = tmp_path_factory.mktemp("fresh"), dict[str, Bench]()

    def of(mechanism: str) -> Bench:
        if mechanism not in made:
            made[mechanism] = Bench(mechanism, tiny_model_dir, data, folder)
        return made[mechanism]

    return of


def at_once(objective: Objective, batch: Batch, denominator: float) -> Tensor:
    """The loss by its definition: all logits of a stage in one piece, one graph."""
    lesson: Any = objective.lesson
    stages, losses = lesson.stages(batch), []
    found: Drafts | None = next(stages)
    while found is not None:
        loss, hits = stage_at_once(objective, batch, found)
        losses.append(loss)
        try:
            found = stages.send(hits)
        except StopIteration:
            found = None
    return torch.stack(losses).sum() / denominator


def stage_at_once(objective: Objective, batch: Batch, found: Drafts) -> tuple[Tensor, Tensor]:
    """Undivided loss and hits."""
    lesson: Any = objective.lesson
    columns = objective.shortlist.at(batch.step)
    leaves = lesson.leaves(batch, columns)
    own, confidence = lesson.logits(found.hidden_AKH, batch.tokens_T[found.at_AK - 1], columns, leaves)
    column = columns.place_V[batch.tokens_T[found.at_AK]]
    known = found.valid_AK & (column >= 0)
    teacher = objective.teacher
    target = teacher(batch.features["final"], columns)[found.at_AK - 1] if "final" in batch.features else None
    hits = (own.argmax(-1) == column) & known
    C = own.shape[-1]
    if columns.shift_C is not None:
        own, target = own + columns.shift_C, None if target is None else target + columns.shift_C
    own_NC, column_N = own.reshape(-1, C), column.clamp(min=0).flatten()
    flat = objective.mix(own_NC, None if target is None else target.reshape(-1, C), column_N)
    nll = functional.cross_entropy(own_NC, column_N, reduction="none")
    q = (-nll.detach()).exp().view(column.shape) * known
    weight = objective.weighing(q, found.valid_AK, found.first)
    loss = (flat.view(column.shape) * known * weight).sum()
    if confidence is not None:
        assert target is not None
        accepted = 1 - (own.softmax(-1) - target.softmax(-1)).abs().sum(-1).detach() / 2
        wrong = functional.binary_cross_entropy(confidence, accepted, reduction="none")
        loss = loss + objective.confidence_weight * (wrong * found.valid_AK * weight).sum()
    return loss, hits


def gradients(loss: Tensor, trainable: Trainable) -> dict[str, Tensor]:
    trainable.module.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in trainable.parameters.items() if p.grad is not None}


@pytest.mark.parametrize("numbers", [1, 7000, 1 << 22])
@pytest.mark.parametrize("follow", ["all", "hits"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_loss_in_pieces_has_the_value_and_the_gradient_of_the_whole(
    mechanism: str, follow: str, numbers: int, benches: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drafts.LOGITS_AT_ONCE, "cpu", numbers)
    bench = benches(mechanism)
    weights = "dpace" if mechanism == "dflash" else "decay"
    loss = "ce=0.1,tv=1.8" if mechanism == "dspark" else "kl"
    objective, batch = bench.objective(recipe(mechanism, weights=weights, loss=loss, decay=0.7, follow=follow))
    denominator = float(objective.num_anchors(batch))
    expected = at_once(objective, batch, denominator)
    wanted = gradients(expected, bench.trainable)
    found, measured = objective(batch, denominator)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    assert measured.loss == pytest.approx(float(expected.detach()) * denominator)
    assert int(measured.counts_K[0]) == objective.num_anchors(batch)
    got = gradients(found, bench.trainable)
    assert got.keys() == wanted.keys() == bench.trainable.parameters.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(got[name], gradient, rtol=1e-8, atol=1e-11, msg=name)


@pytest.mark.parametrize("mechanism", ["mtp", "dflash", "dspark", "external"])
def test_over_a_shortlist_and_some_others_too(
    mechanism: str, benches: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drafts.LOGITS_AT_ONCE, "cpu", 2000)
    bench = benches(mechanism)
    objective, batch = bench.objective(recipe(mechanism, loss="ce=0.3,kl=1"), common=100, drawn=30)
    expected = at_once(objective, batch, 10.0)
    wanted = gradients(expected, bench.trainable)
    found, _ = objective(batch, 10.0)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    got = gradients(found, bench.trainable)
    assert all(torch.allclose(got[name], wanted[name], rtol=1e-8, atol=1e-11) for name in wanted)


def test_others_are_drawn_anew_in_every_step_and_stand_for_all() -> None:
    """The mean of the sampled sums is the whole sum: what a softmax divides by."""
    V, common, drawn = 300, 40, 50
    fixed = Columns.of(torch.arange(0, 2 * common, 2), V)
    shortlist = Shortlist(fixed, drawn, seed=1)
    logits_V = torch.randn(V, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sums = []
    for step in range(400):
        columns = shortlist.at(step)
        assert columns is shortlist.at(step)
        assert columns.ids_C[:common].equal(fixed.ids_C)
        assert len(columns.ids_C.unique()) == common + drawn
        assert columns.place_V[columns.ids_C].equal(torch.arange(common + drawn))
        assert columns.shift_C is not None
        sums.append(float((logits_V[columns.ids_C] + columns.shift_C).exp().sum()))
    assert np.mean(sums) == pytest.approx(float(logits_V.exp().sum()), rel=0.01)
    assert Shortlist(fixed, drawn, seed=1).at(7).ids_C.equal(shortlist.at(7).ids_C)
    assert not shortlist.at(7).ids_C.equal(shortlist.at(8).ids_C)
    assert len(Shortlist(fixed, 10_000).at(3).ids_C) == V
    assert Shortlist(fixed).at(3) is fixed


@pytest.mark.parametrize("mechanism", ["dflash", "dspark"])
def test_blocks_of_drawn_sizes_take_every_size_and_are_those_that_replay_cuts(
    mechanism: str, benches: Callable[[str], Bench]
) -> None:
    bench = benches(mechanism)
    objective, batch = bench.objective(recipe(mechanism, block_sizes="drawn", anchors=64))
    lesson: Any = objective.lesson
    head: Any = bench.trainable.module
    sizes = {step: lesson.num_slots(step) for step in range(60)}
    assert set(sizes.values()) == set(range(head.first_slot + 1, head.size + 1))
    small = next(step for step, size in sizes.items() if size == head.first_slot + 2)
    found = lesson.drafts(replace(batch, step=small))
    assert found.hidden_AKH.shape[1] == 2
    last = batch.bounds[1]
    own = [i for i, at in enumerate(found.at_AK[:, 0].tolist()) if at < last]
    starts = found.at_AK[own, 0] - 1
    context = head.context(head.fuse({tap: rows[:last] for tap, rows in batch.features.items()}), torch.arange(last))
    filled = stream_blocks(head, context, batch.tokens_T[:last], starts, head.first_slot + 2)
    torch.testing.assert_close(found.hidden_AKH[own], filled[:, head.first_slot :])


@pytest.mark.parametrize("loss", MIXES)
def test_every_loss_is_taken_in_pieces_alike(
    loss: str, benches: Callable[[str], Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drafts.LOGITS_AT_ONCE, "cpu", 9000)
    bench = benches("eagle3")
    objective, batch = bench.objective(recipe("eagle3", loss=loss))
    expected = at_once(objective, batch, 10.0)
    wanted = gradients(expected, bench.trainable)
    found, _ = objective(batch, 10.0)
    got = gradients(found, bench.trainable)
    torch.testing.assert_close(found, expected)
    assert all(torch.allclose(got[name], wanted[name], rtol=1e-8, atol=1e-11) for name in wanted)


def chained_hits(objective: Objective, batch: Batch) -> Tensor:
    """[T, K] whether the draft at distance k + 1 of the anchor at t hits, and all before it did."""
    lesson: Any = objective.lesson
    hits_TK = torch.zeros(len(batch.tokens_T), lesson.num_drafts, dtype=torch.bool)
    stages = lesson.stages(batch)
    found: Drafts | None = next(stages)
    while found is not None:
        _, hits = stage_at_once(objective, batch, found)
        for k in range(hits.shape[1]):
            anchors = found.at_AK[:, k] - 1 - found.first - k
            hits_TK[anchors[found.valid_AK[:, k]], found.first + k] = hits[:, k][found.valid_AK[:, k]]
        try:
            found = stages.send(hits)
        except StopIteration:
            found = None
    return hits_TK.cumprod(1).bool()


@pytest.fixture(scope="module")
def taught(tiny_model_dir: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bench]:
    """By mechanism, drafters that know some of the rows by heart, so that there are hits and misses."""
    folder, made = tmp_path_factory.mktemp("taught"), dict[str, Bench]()

    def of(mechanism: str) -> Bench:
        if mechanism not in made:
            made[mechanism] = bench = Bench(mechanism, tiny_model_dir, data, folder)
            objective, batch = bench.objective(recipe(mechanism, loss="ce", anchors=64))
            optimizer = torch.optim.AdamW(bench.trainable.parameters.values(), lr=1e-2)
            for _ in range({"external": 10}.get(mechanism, 40)):
                loss, _ = objective(batch, float(objective.num_anchors(batch)))
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        return made[mechanism]

    return of


@pytest.mark.parametrize("follow", ["all", "hits"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_learns_is_what_replay_measures(mechanism: str, follow: str, taught: Callable[[str], Bench]) -> None:
    """From every anchor the same drafts hit, up to the first miss, whatever the rows behind misses are spared."""
    bench = taught(mechanism)
    bench.trainable.module.eval()
    objective, batch = bench.objective(recipe(mechanism, loss="kl", anchors=64, follow=follow))
    lesson: Any = objective.lesson
    hits_TK, drafter, seen = chained_hits(objective, batch), bench.trainable.drafter, 0
    for first, row in zip(batch.bounds, batch.rows, strict=False):
        for start, end in bench.data.row(row).spans():
            prompt = batch.tokens_T[first : first + start].tolist()
            output = batch.tokens_T[first + start : first + end].tolist()
            features = {tap: [rows[first : first + end - 1]] for tap, rows in batch.features.items()}
            unrolled = drafter.unroll(prompt, output, features, lesson.num_drafts)
            expected = np.logical_and.accumulate(unrolled.hit_AD.astype(bool), axis=1)
            assert (hits_TK[first + start : first + end - 1].numpy() == expected).all()
            seen += len(expected)
    assert seen == objective.num_anchors(batch)
    assert 0.1 < float(hits_TK.sum()) / (seen * lesson.num_drafts) < 1


def test_several_streams_in_one_pass_are_what_each_is_by_itself(benches: Callable[[str], Bench]) -> None:
    for mechanism in ("eagle3", "mtp"):
        bench = benches(mechanism)
        _, batch = bench.objective(recipe(mechanism))
        head: Any = bench.trainable.module
        fused = head.fuse(batch.features)
        together = Rollout(head, fused, batch.tokens_T, batch.bounds)
        spans = list(zip(batch.bounds, batch.bounds[1:], strict=False))
        alone = [Rollout(head, fused[a:b], batch.tokens_T[a:b]) for a, b in spans]
        for k in range(4):
            readable = together.step()
            parts = [rollout.step() for rollout in alone]
            torch.testing.assert_close(readable, torch.cat(parts), rtol=1e-12, atol=1e-12)
            if k == 1:
                keep = together.rows_N % 3 != 0
                together.retain(keep)
                for rollout, (a, _) in zip(alone, spans, strict=True):
                    rollout.retain((rollout.rows_N + a) % 3 != 0)


def test_distances_of_a_distribution_to_itself_are_none_and_never_below() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, other = torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)
    column = torch.tensor([0, 1, 2, 3, 4])
    for name, loss in LOSSES.items():
        if name == "ce":
            continue
        assert torch.allclose(loss(logits, logits, column), torch.zeros(5, dtype=torch.float64), atol=1e-7), name
        assert (loss(logits, other, column) > 0).all(), name


@pytest.mark.parametrize("size", [1.0, 40.0])
def test_the_gradient_of_forward_kl_is_what_autograd_takes_of_its_definition(size: float) -> None:
    """sum p (log p - log q), also where nearly all of p or q lies on one token."""
    generator = torch.Generator().manual_seed(0)
    logits, target = size * torch.randn(2, 6, 9, generator=generator, dtype=torch.float64)
    weight = torch.arange(1.0, 7.0, dtype=torch.float64)
    found, wanted = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    loss = forward_kl(found, target, torch.zeros(6, dtype=torch.int64))
    by_hand = (target.softmax(-1) * (target.log_softmax(-1) - wanted.log_softmax(-1))).sum(-1)
    torch.testing.assert_close(loss, by_hand, rtol=1e-10, atol=1e-12)
    (loss * weight).sum().backward()
    (by_hand * weight).sum().backward()
    torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-10, atol=1e-12)


def test_total_variation_is_the_chance_of_a_rejection() -> None:
    """Against sum of min(p, q), by hand [Leviathan23]."""
    own, target = torch.log(torch.tensor([[0.7, 0.2, 0.1]])), torch.log(torch.tensor([[0.5, 0.1, 0.4]]))
    assert float(LOSSES["tv"](own, target, torch.tensor([0]))) == pytest.approx(1 - (0.5 + 0.1 + 0.1))
    assert float(LOSSES["lk_alpha"](own, target, torch.tensor([0]))) == pytest.approx(-np.log(0.7))


def test_dpace_weighs_a_draft_by_what_it_is_worth_to_those_behind_it() -> None:
    """w_j = sum over m >= j of the product of smoothed chances up to m [D-PACE]."""
    q = torch.tensor([[0.8, 0.4, 0.0]])
    smooth = [0.9, 0.7, 0.5]
    reach = np.cumprod(smooth)
    expected = [reach.sum(), reach[1:].sum(), reach[2:].sum()]
    found = Weighing("dpace", 1.0)(q, torch.ones(1, 3, dtype=torch.bool))
    assert found[0].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "kl=", "kl=0", "kl=-1", "kl=nan", "kl=inf", "nothing", "ce,what=2"])
def test_a_mix_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="--loss"):
        parse_mix(text)


def test_a_mix_is_told_as_it_was_asked() -> None:
    assert str(parse_mix("ce=0.1,tv=1.8")) == "ce=0.1,tv=1.8"
    assert parse_mix("kl") == Mix({"kl": 1.0})
    assert not parse_mix("ce=2").reads_target


@pytest.mark.parametrize(("kind", "decay"), [("never", 1.0), ("decay", 0.0), ("decay", 1.1)])
def test_weights_outside_their_range_are_refused(kind: str, decay: float) -> None:
    with pytest.raises(SpecError, match=r"--weights|--decay"):
        check_weighing(kind, decay)


def test_the_builder_that_training_opens_is_the_one_that_accept_opens(benches: Callable[[str], Bench]) -> None:
    """No second reading of a checkpoint: the same class, by the same registry."""
    bench = benches("dflash")
    beside = Beside.of(bench.card, Sampling(), "float64", lambda: bench.target)
    other = build(parse_drafter(f"dflash:{bench.trainable.folder}"), beside)
    assert type(other) is type(bench.trainable.drafter)
