"""What sections are made of. A template knows how each looks, and nothing else does."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# What Plotly is given: lists of traces and a layout, as plain JSON data.
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Num:
    """A number, or a word that a record says, as text; and where it comes from."""

    text: str
    source: str


Prose = Sequence["str | Num"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell. `look` is a class of the stylesheet; `parts` draws shares of a whole as a bar behind the number."""

    body: Prose
    look: str = ""
    parts: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cells, the first of which heads the row. `source` holds for cells that name none, the keys of the row."""

    cells: Sequence[Cell]
    look: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with its caption. `stacked` ones become cards on a phone, since they hold sentences; `pairs` are names
    and values.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Row]
    stacked: bool = False
    pairs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An entry of a legend: line, marker or patch in a named colour."""

    text: str
    colour: str
    symbol: str = ""
    line: str = "solid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One entry of a selector; entries with equal `group` stand together. `note` is shown while it is chosen."""

    label: str
    group: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart: what it is for those who cannot see it, its axis title, and a variant for each choice."""

    id: str
    label: str
    y_title: str
    variants: Sequence[Json]
    height: str = "tall"
    title: str = ""
    colour: str = ""
    legend: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Charts with their words, and all their data again as tables. `columns` stand side by side at most."""

    id: str
    title: str
    lead: Sequence[Prose]
    panels: Sequence[Panel]
    tables: Sequence[Table]
    legend: Sequence[Key] = ()
    ask: str = ""
    choices: Sequence[Choice] = ()
    after: Sequence[Table] = ()
    columns: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """A gain on a scale that all strips of a page share: dot and interval, as shares of its width."""

    label: str
    dot: float
    band: tuple[float, float] | None
    source: str
    look: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A number with its name, as in a definition list."""

    name: str
    body: Prose


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The choice at one load, at a glance."""

    title: str
    choice: Prose
    off: bool
    gain: Prose
    strips: Sequence[Strip]
    facts: Sequence[Fact]
    colour: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of the page under its own heading; `folds` are tables that open on demand, the first at once."""

    id: str
    title: str
    lead: Sequence[Prose] = ()
    tables: Sequence[Table] = ()
    folds: Sequence[Table] = ()
    strips: Sequence[Strip] = ()
    figures: Sequence[Figure] = ()
    legend: Sequence[Key] = ()


def cell(text: str, source: str = "", look: str = "") -> Cell:
    """A cell with one text in it."""
    return Cell(body=[Num(text, source) if source else text], look=look)


def number(text: str, source: str, look: str = "") -> Cell:
    """A cell with one number in it, set to the right."""
    return Cell(body=[Num(text, source)], look=f"num {look}".strip())


def key(text: object) -> Cell:
    """A number that names its row: its source is the row's."""
    return Cell(body=[str(text)], look="num")


def absent(why: str = "not measured") -> Cell:
    """A cell among numbers that says that there is nothing, instead of a zero."""
    return Cell(body=[why], look="num none")


def nothing(why: str) -> Cell:
    """The same among words."""
    return Cell(body=[why], look="none")
