"""People's own numbers: AL curves and step times from CSV files or records.

    acceptance   drafter,D,AL[,AL_low,AL_high][,domain]        rows with a domain are left aside, but for `all`
    timing       B,S,D and t_verif_s[,t_sys_s][,drafter,t_draft_s], or t_step_s (a whole step)[,drafter]

A CSV tells no proposal lengths, so its drafters are taken to draft D tokens in every step.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.provenance import machine_words
from codraft.core.record import read_record
from codraft.core.schema import AcceptanceRecord, AcceptanceResult, Ragged, TimingPoint, TimingRecord
from codraft.core.spec import MAX_DEPTH
from codraft.cost.curves import CurveAt, DrafterCurve, curves_of, full_drafts

ACCEPTANCE_COLUMNS = ("drafter", "D", "AL", "AL_low", "AL_high", "domain")
TIMING_COLUMNS = ("B", "S", "D", "t_verif_s", "t_sys_s", "t_step_s", "drafter", "t_draft_s")
SHARES = frozenset({"ffn", "projections", "attention", "other"})
MOST_SEQUENCES, LONGEST_CONTEXT = 2**16, 10**9
DRAFTING_INSIDE = "the step times name no drafter: drafting is taken to be in them"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Step times with what they rest on; `device` is None where nobody told.

    `whole_steps` of a drafter by (B, S, D, name) are averages over its real steps, short drafts included already.
    """

    points: list[TimingPoint]
    ragged: Ragged
    basis: dict[str, str]
    device: str | None = None
    whole_steps: Mapping[tuple[int, int, int, str], float] = field(default_factory=dict)


def read_acceptance(path: Path) -> list[DrafterCurve]:
    """AL curves of a record or of a CSV."""
    if not is_csv(path):
        results = read_record(path, AcceptanceRecord).results
        names = [result.drafter.name for result in results]
        if not names or len(set(names)) < len(names):
            raise SpecError(
                f"{path} must hold every drafter once, and at least one; it holds: {', '.join(names) or 'none'}"
            )
        for result in results:
            check_result(path, result)
        return curves_of(results)
    curves: dict[str, dict[int, CurveAt]] = {}
    for where, row in rows(path, ACCEPTANCE_COLUMNS, ("drafter", "D", "AL")):
        if row.get("domain") not in (None, "all"):
            continue
        name, D = row["drafter"], whole(row, "D", where, 1, MAX_DEPTH)
        AL = number(row, "AL", where, 1, 1 + D)
        interval = None
        if "AL_low" in row or "AL_high" in row:
            interval = (number(row, "AL_low", where, 1, AL), number(row, "AL_high", where, AL, 1 + D))
        own = curves.setdefault(name, {})
        if D in own:
            raise SpecError(f"{where}: D = {D} of '{name}' is there twice; keep one row")
        own[D] = CurveAt(D=D, AL=AL, AL_ci95=interval, lengths=full_drafts(D))
    if not curves:
        raise SpecError(
            f"{path} has no row without a domain (or with domain 'all'); give the pooled AL of each drafter"
        )
    return [DrafterCurve(name=name, points=[own[D] for D in sorted(own)]) for name, own in curves.items()]


def read_timing(path: Path) -> Timing:
    """Step times of a record or of a CSV, with a word where they hold no drafting times."""
    timing = table_timing(path) if is_csv(path) else record_timing(path)
    check_points(path, timing.points)
    if timing.whole_steps or any(point.t_draft_s for point in timing.points):
        return timing
    return replace(timing, basis={**timing.basis, "drafting": DRAFTING_INSIDE})


def at_loads(timing: Timing, batches: Sequence[int] | None, contexts: Sequence[int] | None) -> Timing:
    """The points at these B and S alone; None keeps all."""
    points = timing.points
    for flag, wanted, key in (("--batch", batches, "B"), ("--context", contexts, "S")):
        if wanted is None:
            continue
        present = sorted({getattr(point, key) for point in points})
        if missing := [value for value in wanted if value not in present]:
            raise SpecError(f"{flag} {missing[0]}: not among the timed {key} ({', '.join(map(str, present))})")
        points = [point for point in points if getattr(point, key) in wanted]
    return replace(timing, points=points)


