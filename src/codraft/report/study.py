"""What a page is made of, and the look-ups that every section shares."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from codraft.core.curve import CurvePoint
from codraft.core.schema import (
    AcceptanceRecord,
    Candidate,
    DecisionPoint,
    DecisionRecord,
    FrontierRecord,
    TimingPoint,
    TimingRecord,
)
from codraft.report.words import EN_DASH, count, pair, seconds

# Colours and marker shapes both tell drafters apart, so that a grey print still does.
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "star", "hexagon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """The records of one study; `asked` is study.toml as parsed, and may be empty."""

    target: str
    asked: Mapping[str, Any]
    acceptance: AcceptanceRecord | None
    timing: TimingRecord | None
    decision: DecisionRecord
    frontier: FrontierRecord | None


def field(record: str, path: str, *more: str) -> str:
    """Where a number is found, for people who hover over it: file, field, and what stands behind it."""
    return "; ".join([f"records/{record}.json {path}", *(text for text in more if text)])


class Book:
    """Look-ups over the records of a study: colours by drafter, timing by load, acceptance by drafter and D."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.points = study.decision.points
        self.drafters = drafter_names(study)
        self.results = {r.drafter.name: i for i, r in enumerate(study.acceptance.results)} if study.acceptance else {}
        points = study.timing.points if study.timing else []
        self.places = [{(c.drafter, c.D): k for k, c in enumerate(p.candidates)} for p in self.points]
        self.timed = {(p.B, p.S, p.D): i for i, p in enumerate(points)}

    def rank(self, drafter: str) -> int:
        """Place of a drafter in the order that all figures share."""
        return self.drafters.index(drafter)

    def colour(self, drafter: str, alpha: float | None = None) -> str:
        """Name of a drafter's colour in the stylesheet."""
        name = f"@drafter{self.rank(drafter) % len(SYMBOLS)}"
        return name if alpha is None else f"{name}/{alpha}"

    def symbol(self, drafter: str) -> str:
        """A drafter's marker; the ninth drafter has the first colour again, with another marker."""
        rank = self.rank(drafter)
        return SYMBOLS[(rank + rank // len(SYMBOLS)) % len(SYMBOLS)]

    def timing(self, B: int, S: int, D: int) -> tuple[int, TimingPoint] | None:
        """A timed point and its place in the record."""
        i = self.timed.get((B, S, D))
        return None if i is None or self.study.timing is None else (i, self.study.timing.points[i])

    def curve(self, drafter: str, D: int) -> CurvePoint | None:
        """The acceptance behind a candidate, over the whole workload."""
        i = self.results.get(drafter)
        if i is None or self.study.acceptance is None:
            return None
        return next((p for p in self.study.acceptance.results[i].curve if p.D == D), None)

    def candidate_source(self, i: int, c: Candidate, name: str) -> str:
        """Source of one number of a candidate: its field, and for the main ones the samples they rest on."""
        point = self.points[i]
        more = []
        if name in ("AL", "speedup"):
            more.append(self.steps_behind(c.drafter, c.D))
        if name in ("speedup", "break_even_AL", "t_step_s", "t_verif_s"):
            more.append(self.samples_behind(point.B, point.S, c.D))
        return self.candidate_field(i, c, name, *more)

    def candidate_field(self, i: int, c: Candidate, name: str, *more: str) -> str:
        """The field alone, where the numbers stand elsewhere on the page too: a page has thousands of them."""
        return field("decision", f"points[{i}].candidates[{self.places[i][c.drafter, c.D]}].{name}", *more)

    def steps_behind(self, drafter: str, D: int) -> str:
        """How many steps and conversations an AL rests on."""
        curve = self.curve(drafter, D)
        if curve is None or self.study.acceptance is None:
            return ""
        prompts = self.study.acceptance.prompts
        return f"{count(curve.steps)} steps of {count(prompts.num_conversations)} conversations"

    def samples_behind(self, B: int, S: int, D: int) -> str:
        """How many samples a time rests on, and their spread."""
        found = self.timing(B, S, D)
        return "" if found is None else f"at D = {D} {spread(found[1])}"


def spread(point: TimingPoint) -> str:
    """Samples and spread of T_verif."""
    low, high = seconds(point.p10), seconds(point.p90)
    return f"T_verif from {count(point.num_samples)} samples, 10th to 90th percentile {low}{EN_DASH}{high}"


def drafter_names(study: Study) -> list[str]:
    """Every drafter that any record names, in command order where there is one."""
    return list(dict.fromkeys(named(study)))


def named(study: Study) -> Iterator[str]:
    """Names as the records bring them."""
    if study.acceptance:
        yield from (result.drafter.name for result in study.acceptance.results)
    if study.timing:
        yield from (name for point in study.timing.points for name in point.t_draft_s)
    for point in study.decision.points:
        yield from sorted({c.drafter for c in point.candidates})
    yield from (entry.drafter for entry in study.decision.schedule if entry.drafter)
    if study.decision.confirmation:
        yield study.decision.confirmation.drafter
    if study.frontier:
        yield from (point.drafter for point in study.frontier.points if point.drafter)


def by_drafter(book: Book, point: DecisionPoint) -> dict[str, list[Candidate]]:
    """Candidates of one load by drafter, D ascending; drafters in the order that all figures share."""
    groups: dict[str, list[Candidate]] = {}
    for c in sorted(point.candidates, key=lambda c: (book.rank(c.drafter), c.D)):
        groups.setdefault(c.drafter, []).append(c)
    return groups


def ci_text(interval: tuple[float, float] | None) -> str:
    """A 95 % interval, or that there is none."""
    return "no interval" if interval is None else f"95 % {pair(interval)}"
