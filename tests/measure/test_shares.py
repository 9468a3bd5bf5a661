"""Where the time of a pass goes, with a clock that ticks once each time it is read."""

import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest

from codraft.decode.hf.load import load_model
from codraft.decode.hf.model import HFModel
from codraft.measure.shares import KINDS, Sections, shares


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> HFModel:
    return load_model(str(tiny_model_dir), "float32")


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("codraft.measure.shares.time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))


def watch(model: HFModel) -> Sections:
    modules = model.modules_by_kind()
    assert modules is not None
    return Sections(model, modules)


def one_pass(model: HFModel) -> None:
    model.forward([[3, 4, 5]], model.new_cache(1, 9))


def hooks(model: HFModel) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.model.modules())


@pytest.mark.usefixtures("ticking")
def test_every_module_of_a_kind_is_timed_once_a_pass(model: HFModel) -> None:
    """Two layers. FFN: enter, leave. Attention: four linear layers, each read twice, between its own two readings."""
    sections = watch(model)
    one_pass(model)
    with sections.watching():
        one_pass(model)
        assert sections.take() == {"ffn": 2.0, "attention": 2 * 9.0, "projections": 2 * 4.0, "head": 1.0}
        assert sections.take() == dict.fromkeys(KINDS, 0.0), "taking starts anew"
        one_pass(model)
        one_pass(model)
        assert sections.take()["ffn"] == 4.0
    one_pass(model)
    assert sections.take() == dict.fromkeys(KINDS, 0.0), "nothing is watched any more"


def test_no_hook_stays_behind(model: HFModel) -> None:
    before = hooks(model)
    sections = watch(model)
    with sections.watching():
        assert hooks(model) == before + 2 * (2 + 2 + 8 + 1)
    assert hooks(model) == before
    with pytest.raises(KeyboardInterrupt), sections.watching():
        raise KeyboardInterrupt
    assert hooks(model) == before


def test_attention_is_what_its_linear_layers_leave() -> None:
    assert shares({"ffn": 4.0, "attention": 4.5, "projections": 2.0, "head": 0.5}, 10.0) == {
        "ffn": 0.4,
        "projections": 0.2,
        "attention": 0.25,
        "head": 0.05,
        "other": pytest.approx(0.1),
    }


def test_what_no_kind_took_is_other() -> None:
    parts = ("ffn", "projections", "attention", "head")
    assert shares(dict.fromkeys(KINDS, 0.0), 3.0) == {**dict.fromkeys(parts, 0), "other": 1}
