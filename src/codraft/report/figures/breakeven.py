"""Where drafting pays: AL(D) against what a step costs, T_step(D) / T_step(0), one panel for each drafter.

The axis is logarithmic, so the height between the two lines is the speed-up, the same in every panel.
"""

from collections.abc import Callable, Sequence
from math import exp, log

from codraft.core.schema import Candidate
from codraft.report.blocks import Choice, Figure, Json, Key, Num, Panel, Prose, Row, Table, cell, key, number
from codraft.report.figures.common import area, depth_axis, line, rule
from codraft.report.study import Book, by_drafter, ci_text, field
from codraft.report.words import load, ratio, seconds, times

# Round values from fine to coarse; the first set that leaves at most so many ticks is taken.
TICKS = (
    [k / 20 for k in range(1, 60)],
    [k / 10 for k in range(1, 60)],
    [k / 4 for k in range(1, 60)],
    [0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64],
)
MOST_TICKS = 8
# With more loads than that, words tell of the best alone.
MOST_LOADS = 3
# Corners of an outline; None parts one outline from the next.
Outline = list[float | None]


def breakeven_figure(book: Book) -> Figure | None:
    """None where no candidate was decided on."""
    groups = [by_drafter(book, point) for point in book.points]
    names = [name for name in book.drafters if any(name in group for group in groups)]
    if not names:
        return None
    panels = [
        Panel(
            id=f"breakeven-{book.rank(name)}",
            title=name,
            colour=book.colour(name),
            label=f"AL of {name} and its break-even AL against D. The table below holds the same data.",
            y_title="tokens per step; cost of a step, plain step = 1",
            variants=[variant(book, i, group.get(name, []), limits(group)) for i, group in enumerate(groups)],
            height="short",
        )
        for name in names
    ]
    return Figure(
        id="breakeven",
        title="Where drafting pays",
        lead=lead(book, groups),
        panels=panels,
        legend=[
            Key(text="AL(D): what a step yields (coloured)", colour="@ink", line="solid", symbol="circle"),
            Key(text="T_step(D) / T_step(0): what it costs, the break-even AL", colour="@ink", line="dash"),
            Key(text="gain: yield above cost", colour="@muted", line="band"),
            Key(text="loss: cost above yield", colour="@muted", line="hatch"),
        ],
        ask="Load" if len(book.points) > 1 else "",
        choices=[
            Choice(label=load(p.B, p.S), note=missing(names, g, p.B, p.S))
            for p, g in zip(book.points, groups, strict=True)
        ],
        tables=[table(book, i, group) for i, group in enumerate(groups) if group],
    )


def lead(book: Book, groups: Sequence[dict[str, list[Candidate]]]) -> list[Prose]:
    """How to read it, and the widest gap at each load, or at the best one."""
    best = [(i, max(p.candidates, key=lambda c: c.speedup)) for i, p in enumerate(book.points) if groups[i]]
    if len(best) > MOST_LOADS:
        best = [max(best, key=lambda found: found[1].speedup)]
    words: list[str | Num] = []
    for i, c in best:
        gap = Num(times(c.speedup), book.candidate_source(i, c, "speedup"))
        at = load(book.points[i].B, book.points[i].S)
        words += [f"At {at} the best gap is {c.drafter}'s at D = {c.D}: ", gap, ". "]
    return [
        [
            "A step with D drafts costs more than a plain one and yields more tokens. Drafting pays where the solid "
            "line lies above the dashed one; the height between them is the speed-up, on the same scale in every panel."
        ],
        words,
    ]


def missing(names: Sequence[str], group: dict[str, list[Candidate]], B: int, S: int) -> str:
    """Which drafters have no candidate at a load."""
    without = [name for name in names if name not in group]
    return f"{', '.join(without)}: no candidate at {load(B, S)}, so the panel is empty." if without else ""


def limits(group: dict[str, list[Candidate]]) -> tuple[float, float]:
    """Range of the axis, shared by all panels of a load."""
    values = [1.0] + [v for own in group.values() for c in own for v in (c.AL, c.break_even_AL, *(c.AL_ci95 or ()))]
    # Room above for the label of the gap.
    return min(values) / 1.06, max(values) * 1.14


def inside(limit: tuple[float, float]) -> Callable[[Sequence[float]], list[float]]:
    """Keeps what lies within an axis."""
    return lambda ticks: [t for t in ticks if limit[0] <= t <= limit[1]]


def variant(book: Book, i: int, own: Sequence[Candidate], limit: tuple[float, float]) -> Json:
    """Areas, then the two lines, then the height that is the speed-up."""
    ticks = next((t for t in map(inside(limit), TICKS) if len(t) <= MOST_TICKS), inside(limit)(TICKS[-1]))
    layout: Json = {
        "yaxis": {
            "type": "log",
            "range": [round(log(v) / log(10), 6) for v in limit],
            "tickvals": ticks,
            "ticktext": [f"{t:g}" for t in ticks],
        }
    }
    if not own:
        return {"data": [], "layout": {**layout, "xaxis": depth_axis([0, 1])}}
    name = own[0].drafter
    colour = book.colour(name)
    # D = 0 is plain decoding: one token for one plain step, by definition.
    xs, AL, cost = [0.0, *(c.D for c in own)], [1.0, *(c.AL for c in own)], [1.0, *(c.break_even_AL for c in own)]
    (gain_x, gain_y), (loss_x, loss_y) = between(xs, AL, cost)
    data: list[Json] = []
    if gain_x:
        data.append(area(gain_x, gain_y, book.colour(name, 0.28)))
    if loss_x:
        data.append(area(loss_x, loss_y, "@muted/0.10", hatch="@muted/0.75"))
    plain = ["plain decoding (D = 0)", "1 token for the cost of 1 step, by definition"]
    data.append(line(xs, cost, [plain, *(cost_hover(book, i, c) for c in own)], "@ink", "circle", "dash"))
    data[-1]["line"]["width"] = 1.75
    data[-1]["marker"] = {"size": 5, "color": "@ink"}
    data.append(line(xs, AL, [plain, *(yield_hover(book, i, c) for c in own)], colour, book.symbol(name)))
    best = max(own, key=lambda c: c.speedup)
    layout.update(xaxis=depth_axis([0, *(c.D for c in own)]), annotations=[gap_label(best)])
    return {"data": [*data, gap(best)], "layout": layout}


