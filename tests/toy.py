"""Toy targets and adversarial drafters: exact, in float64, small enough to enumerate."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.core.spec import Sampling
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.noise import Purpose
from codraft.decode.sampling import draw, probabilities
from codraft.decode.target import Cache, PassOutput, Tap

EOS = 0


class ToyCache:
    """The committed tokens themselves."""

    def __init__(self, num_sequences: int) -> None:
        self.tokens: list[list[int]] = [[] for _ in range(num_sequences)]

    @property
    def lengths(self) -> list[int]:
        return [len(row) for row in self.tokens]

    def rollback(self, lengths: Sequence[int]) -> None:
        for row, length in zip(self.tokens, lengths, strict=True):
            assert 0 <= length <= len(row)
            del row[length:]

    def keep(self, rows: Sequence[int]) -> None:
        self.tokens = [self.tokens[row] for row in rows]


class ToyTarget:
    """Logits depend on the last two tokens through two random tables. Tap -1 gives the token ids."""

    device = "cpu"
    window: int | None = None

    def __init__(self, vocab_size: int, seed: int = 0, *, scale: float = 2.0, eos: bool = True) -> None:
        generator = torch.Generator().manual_seed(seed)
        shape = (vocab_size + 1, vocab_size)
        self.last_VV = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.before_VV = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
        self.id = f"toy-{seed}"
        self.vocab_size = vocab_size
        self.eos_ids = frozenset([EOS]) if eos else frozenset[int]()
        self.passes = 0

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[V] after a history."""
        before = tokens[-2] if len(tokens) > 1 else self.vocab_size
        return self.last_VV[tokens[-1]] + self.before_VV[before]

    def new_cache(self, num_sequences: int, capacity: int) -> ToyCache:
        return ToyCache(num_sequences)

    def forward(
        self,
        tokens: Sequence[Sequence[int]],
        cache: Cache,
        *,
        num_logits: int | None = None,
        taps: Sequence[Tap] = (),
    ) -> PassOutput:
        assert isinstance(cache, ToyCache)
        assert all(len(row) > 0 for row in tokens)
        self.passes += 1
        logits = []
        for held, new in zip(cache.tokens, tokens, strict=True):
            rows = []
            for token in new:
                held.append(token)
                rows.append(self.logits(held))
            kept = len(rows) if num_logits is None else min(num_logits, len(rows))
            logits.append(torch.stack(rows)[len(rows) - kept :])
        features = {tap: [torch.tensor(row, dtype=torch.float64)[:, None] for row in tokens] for tap in taps}
        return PassOutput(logits, features)

    def device_bytes(self, B: int, S: int) -> int:
        return 100 + B * S


Rule = Callable[[list[int], int, int], list[int]]


class RuleDrafter:
    """Drafts whatever `rule(history with anchor, D, number of the step)` says; checks what it is told on the way."""

    taps: ClassVar[tuple[Tap, ...]] = (-1,)
    prefix_stable: ClassVar[bool] = False
    info = DrafterInfo(name="rule", mechanism="rule", options={})

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.histories: list[list[int]] = []
        self.step = 0

    @property
    def draft_kind(self) -> DraftKind:
        return "one_hot"

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        anchors = len(output_ids) - 1
        drafts = [self.rule([*prompt_ids, *output_ids[: p + 1]], D, 0) for p in range(anchors)]
        hits = np.zeros((anchors, D), dtype=bool)
        for p, draft in enumerate(drafts):
            hits[p, : len(draft)] = [
                p + i < len(output_ids) and token == output_ids[p + i] for i, token in enumerate(draft, start=1)
            ]
        return Unrolled(np.array([len(draft) for draft in drafts], dtype=np.int64), hits)

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        self.histories = [[*r.prompt_ids, anchor] for r, anchor in zip(requests, anchors, strict=True)]
        for request, states in zip(requests, features[-1], strict=True):
            assert states[:, 0].tolist() == list(request.prompt_ids)

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        assert [history[-1] for history in self.histories] == list(anchors)
        return Proposal.point_masses([self.rule(list(history), D, self.step) for history in self.histories])

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        self.step += 1
        for history, tokens, last, states in zip(self.histories, accepted, bonus, features[-1], strict=True):
            # Features are of the anchor and the accepted tokens, those positions and no more.
            assert states[:, 0].tolist() == [history[-1], *tokens]
            history += [*tokens, last]

    def keep(self, rows: Sequence[int]) -> None:
        self.histories = [self.histories[row] for row in rows]

    def device_bytes(self, B: int, S: int) -> int:
        return 0


