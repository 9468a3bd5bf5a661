"""Speed for one user against speed of the machine, with speculation and without."""

from codraft.core.schema import FrontierPoint
from codraft.report.blocks import Choice, Figure, Json, Key, Num, Panel, Prose, Row, Table, cell, key, number
from codraft.report.figures.common import dots, drafter_keys, line
from codraft.report.study import Book, field
from codraft.report.words import NBSP, figures, listing, load, rate, ratio

# Above this span a linear axis would squeeze the small loads into a corner.
WIDE = 40.0


def frontier_figure(book: Book) -> Figure | None:
    """None where no frontier was recorded."""
    record = book.study.frontier
    if record is None or not record.points:
        return None
    contexts = sorted({point.S for point in record.points})
    loads = sorted({point.B for point in record.points})
    names = [name for name in book.drafters if any(p.drafter == name for p in record.points)]
    basis = listing([f"{key}: {value}" for key, value in record.basis.items()]) if record.basis else "not stated"
    lead: list[Prose] = [
        ["Right is faster for each user, up is more from the machine. Every mark is one way to run; hover for it."],
        *gains(book),
        ["Basis: ", Num(basis, field("frontier", "basis")), "."],
    ]
    if len(loads) == 1:
        lead.append([f"Only B = {loads[0]} was timed, so there is no curve over loads."])
    return Figure(
        id="frontier",
        title="Throughput against interactivity",
        lead=lead,
        panels=[
            Panel(
                id="frontier-chart",
                label="Tokens per second of the machine against tokens per second of one user, for plain decoding and "
                "for every drafter, D and B. The table below holds the same data.",
                y_title="tokens/s of the machine",
                variants=[variant(book, S, names) for S in contexts],
            )
        ],
        legend=[
            Key(text="plain decoding", colour="@muted", symbol="circle", line="dash"),
            *drafter_keys(book, names),
            Key(text="frontier with speculation", colour="@ink", line="solid"),
        ],
        ask="Context" if len(contexts) > 1 else "",
        choices=[Choice(label=f"S = {S:,}{NBSP}tokens") for S in contexts],
        tables=[table(record.points)],
    )


def gains(book: Book) -> list[Prose]:
    """What speculation gives one user at each load of the smallest context."""
    record = book.study.frontier
    if record is None:
        return []
    smallest = min(point.S for point in record.points)
    words: list[str | Num] = []
    for B in sorted({point.B for point in record.points}):
        own = [(i, p) for i, p in enumerate(record.points) if (B, smallest) == (p.B, p.S)]
        plain = next(((i, p) for i, p in own if p.drafter is None), None)
        best = max(own, key=lambda item: item[1].tokens_per_s_user)
        if plain is None:
            continue
        at = field("frontier", f"points[{best[0]}].tokens_per_s_user")
        before = Num(rate(plain[1].tokens_per_s_user), field("frontier", f"points[{plain[0]}].tokens_per_s_user"))
        if best[1].drafter is None:
            words += [f"At B = {B} nothing beats plain decoding, ", before, " for a user. "]
        else:
            now = Num(rate(best[1].tokens_per_s_user), at)
            words += [
                f"At B = {B} a user gets ",
                now,
                f" with {best[1].drafter}, D = {best[1].D}, instead of ",
                before,
                ". ",
            ]
    return [words] if words else []


def variant(book: Book, S: int, names: list[str]) -> Json:
    """Traces at one context: the frontier below, then the drafters, then plain decoding."""
    record = book.study.frontier
    points = [(i, p) for i, p in enumerate(record.points) if p.S == S] if record else []
    top = sorted((p for _, p in points if p.frontier), key=lambda p: p.tokens_per_s_user)
    plain = sorted(((i, p) for i, p in points if p.drafter is None), key=lambda item: item[1].B)
    data: list[Json] = [frontier_line(top)]
    for name in names:
        own = [(i, p) for i, p in points if p.drafter == name]
        marker: Json = {
            "color": book.colour(name),
            "symbol": book.symbol(name),
            "size": [11 if p.frontier else 7 for _, p in own],
            "opacity": [1.0 if p.frontier else 0.45 for _, p in own],
            "line": {"color": "@card", "width": 1},
        }
        data.append(dots(*columns(own), marker))
    data.append(line(*columns(plain), "@muted", "circle", "dash"))
    data[-1].update(
        mode="lines+markers+text",
        text=[f"B = {p.B}" for _, p in plain],
        textposition="bottom left",
        cliponaxis=False,
        textfont={"color": "@muted", "size": 11},
    )
    data += [label(top)] if top else []
    rates = [p.tokens_per_s for _, p in points]
    users = [p.tokens_per_s_user for _, p in points]
    return {"data": data, "layout": {"xaxis": axis(users, "tokens/s of one user"), "yaxis": axis(rates, "")}}