def gap(c: Candidate) -> Json:
    """An upright bar between cost and yield."""
    return rule([c.D, c.D], sorted((c.break_even_AL, c.AL)), "@ink", "solid", 2)


def gap_label(c: Candidate) -> Json:
    """The speed-up beside the upper end of its bar; to the left, since both lines rise to the right."""
    return {
        "x": c.D,
        "y": round(log(max(c.AL, c.break_even_AL)) / log(10), 6),
        "text": f"<b>{times(c.speedup)}</b>",
        "showarrow": False,
        "xanchor": "right",
        "yanchor": "bottom",
        "yshift": 5,
        "font": {"color": "@ink", "size": 13},
    }


def between(
    xs: Sequence[float], upper: Sequence[float], lower: Sequence[float]
) -> tuple[tuple[Outline, Outline], tuple[Outline, Outline]]:
    """Outlines between two lines: where `upper` really is above, and where it is below; cut at each crossing.

    Lines are straight on a logarithmic axis, so crossings are found there.
    """
    gain: tuple[Outline, Outline] = ([], [])
    loss: tuple[Outline, Outline] = ([], [])
    for k in range(len(xs) - 1):
        ends = [(xs[j], log(upper[j]), log(lower[j])) for j in (k, k + 1)]
        for piece in split(ends[0], ends[1]):
            (x0, u0, l0), (x1, u1, l1) = piece
            side = gain if u0 + u1 >= l0 + l1 else loss
            side[0].extend([x0, x1, x1, x0, None])
            side[1].extend([exp(u0), exp(u1), exp(l1), exp(l0), None])
    return (gain[0][:-1], gain[1][:-1]), (loss[0][:-1], loss[1][:-1])


Ends = tuple[float, float, float]


def split(a: Ends, b: Ends) -> list[tuple[Ends, Ends]]:
    """One stretch, or two where the lines cross inside it."""
    before, after = a[1] - a[2], b[1] - b[2]
    if before * after >= 0:
        return [(a, b)]
    t = before / (before - after)
    x, y = a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])
    return [(a, (x, y, y)), ((x, y, y), b)]


def cost_hover(book: Book, i: int, c: Candidate) -> list[str]:
    """What a point of the dashed line says."""
    named = (("T_verif", c.t_verif_s), ("T_draft", c.t_draft_s), ("T_sys", c.t_sys_s))
    parts = " + ".join(f"{name} {seconds(value)}" for name, value in named if value is not None)
    return [
        f"{c.drafter}, D = {c.D} tokens: break-even AL {ratio(c.break_even_AL)} tokens per step",
        f"T_step {seconds(c.t_step_s)}{' = ' + parts if parts else ''}",
        f"plain step {seconds(book.points[i].plain['t_step_s'])}" if "t_step_s" in book.points[i].plain else "",
        book.candidate_source(i, c, "break_even_AL"),
    ]


def yield_hover(book: Book, i: int, c: Candidate) -> list[str]:
    """What a point of the solid line says."""
    return [
        f"{c.drafter}, D = {c.D} tokens: AL {ratio(c.AL)} tokens per step",
        ci_text(c.AL_ci95),
        f"speed-up {times(c.speedup)} ({ci_text(c.speedup_ci95)})",
        book.candidate_field(i, c, "AL", book.steps_behind(c.drafter, c.D)),
    ]


def table(book: Book, i: int, group: dict[str, list[Candidate]]) -> Table:
    """Both lines and their ratio."""
    point = book.points[i]
    rows = []
    for own in group.values():
        for c in own:
            rows.append(
                Row(
                    cells=[
                        cell(c.drafter),
                        key(c.D),
                        number(ratio(c.AL), book.candidate_field(i, c, "AL")),
                        number(ratio(c.break_even_AL), book.candidate_field(i, c, "break_even_AL")),
                        number(ratio(c.speedup), book.candidate_field(i, c, "speedup")),
                        cell("gain" if c.speedup >= 1 else "loss"),
                    ],
                    look="best" if c == point.best else "loss" if c.speedup < 1 else "",
                    source=field("decision", f"points[{i}].candidates[{book.places[i][c.drafter, c.D]}]"),
                )
            )
    return Table(
        caption=f"Yield and cost at {load(point.B, point.S)}",
        heads=[
            "drafter",
            "D (tokens)",
            "AL (tokens per step)",
            "break-even AL (tokens per step)",
            "speed-up (times)",
            "",
        ],
        rows=rows,
    )