def record_timing(path: Path) -> Timing:
    """Step times of a record."""
    record = read_record(path, TimingRecord)
    place = record.provenance.machine
    basis = {"engine": record.provenance.engine.get("name", "unknown"), "machine": machine_words(place)}
    return Timing(points=record.points, ragged=record.ragged, basis=basis, device=place.get("device"))


def table_timing(path: Path) -> Timing:
    """Step times of a CSV."""
    cells: dict[tuple[int, int, int], Cell] = {}
    for where, row in rows(path, TIMING_COLUMNS, ("B", "S", "D")):
        load = (
            whole(row, "B", where, 1, MOST_SEQUENCES),
            whole(row, "S", where, 0, LONGEST_CONTEXT),
            whole(row, "D", where, 0, MAX_DEPTH),
        )
        cells.setdefault(load, Cell()).add(row, where)
    plain = {(B, S) for B, S, D in cells if D == 0}
    for B, S, D in cells:
        if (B, S) not in plain:
            raise SpecError(
                f"{path}: B = {B}, S = {S} has D = {D} but no row with D = 0; plain decoding is the measure"
            )
    points = [cell.point(*load, path) for load, cell in sorted(cells.items())]
    whole_steps = {(*load, name): t for load, cell in cells.items() for name, t in cell.steps.items() if load[2] > 0}
    basis = {"engine": "your own figures", "machine": str(path)}
    return Timing(points=points, ragged="packed", basis=basis, whole_steps=whole_steps)


@dataclass(slots=True)
class Cell:
    """What the rows of one (B, S, D) say."""

    times: dict[str, float] = field(default_factory=dict)
    draft: dict[str, float] = field(default_factory=dict)
    steps: dict[str, float] = field(default_factory=dict)

    def add(self, row: Mapping[str, str], where: str) -> None:
        """Take in one row."""
        drafter = row.get("drafter")
        if ("t_step_s" in row) == ("t_verif_s" in row):
            raise SpecError(f"{where}: give t_verif_s or t_step_s (a whole step), one of the two")
        if "t_step_s" in row and ("t_sys_s" in row or "t_draft_s" in row):
            raise SpecError(f"{where}: t_step_s is a whole step; leave t_sys_s and t_draft_s empty, or give t_verif_s")
        if ("t_draft_s" in row) and drafter is None:
            raise SpecError(f"{where}: t_draft_s needs a drafter")
        if "t_step_s" in row and drafter is not None:
            self.put(self.steps, drafter, number(row, "t_step_s", where, 0), where)
            return
        self.put(self.times, "verif", number(row, "t_step_s" if "t_step_s" in row else "t_verif_s", where, 0), where)
        if "t_sys_s" in row:
            self.put(self.times, "sys", number(row, "t_sys_s", where, 0, open_low=False), where)
        if drafter is not None:
            self.put(self.draft, drafter, number(row, "t_draft_s", where, 0, open_low=False), where)

    @staticmethod
    def put(into: dict[str, float], name: str, value: float, where: str) -> None:
        """Store a value; rows that repeat it must agree."""
        if into.setdefault(name, value) != value:
            raise SpecError(f"{where}: another row of the same B, S and D gives {into[name]}, this one {value}")

    def point(self, B: int, S: int, D: int, path: Path) -> TimingPoint:
        """One timing point; where only drafters' whole steps are given, the quickest stands for the pass."""
        if not self.times and self.steps:
            self.times["verif"] = min(self.steps.values())
        base = self.times["verif"] + self.times.get("sys", 0.0)
        for name, t in self.steps.items() if D > 0 else ():
            if name in self.draft:
                raise SpecError(
                    f"{path}: B = {B}, S = {S}, D = {D}: t_step_s of '{name}' is {t:g}, and other rows give "
                    f"{base + self.draft[name]:g}; keep one of the two"
                )
        return TimingPoint(
            B=B,
            S=S,
            D=D,
            x=B * (1 + D),
            t_verif_s=self.times["verif"],
            t_sys_s=self.times.get("sys", 0.0),
            t_draft_s=self.draft if D > 0 else {},
            num_samples=1,
            p10=self.times["verif"],
            p90=self.times["verif"],
        )


