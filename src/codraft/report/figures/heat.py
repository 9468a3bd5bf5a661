"""Speed-up as colour: D across, loads down for each drafter; with one load, drafters down."""

from collections.abc import Sequence
from html import escape

from codraft.core.schema import Candidate
from codraft.report.blocks import Figure, Json, Key, Panel, Prose, Row, Table, absent, cell, number
from codraft.report.study import Book, ci_text
from codraft.report.words import listing, load, ratio, short_load, times

# Strong colour starts at this factor at the latest, so that small differences do not shout.
LEAST_SPAN = 1.3
Line = tuple[str, list[tuple[int, Candidate] | None]]


def heat_figure(book: Book) -> Figure | None:
    """None where no candidate was decided on."""
    found = [(i, c) for i, point in enumerate(book.points) for c in point.candidates]
    if not found:
        return None
    depths = sorted({c.D for _, c in found})
    ends = (min(1 / LEAST_SPAN, *(c.speedup for _, c in found)), max(LEAST_SPAN, *(c.speedup for _, c in found)))
    names = [name for name in book.drafters if any(c.drafter == name for _, c in found)]
    several_S = len({p.S for p in book.points}) > 1
    if len(book.points) == 1:
        grids = [("", [(name, cells(book, 0, name, depths)) for name in names])]
        caption = "Speed-up (times plain decoding), drafter by D"
    else:
        labels = [short_load(p.B, p.S, several_S) for p in book.points]
        grids = [(n, [(at, cells(book, i, n, depths)) for i, at in enumerate(labels)]) for n in names]
        caption = "Speed-up (times plain decoding) of {}, load by D"
    panels = [
        Panel(
            id=f"heat-{k}",
            title=name,
            colour=book.colour(name) if name else "",
            label=f"Speed-up{f' of {name}' if name else ''} as a coloured grid; the table below holds the same data.",
            y_title="load" if name else "drafter",
            variants=[variant(book, lines, depths, ends)],
            height=f"rows{min(12, len(lines))}",
        )
        for k, (name, lines) in enumerate(grids)
    ]
    return Figure(
        id="heat",
        title="Speed-up over load and draft length",
        lead=lead(book, grids),
        panels=panels,
        # Cells have to hold their numbers.
        columns=1 if len(depths) > 12 else 2 if several_S or len(depths) > 8 else 3,
        legend=[
            Key(text=f"slower, down to {times(ends[0])}", colour="@loss", line="patch"),
            Key(text="1: as fast as plain decoding", colour="@even", line="patch"),
            Key(text=f"faster, up to {times(ends[1])}", colour="@gain", line="patch"),
            Key(text="framed: the choice at that load", colour="@ink", line="frame"),
        ],
        tables=[table(book, caption.format(name), lines, depths) for name, lines in grids],
    )


def lead(book: Book, grids: Sequence[tuple[str, list[Line]]]) -> list[Prose]:
    """How to read it, and that empty means not measured."""
    lines: list[Prose] = [["Speed-up is AL(D) T_step(0) / T_step(D), at the same load."]]
    if len(book.points) == 1:
        lines.append(
            [f"Only one load was timed, {load(book.points[0].B, book.points[0].S)}, so drafters are side by side."]
        )
    holes = [f"{name} {at}".strip() for name, rows in grids for at, own in rows if None in own]
    if holes:
        lines.append([f"Blank cells were not measured ({listing(holes)})."])
    return lines


def cells(book: Book, i: int, name: str, depths: Sequence[int]) -> list[tuple[int, Candidate] | None]:
    """Candidates of a drafter at a load, by D; None where there is none."""
    own = {c.D: c for c in book.points[i].candidates if c.drafter == name}
    return [(i, own[D]) if D in own else None for D in depths]


def variant(book: Book, lines: Sequence[Line], depths: Sequence[int], ends: tuple[float, float]) -> Json:
    """The grid, first line on top."""
    trace: Json = {
        "type": "heatmap",
        "x": [str(D) for D in depths],
        # Plotly reads markup in axis labels; a name is a name.
        "y": [escape(at) for at, _ in lines],
        "z": [[None if found is None else found[1].speedup for found in own] for _, own in lines],
        "text": [["" if found is None else ratio(found[1].speedup) for found in own] for _, own in lines],
        "texttemplate": "%{text}",
        "customdata": [[[] if found is None else hover(book, *found) for found in own] for _, own in lines],
        "hoverinfo": "none",
        "zmin": ends[0],
        "zmax": ends[1],
        "colorscale": [[0, "@loss"], [(1 - ends[0]) / (ends[1] - ends[0]), "@even"], [1, "@gain"]],
        "showscale": False,
        "xgap": 2,
        "ygap": 2,
        "hoverongaps": False,
    }
    frames = [
        {
            "type": "rect",
            "x0": k - 0.5,
            "x1": k + 0.5,
            "y0": row - 0.5,
            "y1": row + 0.5,
            "line": {"color": "@ink", "width": 2.5},
        }
        for row, (_, own) in enumerate(lines)
        for k, found in enumerate(own)
        if found and found[1] == book.points[found[0]].best
    ]
    return {
        "data": [trace],
        "layout": {
            "shapes": frames,
            "xaxis": {"type": "category", "title": {"text": "D, tokens drafted"}, "showgrid": False, **ticks(depths)},
            "yaxis": {"type": "category", "autorange": "reversed", "showgrid": False},
        },
    }


def ticks(depths: Sequence[int]) -> Json:
    """Every D where they fit, else some."""
    shown = [str(D) for D in depths[:: 1 + (len(depths) - 1) // 12]]
    return {"tickmode": "array", "tickvals": shown, "ticktext": shown, "tickangle": 0}


def hover(book: Book, i: int, c: Candidate) -> list[str]:
    """What a cell says."""
    point = book.points[i]
    return [
        f"{c.drafter}, D = {c.D} tokens, {load(point.B, point.S)}",
        f"speed-up {times(c.speedup)} plain decoding ({ci_text(c.speedup_ci95)})",
        f"AL {ratio(c.AL)}, break-even {ratio(c.break_even_AL)} tokens per step",
        book.candidate_source(i, c, "speedup"),
    ]


def table(book: Book, caption: str, lines: Sequence[Line], depths: Sequence[int]) -> Table:
    """The grid as numbers."""
    rows = []
    for at, own in lines:
        made = [cell(at)]
        for found in own:
            if found is None:
                made.append(absent())
                continue
            i, c = found
            look = "best" if c == book.points[i].best else "loss" if c.speedup < 1 else ""
            made.append(number(ratio(c.speedup), book.candidate_field(i, c, "speedup"), look))
        rows.append(Row(cells=made))
    return Table(caption=caption, heads=["", *(f"D = {D}" for D in depths)], rows=rows)
