"""T_verif, T_draft and T_sys at B sequences, context S and every D, from the real loop.

T_verif and T_sys come from steps whose drafts are wrong on purpose: exactly 1 + D tokens are verified and, but for a
rare lucky hit, one is committed, so the context hardly moves. T_draft comes from steps of the real drafter from that
context. D goes round and round within one session, so a machine that drifts does so for all D alike; the first round
only warms up.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo, TimingPoint
from codraft.core.spec import Sampling
from codraft.core.stats import Spread
from codraft.decode.drafter import Drafter, DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.loop import Batch, step
from codraft.decode.target import Tap, Target
from codraft.measure.clock import Laps
from codraft.replay.streams import Progress, TokenStream


class WrongDrafter:
    """Drafts exactly D tokens that the target will refuse: every pass has the width asked for."""

    taps: ClassVar[tuple[Tap, ...]] = ()
    prefix_stable: ClassVar[bool] = True
    info = DrafterInfo(name="wrong", mechanism="oracle", options={})

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses."""
        return "one_hot"

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """Nothing is ever right."""
        anchors = len(output_ids) - 1
        return Unrolled(np.full(anchors, D, dtype=np.int64), np.zeros((anchors, D), dtype=bool))

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Nothing to keep."""

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """Unlikely tokens: counted down from the vocabulary's end."""
        return Proposal.point_masses([[(self.vocab_size - 2 - i) % self.vocab_size for i in range(D)] for _ in anchors])

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Nothing to keep."""

    def keep(self, rows: Sequence[int]) -> None:
        """Nothing to keep."""


def contexts(streams: Sequence[TokenStream], B: int, S: int) -> list[list[int]]:
    """B real contexts of exactly S tokens, repeated end to end where a stream is shorter."""
    if not streams:
        raise SpecError("no stream to take a context from")
    rows = []
    for b in range(B):
        stream = streams[b % len(streams)]
        text = [*stream.prompt_ids, *stream.output_ids]
        rows.append((text * (S // len(text) + 1))[:S])
    return rows


def typical_context(streams: Sequence[TokenStream]) -> int:
    """Mean number of tokens before an anchor over the whole workload: the S at which its steps really run."""
    weights = [stream.num_anchors() for stream in streams]
    total = sum(w * (len(s.prompt_ids) + (w - 1) / 2) for w, s in zip(weights, streams, strict=True))
    return max(2, round(total / sum(weights)))


def time_steps(
    target: Target,
    drafters: Sequence[Drafter],
    streams: Sequence[TokenStream],
    sampling: Sampling,
    *,
    B: int,
    S: int,
    depths: Sequence[int],
    rounds: int,
    progress: Progress | None = None,
) -> list[TimingPoint]:
    """A timing point for each D at (B, S); `rounds` samples each after one round of warm-up."""
    room = session_room(depths, rounds) + max(depths) + 1
    if target.window is not None and S + room > target.window:
        S = target.window - room
        if S < 2:
            raise SpecError(
                f"timing D up to {max(depths)} in {rounds} rounds takes {room} tokens, and the model's window is "
                f"{target.window}; ask for fewer D (--depth) or fewer --rounds"
            )
    done, total = 0, (rounds + 1) * (1 + len(drafters))

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    wrong = WrongDrafter(target.vocab_size)
    verify = session(target, wrong, contexts(streams, B, S), sampling, depths, rounds, tick)
    draft = {
        drafter.info.name: session(target, drafter, contexts(streams, B, S), sampling, depths, rounds, tick)
        for drafter in drafters
    }
    points = []
    for D in depths:
        laps = verify[D]
        t_verif = Spread.of([lap["verify"] for lap in laps])
        t_sys = Spread.of([lap["step"] - lap["verify"] - lap["draft"] for lap in laps])
        points.append(
            TimingPoint(
                B=B,
                S=S,
                D=D,
                x=B * (1 + D),
                t_verif_s=t_verif.median,
                t_sys_s=t_sys.median,
                t_draft_s={
                    name: Spread.of([lap["draft"] for lap in laps_by_depth[D]]).median
                    for name, laps_by_depth in draft.items()
                    if D > 0
                },
                num_samples=t_verif.num_samples,
                p10=t_verif.p10,
                p90=t_verif.p90,
            )
        )
    return points


def session_room(depths: Sequence[int], rounds: int) -> int:
    """Tokens a session may commit: every step may accept everything, and no EOS ends a timing run."""
    return (rounds + 1) * sum(1 + D for D in depths) + 1


def session(
    target: Target,
    drafter: Drafter,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    depths: Sequence[int],
    rounds: int,
    tick: Callable[[], None],
) -> dict[int, list[dict[str, float]]]:
    """Laps of `rounds` steps at each D, taken in turn after one untimed round."""
    room = session_room(depths, rounds)
    requests = [Request(b, prompt, room) for b, prompt in enumerate(prompts)]
    laps = Laps(target.device)
    batch = Batch.prefill(EndlessTarget(target), drafter, requests, sampling, max(depths), laps)
    kept: dict[int, list[dict[str, float]]] = {D: [] for D in depths}
    for turn in range(rounds + 1):
        for D in depths:
            step(batch, D)
            if turn > 0:
                kept[D].append(laps.steps[-1])
        tick()
    return kept


class EndlessTarget:
    """A target whose EOS is an ordinary token, so that a timing run never stops early."""

    eos_ids: frozenset[int] = frozenset()

    def __init__(self, target: Target) -> None:
        self.id, self.vocab_size = target.id, target.vocab_size
        self.window, self.device = target.window, target.device
        self.new_cache, self.forward = target.new_cache, target.forward