def axis(values: list[float], title: str) -> Json:
    """Linear from zero, or logarithmic over a wide span."""
    made: Json = {"title": {"text": title}} if title else {}
    low, high = min(values), max(values)
    if low > 0 and high / low > WIDE:
        ticks = [m * 10.0**k for k in range(-3, 8) for m in (1, 2, 5) if low <= m * 10.0**k <= high]
        return {**made, "type": "log", "tickvals": ticks, "ticktext": [f"{tick:,g}" for tick in ticks]}
    # Room for labels at the end.
    return {**made, "range": [0, 1.16 * high]}


def label(top: list[FrontierPoint]) -> Json:
    """The load at the fastest frontier point of each."""
    fastest = {p.B: p for p in top if p.drafter is not None}
    return {
        "type": "scatter",
        "mode": "text",
        "x": [p.tokens_per_s_user for p in fastest.values()],
        "y": [p.tokens_per_s for p in fastest.values()],
        "text": [f"B = {p.B}" for p in fastest.values()],
        "textposition": "top right",
        "cliponaxis": False,
        "textfont": {"color": "@ink", "size": 11},
        "hoverinfo": "skip",
    }


def frontier_line(top: list[FrontierPoint]) -> Json:
    """The line through the points that none beats."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [p.tokens_per_s_user for p in top],
        "y": [p.tokens_per_s for p in top],
        "hoverinfo": "skip",
        "line": {"color": "@ink", "width": 2},
    }


def columns(points: list[tuple[int, FrontierPoint]]) -> tuple[list[float], list[float], list[list[str]]]:
    """x, y and hover of some points."""
    return (
        [p.tokens_per_s_user for _, p in points],
        [p.tokens_per_s for _, p in points],
        [hover(i, p) for i, p in points],
    )


def hover(i: int, p: FrontierPoint) -> list[str]:
    """What a mark says."""
    way = "plain decoding" if p.drafter is None else f"{p.drafter}, D = {p.D} tokens"
    return [
        way,
        f"{load(p.B, p.S)}, AL {ratio(p.AL)} tokens per step",
        f"{rate(p.tokens_per_s_user)} for one user, {rate(p.tokens_per_s)} in all",
        field("frontier", f"points[{i}]"),
    ]


def table(points: list[FrontierPoint]) -> Table:
    """All points, fastest for the user first within a load."""
    rows = []
    order = sorted(range(len(points)), key=lambda i: (points[i].S, points[i].B, -points[i].tokens_per_s_user))
    for i in order:
        p, at = points[i], f"points[{i}]"
        on = "frontier" if p.frontier else "plain frontier" if p.plain_frontier else "behind"
        rows.append(
            Row(
                cells=[
                    cell(p.drafter or "plain decoding"),
                    key(p.B),
                    key(p.S),
                    key(p.D),
                    number(ratio(p.AL), field("frontier", f"{at}.AL")),
                    number(figures(p.tokens_per_s_user), field("frontier", f"{at}.tokens_per_s_user")),
                    number(figures(p.tokens_per_s), field("frontier", f"{at}.tokens_per_s")),
                    cell(on),
                ],
                look="best" if p.frontier else "",
                source=field("frontier", at),
            )
        )
    return Table(
        caption="Every way to run, by load",
        heads=[
            "way",
            "B (sequences)",
            "S (tokens)",
            "D (tokens)",
            "AL (tokens per step)",
            "one user (tokens/s)",
            "machine (tokens/s)",
            "stands on",
        ],
        rows=rows,
    )
