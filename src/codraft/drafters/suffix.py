"""Suffix decoding [SuffixDecoding]: the likeliest continuation of the longest suffix seen before, by counts.

Two trees are asked: one of the request's own prompt and output, one of the outputs of all requests, running and past,
oldest out first. For every length of match the tree's most frequent path is a draft, and its score is the number of
tokens it may expect to see accepted; the best score wins, then the longer match, then the request's own tree. Drafts
are those of ArcticInference 0.1.1, token for token, for equal settings (benchmarks/bench_suffix.py).
"""

from array import array
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import numpy as np

from codraft.core.schema import DrafterInfo
from codraft.core.spec import SuffixSpec, options_of
from codraft.decode.drafter import DraftKind, Features, Proposal, Request, Unrolled
from codraft.decode.target import Tap
from codraft.drafters.suffix_tree import Node, SuffixTree
from codraft.drafters.suffix_tree import Sequence as TreeSequence

_register = array("f", [0.0])


def float32(x: float) -> float:
    """Rounded to single precision, in which scores are kept: a tie between two drafts must be the same tie."""
    _register[0] = x
    return _register[0]


class Draft(NamedTuple):
    """The first `length` of `tokens`, and the number of them expected to be accepted."""

    tokens: list[int]
    length: int
    score: float


class Limits:
    """How far to draft: by match length, and by probability of the path."""

    def __init__(self, spec: SuffixSpec) -> None:
        factor = float32(spec.max_spec_factor)
        self.budget = [int(float32(m * factor) + 1e-6) for m in range(spec.max_tree_depth + 1)]
        self.least = float32(spec.min_token_prob)


def follow(node: Node, offset: int, budget: int, least: float) -> tuple[list[int], list[float]]:
    """At most `budget` tokens down the most frequent path while its probability is `least` or more.

    Entry i of the second list is the score of the first i tokens.
    """
    tokens: list[int] = []
    scores = [0.0]
    p, score = 1.0, 0.0
    while True:
        take = min(node.length - offset, budget - len(tokens))
        at = node.start + offset
        tokens += node.text[at : at + take]
        for _ in range(take):
            score = score + p if p == 1.0 else float32(score + p)
            scores.append(score)
        child = node.first
        if len(tokens) >= budget or child is None:
            return tokens, scores
        if child.count != node.count:
            p = float32(p * float32(child.count / node.count))
            if p < least:
                return tokens, scores
        node, offset = child, 0


def best_drafts(
    tree: SuffixTree, active: list[Node], context: list[int], limits: Limits, depths: Sequence[int]
) -> list[Draft]:
    """The best draft after `context` for every D of `depths`. `active[-m]`: where its last m tokens end, if known."""
    best_tokens: list[list[int]] = [[]] * len(depths)
    best_length, best_score = [0] * len(depths), [0.0] * len(depths)
    top = max(depths)
    for m in range(1, len(context)):
        if m <= len(active):
            node = active[-m]
            offset = node.length
        else:
            found = tree.find(context[-m:])
            if found is None:
                break
            node, offset = found
        if node.first is None and offset == node.length:
            break  # Nothing ever followed these m tokens, so nothing followed more of them.
        tokens, scores = follow(node, offset, min(top, limits.budget[m]), limits.least)
        found_length = len(tokens)
        for i, D in enumerate(depths):
            length = D if found_length > D else found_length
            if scores[length] >= best_score[i]:
                best_tokens[i], best_length[i], best_score[i] = tokens, length, scores[length]
    return [Draft(*parts) for parts in zip(best_tokens, best_length, best_score, strict=True)]


class Memory:
    """The tree of all requests' outputs: at most `capacity` requests, oldest out first; 0 remembers nothing."""

    def __init__(self, max_depth: int, capacity: int) -> None:
        self.tree, self.capacity = SuffixTree(max_depth), capacity
        self._kept: dict[int, TreeSequence] = {}
        self._next = 0

    def start(self) -> int:
        """A place for a new request's output, and the key to it."""
        key, self._next = self._next, self._next + 1
        if self.capacity:
            self._kept[key] = TreeSequence()
            if len(self._kept) > self.capacity:
                self.tree.remove(self._kept.pop(next(iter(self._kept))))
        return key

    def extend(self, key: int, tokens: list[int]) -> None:
        """Append to a request's output, unless it was evicted."""
        if sequence := self._kept.get(key):
            self.tree.extend(sequence, tokens)

    def active(self, key: int) -> list[Node]:
        """Where the request's output ends in the tree."""
        sequence = self._kept.get(key)
        return sequence.active if sequence else []

    @property
    def num_requests(self) -> int:
        """Requests whose output is in the tree."""
        return len(self._kept)


