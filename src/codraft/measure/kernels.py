"""Microbenchmarks: GEMM throughput over M, and attention over the rows of its query tile, G (1 + D).

Operands rotate through more copies than the last-level cache holds, as a pass over a whole model does. On a GPU a CUDA
graph of one call per copy is timed with events, so that no launch is counted; on a CPU each call by a monotonic clock.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import torch

from codraft.core.constants import ARTICLE_DEPTHS, ARTICLE_TILE, ARTICLE_WIDTH
from codraft.core.schema import AttentionPoint, GemmPoint
from codraft.core.spec import MAX_DEPTH
from codraft.core.stats import Spread
from codraft.decode.hf.model import AttentionShape, HFModel
from codraft.replay.streams import Progress

# Rotated operands hold at least this much: above the last-level cache of the devices we know.
ROTATED_BYTES = {"cpu": 256 * 2**20, "cuda": 512 * 2**20}
LARGEST_BATCH = 256
LAYER_M = tuple(2**i for i in range(9))
CONTEXTS = (256, 1024, 4096)
MOST_SAMPLES, FEWEST_SAMPLES = 20, 3
SECONDS_PER_POINT = 0.2
# A larger M would only cost time: throughput is flat long before a call takes this long.
LONGEST_CALL_S = 0.4


def time_calls(call: Callable[[int], object], turns: Iterator[int], copies: int, device: str) -> Spread:
    """Seconds of one call; `call(i)` works on copy i. `turns` goes on from point to point: no copy is warm."""
    if device.startswith("cuda"):
        return time_on_gpu(call, copies)
    call(next(turns))
    start = time.perf_counter()
    call(next(turns))
    once = time.perf_counter() - start
    count = max(FEWEST_SAMPLES, min(MOST_SAMPLES, int(SECONDS_PER_POINT / max(once, 1e-9))))
    samples = []
    for _ in range(count):
        copy = next(turns)
        start = time.perf_counter()
        call(copy)
        samples.append(time.perf_counter() - start)
    return Spread.of(samples)


def time_on_gpu(call: Callable[[int], object], copies: int) -> Spread:
    """As `time_calls`, by replays of a graph that holds one call for each copy."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(copies):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(copies):
            call(i)
    samples = []
    for i in range(MOST_SAMPLES + 3):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            samples.append(begin.elapsed_time(end) / 1e3 / copies)
    return Spread.of(samples)


def num_copies(size_bytes: int, device: str) -> int:
    """Copies of an operand of this size that together exceed the cache; at least two."""
    return max(2, -(-ROTATED_BYTES[device.partition(":")[0]] // size_bytes))


@torch.inference_mode()
def gemm_points(layer: str, n: int, k: int, sizes: Sequence[int], dtype: torch.dtype, device: str) -> list[GemmPoint]:
    """[M, k] x [k, n] for every M of `sizes`, until calls get too long to be worth it."""
    copies = num_copies(n * k * dtype.itemsize, device)
    weights = [torch.randn(n, k, device=device, dtype=torch.float32).to(dtype) for _ in range(copies)]
    turns = cycle(range(copies))
    points = []
    for M in sizes:
        rows_MK = torch.randn(M, k, device=device, dtype=torch.float32).to(dtype)

        def multiply(i: int, rows_MK: torch.Tensor = rows_MK) -> object:
            return torch.nn.functional.linear(rows_MK, weights[i])

        spread = time_calls(multiply, turns, copies, device)
        points.append(
            GemmPoint(
                layer=layer,
                n=n,
                k=k,
                M=M,
                t_s=spread.median,
                p10=spread.p10,
                p90=spread.p90,
                num_samples=spread.num_samples,
                flops_per_s=2 * M * n * k / spread.median,
            )
        )
        if spread.median > LONGEST_CALL_S:
            break
    return points


@torch.inference_mode()
def attention_points(
    shape: AttentionShape, B: int, S: int, depths: Sequence[int], dtype: torch.dtype, device: str
) -> list[AttentionPoint]:
    """One layer's attention of 1 + D queries a sequence over S cached tokens, for every D."""
    cache_elements = 2 * B * shape.kv_heads * S * shape.head_dim
    copies = num_copies(cache_elements * dtype.itemsize, device)
    caches = [
        torch.randn(2, B, shape.kv_heads, S, shape.head_dim, device=device, dtype=torch.float32).to(dtype)
        for _ in range(copies)
    ]
    turns = cycle(range(copies))
    points = []
    for D in depths:
        queries = torch.randn(B, shape.heads, 1 + D, shape.head_dim, device=device, dtype=torch.float32).to(dtype)
        # The i-th of the new tokens sees all but those behind it.
        seen = torch.ones(1 + D, S, device=device, dtype=torch.bool).tril(S - 1 - D)

        def attend(i: int, queries: torch.Tensor = queries, seen: torch.Tensor = seen) -> object:
            keys, values = caches[i]
            return torch.nn.functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=None if len(seen) == 1 else seen, enable_gqa=True
            )

        spread = time_calls(attend, turns, copies, device)
        points.append(
            AttentionPoint(
                B=B,
                S=S,
                D=D,
                rows=shape.G * (1 + D),
                t_s=spread.median,
                p10=spread.p10,
                p90=spread.p90,
                num_samples=spread.num_samples,
                flops_per_s=4 * B * shape.heads * (1 + D) * S * shape.head_dim / spread.median,
                bytes_per_s=cache_elements * dtype.itemsize / spread.median,
            )
        )
    return points


def time_kernels(
    model: HFModel, contexts: Sequence[int] = CONTEXTS, progress: Progress | None = None
) -> tuple[list[GemmPoint], list[AttentionPoint]]:
    """GEMMs of the model's own layers and of the article's, and its attention at several contexts."""
    dtype, device = model.model.dtype, model.device
    batches = tuple(2**i for i in range(LARGEST_BATCH.bit_length()))
    article_M = sorted({B * (1 + D) for B in batches for D in ARTICLE_DEPTHS})
    wide = f"{ARTICLE_WIDTH}x{ARTICLE_WIDTH}"
    layers = [(name, n, k, LAYER_M) for name, n, k in model.linear_shapes()]
    layers.append((wide, ARTICLE_WIDTH, ARTICLE_WIDTH, tuple(article_M)))
    shape = model.attention_shape()
    gemm: list[GemmPoint] = []
    attention: list[AttentionPoint] = []
    total = len(layers) + len(contexts)
    for done, (name, n, k, sizes) in enumerate(layers, start=1):
        gemm += gemm_points(name, n, k, sizes, dtype, device)
        if progress:
            progress(done, total)
    for done, S in enumerate(contexts if shape else (), start=1):
        assert shape is not None
        attention += attention_points(shape, 1, S, tile_depths(shape.G), dtype, device)
        if progress:
            progress(len(layers) + done, total)
    return gemm, attention


def tile_depths(G: int) -> list[int]:
    """D at and around the steps of a tile of 128 query rows, and the small ones: 0..8, then where G (1 + D) crosses."""
    tiles = (ARTICLE_TILE, 2 * ARTICLE_TILE)
    edges = {tile // G + shift for tile in tiles for shift in (-2, -1, 0)}
    return sorted({*range(9), 15, *(D for D in edges if 0 < D <= MAX_DEPTH)})
