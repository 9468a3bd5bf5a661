"""Pieces that several charts share."""

from collections.abc import Sequence

from codraft.report.blocks import Json, Key
from codraft.report.study import Book

# Colours and markers of things that are no drafters: draft lengths, layers, contexts.
SEQUENCE = 7
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "star")


def line(
    xs: Sequence[float],
    ys: Sequence[float],
    hover: Sequence[Sequence[str]],
    colour: str,
    symbol: str,
    dash: str = "solid",
) -> Json:
    """A line with markers; each point tells on hover what `hover` says, its source last."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(xs),
        "y": list(ys),
        "customdata": [list(lines) for lines in hover],
        "hoverinfo": "none",
        "line": {"color": colour, "width": 2.5, "dash": dash},
        "marker": {"color": colour, "size": 8, "symbol": symbol, "line": {"color": "@card", "width": 1}},
    }


def dots(xs: Sequence[float], ys: Sequence[float], hover: Sequence[Sequence[str]], marker: Json) -> Json:
    """Markers alone."""
    return {
        "type": "scatter",
        "mode": "markers",
        "x": list(xs),
        "y": list(ys),
        "customdata": [list(lines) for lines in hover],
        "hoverinfo": "none",
        "marker": marker,
    }


def area(xs: Sequence[float | None], ys: Sequence[float | None], colour: str, hatch: str = "") -> Json:
    """A filled outline without an edge; None separates outlines."""
    trace: Json = {
        "type": "scatter",
        "mode": "lines",
        "x": list(xs),
        "y": list(ys),
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
    }
    if hatch:
        trace["fillpattern"] = {"shape": "/", "size": 7, "solidity": 0.22, "fgcolor": hatch, "bgcolor": colour}
    return trace


def rule(xs: Sequence[float], ys: Sequence[float], colour: str, dash: str = "dash", width: float = 1.5) -> Json:
    """A reference line that answers no hover."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": list(xs),
        "y": list(ys),
        "hoverinfo": "skip",
        "line": {"color": colour, "width": width, "dash": dash},
    }


def depth_axis(depths: Sequence[int]) -> Json:
    """The axis of D, with whole ticks."""
    first, last = min(depths), max(depths)
    step = max(1, (last - first + 7) // 8)
    return {
        "title": {"text": "D, tokens drafted"},
        "tickmode": "linear",
        "tick0": first,
        "dtick": step,
        "range": [first - 0.35, last + 0.35],
    }


def drafter_keys(book: Book, names: Sequence[str]) -> list[Key]:
    """Legend of drafters, the same in every figure."""
    return [Key(text=name, colour=book.colour(name), symbol=book.symbol(name)) for name in names]