class Running:
    """One request at work: its own tree, and its place in the memory."""

    def __init__(self, prompt_ids: Sequence[int], room: int, memory: Memory, depth: int) -> None:
        self.tree, self.text = SuffixTree(depth), TreeSequence()
        self.tree.extend(self.text, list(prompt_ids))
        self.memory, self.key, self.room, self.depth = memory, memory.start(), room, depth

    def extend(self, tokens: list[int]) -> None:
        """Append output; what passes the request's limit is no output, so others do not see it."""
        self.tree.extend(self.text, tokens)
        self.memory.extend(self.key, tokens[: self.room])
        self.room -= min(self.room, len(tokens))

    def drafts(self, limits: Limits, depths: Sequence[int]) -> list[Draft]:
        """The draft for every D of `depths`; of equal scores the request's own tree gives it."""
        context = self.text.tokens[-self.depth :]
        own = best_drafts(self.tree, self.text.active, context, limits, depths)
        if not self.memory.num_requests:
            return own
        shared = best_drafts(self.memory.tree, self.memory.active(self.key), context, limits, depths)
        return [a if a.score >= b.score else b for a, b in zip(own, shared, strict=True)]


class SuffixDrafter:
    """State is the trees. The draft at D is no prefix of that at D + 1, which may come from a shorter match."""

    taps: ClassVar[tuple[Tap, ...]] = ()
    prefix_stable: ClassVar[bool] = False

    def __init__(self, spec: SuffixSpec) -> None:
        self.spec, self.limits = spec, Limits(spec)
        self.info = DrafterInfo(name=spec.name, mechanism="suffix", options=options_of(spec))
        self.memory = Memory(spec.max_tree_depth, spec.max_cached_requests)
        self._running: list[Running] = []

    @property
    def draft_kind(self) -> DraftKind:
        """Point masses."""
        return "one_hot"

    def fresh(self) -> "SuffixDrafter":
        """The same drafter, remembering nothing."""
        return SuffixDrafter(self.spec)

    def unroll(self, prompt_ids: Sequence[int], output_ids: Sequence[int], features: Features, D: int) -> Unrolled:
        """A stream on its own, with nothing remembered of others."""
        return self.fresh().unroll_each(prompt_ids, output_ids, [D], len(output_ids))[0]

    def unroll_each(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int], depths: Sequence[int], asked: int
    ) -> list[Unrolled]:
        """All D in one walk: the trees at an anchor do not depend on D. Remembers the asked output afterwards."""
        asked = min(asked, len(output_ids))
        running = Running(prompt_ids, asked, self.memory, self.spec.max_tree_depth)
        anchors = len(output_ids) - 1
        drafted = np.zeros((len(depths), anchors), dtype=np.int64)
        run = np.zeros((len(depths), anchors), dtype=np.int64)
        for p in range(min(asked - 1, anchors)):
            running.extend([output_ids[p]])
            ahead = output_ids[p + 1 : p + 1 + max(depths)]
            matches: dict[int, int] = {}
            for i, draft in enumerate(running.drafts(self.limits, depths)):
                if draft.length:
                    key = id(draft.tokens)
                    if key not in matches:
                        matches[key] = common_prefix(draft.tokens, ahead)
                    drafted[i, p] = draft.length
                    run[i, p] = min(draft.length, matches[key])
        running.extend(list(output_ids[asked - 1 : asked]))
        return [Unrolled(drafted[i], np.arange(D) < run[i][:, None]) for i, D in enumerate(depths)]

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        """Plant the prompts and first anchors."""
        self._running = [
            Running(r.prompt_ids, r.max_new_tokens, self.memory, self.spec.max_tree_depth) for r in requests
        ]
        for running, anchor in zip(self._running, anchors, strict=True):
            running.extend([anchor])

    def propose(self, anchors: Sequence[int], D: int) -> Proposal:
        """One query a sequence."""
        drafts = [running.drafts(self.limits, [D])[0] for running in self._running]
        return Proposal.point_masses([draft.tokens[: draft.length] for draft in drafts])

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        """Append what was decided."""
        for running, tokens, last in zip(self._running, accepted, bonus, strict=True):
            running.extend([*tokens, last])

    def keep(self, rows: Sequence[int]) -> None:
        """Drop the rest; their outputs stay in the memory."""
        self._running = [self._running[row] for row in rows]

    def device_bytes(self, B: int, S: int) -> int:
        """Nothing: it works on the host."""
        return 0


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
