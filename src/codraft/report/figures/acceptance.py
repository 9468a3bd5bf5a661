"""AL against D by drafter, over the whole workload, each category and each context bucket."""

from collections.abc import Sequence
from dataclasses import dataclass

from codraft.core.curve import CurvePoint
from codraft.core.schema import AcceptanceResult
from codraft.report.blocks import Choice, Figure, Json, Key, Panel, Prose, Row, Table, absent, cell, key, number
from codraft.report.figures.common import area, depth_axis, dots, drafter_keys, line
from codraft.report.study import Book, ci_text, field
from codraft.report.words import count, listing, pair, percent, plural, ratio

CONTEXT = "context "


@dataclass(frozen=True, slots=True)
class Curve:
    """AL(D) of one drafter over one part of the workload, and where it stands in the record."""

    drafter: str
    points: Sequence[CurvePoint]
    path: str
    cold: bool = False


def acceptance_figure(book: Book) -> Figure | None:
    """None where no record has a curve."""
    record = book.study.acceptance
    if record is None or not any(result.curve for result in record.results):
        return None
    names = domain_names(record.results)
    parts: list[tuple[Choice, list[Curve]]] = [(Choice(label="all text"), whole_curves(record.results))]
    for name in names:
        curves = [
            Curve(r.drafter.name, r.domains[name].curve, f"results[{i}].domains[{name!r}].curve")
            for i, r in enumerate(record.results)
            if name in r.domains
        ]
        parts.append((choice(name, record.results), curves))
    depths = [p.D for _, curves in parts for c in curves for p in c.points]
    # Categories share one scale, so that the eye can compare them; all text has its own.
    tops = [ceiling(parts[0][1]), ceiling([c for _, curves in parts[1:] for c in curves])]
    drafters = [r.drafter.name for r in record.results if r.curve]
    keys = drafter_keys(book, drafters)
    keys += [
        Key(text=f"{r.drafter.name}, nothing remembered (cold)", colour=book.colour(r.drafter.name), line="dash")
        for r in record.results
        if r.cold
    ]
    return Figure(
        id="acceptance",
        title="Tokens per step (AL) against draft length (D)",
        lead=lead(book, drafters),
        panels=[
            Panel(
                id="acceptance-chart",
                label="AL against D for each drafter with 95 percent bands. The table below holds the same data.",
                y_title="AL, tokens per step",
                variants=[
                    variant(book, curves, depths, tops[min(1, k)], k == 0) for k, (_, curves) in enumerate(parts)
                ],
            )
        ],
        legend=[*keys, Key(text="95 % interval", colour="@muted", line="band")],
        ask="Text" if len(parts) > 1 else "",
        choices=[named for named, _ in parts],
        tables=[table(named.label, curves) for named, curves in parts],
        after=[by_category(book, names)] if names else [],
    )


def lead(book: Book, drafters: Sequence[str]) -> list[Prose]:
    """How to read it, and what has no curve."""
    record = book.study.acceptance
    lines: list[Prose] = [
        [
            "AL is what one pass of the target yields: one token of its own, and the drafts it accepts. It lies "
            "between 1 and 1 + D. A high AL alone says nothing about speed; see the next figure."
        ]
    ]
    empty = [r.drafter.name for r in record.results if not r.curve] if record else []
    if empty:
        lines.append([f"No curve was measured for {listing(empty)}: no step was seen."])
    if record and any(r.basis == "expected_steps" for r in record.results):
        named = listing([r.drafter.name for r in record.results if r.basis == "expected_steps"])
        lines.append([f"For {named} the numbers are expectations over the drafts' own randomness."])
    ringed = [p for p in book.points if p.best and p.best.drafter in drafters]
    if ringed:
        lines.append(["A ring marks each choice of this study."])
    return lines


def whole_curves(results: Sequence[AcceptanceResult]) -> list[Curve]:
    """Curves over the whole workload, the cold ones behind."""
    warm = [Curve(r.drafter.name, r.curve, f"results[{i}].curve") for i, r in enumerate(results)]
    cold = [Curve(r.drafter.name, r.cold, f"results[{i}].cold", cold=True) for i, r in enumerate(results) if r.cold]
    return [*cold, *warm]


def domain_names(results: Sequence[AcceptanceResult]) -> list[str]:
    """Categories as they come, then context buckets from short to long."""
    names = list(dict.fromkeys(name for result in results for name in result.domains))
    contexts = [name for name in names if is_context(name)]
    contexts.sort(key=lambda name: int(name.removeprefix(CONTEXT).partition("..")[0]))
    return [name for name in names if not is_context(name)] + contexts


def is_context(name: str) -> bool:
    """Whether a domain is a bucket of context lengths; a category of a like name is one only if it has numbers."""
    return name.startswith(CONTEXT) and name.removeprefix(CONTEXT).partition("..")[0].isdecimal()


def choice(name: str, results: Sequence[AcceptanceResult]) -> Choice:
    """A category or bucket in the selector; says which drafters have nothing there."""
    prompts = max(r.domains[name].num_prompts for r in results if name in r.domains)
    notes = []
    without = [r.drafter.name for r in results if r.curve and not (name in r.domains and r.domains[name].curve)]
    if without:
        notes.append(f"No step of {listing(without)} was seen here, so there is no curve.")
    if any(r.cold for r in results):
        notes.append("The cold curve is known for all text only.")
    label = f"{name} tokens" if is_context(name) else name
    group = "by context length" if is_context(name) else "by category"
    return Choice(label=f"{label} ({plural(prompts, 'answer')})", group=group, note=" ".join(notes))


