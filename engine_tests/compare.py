"""Two ways along one stream, step by step: ours and an engine's. Pure: no torch, no engine.

The integers of a request must be equal, and every drafted token. A first difference is excused where our own two best
logits lie closer than `TIE`: there rounding decides. What comes after a difference of a request is not compared, since
it follows from it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

# Two best logits closer than this are a tie in float32.
TIE = 1e-4


@dataclass(frozen=True, slots=True)
class Step:
    """One verification: the output position of its anchor, what was drafted behind it, and how much of it stood."""

    anchor: int
    drafted: tuple[int, ...]
    accepted: int


@dataclass(frozen=True, slots=True)
class Way:
    """One request's way: its output and its steps in order."""

    output_ids: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def counts(self) -> tuple[int, int, int]:
        """(steps, drafted, accepted)."""
        return len(self.steps), sum(len(s.drafted) for s in self.steps), sum(s.accepted for s in self.steps)


@dataclass(frozen=True, slots=True)
class Margins:
    """Our two best logits' distance: of the draft i behind the anchor at p, and of the target's token at p."""

    draft: Callable[[int, int], float]
    text: Callable[[int], float]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two ways part: at a draft of the step with this anchor, at a token of the text, or in the counting."""

    request: int
    kind: Literal["draft", "text", "count"]
    position: int
    ours: object
    theirs: object
    margin: float

    @property
    def excused(self) -> bool:
        """Whether rounding may have decided."""
        return self.kind != "count" and self.margin < TIE

    def __str__(self) -> str:
        where = {"draft": "drafted token", "text": "text at output position", "count": "counts"}[self.kind]
        return f"request {self.request}: {where} {self.position}: {self.ours} / {self.theirs}, margin {self.margin:.1e}"


@dataclass(slots=True)
class Comparison:
    """Of all requests of one case. `compared` counts the steps that were held against each other and agree."""

    compared: int = 0
    total: int = 0
    differences: list[Difference] = field(default_factory=list)
    excused: list[Difference] = field(default_factory=list)


def cut(way: Way, eos_ids: frozenset[int]) -> Way:
    """An engine's way counted as codraft counts: an accepted EOS ends its step, and drafts behind it do not count."""
    steps = []
    for step in way.steps:
        end = next((i for i, token in enumerate(step.drafted[: step.accepted]) if token in eos_ids), None)
        steps.append(step if end is None else Step(step.anchor, step.drafted[: end + 1], end + 1))
    return Way(way.output_ids, tuple(steps))


def compare(ours: Sequence[Way], theirs: Sequence[Way], margins: Sequence[Margins]) -> Comparison:
    """All requests of a case, in the same order on both sides."""
    result = Comparison()
    for request, (mine, other, margin) in enumerate(zip(ours, theirs, margins, strict=True)):
        agreed, difference = walk(request, mine, other, margin)
        result.compared += agreed
        result.total += len(mine.steps)
        if difference is not None:
            (result.excused if difference.excused else result.differences).append(difference)
    return result


def walk(request: int, mine: Way, other: Way, margins: Margins) -> tuple[int, Difference | None]:
    """(steps that agree, the first difference of one request)."""
    parted = first_difference(mine.output_ids, other.output_ids)
    agreed = 0
    for a, b in zip(mine.steps, other.steps, strict=False):
        if parted is not None and max(a.anchor, b.anchor) >= parted:
            break
        if a.anchor != b.anchor:
            return agreed, Difference(request, "count", a.anchor, a.anchor, b.anchor, 0.0)
        if a.drafted != b.drafted:
            return agreed, drafts_differ(request, a, b, margins)
        if a.accepted != b.accepted:
            break
        agreed += 1
    if parted is not None:
        pair = (mine.output_ids[parted : parted + 1], other.output_ids[parted : parted + 1])
        return agreed, Difference(request, "text", parted, *pair, margins.text(parted))
    if mine.counts != other.counts or agreed < len(mine.steps):
        return agreed, Difference(request, "count", agreed, mine.counts, other.counts, 0.0)
    return agreed, None


def drafts_differ(request: int, a: Step, b: Step, margins: Margins) -> Difference:
    """At the first token that differs. A draft that only ends earlier is no matter of rounding."""
    i = first_difference(a.drafted, b.drafted)
    assert i is not None
    if i >= min(len(a.drafted), len(b.drafted)):
        return Difference(request, "count", a.anchor, a.drafted, b.drafted, 0.0)
    return Difference(request, "draft", a.anchor, a.drafted[i], b.drafted[i], margins.draft(a.anchor, i))


def first_difference(a: Sequence[int], b: Sequence[int]) -> int | None:
    """Index of the first place where they differ, the end of the shorter one included."""
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return None if len(a) == len(b) else min(len(a), len(b))


def pooled_AL(ways: Sequence[Way]) -> float:
    """1 + accepted / steps over all requests."""
    counts = [way.counts for way in ways]
    return 1 + sum(c[2] for c in counts) / sum(c[0] for c in counts)
