"""Lossless decoding: draft, verify, accept, commit. D = 0 is plain decoding, in the same loop.

The first output token comes from prefill and is the first anchor. At an anchor the cache holds everything before it;
the anchor itself is the first input of the next pass. A step counts, and accepts in full, even where its tokens pass
the token limit; only the output is cut there. An accepted EOS ends the stream without a bonus. Replay shares these
rules and none of this code.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, Protocol

from codraft.core.spec import Sampling
from codraft.decode.accept import Verdict, accept_matching, accept_rejection
from codraft.decode.drafter import Drafter, Proposal, Request
from codraft.decode.noise import Purpose, uniform
from codraft.decode.sampling import choose, draw, probabilities
from codraft.decode.target import Cache, PassOutput, Target, slice_features

Phase = Literal["prefill", "draft", "verify", "step"]


class Probe(Protocol):
    """Where a clock may look in; the loop itself never reads one."""

    def phase(self, name: Phase) -> AbstractContextManager[object]:
        """Enter and leave one phase."""
        ...


class NoProbe:
    """No clock."""

    def phase(self, name: Phase) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()


@dataclass(frozen=True, slots=True)
class Gain:
    """What one step commits: accepted tokens, then the bonus, or where `cut` the accepted EOS with nothing behind."""

    accepted: list[int]
    last: int
    cut: bool


@dataclass(slots=True)
class Stream:
    """One stream in the making. `steps` holds (anchor position, drafted, accepted, cut by EOS) of every step."""

    request: Request
    output_ids: list[int]
    steps: list[tuple[int, int, int, bool]] = field(default_factory=list)

    def extend(self, drafted: int, gain: Gain) -> None:
        """Commit one step."""
        anchor, accepted = len(self.output_ids) - 1, len(gain.accepted)
        counts = (accepted + 1, accepted + 1) if gain.cut else (drafted, accepted)
        self.steps.append((anchor, *counts, gain.cut))
        self.output_ids += [*gain.accepted, gain.last]

    def done(self, eos_ids: frozenset[int]) -> bool:
        """Ended by EOS or by the limit."""
        return self.output_ids[-1] in eos_ids or len(self.output_ids) >= self.request.max_new_tokens

    @property
    def text_ids(self) -> list[int]:
        """Output cut at the token limit."""
        return self.output_ids[: self.request.max_new_tokens]

    def stop_reason(self, eos_ids: frozenset[int]) -> Literal["eos", "length"]:
        """Why it ended."""
        return "eos" if self.text_ids[-1] in eos_ids else "length"


@dataclass(slots=True)
class Batch:
    """Streams decoded together: the state between two steps."""

    target: Target
    drafter: Drafter | None
    sampling: Sampling
    streams: list[Stream]
    cache: Cache
    probe: Probe

    @classmethod
    def prefill(
        cls,
        target: Target,
        drafter: Drafter | None,
        requests: Sequence[Request],
        sampling: Sampling,
        D: int,
        probe: Probe,
    ) -> "Batch":
        """One pass over the prompts gives the first token of each stream."""
        with probe.phase("prefill"):
            room = max(len(r.prompt_ids) + r.max_new_tokens for r in requests) + D + 1
            cache = target.new_cache(len(requests), room)
            taps = drafter.taps if drafter else ()
            out = target.forward([r.prompt_ids for r in requests], cache, num_logits=1, taps=taps)
            anchors = [
                choose(logits_1V[-1], sampling, r.index, 0) for r, logits_1V in zip(requests, out.logits, strict=True)
            ]
            if drafter:
                drafter.prefill(requests, anchors, out.features)
        streams = [Stream(r, [anchor]) for r, anchor in zip(requests, anchors, strict=True)]
        return cls(target, drafter, sampling, streams, cache, probe)

    def drop_finished(self) -> None:
        """Compact the batch: only unfinished streams stay in the cache and with the drafter."""
        rows = [row for row, stream in enumerate(self.streams) if not stream.done(self.target.eos_ids)]
        if len(rows) < len(self.streams):
            self.streams = [self.streams[row] for row in rows]
            if rows:
                self.cache.keep(rows)
                if self.drafter:
                    self.drafter.keep(rows)


def decode(
    target: Target,
    drafter: Drafter | None,
    requests: Sequence[Request],
    sampling: Sampling,
    D: int,
    probe: Probe | None = None,
) -> list[Stream]:
    """Write every request's stream, all in one batch, drafting D tokens a step."""
    batch = Batch.prefill(target, drafter, requests, sampling, D, probe or NoProbe())
    streams = list(batch.streams)
    batch.drop_finished()
    while batch.streams:
        step(batch, D)
    return streams


