"""Train a head on the test's own streams until it drafts most of them, so that commit, rollback and the rebuilding of
features really run. Not a way to train a drafter: it knows these streams by heart and nothing else.

Embedding and output head stay as they are; the rest learns by cross-entropy, teacher-forced, as training and replay see
a head. Logits are taken over candidates alone: the streams' own tokens, and others that change with every round.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.decode.forced import forced_pass
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.decode.target import Tap
from codraft.drafters.block import BlockDrafter, BlockHead, stream_blocks
from codraft.drafters.rollout import Rollout, SerialHead
from codraft.drafters.serial import SerialDrafter

# Drafted tokens that must hit before training stops: short of all, so that some are still rejected.
GOAL = 0.85
# Most of them, over all streams; none that converges takes half as many.
ROUNDS = 80
NEGATIVES = 2048
RATE = 1e-3
# A step further from the anchor counts for less.
DECAY = 0.8


@dataclass(frozen=True, slots=True)
class Lesson:
    """One stream: tokens, where its output begins, and the target's features."""

    tokens_T: Tensor
    first: int
    features: dict[Tap, Tensor]


class Scored(Protocol):
    """One stream's pass: (hidden states [N, H] before the output head, tokens [N] they should give, weights [N])."""

    def __call__(self, lesson: Lesson) -> tuple[Tensor, Tensor, Tensor]:
        """Teacher-forced over all anchors."""
        ...


def lessons(target: HFModel, prompts: Sequence[Sequence[int]], limit: int, taps: Sequence[Tap]) -> list[Lesson]:
    """What the target writes after these prompts, with its features of it."""
    requests = [Request(i, prompt, limit) for i, prompt in enumerate(prompts)]
    made = []
    for request, stream in zip(requests, decode(target, None, requests, Sampling(), 0), strict=True):
        tokens = [*request.prompt_ids, *stream.text_ids]
        _, features = forced_pass(target, tokens[:-1], [], None, taps)
        # Clones, since tensors of inference mode take no part in training.
        kept = {tap: rows[0].clone() for tap, rows in features.items()}
        made.append(Lesson(torch.tensor(tokens), len(request.prompt_ids), kept))
    return made


def serial_scores(head: SerialHead, D: int) -> Scored:
    """Rows of the roll-out, D steps from every anchor."""

    def scored(lesson: Lesson) -> tuple[Tensor, Tensor, Tensor]:
        rollout = Rollout(head, head.fuse(lesson.features), lesson.tokens_T)
        hidden, wanted, weights = [], [], []
        for k in range(D):
            readable_NH = rollout.step()
            asked_N = (rollout.rows_N >= lesson.first - 1) & (rollout.rows_N + 2 + k < len(lesson.tokens_T))
            rows_N = rollout.rows_N[asked_N]
            hidden.append(readable_NH[asked_N])
            wanted.append(lesson.tokens_T[rows_N + 2 + k])
            weights.append(torch.full((len(rows_N),), DECAY**k))
            rollout.retain(asked_N)
        return torch.cat(hidden), torch.cat(wanted), torch.cat(weights)

    return scored


def block_scores(head: BlockHead, depths: Sequence[int]) -> Scored:
    """Slots of the blocks behind every anchor; blocks of one size in a pass, the sizes in turn."""
    sizes = cycle(depths)

    def scored(lesson: Lesson) -> tuple[Tensor, Tensor, Tensor]:
        fused_TH = head.fuse(lesson.features)
        context = head.context(fused_TH, torch.arange(len(fused_TH)))
        D = next(sizes)
        starts_C = torch.arange(lesson.first, len(lesson.tokens_T) - 1)
        filled_CnH = stream_blocks(head, context, lesson.tokens_T, starts_C, D + head.first_slot)
        places_Ck = starts_C[:, None] + 1 + torch.arange(D)
        known_Ck = places_Ck < len(lesson.tokens_T)
        hidden_NH = filled_CnH[:, head.first_slot : head.first_slot + D][known_Ck]
        weights_Ck = (DECAY ** torch.arange(D)).expand_as(places_Ck)
        return hidden_NH, lesson.tokens_T[places_Ck[known_Ck]], weights_Ck[known_Ck]

    return scored


