"""Exact laws of decoding with drawn drafts: a toy target with features, and every branch enumerated."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from codraft.core.spec import Sampling
from codraft.decode.accept import accept_prob, residual
from codraft.decode.drafter import Drafter, Request
from codraft.decode.target import Cache, PassOutput, Tap
from codraft.replay.measure import acceptance_probability
from codraft.replay.walk import expect

from tests.toy import ToyCache, ToyTarget

WARM = Sampling(temperature=1.0)


class FeatureToy(ToyTarget):
    """A toy whose taps are real-valued: each a random function of the last two tokens."""

    def __init__(
        self, vocab_size: int, seed: int = 0, *, width: int = 16, eos: bool = True, scale: float = 2.0
    ) -> None:
        super().__init__(vocab_size, seed, scale=scale, eos=eos)
        self.width = width
        self._known: dict[tuple[Tap, int, int], Tensor] = {}

    def feature(self, tap: Tap, before: int, token: int) -> Tensor:
        """[C]."""
        key = (tap, before, token)
        if key not in self._known:
            generator = torch.Generator().manual_seed(hash(key) % 2**31)
            self._known[key] = torch.randn(self.width, generator=generator, dtype=torch.float64)
        return self._known[key]

    def forward(
        self,
        tokens: Sequence[Sequence[int]],
        cache: Cache,
        *,
        num_logits: int | None = None,
        taps: Sequence[Tap] = (),
    ) -> PassOutput:
        assert isinstance(cache, ToyCache)
        out = super().forward(tokens, cache, num_logits=num_logits)
        features: dict[Tap, list[Tensor]] = {tap: [] for tap in taps}
        for held, new in zip(cache.tokens, tokens, strict=True):
            pairs = list(zip([-1, *held], held, strict=False))[len(held) - len(new) :]
            for tap in taps:
                features[tap].append(torch.stack([self.feature(tap, *pair) for pair in pairs]))
        return PassOutput(out.logits, features)


def features_of(target: FeatureToy, tokens: Sequence[int], taps: Sequence[Tap]) -> dict[Tap, list[Tensor]]:
    """Of every token of one sequence."""
    return dict(target.forward([tokens], target.new_cache(1, 0), num_logits=1, taps=taps).features)


Law = dict[tuple[int, ...], float]


def outcomes(draft: Sequence[int], p_draft_KV: Tensor | None, target: ToyTarget, history: Sequence[int]) -> Law:
    """Exact distribution of what one step commits after a draft, by rejection sampling."""
    out: Law = {}

    def emit(prefix: Sequence[int], mass: float, p_V: Tensor) -> None:
        for token, p in enumerate(p_V.tolist()):
            out[(*prefix, token)] = out.get((*prefix, token), 0.0) + mass * p

    reach = 1.0
    for i, token in enumerate(draft):
        assert p_draft_KV is not None
        p_V = target.logits([*history, *draft[:i]]).softmax(-1)
        keep = float(accept_prob(p_V[token], p_draft_KV[i, token]))
        emit(draft[:i], reach * (1 - keep), residual(p_V, p_draft_KV[i]))
        reach *= keep
    emit(draft, reach, target.logits([*history, *draft]).softmax(-1))
    return out


def texts(target: ToyTarget, history: Sequence[int], length: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """All texts of some length, with the target's probability."""
    for text in itertools.product(range(target.vocab_size), repeat=length):
        p = 1.0
        for i, token in enumerate(text):
            p *= float(target.logits([*history, *text[:i]]).softmax(-1)[token])
        yield text, p


def filled_up(law: Law, target: ToyTarget, history: Sequence[int], length: int) -> Law:
    """What a step commits, filled up to `length` tokens by plain decoding."""
    whole: Law = {}
    for tokens, mass in law.items():
        for rest, p in texts(target, [*history, *tokens], length - len(tokens)):
            whole[(*tokens, *rest)] = whole.get((*tokens, *rest), 0.0) + mass * p
    return whole


def enumerated(
    drafter: Drafter, target: FeatureToy, prompt: list[int], anchor: int, D: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Law, Law, list[float]]:
    """Over all drafts that can be drawn: what one step commits, what it drafts, and P(a drafts accepted)."""
    law: Law = {}
    drafts: Law = {}
    accepted = [0.0] * (D + 1)
    for script, _ in texts(target, [0], D):
        chances: list[float] = []

        def draw(p_V: torch.Tensor, seed: int, stream: int, position: int, purpose: int) -> int:
            token = script[position - 1]  # noqa: B023
            chances.append(float(p_V[token]))  # noqa: B023
            return token

        monkeypatch.setattr("codraft.drafters.pick.draw", draw)
        drafter.prefill([Request(0, prompt, 99)], [anchor], features_of(target, prompt, drafter.taps))
        proposal = drafter.propose([anchor], D)
        drawn = float(np.prod(chances))
        assert len(chances) == D
        if drawn == 0:
            continue
        draft = tuple(proposal.tokens[0])
        assert draft == script[: len(draft)]
        drafts[draft] = drafts.get(draft, 0.0) + drawn
        for tokens, mass in outcomes(draft, proposal.p_draft[0], target, [*prompt, anchor]).items():
            law[tokens] = law.get(tokens, 0.0) + drawn * mass
            accepted[len(tokens) - 1] += drawn * mass
    return law, drafts, accepted


def first_step(drafter: Drafter, target: FeatureToy, prompt: list[int], output: list[int], D: int) -> list[float]:
    """P(a drafts accepted | the stream) in the step from the first anchor, by replay."""
    features = features_of(target, [*prompt, *output[:-1]], drafter.taps)
    found = drafter.unroll(prompt, output, features, D)
    p_target_T = np.array(
        [float(target.logits([*prompt, *output[:t]]).softmax(-1)[output[t]]) for t in range(1, len(output))]
    )
    log = expect(found.drafted_A, acceptance_probability(found, p_target_T), D, 1, None)
    weights = [0.0] * (D + 1)
    for a, w in zip(log.accepted_N.tolist(), log.weight_N.tolist(), strict=True):
        weights[a] += w
    return weights


class Fork:
    """Takes every branch of a program in turn: a draw or a coin is a branch, and its probability is noted."""

    def __init__(self) -> None:
        self.path: list[int] = []
        self.odds: list[list[float]] = []

    def branch(self, odds: Sequence[float]) -> int:
        at = len(self.odds)
        self.odds.append(list(odds))
        if at == len(self.path):
            self.path.append(next(i for i, p in enumerate(odds) if p > 0))
        return self.path[at]

    def draw(self, p_V: Tensor, *_: Any, **__: Any) -> int:
        return self.branch(p_V.tolist())

    def coin(self, *_: Any) -> Any:
        return Coin(self)

    def outcomes(self, run: Callable[[], tuple[int, ...]]) -> dict[tuple[int, ...], float]:
        found: dict[tuple[int, ...], float] = {}
        while True:
            self.odds = []
            text = run()
            chance = 1.0
            for i, odds in zip(self.path, self.odds, strict=True):
                chance *= odds[i]
            found[text] = found.get(text, 0.0) + chance
            while self.path:
                odds, i = self.odds[len(self.path) - 1], self.path.pop()
                later = next((j for j in range(i + 1, len(odds)) if odds[j] > 0), None)
                if later is not None:
                    self.path.append(later)
                    break
            else:
                return found


class Coin:
    """A uniform number that is compared once: at or above a threshold, or below it."""

    def __init__(self, fork: Fork) -> None:
        self.fork = fork

    def __ge__(self, threshold: float) -> bool:
        return self.fork.branch([threshold, 1 - threshold]) == 1