def step(batch: Batch, D: int) -> None:
    """One step of every stream."""
    with batch.probe.phase("step"):
        anchors = [stream.output_ids[-1] for stream in batch.streams]
        with batch.probe.phase("draft"):
            proposal = propose(batch.drafter, anchors, D)
        lengths = batch.cache.lengths
        inputs = [[anchor, *draft] for anchor, draft in zip(anchors, proposal.tokens, strict=True)]
        with batch.probe.phase("verify"):
            out = batch.target.forward(inputs, batch.cache, taps=batch.drafter.taps if batch.drafter else ())
        gains = [
            gain(draft, judge(batch, row, proposal, out), batch.target.eos_ids)
            for row, draft in enumerate(proposal.tokens)
        ]
        batch.cache.rollback([n + 1 + len(g.accepted) for n, g in zip(lengths, gains, strict=True)])
        if batch.drafter:
            with batch.probe.phase("draft"):
                features = slice_features(out.features, [1 + len(g.accepted) for g in gains])
                batch.drafter.commit([g.accepted for g in gains], [g.last for g in gains], features)
        for stream, draft, g in zip(batch.streams, proposal.tokens, gains, strict=True):
            stream.extend(len(draft), g)
        batch.drop_finished()


def propose(drafter: Drafter | None, anchors: Sequence[int], D: int) -> Proposal:
    """The drafter's proposal, or an empty one."""
    if drafter is None or D == 0:
        return Proposal.point_masses([[] for _ in anchors])
    return drafter.propose(anchors, D)


def judge(batch: Batch, row: int, proposal: Proposal, out: PassOutput) -> Verdict:
    """Which drafts of one stream stand, by the rule that fits the kind of draft."""
    stream, sampling = batch.streams[row], batch.sampling
    index, first = stream.request.index, len(stream.output_ids)
    logits_MV, p_draft_KV = out.logits[row], proposal.p_draft[row]
    if p_draft_KV is None:
        own = logits_MV.argmax(-1).tolist() if sampling.greedy else None
        return accept_matching(
            proposal.tokens[row],
            own.__getitem__ if own else lambda i: choose(logits_MV[i], sampling, index, first + i),
        )
    noise = partial(draw, seed=sampling.seed, stream=index)
    return accept_rejection(
        proposal.tokens[row],
        p_draft_KV,
        p_target=lambda i: probabilities(logits_MV[i : i + 1], sampling)[0],
        coin=lambda i: uniform(sampling.seed, index, first + i, Purpose.ACCEPT),
        draw_residual=lambda i, p_V: noise(p_V, position=first + i, purpose=Purpose.RESIDUAL),
        draw_bonus=lambda i, p_V: noise(p_V, position=first + i, purpose=Purpose.TARGET),
    )


def gain(draft: Sequence[int], verdict: Verdict, eos_ids: frozenset[int]) -> Gain:
    """An accepted EOS cuts the draft there, and there is no bonus after it."""
    accepted = list(draft[: verdict.accepted])
    end = next((i for i, token in enumerate(accepted) if token in eos_ids), None)
    return Gain(accepted, verdict.bonus, False) if end is None else Gain(accepted[:end], accepted[end], True)