def check_result(path: Path, result: AcceptanceResult) -> None:
    """Refuse a curve that may not enter a speed-up."""
    name = result.drafter.name
    if result.basis == "drafted_steps":
        raise SpecError(
            f"{path}: AL of '{name}' leaves out the steps without a draft (basis drafted_steps), so it says nothing "
            f"about speed; give its AL over all steps"
        )
    for point in result.curve:
        if not 1 <= point.AL <= 1 + point.D + 1e-9:
            raise SpecError(f"{path}: AL of '{name}' at D = {point.D} must be in 1..{1 + point.D}; got {point.AL:g}")
        steps = sum(map(sum, point.counts))
        if len(point.counts) != 1 + point.D or point.steps <= 0 or not math.isclose(steps, point.steps):
            raise SpecError(f"{path}: counts of '{name}' at D = {point.D} do not add up to its {point.steps:g} steps")


def check_points(path: Path, points: Sequence[TimingPoint]) -> None:
    """Refuse times that no machine can have, and none at all."""
    if not points:
        raise SpecError(f"{path} holds no step times; give at least D = 0 and one D above it")
    for p in points:
        if p.shares is not None and not p.shares.keys() >= SHARES:
            raise SpecError(
                f"{path}: shares at D = {p.D} must name {', '.join(sorted(SHARES))}; drop them or time again"
            )
        if p.t_verif_s <= 0 or min(p.t_sys_s, *p.t_draft_s.values(), 0.0) < 0 or not 1 <= p.B <= MOST_SEQUENCES:
            raise SpecError(
                f"{path}: B = {p.B}, S = {p.S}, D = {p.D}: B must be in 1..{MOST_SEQUENCES}, t_verif_s above 0, "
                f"t_sys_s and t_draft_s at least 0"
            )


def is_csv(path: Path) -> bool:
    """Whether a file is CSV by its name; anything else must be a record."""
    return path.suffix.lower() in (".csv", ".tsv")


def rows(path: Path, known: Sequence[str], needed: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(place, filled cells) of every row; unknown and missing columns are errors."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as handle:
            reader = csv.DictReader(handle, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            check_header(path, header, known, needed)
            reader.fieldnames = header
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if None in row:
                    raise SpecError(f"{where}: more cells than columns")
                cells = {key: value.strip() for key, value in row.items() if value is not None and value.strip()}
                if missing := [name for name in needed if name not in cells]:
                    raise SpecError(f"{where}: '{missing[0]}' is empty")
                yield where, cells
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{path} is not a CSV in UTF-8 ({error})") from error


def check_header(path: Path, header: Sequence[str], known: Sequence[str], needed: Sequence[str]) -> None:
    """All needed columns, none that we do not know, none twice."""
    for name in header:
        if name not in known:
            raise SpecError(f"{path}: unknown column '{name}'; known: {', '.join(known)}")
        if header.count(name) > 1:
            raise SpecError(f"{path}: column '{name}' is there twice")
    for name in needed:
        if name not in header:
            raise SpecError(f"{path}: column '{name}' is missing; needed: {', '.join(needed)}")


def whole(row: Mapping[str, str], key: str, where: str, low: int, high: int) -> int:
    """A whole number within bounds."""
    try:
        value = int(row[key])
    except ValueError:
        raise SpecError(f"{where}: {key} must be a whole number; got '{row[key]}'") from None
    if not low <= value <= high:
        raise SpecError(f"{where}: {key} must be in {low}..{high}; got {value}")
    return value


def number(
    row: Mapping[str, str], key: str, where: str, low: float, high: float = math.inf, *, open_low: bool | None = None
) -> float:
    """A finite number within bounds; times (low 0) must be above 0 unless told otherwise."""
    if key not in row:
        raise SpecError(f"{where}: '{key}' is empty")
    try:
        value = float(row[key])
    except ValueError:
        raise SpecError(f"{where}: {key} must be a number; got '{row[key]}'") from None
    above = low == 0 if open_low is None else open_low
    if not math.isfinite(value) or not low <= value <= high or (above and value == low):
        bounds = f"above {low:g}" if above else f"at least {low:g}"
        raise SpecError(
            f"{where}: {key} must be {bounds}{'' if high == math.inf else f' and at most {high:g}'}; got {value:g}"
        )
    return value
