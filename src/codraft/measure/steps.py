"""T_verif, T_draft and T_sys at B sequences, context S and every D, from the real loop.

T_verif and T_sys come from steps whose drafts are wrong on purpose: exactly 1 + D tokens are verified and, but for a
rare lucky hit, one is committed, so the context hardly moves. T_draft comes from steps of the real drafter from that
context. D goes round and round within one session, so a machine that drifts does so for all D alike; the first round
only warms up.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo, TimingPoint
from codraft.core.spec import Sampling
from codraft.core.stats import Spread
from codraft.decode.drafter import Drafter, DraftKind, Features, Proposal, Request, Unrolled, fresh
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import Batch, step
from codraft.decode.target import Tap, Target
from codraft.measure.clock import Laps
from codraft.measure.shares import Sections, shares
from codraft.replay.streams import Progress, TokenStream

# Seconds of one step by phase, and by kind of module where those were watched.
Lap = dict[str, float]
SHARE_ROUNDS = 2
# Drafting this much shorter than its pass is timed in this many rounds only.
NEGLIGIBLE, FEWEST_ROUNDS = 0.01, 2


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

    def device_bytes(self, B: int, S: int) -> int:
        """Nothing: it works on the host."""
        return 0


def contexts(texts: Sequence[Sequence[int]], B: int, S: int) -> list[list[int]]:
    """B real contexts of exactly S tokens, repeated end to end where a text is shorter."""
    if not texts:
        raise SpecError("no text to take a context from")
    rows = []
    for b in range(B):
        text = list(texts[b % len(texts)])
        rows.append((text * (S // len(text) + 1))[:S])
    return rows


def texts_of(streams: Sequence[TokenStream]) -> list[list[int]]:
    """Prompt and output of every stream."""
    return [[*stream.prompt_ids, *stream.output_ids] for stream in streams]


def typical_context(streams: Sequence[TokenStream]) -> int:
    """Mean number of tokens before an anchor over the whole workload: the S at which its steps really run."""
    weights = [stream.num_anchors() for stream in streams]
    total = sum(w * (len(s.prompt_ids) + (w - 1) / 2) for w, s in zip(weights, streams, strict=True))
    return max(2, round(total / sum(weights)))


def time_steps(
    target: Target,
    drafters: Sequence[Drafter],
    texts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    B: int,
    S: int,
    depths: Sequence[int],
    rounds: int,
    window: int | None = None,
    progress: Progress | None = None,
) -> list[TimingPoint]:
    """A timing point for each D at (B, S); `rounds` samples each after one round of warm-up.

    `window` is the shortest of target and drafters; by default the target's own.
    """
    most = largest_context(target.window if window is None else window, depths, rounds)
    if most is not None and most < S:
        raise SpecError(f"context S = {S} leaves no room to time D up to {max(depths)}; at most {most} fit the window")
    rows = contexts(texts, B, S)
    done, total = 0, (rounds + 1) * (1 + len(drafters)) + SHARE_ROUNDS + 1

    def tick() -> None:
        nonlocal done
        done += 1
        if progress:
            progress(done, total)

    wrong = WrongDrafter(target.vocab_size)
    verify = session(target, wrong, rows, sampling, depths, rounds, tick)
    where = shares_by_depth(target, rows, sampling, depths, tick) if isinstance(target, HFModel) else {}
    draft = {
        drafter.info.name: session(
            target, fresh(drafter), rows, sampling, depths, rounds, tick, enough=negligible_drafting
        )
        for drafter in drafters
    }
    return [
        timing_point(B, S, D, verify[D], {name: laps[D] for name, laps in draft.items() if D > 0}, where.get(D))
        for D in depths
    ]


def timing_point(
    B: int,
    S: int,
    D: int,
    verify: Sequence[Lap],
    draft: Mapping[str, Sequence[Lap]],
    shares_of_pass: dict[str, float] | None,
) -> TimingPoint:
    """Medians and spread of the laps at one D."""
    t_verif = Spread.of([lap["verify"] for lap in verify])
    t_sys = Spread.of([lap["step"] - lap["verify"] - lap["draft"] for lap in verify])
    t_draft = {name: Spread.of([lap["draft"] for lap in laps]) for name, laps in draft.items()}
    return TimingPoint(
        B=B,
        S=S,
        D=D,
        x=B * (1 + D),
        t_verif_s=t_verif.median,
        t_sys_s=t_sys.median,
        t_draft_s={name: spread.median for name, spread in t_draft.items()},
        num_samples=t_verif.num_samples,
        p10=t_verif.p10,
        p90=t_verif.p90,
        t_sys_spread_s=(t_sys.p10, t_sys.p90),
        t_draft_spread_s={name: (spread.p10, spread.p90) for name, spread in t_draft.items()},
        t_draft_num_samples={name: spread.num_samples for name, spread in t_draft.items()},
        shares=shares_of_pass,
    )


def largest_context(window: int | None, depths: Sequence[int], rounds: int) -> int | None:
    """The longest S that leaves room in the window for the tokens that a timing run may commit."""
    if window is None:
        return None
    room = session_room(depths, rounds) + max(depths) + 1
    if window - room < 2:
        raise SpecError(
            f"timing D up to {max(depths)} in {rounds} rounds takes {room} tokens, and the window is {window}; ask for "
            "fewer D (--depth) or fewer --rounds"
        )
    return window - room


def shares_by_depth(
    target: HFModel,
    rows: Sequence[Sequence[int]],
    sampling: Sampling,
    depths: Sequence[int],
    tick: Callable[[], None],
) -> dict[int, dict[str, float]]:
    """Shares of a pass by kind of work, at every D, from passes of their own: the hooks slow them a little."""
    modules = target.modules_by_kind()
    if modules is None:
        return {}
    sections = Sections(target, modules)
    with sections.watching():
        laps = session(target, WrongDrafter(target.vocab_size), rows, sampling, depths, SHARE_ROUNDS, tick, sections)
    found = {}
    for D in depths:
        rounds = [shares(lap, lap["verify"]) for lap in laps[D]]
        # The mean, not the median: shares must still add up.
        found[D] = {kind: float(np.mean([each[kind] for each in rounds])) for kind in rounds[0]}
    return found


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
    sections: Sections | None = None,
    enough: Callable[[Mapping[int, Sequence[Lap]]], bool] | None = None,
) -> dict[int, list[Lap]]:
    """Laps of `rounds` steps at each D, taken in turn after one untimed round; fewer rounds once they are `enough`."""
    room = session_room(depths, rounds)
    requests = [Request(b, prompt, room) for b, prompt in enumerate(prompts)]
    laps = Laps(target.device)
    batch = Batch.prefill(EndlessTarget(target), drafter, requests, sampling, max(depths), laps)
    kept: dict[int, list[Lap]] = {D: [] for D in depths}
    if sections:
        sections.take()
    for turn in range(rounds + 1):
        for D in depths:
            step(batch, D)
            parts = sections.take() if sections else {}
            if turn > 0:
                kept[D].append({**laps.steps[-1], **parts})
        tick()
        if enough and turn >= FEWEST_ROUNDS and enough(kept):
            break
    return kept


def negligible_drafting(laps: Mapping[int, Sequence[Lap]]) -> bool:
    """Whether drafting never took more than a hundredth of its pass: more samples would not move a step time."""
    return all(lap["draft"] <= NEGLIGIBLE * lap["verify"] for laps_at_D in laps.values() for lap in laps_at_D)


class EndlessTarget:
    """A target whose EOS is an ordinary token, so that a timing run never stops early."""

    eos_ids: frozenset[int] = frozenset()

    def __init__(self, target: Target) -> None:
        self.id, self.vocab_size = target.id, target.vocab_size
        self.window, self.device = target.window, target.device
        self.new_cache, self.forward = target.new_cache, target.forward
        self.device_bytes = target.device_bytes
