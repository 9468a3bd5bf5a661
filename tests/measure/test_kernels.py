"""Microbenchmarks at tiny sizes: what is timed and how it is counted, not how long it takes."""

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from codraft.decode.hf.load import load_model
from codraft.decode.hf.model import AttentionShape
from codraft.measure import kernels
from codraft.measure.kernels import (
    attention_points,
    gemm_points,
    num_copies,
    tile_depths,
    time_calls,
    time_kernels,
)

REAL_SIZES = dict(kernels.ROTATED_BYTES)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "ROTATED_BYTES", {"cpu": 2**14, "cuda": 2**14})
    monkeypatch.setattr(kernels, "ARTICLE_WIDTH", 16)
    monkeypatch.setattr(kernels, "ARTICLE_DEPTHS", (0, 2))
    monkeypatch.setattr(kernels, "LARGEST_BATCH", 4)
    monkeypatch.setattr(kernels, "LAYER_M", (1, 4))
    monkeypatch.setattr(kernels, "SECONDS_PER_POINT", 1e-4)
    monkeypatch.setattr(kernels, "LONGEST_CALL_S", 1e9)


def clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Every call takes so long."""
    ticks = itertools.count()
    monkeypatch.setattr(kernels, "time", SimpleNamespace(perf_counter=lambda: next(ticks) * seconds))


@pytest.mark.parametrize(("seconds", "samples"), [(10.0, 3), (0.02, 10), (1e-6, 20)])
def test_a_point_takes_its_time_but_never_too_few_samples(
    seconds: float, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "SECONDS_PER_POINT", 0.201)
    clock(monkeypatch, seconds)
    used: list[int] = []
    turns = itertools.cycle(range(3))
    spread = time_calls(used.append, turns, 3, "cpu")
    assert spread.num_samples == samples
    assert (spread.p10, spread.median, spread.p90) == pytest.approx((seconds, seconds, seconds))
    assert used == [i % 3 for i in range(samples + 2)], "copies take turns; the first two calls are not kept"
    time_calls(used.append, turns, 3, "cpu")
    assert used == [i % 3 for i in range(len(used))], "the next point goes on where this one ended"


@pytest.mark.parametrize("size", [1, 100, 2**13, 2**14 - 1, 2**14, 10**6])
def test_the_copies_together_exceed_the_cache_and_are_no_more_than_needed(size: int) -> None:
    for device in ("cpu", "cuda", "cuda:1"):
        copies = num_copies(size, device)
        assert copies >= 2
        assert copies * size >= 2**14
        assert copies == 2 or (copies - 1) * size < 2**14


def test_the_real_rotation_is_larger_than_the_caches_we_know() -> None:
    """Last-level caches hold up to some hundred megabytes."""
    assert REAL_SIZES["cpu"] >= 256 * 2**20
    assert REAL_SIZES["cuda"] >= 256 * 2**20


def test_a_gemm_is_counted_as_two_operations_a_cell() -> None:
    points = gemm_points("o_proj", 24, 16, [1, 4, 8], torch.float32, "cpu")
    assert [(p.layer, p.n, p.k, p.M) for p in points] == [("o_proj", 24, 16, M) for M in (1, 4, 8)]
    for p in points:
        assert 0 < p.p10 <= p.t_s <= p.p90
        assert p.flops_per_s == pytest.approx(2 * p.M * 24 * 16 / p.t_s)
        assert p.num_samples >= 3


def test_a_gemm_that_gets_too_slow_ends_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "LONGEST_CALL_S", 0.0)
    assert [p.M for p in gemm_points("x", 24, 16, [1, 4, 8], torch.float32, "cpu")] == [1]


def test_operands_are_of_the_asked_shape_and_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch, "linear")
    gemm_points("x", 24, 16, [3], torch.bfloat16, "cpu")
    for (rows, weight), _ in seen:
        assert (rows.shape, rows.dtype, weight.shape, weight.dtype) == (
            (3, 16),
            torch.bfloat16,
            (24, 16),
            torch.bfloat16,
        )
    assert len({id(weight) for (_, weight), _ in seen}) > 2


def calls_of(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
    """All calls of a function of torch, as they come."""
    seen: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
    real: Callable[..., Any] = getattr(torch.nn.functional, name)

    def watched(*args: Any, **kwargs: Any) -> Any:
        seen.append((args, kwargs))
        return real(*args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, name, watched)
    return seen


SHAPE = AttentionShape(heads=8, kv_heads=2, head_dim=4)


def test_attention_is_counted_over_the_cache_it_reads() -> None:
    points = attention_points(SHAPE, 3, 12, [0, 2, 5], torch.float32, "cpu")
    assert [(p.B, p.S, p.D, p.rows) for p in points] == [(3, 12, 0, 4), (3, 12, 2, 12), (3, 12, 5, 24)]
    for p in points:
        assert 0 < p.p10 <= p.t_s <= p.p90
        assert p.flops_per_s == pytest.approx(2 * 2 * 3 * 8 * (1 + p.D) * 12 * 4 / p.t_s)
        assert p.bytes_per_s == pytest.approx(2 * 3 * 2 * 12 * 4 * 4 / p.t_s)


def test_the_new_tokens_see_the_cache_and_not_what_lies_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = calls_of(monkeypatch, "scaled_dot_product_attention")
    attention_points(SHAPE, 3, 12, [0, 2], torch.float32, "cpu")
    masks = {args[0].shape[2]: kwargs["attn_mask"] for args, kwargs in seen}
    assert masks[1] is None
    assert masks[3].tolist() == [[True] * n + [False] * (12 - n) for n in (10, 11, 12)]
    for (queries, keys, values), kwargs in seen:
        assert queries.shape[:2] + queries.shape[3:] == (3, 8, 4)
        assert keys.shape == values.shape == (3, 2, 12, 4)
        assert kwargs["enable_gqa"]


def test_kernels_of_a_model_are_its_own_layers_the_articles_and_its_attention(tiny_model_dir: Path) -> None:
    model = load_model(str(tiny_model_dir), "float32")
    seen: list[tuple[int, int]] = []
    gemm, attention = time_kernels(model, (8, 16), lambda done, total: seen.append((done, total)))
    own = [(p.layer, p.n, p.k, p.M) for p in gemm if p.layer != "16x16"]
    shapes = {
        "q_proj": (32, 32),
        "k_proj": (16, 32),
        "gate_proj": (64, 32),
        "down_proj": (32, 64),
        "lm_head": (260, 32),
    }
    assert own == [(name, n, k, M) for name, (n, k) in shapes.items() for M in (1, 4)]
    # B of 1, 2, 4 times 1 or 3 tokens.
    assert [(p.n, p.k, p.M) for p in gemm if p.layer == "16x16"] == [(16, 16, M) for M in (1, 2, 3, 4, 6, 12)]
    assert [(p.S, p.D) for p in attention] == [(S, D) for S in (8, 16) for D in tile_depths(2)]
    assert {p.rows // (1 + p.D) for p in attention} == {2}
    assert seen[-1] == (len(shapes) + 1 + 2, len(shapes) + 1 + 2)


def test_a_model_that_names_no_heads_has_no_attention_points(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(str(tiny_model_dir), "float32")
    monkeypatch.setattr(model, "attention_shape", lambda: None)
    gemm, attention = time_kernels(model, (8,))
    assert gemm
    assert attention == []


@pytest.mark.parametrize("G", [1, 2, 3, 4, 7, 8, 16, 64, 128])
def test_depths_stand_on_both_sides_of_every_tile_edge(G: int) -> None:
    """The largest D that fits a tile, G (1 + D) <= tile, and the next one, which needs another."""
    depths = tile_depths(G)
    assert depths == sorted(set(depths))
    assert set(range(9)) <= set(depths)
    assert max(depths) <= 64
    for tile in (128, 256):
        fits = max(D for D in range(-1, tile) if tile >= G * (1 + D))
        assert {D for D in (fits, fits + 1) if 0 <= D <= 64} <= set(depths)