def scores_of(drafter: Any, depths: Sequence[int]) -> Scored:
    """The teacher-forced pass of a drafter's head."""
    if isinstance(drafter, SerialDrafter):
        return serial_scores(drafter.head, max(depths))
    assert isinstance(drafter, BlockDrafter)
    return block_scores(drafter.head, depths)


class Candidates:
    """Rows of an output head [V', H] that a round of training looks at. `target_ids` [V'] says what its rows mean."""

    def __init__(self, rows_VH: Tensor, target_ids: Tensor | None, wanted: set[int], seed: int) -> None:
        self.rows_VH = rows_VH
        own = {int(t): i for i, t in enumerate(target_ids.tolist())} if target_ids is not None else None
        self._own: Callable[[int], int | None] = own.get if own is not None else lambda token: token
        self.needed = sorted(i for token in wanted if (i := self._own(token)) is not None)
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self) -> tuple[Tensor, dict[int, int]]:
        """(rows [C, H], where among them each token stands)."""
        others = torch.randperm(len(self.rows_VH), generator=self.generator)[:NEGATIVES].tolist()
        chosen = list(dict.fromkeys([*self.needed, *others]))
        places = {row: place for place, row in enumerate(chosen)}
        return self.rows_VH[torch.tensor(chosen)], places

    def places(self, tokens_N: Tensor, places: dict[int, int]) -> Tensor:
        """[N] places of these tokens, -1 for those that the head cannot draft."""
        own = [self._own(token) for token in tokens_N.tolist()]
        return torch.tensor([-1 if row is None else places[row] for row in own])


@contextmanager
def learning(head: nn.Module, frozen: Callable[[str], bool]) -> Iterator[list[nn.Parameter]]:
    """The parameters that learn."""
    chosen = [p for name, p in head.named_parameters() if not frozen(name)]
    for parameter in chosen:
        parameter.requires_grad_(True)
    try:
        yield chosen
    finally:
        head.requires_grad_(False)


def overfit(drafter: Any, target: HFModel, taught: Sequence[Lesson], depths: Sequence[int]) -> float:
    """Train a drafter's head in place; the share of drafted tokens that hit at the end, over the candidates."""
    head: nn.Module = drafter.head
    target.model.requires_grad_(False)
    own = getattr(head, "lm_head", None)
    rows_VH = (target.model.get_output_embeddings() if own is None else own).weight.detach()
    wanted = {int(token) for lesson in taught for token in lesson.tokens_T[lesson.first :]}
    candidates = Candidates(rows_VH, drafter.picker.target_ids, wanted, seed=0)
    scored, share = scores_of(drafter, depths), 0.0
    with learning(head, is_frozen) as parameters:
        optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
        for _ in range(ROUNDS):
            rows_CH, places = candidates.draw()
            hits = total = 0
            for lesson in taught:
                hidden_NH, tokens_N, weights_N = scored(lesson)
                place_N = candidates.places(tokens_N, places)
                known_N = place_N >= 0
                logits_NC = hidden_NH[known_N] @ rows_CH.T
                losses_N = nn.functional.cross_entropy(logits_NC, place_N[known_N], reduction="none")
                loss = (losses_N * weights_N[known_N]).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
                hits += int((logits_NC.argmax(-1) == place_N[known_N]).sum())
                total += int(known_N.sum())
            share = hits / total
            if share >= GOAL:
                break
    return share


def is_frozen(name: str) -> bool:
    """Ends, the choice of experts, and norms of keys, which vLLM's kernel needs equal in all layers of a block head."""
    return any(part in name for part in ("embed_tokens", "lm_head", "heads.", "e_score", "k_norm"))
