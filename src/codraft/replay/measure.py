"""AL(D) of drafters on streams: unroll once, walk for every D; or decode live for comparison."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from codraft.core.acceptance import Acceptance, StepLog, curve_point
from codraft.core.curve import CurvePoint
from codraft.core.errors import SpecError
from codraft.core.schema import AcceptanceResult, DomainCurve
from codraft.core.spec import Sampling
from codraft.decode.drafter import Drafter, Remembering, Unrolled, fresh
from codraft.decode.forced import forced_pass
from codraft.decode.loop import decode
from codraft.decode.sampling import probabilities
from codraft.decode.target import Tap, Target
from codraft.replay.streams import Progress, TokenStream
from codraft.replay.walk import expect, runs, walk

# Context buckets, in tokens before the anchor: [first, last).
CONTEXT_EDGES = (0, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
# Share of tokens that rounding at the edge of a top-p or top-k set may exclude.
MOST_IMPOSSIBLE = 0.02


@dataclass(slots=True)
class Logs:
    """Step logs of one drafter, by D and stream; `cold` where each stream met a drafter that remembered nothing."""

    by_depth: dict[int, list[StepLog]]
    expected: bool
    timings_s: dict[str, float] = field(default_factory=dict)
    cold: dict[int, list[StepLog]] | None = None


def reads_target(drafter: Drafter) -> bool:
    """Whether replaying it takes a pass of the target over the streams: for features, or for p_target."""
    return bool(drafter.taps) or drafter.draft_kind == "dense"


def replay(
    target: Target | None,
    drafter: Drafter,
    streams: Sequence[TokenStream],
    sampling: Sampling,
    eos_ids: frozenset[int],
    depths: Sequence[int],
    progress: Progress | None = None,
) -> Logs:
    """Steps at every D, without decoding. The target passes over the streams only where the drafter needs it."""
    if isinstance(drafter, Remembering):
        return replay_remembering(drafter, streams, eos_ids, depths, progress)
    return replay_together(target, [drafter], streams, sampling, eos_ids, depths, progress)[0]


def replay_together(
    target: Target | None,
    drafters: Sequence[Drafter],
    streams: Sequence[TokenStream],
    sampling: Sampling,
    eos_ids: frozenset[int],
    depths: Sequence[int],
    progress: Progress | None = None,
) -> list[Logs]:
    """As `replay`, of drafters that remember nothing: one pass of the target over a stream serves them all.

    Its time stands with the first of them.
    """
    dense = any(drafter.draft_kind == "dense" for drafter in drafters)
    taps = tuple(dict.fromkeys(tap for drafter in drafters for tap in drafter.taps))
    logs = [
        Logs({D: [] for D in depths}, drafter.draft_kind == "dense", {"drafter_pass": 0.0, "walk": 0.0})
        for drafter in drafters
    ]
    if dense or taps:
        logs[0].timings_s = {"target_pass": 0.0, **logs[0].timings_s}
    seen: list[NDArray[np.float64]] = []
    for done, stream in enumerate(streams, start=1):
        p_target_T: NDArray[np.float64] | None = None
        features: dict[Tap, list[torch.Tensor]] = {}
        if dense or taps:
            assert target is not None
            start = time.perf_counter()
            p_target_T, features = target_pass(target, stream, sampling if dense else None, taps)
            logs[0].timings_s["target_pass"] += time.perf_counter() - start
        if p_target_T is not None:
            seen.append(p_target_T)
        for drafter, log in zip(drafters, logs, strict=True):
            replay_stream(drafter, log, stream, features, p_target_T if log.expected else None, eos_ids, depths)
        if progress:
            progress(done, len(streams))
    check_possible(seen)
    return logs


def replay_stream(
    drafter: Drafter,
    logs: Logs,
    stream: TokenStream,
    features: Mapping[Tap, list[torch.Tensor]],
    p_target_T: NDArray[np.float64] | None,
    eos_ids: frozenset[int],
    depths: Sequence[int],
) -> None:
    """Append one stream's steps at every D to a drafter's logs."""
    for D in [max(depths)] if drafter.prefix_stable else depths:
        start = time.perf_counter()
        unrolled = drafter.unroll(stream.prompt_ids, stream.output_ids, features, D)
        unrolled_at = time.perf_counter()
        logs.timings_s["drafter_pass"] += unrolled_at - start
        for depth, log in walk_all(unrolled, stream, p_target_T, eos_ids, depths if drafter.prefix_stable else [D]):
            logs.by_depth[depth].append(log)
        logs.timings_s["walk"] += time.perf_counter() - unrolled_at


def replay_remembering(
    drafter: Remembering,
    streams: Sequence[TokenStream],
    eos_ids: frozenset[int],
    depths: Sequence[int],
    progress: Progress | None = None,
) -> Logs:
    """Steps at every D, one stream after the other as given: warm after those before it, and cold after none."""
    warm = drafter.fresh()
    clock = {"drafter_pass": 0.0, "walk": 0.0}
    logs: dict[int, list[StepLog]] = {D: [] for D in depths}
    cold: dict[int, list[StepLog]] = {D: [] for D in depths}
    for done, stream in enumerate(streams, start=1):
        for which, kept in ((warm, logs), (drafter.fresh(), cold)):
            start = time.perf_counter()
            unrolled = which.unroll_each(stream.prompt_ids, stream.output_ids, depths, stream.asked)
            unrolled_at = time.perf_counter()
            for D, one in zip(depths, unrolled, strict=True):
                [(_, log)] = walk_all(one, stream, None, eos_ids, [D])
                kept[D].append(log)
            if which is warm:
                clock["drafter_pass"] += unrolled_at - start
                clock["walk"] += time.perf_counter() - unrolled_at
        if progress:
            progress(done, len(streams))
    return Logs(logs, False, clock, cold)


def walk_all(
    unrolled: Unrolled,
    stream: TokenStream,
    p_target_T: NDArray[np.float64] | None,
    eos_ids: frozenset[int],
    depths: Sequence[int],
) -> list[tuple[int, StepLog]]:
    """Steps of one stream at every D from one unroll."""
    end = len(stream.output_ids) - 1 if stream.output_ids[-1] in eos_ids else None
    anchors = stream.num_anchors()
    if p_target_T is None:
        run_A = runs(unrolled)
        return [(D, walk(unrolled.drafted_A, run_A, D, anchors, end)) for D in depths]
    accept_AD = acceptance_probability(unrolled, p_target_T)
    return [(D, expect(unrolled.drafted_A, accept_AD, D, anchors, end)) for D in depths]


def acceptance_probability(unrolled: Unrolled, p_target_T: NDArray[np.float64]) -> NDArray[np.float64]:
    """[A, D] P(accept | the target emitted y) = min(1, p_draft(y) / p_target(y)) under the maximal coupling."""
    anchors, D = unrolled.hit_AD.shape
    # p_target_T[t] belongs to output token t + 1; anchor p meets it at i = t - p.
    padded = np.concatenate([p_target_T, np.ones(D)])
    target_AD = np.lib.stride_tricks.sliding_window_view(padded, D)[:anchors]
    p_draft_AD = unrolled.hit_AD.astype(np.float64)
    # A token that rounding put outside the target's filter: accepted if the drafter could draw it.
    ratio: NDArray[np.float64] = np.divide(
        p_draft_AD, target_AD, out=(p_draft_AD > 0).astype(float), where=target_AD > 0
    )
    return np.minimum(1.0, ratio)


def check_possible(p_target: Sequence[NDArray[np.float64]]) -> None:
    """Streams drawn with other settings than stated hold tokens these settings could never draw."""
    total = sum(len(p_T) for p_T in p_target)
    impossible = sum(int((p_T == 0).sum()) for p_T in p_target)
    if impossible > MOST_IMPOSSIBLE * total:
        raise SpecError(
            f"{impossible} of {total} stream tokens cannot come from the sampling settings given; replaying drawn "
            "drafts needs the temperature, top-p and top-k that the streams were sampled with"
        )


def target_pass(
    target: Target, stream: TokenStream, sampling: Sampling | None, taps: tuple[Tap, ...]
) -> tuple[NDArray[np.float64] | None, dict[Tap, list[torch.Tensor]]]:
    """One pass over a stream: how likely the target drew each output token 1..n-1, and the tapped features.

    The probabilities are None without a sampling, where they are not needed.
    """

    def p_of(logits_NV: torch.Tensor, tokens_N: torch.Tensor) -> torch.Tensor:
        assert sampling is not None
        return probabilities(logits_NV, sampling).gather(1, tokens_N[:, None])[:, 0]

    inputs = [*stream.prompt_ids, *stream.output_ids[:-1]]
    p_target_T, features = forced_pass(target, inputs, stream.output_ids[1:], p_of if sampling else None, taps)
    return None if p_target_T is None else p_target_T.cpu().numpy(), features


def live(
    target: Target,
    drafter: Drafter,
    streams: Sequence[TokenStream],
    sampling: Sampling,
    depths: Sequence[int],
    batch: int,
    progress: Progress | None = None,
) -> Logs:
    """Steps at every D by really decoding each stream's prompt again, once for each D."""
    start = time.perf_counter()
    logs: dict[int, list[StepLog]] = {D: [] for D in depths}
    done = 0
    for D in depths:
        drafter = fresh(drafter)
        for first in range(0, len(streams), batch):
            group = streams[first : first + batch]
            requests = [stream.request(stream.asked) for stream in group]
            logs[D] += [StepLog.of(s.steps) for s in decode(target, drafter, requests, sampling, D)]
            done += len(group)
            if progress:
                progress(done, len(streams) * len(depths))
    return Logs(logs, False, {"live": time.perf_counter() - start})


