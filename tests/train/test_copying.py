"""Attention that is taught to copy before all else: what its loss is, what learns in it, what a kill changes."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from codraft.core.errors import SpecError
from codraft.train import begin
from codraft.train.copying import MOST, Seeking, column_sizes, teach
from codraft.train.distributed import Ranks
from codraft.train.job import prepare

from tests.train import teaching
from tests.train.data.letters import Quiet
from tests.train.teaching import job, recipe, run

# Two streams, of four rows and of two.
BOUNDS = (0, 4, 6)
TOLD = torch.tensor([5, 6, 5, 6, 7, 7])
NEXT = torch.tensor([6, 5, 6, 9, 7, 8])


@pytest.fixture(scope="module")
def data(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of the tiny target, long enough to repeat themselves."""
    return teaching.write_answers(tiny_model_dir, tmp_path_factory.mktemp("copying") / "tokens.safetensors", length=48)


def looked(q_NhD: torch.Tensor, k_NgD: torch.Tensor, bounds: tuple[int, ...] = BOUNDS) -> Seeking:
    """The sight after one look."""
    sight = Seeking(bounds, TOLD[: bounds[-1]], NEXT[: bounds[-1]])
    sight.look(q_NhD, k_NgD, torch.zeros(len(k_NgD), k_NgD.shape[1], 8), scale=1.0, window=None, sinks_h=None)
    return sight


def test_the_loss_is_the_share_of_attention_on_entries_of_the_token_to_come() -> None:
    """Attention that is even everywhere: one of two entries is right, one of three, one of one."""
    sight = looked(torch.zeros(6, 4, 8), torch.zeros(6, 2, 8))
    assert sight.loss is not None
    assert float(sight.loss) == pytest.approx((math.log(2) + math.log(3) + 0.0) / 3)


def test_attention_that_finds_the_entry_loses_nothing_and_one_that_never_does_is_cut() -> None:
    """Queries are of the token to come, keys of the token taken in; then keys of the opposite sign."""
    sizes = torch.eye(10)[:, None].expand(-1, 2, -1)
    q_NhD, k_NgD = 30 * sizes[NEXT], sizes[TOLD]
    for sign, expected in ((1, 0.0), (-1, (2 * MOST + 0.0) / 3)):
        loss = looked(q_NhD, sign * k_NgD).loss
        assert loss is not None
        assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_keys_of_others_are_looked_at_behind_the_row_alone() -> None:
    """The context of a block ends before its anchor: row 2 is left with one entry of two, row 3 with one of three."""
    told = torch.tensor([5, 6, 5, 6])
    sight = Seeking([0, 4], told, told, torch.zeros(4, 2, 8))
    own = torch.full((4, 2, 8), torch.nan)
    sight.look(torch.zeros(4, 4, 8), own, own, scale=1.0, window=None, sinks_h=None)
    assert sight.loss is not None
    assert float(sight.loss) == pytest.approx((math.log(2) + math.log(3)) / 2)


def test_a_text_without_repeats_has_no_loss() -> None:
    """Nothing to be found."""
    assert looked(torch.zeros(1, 2, 8), torch.zeros(1, 2, 8), (0, 1)).loss is None


def test_steps_are_shares_of_what_columns_are() -> None:
    """Columns of a matrix, numbers of a vector; nothing divides by zero."""
    matrix = torch.tensor([[3.0, 0.0], [4.0, 0.0]])
    assert column_sizes(matrix).flatten().tolist() == pytest.approx([math.sqrt(12.5), 1e-8])
    assert column_sizes(torch.tensor([-2.0, 5.0])).tolist() == [2.0, 5.0]


@pytest.mark.parametrize("mechanism", ["eagle3", "mtp", "dflash", "dspark"])
def test_only_what_decides_where_to_look_learns_and_it_moves_slowly_afterwards(
    mechanism: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    """The loss falls; values, output projection, feed-forward and output head stay noise, bit for bit."""
    plain = prepare(job(mechanism, tiny_model_dir, data, tmp_path / "plain", copying=0), Ranks(), Quiet())
    asked = job(mechanism, tiny_model_dir, data, tmp_path / "taught", copying=60, max_steps=60, copying_rate=0.25)
    taught = prepare(asked, Ranks(), Quiet())
    told = json.loads((asked.run / begin.BEGIN / begin.TAUGHT).read_text())
    assert told["steps"] == len(told["losses"]) == 60
    assert sum(told["losses"][-10:]) < 0.8 * sum(told["losses"][:10])
    before, after = plain.trainable.parameters, taught.trainable.parameters
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved == set(told["learnt"])
    assert any("q_proj" in name for name in moved)
    assert not any("layers.1." in name for name in moved)
    assert not any(part in name for name in moved for part in ("v_proj", "o_proj", "mlp", "lm_head"))
    rates = {
        id(parameter): group["full_lr"]
        for optimizer in taught.loop.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    full = asked.recipe.lr
    assert {name: rates[id(parameter)] for name, parameter in after.items()} == {
        name: full * (0.25 if name in moved else 1) for name in after
    }
    assert not (asked.run / begin.FRESH).exists()
    assert not (plain.job.run / begin.BEGIN / begin.TAUGHT).exists()


def test_no_more_steps_than_the_run_has(tiny_model_dir: Path, data: Path, tmp_path: Path) -> None:
    """A run of three steps is not kept waiting for six hundred."""
    asked = job("eagle3", tiny_model_dir, data, tmp_path / "out", copying=600, max_steps=3)
    prepare(asked, Ranks(), Quiet())
    assert json.loads((asked.run / begin.BEGIN / begin.TAUGHT).read_text())["steps"] == 3


def test_killed_while_it_is_taught_it_begins_as_if_it_had_never_been(
    tiny_model_dir: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teaching begins again, and ends in the same weights."""
    whole, broken = (
        job("mtp", tiny_model_dir, data, tmp_path / name, copying=4, max_steps=4) for name in ("whole", "broken")
    )
    run(whole)

    def dies(head: Any, seeking: Any, batches: Iterable[Any], steps: int, report: Any, **more: Any) -> Any:
        teach(head, seeking, batches, 2, report, **more)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("codraft.train.begin.teach", dies)
        with pytest.raises(KeyboardInterrupt):
            run(broken)
    assert not (broken.run / begin.BEGIN).exists()
    run(broken)
    one, other = (load_file(asked.run / begin.BEGIN / "model.safetensors") for asked in (whole, broken))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (whole.output / "model.safetensors").read_bytes() == (broken.output / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("changes", "word"), [({"copying": -1}, "--copying"), ({"copying_rate": 1.5}, "from 0 to 1")])
def test_absurd_teaching_is_refused(changes: dict[str, Any], word: str) -> None:
    """In a sentence."""
    with pytest.raises(SpecError, match=word):
        recipe("eagle3", **changes)