class SamplingDrafter:
    """Draws its drafts from another toy's distribution."""

    taps: ClassVar[tuple[Tap, ...]] = ()
    prefix_stable: ClassVar[bool] = True
    info = DrafterInfo(name="sampling", mechanism="toy", options={})

    def __init__(self, model: ToyTarget, sampling: Sampling) -> None:
        self.model, self.sampling = model, sampling
        self.histories: list[list[int]] = []
        self.streams: list[int] = []
        self.starts: list[int] = []

    @property
    def draft_kind(self) -> DraftKind:
        return "dense"

    def p_draft(self, history: Sequence[int]) -> Tensor:
        """[V] given a history."""
        return probabilities(self.model.logits(history)[None], self.sampling)[0]

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        anchors = len(output_ids) - 1
        p_AD = np.zeros((anchors, D))
        for p in range(anchors):
            for i in range(1, D + 1):
                if p + i < len(output_ids):
                    history = [*prompt_ids, *output_ids[: p + i]]
                    p_AD[p, i - 1] = float(self.p_draft(history)[output_ids[p + i]])
        return Unrolled(np.full(anchors, D, dtype=np.int64), p_AD)

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        self.histories = [[*r.prompt_ids, anchor] for r, anchor in zip(requests, anchors, strict=True)]
        self.streams = [r.index for r in requests]
        self.starts = [len(r.prompt_ids) for r in requests]

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        drafts, p_draft = [], []
        for history, stream, start in zip(self.histories, self.streams, self.starts, strict=True):
            extended, rows = list(history), []
            for _ in range(D):
                p_V = self.p_draft(extended)
                rows.append(p_V)
                extended.append(draw(p_V, self.sampling.seed, stream, len(extended) - start, Purpose.DRAFT))
            drafts.append(extended[len(history) :])
            p_draft.append(torch.stack(rows))
        return Proposal(drafts, list(p_draft))

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        for history, tokens, last in zip(self.histories, accepted, bonus, strict=True):
            history += [*tokens, last]

    def keep(self, rows: Sequence[int]) -> None:
        for name in ("histories", "streams", "starts"):
            setattr(self, name, [getattr(self, name)[row] for row in rows])

    def device_bytes(self, B: int, S: int) -> int:
        return 0


def follower(vocab_size: int, after: Mapping[int, int]) -> ToyTarget:
    """A toy whose greedy text goes from token to token as told."""
    target = ToyTarget(vocab_size)
    target.last_VV.zero_()
    target.before_VV.zero_()
    for token, following in after.items():
        target.last_VV[token, following] = 9.0
    return target


def greedy_text(target: ToyTarget, prompt: Sequence[int], length: int) -> list[int]:
    """Plain greedy continuation, computed without the loop; goes on past EOS."""
    history = list(prompt)
    for _ in range(length):
        history.append(int(target.logits(history).argmax()))
    return history[len(prompt) :]


def oracle(target: ToyTarget) -> Rule:
    """Always right for greedy decoding."""
    return lambda history, D, step: greedy_text(target, history, D)


def wrong(target: ToyTarget) -> Rule:
    """Wrong at every draft."""
    return lambda history, D, step: [(greedy_text(target, history, 1)[0] + 1) % target.vocab_size] * D


def scrambled(target: ToyTarget) -> Rule:
    """Right or wrong by a hash of the history: ragged acceptance in a batch."""

    def rule(history: list[int], D: int, step: int) -> list[int]:
        draft = greedy_text(target, history, D)
        cut = hash((tuple(history[-5:]), len(history))) % (D + 1) if D else 0
        return [token if i < cut else (token + 1) % target.vocab_size for i, token in enumerate(draft)]

    return rule


def ragged(target: ToyTarget) -> Rule:
    """Right, but of any length from 0 to D."""
    return lambda history, D, step: greedy_text(target, history, hash(tuple(history[-4:])) % (D + 1))


def eos_inside(target: ToyTarget) -> Rule:
    """An EOS in the middle of every draft, right or not."""

    def rule(history: list[int], D: int, step: int) -> list[int]:
        draft = greedy_text(target, history, D)
        if D > 1:
            draft[D // 2] = EOS
        return draft

    return rule


def changing_depth(target: ToyTarget) -> Rule:
    """A different number of drafts each step."""
    return lambda history, D, step: greedy_text(target, history, step % (D + 1))


RULES: dict[str, Callable[[ToyTarget], Rule]] = {
    "oracle": oracle,
    "wrong": wrong,
    "empty": lambda target: lambda history, D, step: [],
    "scrambled": scrambled,
    "ragged": ragged,
    "eos_inside": eos_inside,
    "changing_depth": changing_depth,
    "random": lambda target: (
        lambda history, D, step: [hash((tuple(history[-3:]), i)) % target.vocab_size for i in range(D)]
    ),
}