def result(drafter: Drafter, logs: Logs, streams: Sequence[TokenStream], *, domains: bool) -> AcceptanceResult:
    """AL(D) pooled over all streams and, where asked, by category and by context bucket."""
    groups = domain_masks(streams) if domains else {}
    return AcceptanceResult(
        drafter=drafter.info,
        basis="expected_steps" if logs.expected else "steps",
        curve=curve(logs.by_depth, streams),
        cold=None if logs.cold is None else curve(logs.cold, streams),
        domains={
            name: DomainCurve(num_prompts=count, curve=curve(logs.by_depth, streams, select))
            for name, (count, select) in groups.items()
        },
        timings_s=logs.timings_s,
    )


Select = Callable[[TokenStream, StepLog], StepLog]


def curve(
    by_depth: Mapping[int, list[StepLog]], streams: Sequence[TokenStream], select: Select | None = None
) -> list[CurvePoint]:
    """A point for every D at which there was a step."""
    points = []
    for D, per_stream in by_depth.items():
        conversations: dict[str, list[Acceptance]] = {}
        for stream, log in zip(streams, per_stream, strict=True):
            chosen = select(stream, log) if select else log
            conversations.setdefault(stream.conversation, []).append(Acceptance.from_log(chosen, D))
        point = curve_point(list(conversations.values()))
        if point is not None:
            points.append(point)
    return points