def ceiling(curves: Sequence[Curve]) -> float:
    """Highest AL or end of an interval."""
    return max((p.AL_ci95[1] if p.AL_ci95 else p.AL for c in curves for p in c.points), default=2.0)


def variant(book: Book, curves: Sequence[Curve], depths: Sequence[int], top: float, rings: bool) -> Json:
    """Bands below, then lines."""
    data: list[Json] = [band(book, c) for c in curves if not c.cold and any(p.AL_ci95 for p in c.points)]
    for c in curves:
        if c.points:
            colour, symbol = book.colour(c.drafter), book.symbol(c.drafter)
            hovers = [hover(c, k, p) for k, p in enumerate(c.points)]
            xs, ys = [p.D for p in c.points], [p.AL for p in c.points]
            data.append(line(xs, ys, hovers, colour, symbol, "dash" if c.cold else "solid"))
            if c.cold:
                data[-1]["marker"].update(size=6, color="@card", line={"color": colour, "width": 1.5})
    if rings:
        data += chosen_rings(book)
    span = max(0.1, top - 1)
    return {
        "data": data,
        "layout": {"xaxis": depth_axis(depths), "yaxis": {"range": [1 - 0.03 * span, 1 + 1.06 * span]}},
    }


def chosen_rings(book: Book) -> list[Json]:
    """A ring round each choice."""
    chosen = {(p.best.drafter, p.best.D, p.best.AL) for p in book.points if p.best and p.best.drafter in book.results}
    return [
        {
            **dots(
                [D],
                [AL],
                [[]],
                {"symbol": "circle-open", "size": 19, "color": "@ink", "line": {"width": 2, "color": "@ink"}},
            ),
            "hoverinfo": "skip",
        }
        for _, D, AL in sorted(chosen)
    ]


def band(book: Book, c: Curve) -> Json:
    """The 95 % interval; a point without one breaks the band."""
    xs: list[float | None] = []
    ys: list[float | None] = []
    run: list[CurvePoint] = []
    for point in [*c.points, None]:
        if point is not None and point.AL_ci95 is not None:
            run.append(point)
            continue
        if run:
            xs += [*(p.D for p in run), *(p.D for p in reversed(run)), None]
            ys += [*(p.AL_ci95[0] for p in run if p.AL_ci95), *(p.AL_ci95[1] for p in reversed(run) if p.AL_ci95), None]
        run = []
    return area(xs[:-1], ys[:-1], book.colour(c.drafter, 0.16))


def hover(c: Curve, k: int, p: CurvePoint) -> list[str]:
    """What a point says."""
    return [
        f"{c.drafter}{', cold' if c.cold else ''}, D = {p.D} tokens",
        f"AL {ratio(p.AL)} tokens per step ({ci_text(p.AL_ci95)})",
        f"{count(p.steps)} steps, {percent(p.coverage)} of them with a draft",
        f"{count(p.accepted)} of {count(p.drafted)} drafted tokens accepted",
        field("acceptance", f"{c.path}[{k}].AL"),
    ]


def table(caption: str, curves: Sequence[Curve]) -> Table:
    """One part of the workload, by drafter and D."""
    rows = []
    for c in curves:
        for k, p in enumerate(c.points):
            at = f"{c.path}[{k}]"
            behind = f"{count(p.steps)} steps"
            rows.append(
                Row(
                    cells=[
                        cell(f"{c.drafter}{' (cold)' if c.cold else ''}"),
                        key(p.D),
                        number(ratio(p.AL), field("acceptance", f"{at}.AL", behind)),
                        number(pair(p.AL_ci95), field("acceptance", f"{at}.AL_ci95")) if p.AL_ci95 else absent("none"),
                        number(ratio(p.AL_macro), field("acceptance", f"{at}.AL_macro")),
                        number(percent(p.coverage), field("acceptance", f"{at}.coverage")),
                        number(count(p.steps), field("acceptance", f"{at}.steps")),
                        number(
                            f"{count(p.accepted)} / {count(p.drafted)}",
                            field("acceptance", f"{at}.accepted, drafted"),
                        ),
                    ],
                    source=field("acceptance", at),
                )
            )
    heads = [
        "drafter",
        "D (tokens)",
        "AL (tokens per step)",
        "95 % interval",
        "AL_macro (tokens per step)",
        "coverage (% of steps)",
        "steps (passes)",
        "accepted / drafted (tokens)",
    ]
    return Table(caption=f"AL of {caption}", heads=heads, rows=rows)


def by_category(book: Book, names: Sequence[str]) -> Table:
    """Category by drafter at one D: what people compare first."""
    record = book.study.acceptance
    results = record.results if record else []
    chosen = next((p.best.D for p in book.points if p.best), None)
    D = chosen or max(p.D for r in results for p in r.curve)
    rows = []
    for name in [None, *names]:
        cells = [cell("all text" if name is None else name)]
        for i, r in enumerate(results):
            points = r.curve if name is None else r.domains[name].curve if name in r.domains else []
            found = next(((k, p) for k, p in enumerate(points) if p.D == D), None)
            path = f"results[{i}].curve" if name is None else f"results[{i}].domains[{name!r}].curve"
            if found is None:
                cells.append(absent("no step seen"))
                continue
            source = field(
                "acceptance", f"{path}[{found[0]}].AL", f"{count(found[1].steps)} steps", ci_text(found[1].AL_ci95)
            )
            cells.append(number(ratio(found[1].AL), source))
        rows.append(Row(cells=cells, look="whole" if name is None else ""))
    return Table(
        caption=f"AL (tokens per step) at D = {D} by category and context (tokens before the anchor)",
        heads=["text", *(r.drafter.name for r in results)],
        rows=rows,
    )
