"""What nobody trained is told from what somebody did, by the statistics of a few rows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.untrained import FEWEST, Untrained, is_fresh, look

from tests.checkpoints import Tensor, bf16, write_checkpoint

Array = np.ndarray[Any, Any]
INITS = {
    "normal": lambda rng, rows, columns: rng.normal(0, 0.02, (rows, columns)),
    "uniform": lambda rng, rows, columns: rng.uniform(-1, 1, (rows, columns)) / columns**0.5,
    "cut normal": lambda rng, rows, columns: np.clip(rng.normal(0, 1, (rows, columns)), -2, 2),
}


def rounded(values: Array) -> Array:
    """Values as bfloat16 holds them."""
    return ((values.astype("<f4").view("<u4") >> 16) << 16).view("<f4").astype(np.float64)


@pytest.mark.parametrize("init", INITS)
@settings(max_examples=40)
@given(rows=st.integers(FEWEST, 64), columns=st.integers(FEWEST, 400), seed=st.integers(0, 2**32 - 1))
def test_a_fresh_matrix_is_seen_in_any_size_also_in_bfloat16(init: str, rows: int, columns: int, seed: int) -> None:
    values = INITS[init](np.random.default_rng(seed), rows, columns)

    assert is_fresh(values)
    assert is_fresh(rounded(values))


def trained(rng: np.random.Generator, rows: int, columns: int, how: str) -> Array:
    """A matrix with what training leaves: a low rank on top, rows or columns of unequal size, heavy tails, a mean."""
    values = rng.normal(0, 0.02, (rows, columns))
    if how == "low rank":
        return values + rng.normal(0, 0.02, (rows, 1)) * rng.normal(0, 1, (1, columns))
    if how == "rows":
        return values * np.exp(rng.normal(0, 0.3, (rows, 1)))
    if how == "columns":
        return values * np.exp(rng.normal(0, 0.3, (1, columns)))
    if how == "tails":
        return values * rng.standard_t(4, (rows, columns)) / 1.4
    return values + 0.01


@pytest.mark.parametrize("how", ["low rank", "rows", "columns", "tails", "mean"])
def test_what_training_leaves_is_seen(how: str) -> None:
    rng = np.random.default_rng(0)

    assert not any(is_fresh(trained(rng, 64, 512, how)) for _ in range(50))


def found(tmp_path: Path, tensors: dict[str, Tensor]) -> Untrained:
    """What is seen of a checkpoint."""
    point = open_checkpoint(str(write_checkpoint(tmp_path / "head", {}, tensors)))
    return look(point.source, point.tensors)


def test_matrices_and_norms_of_a_file_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    broken = rng.normal(0, 1, (64, 64)).astype("<f4")
    broken[0, 0] = np.nan
    seen = found(
        tmp_path,
        {
            "fresh.weight": bf16(rng.normal(0, 0.02, (96, 80))),
            "trained.weight": bf16(trained(rng, 96, 80, "rows")),
            "zeros.weight": np.zeros((64, 64), "<f4"),
            "broken.weight": broken,
            "proj.weight": np.zeros((1, 64), "<f4"),
            "small.weight": rng.normal(0, 1, (8, 64)).astype("<f4"),
            "norm.weight": np.ones(64, "<f4"),
            "layers.0.bias": np.array([0, np.inf], "<f4"),
            "input_layernorm.weight": bf16(np.ones(64)),
        },
    )

    assert (seen.fresh, seen.constant, seen.not_finite) == (
        ["fresh.weight"],
        ["zeros.weight"],
        ["broken.weight", "layers.0.bias"],
    )
    assert seen.norms == 2


@pytest.mark.parametrize(("value", "norms"), [(1.0, 2), (0.0, 2), (0.5, 0)])
def test_norms_are_fresh_only_if_all_of_them_are(tmp_path: Path, value: float, norms: int) -> None:
    one: Tensor = np.full(16, value, "<f4")
    assert found(tmp_path / "a", {"a_norm.weight": one, "b_norm.weight": one}).norms == norms
    moved = np.full(16, value, "<f4")
    moved[3] += 0.001
    assert found(tmp_path / "b", {"a_norm.weight": one, "b_norm.weight": moved}).norms == 0


def test_an_expert_of_a_fused_tensor_is_looked_at_as_a_matrix(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    fresh = rng.normal(0, 0.02, (4, 64, 48))
    seen = found(
        tmp_path,
        {
            "fresh.experts.gate_up_proj": bf16(fresh),
            "trained.experts.gate_up_proj": bf16(np.stack([trained(rng, 64, 48, "rows") for _ in range(4)])),
            "zeros.experts.down_proj": np.zeros((4, 64, 48), "<f4"),
            "narrow.conv.weight": rng.normal(0, 1, (64, 1, 48)).astype("<f4"),
            "odd.weight": rng.normal(0, 1, (2, 3, 64, 48)).astype("<f4"),
        },
    )

    assert (seen.fresh, seen.constant) == (["fresh.experts.gate_up_proj"], ["zeros.experts.down_proj"])


def test_the_expert_in_the_middle_stands_for_all(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    one = np.stack([rng.normal(0, 0.02, (64, 48)), trained(rng, 64, 48, "rows"), rng.normal(0, 0.02, (64, 48))])

    assert found(tmp_path / "a", {"experts.weight": bf16(one)}).fresh == []
    assert found(tmp_path / "b", {"experts.weight": bf16(one[[1, 0, 1]])}).fresh == ["experts.weight"]


@pytest.mark.parametrize("at", [0, 1, 700, 4095])
def test_a_norm_is_read_whole(tmp_path: Path, at: int) -> None:
    """One NaN anywhere in it spoils every draft."""
    norm = np.full(4096, 0.5, "<f4")
    norm[at] = np.nan
    assert found(tmp_path, {"norm.weight": norm}).not_finite == ["norm.weight"]