def domain_masks(streams: Sequence[TokenStream]) -> dict[str, tuple[int, Select]]:
    """Domain name -> (number of prompts, which steps of a stream belong): categories, then context buckets."""
    groups: dict[str, tuple[int, Select]] = {}
    for category in sorted({s.category for s in streams if s.category is not None}):
        count = sum(s.category == category for s in streams)
        groups[category] = (count, in_category(category))
    for low, high in zip(CONTEXT_EDGES, (*CONTEXT_EDGES[1:], None), strict=True):
        count = sum(
            len(s.prompt_ids) + s.num_anchors() > low and (high is None or len(s.prompt_ids) < high) for s in streams
        )
        if count:
            name = f"context {low}.." + ("" if high is None else str(high - 1))
            groups[name] = (count, in_context(low, high))
    return groups


def in_category(category: str) -> Select:
    """All steps of streams of one category."""

    def select(stream: TokenStream, log: StepLog) -> StepLog:
        return log.select(np.full(len(log.anchor_N), stream.category == category))

    return select


def in_context(low: int, high: int | None) -> Select:
    """Steps whose anchor has low..high-1 tokens before it."""

    def select(stream: TokenStream, log: StepLog) -> StepLog:
        context_N = len(stream.prompt_ids) + log.anchor_N
        return log.select((context_N >= low) & (context_N < (high or np.inf)))

    return select
