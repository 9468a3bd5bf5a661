"""Linear layers over batch: how drafts fill them, on the article's layer and on the model's own."""

from collections.abc import Sequence

from codraft.core.constants import ARTICLE_DEPTHS, ARTICLE_WIDTH
from codraft.core.schema import GemmPoint
from codraft.report.blocks import Figure, Json, Key, Num, Panel, Prose, Row, Table, key, number
from codraft.report.figures.common import MARKS, SEQUENCE, dots, line, rule
from codraft.report.study import Book, field
from codraft.report.words import EN_DASH, count, figures, flops, rate_unit, seconds, time_unit

# The layer and the draft lengths of the article's third figure [NVIDIA26].
NEAR_PEAK = 0.8
Points = list[tuple[int, GemmPoint]]


def gemm_figure(book: Book) -> Figure | None:
    """None where linear layers were not timed."""
    points = book.study.timing.gemm if book.study.timing else None
    if not points:
        return None
    layers: dict[str, Points] = {}
    for i, point in enumerate(points):
        layers.setdefault(point.layer, []).append((i, point))
    for own in layers.values():
        own.sort(key=lambda item: item[1].M)
    article = [name for name, own in layers.items() if own[0][1].n == own[0][1].k == ARTICLE_WIDTH]
    own_layers = [name for name in layers if name not in article]
    scale, prefix = rate_unit([p.flops_per_s for p in points])
    panels = [batch_panel(layers[article[0]], scale, prefix)] if article else []
    if own_layers:
        panels.append(layers_panel({name: layers[name] for name in own_layers}, scale, prefix))
    return Figure(
        id="gemm",
        title="Linear layers: how drafts fill them",
        lead=gemm_lead(layers[article[0]] if article else [], own_layers),
        panels=panels,
        tables=[gemm_table(name, own, scale, prefix) for name, own in layers.items()],
    )


def peak(own: Points) -> tuple[int, GemmPoint]:
    """The fastest point of a layer."""
    return max(own, key=lambda item: item[1].flops_per_s)


def near_peak(own: Points) -> tuple[int, GemmPoint]:
    """The narrowest point that reaches 80 % of the highest throughput measured."""
    least = NEAR_PEAK * peak(own)[1].flops_per_s
    return next(item for item in own if item[1].flops_per_s >= least)


def gemm_lead(article: Points, own_layers: Sequence[str]) -> list[Prose]:
    """What M is, and where 80 % of the peak is reached at each D."""
    lines: list[Prose] = [
        [
            "With D drafts for each of B sequences, a linear layer works on M = B (1 + D) rows, and the cache grows no "
            "larger."
        ]
    ]
    if article:
        i, p = near_peak(article)
        source = field("timing", f"gemm[{i}].M", f"{count(p.num_samples)} samples")
        top = peak(article)
        words: list[str | Num] = [
            f"The {ARTICLE_WIDTH} by {ARTICLE_WIDTH} layer reaches 80 % of its highest throughput here (",
            Num(flops(top[1].flops_per_s), field("timing", f"gemm[{top[0]}].flops_per_s")),
            ") at M = ",
            Num(f"{p.M} rows", source),
            ": ",
        ]
        for k, D in enumerate(ARTICLE_DEPTHS):
            words += [", " if k else "", Num(f"B = {batch(p.M, D)} at D = {D}", source)]
        lines.append([*words, "."])
        if p.M == article[-1][1].M:
            lines.append(["It was still rising at the largest M measured, so its true peak may lie higher."])
    else:
        lines.append(
            [f"The {ARTICLE_WIDTH} by {ARTICLE_WIDTH} layer of the article was not timed; here are the model's own."]
        )
    if not own_layers:
        lines.append(["The model's own layers were not timed."])
    return lines


def batch(M: int, D: int) -> str:
    """Sequences that give M rows at D, whole or with one digit; below 1, a single one is more than enough."""
    B = M / (1 + D)
    return "1" if B < 1 else f"{B:.3g}"


def batch_panel(own: Points, scale: float, prefix: str) -> Panel:
    """The article's layer over batch, once for each D: the same points, shifted to the left by 1 + D."""
    data: list[Json] = []
    threshold = NEAR_PEAK * peak(own)[1].flops_per_s * scale
    i80, p80 = near_peak(own)
    first, last = max(1.0, own[0][1].M), float(own[-1][1].M)
    data.append(rule([first, last], [threshold, threshold], "@muted", "dot"))
    shapes = []
    for k, D in enumerate(ARTICLE_DEPTHS):
        shown = [(i, p) for i, p in own if p.M >= 1 + D]
        hover = [
            gemm_hover(i, p, f"D = {D} tokens, B = {p.M / (1 + D):.3g} sequences, M = {p.M} rows") for i, p in shown
        ]
        xs, ys = [p.M / (1 + D) for _, p in shown], [p.flops_per_s * scale for _, p in shown]
        if not shown:
            continue
        data.append(line(xs, ys, hover, f"@step{k}", MARKS[k]))
        at = p80.M / (1 + D)
        if at >= 1:
            shapes.append(drop(at, p80.flops_per_s * scale, f"@step{k}"))
            ring = {"symbol": "circle-open", "size": 16, "color": "@ink", "line": {"width": 2, "color": "@ink"}}
            said = gemm_hover(i80, p80, f"80 % of the peak at D = {D}: B = {at:.3g} sequences, M = {p80.M} rows")
            data.append(dots([at], [p80.flops_per_s * scale], [said], ring))
    return Panel(
        id="gemm-batch",
        title=f"{ARTICLE_WIDTH} by {ARTICLE_WIDTH}, over batch",
        legend=[Key(text=f"D = {D}", colour=f"@step{k}", symbol=MARKS[k]) for k, D in enumerate(ARTICLE_DEPTHS)],
        label="Throughput of a 6144 by 6144 layer over batch, for five D; the table below holds the data.",
        y_title=f"{prefix}FLOP/s; dotted: 80 % of the highest; ringed: reached there",
        variants=[
            {
                "data": data,
                "layout": {
                    "shapes": shapes,
                    "xaxis": log_axis("B, sequences", first, last),
                    "yaxis": {"rangemode": "tozero"},
                },
            }
        ],
    )


def drop(x: float, y: float, colour: str) -> Json:
    """A thin line from a mark down to the axis."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": y, "line": {"color": colour, "width": 1.25, "dash": "dot"}}


def layers_panel(layers: dict[str, Points], scale: float, prefix: str) -> Panel:
    """The model's own layers over M."""
    data: list[Json] = []
    for k, (name, own) in enumerate(layers.items()):
        hover = [gemm_hover(i, p, f"{name}, M = {p.M} rows") for i, p in own]
        xs, ys = [p.M for _, p in own], [p.flops_per_s * scale for _, p in own]
        data.append(line(xs, ys, hover, f"@step{k % SEQUENCE}", MARKS[k % SEQUENCE], "dash"))
    widths = [p.M for own in layers.values() for _, p in own]
    return Panel(
        id="gemm-layers",
        title="This model's layers, over M",
        legend=[
            Key(text=name, colour=f"@step{k % SEQUENCE}", symbol=MARKS[k % SEQUENCE], line="dash")
            for k, name in enumerate(layers)
        ],
        label="Throughput of the model's own linear layers over M; the table below holds the data.",
        y_title=f"{prefix}FLOP/s",
        variants=[
            {
                "data": data,
                "layout": {
                    "xaxis": log_axis("M = B (1 + D), rows", min(widths), max(widths)),
                    "yaxis": {"rangemode": "tozero"},
                },
            }
        ],
    )


def log_axis(title: str, low: float, high: float) -> Json:
    """Powers of two, as batches go."""
    ticks = [2**k for k in range(24) if low <= 2**k <= high]
    # Few enough to stand beside each other on a phone.
    ticks = ticks[:: 1 + len(ticks) // 9]
    return {"type": "log", "title": {"text": title}, "tickvals": ticks, "ticktext": [str(t) for t in ticks]}


def gemm_hover(i: int, p: GemmPoint, what: str) -> list[str]:
    """What a point says."""
    return [
        what,
        f"{flops(p.flops_per_s)}: {seconds(p.t_s)} for [{p.M}, {p.k}] x [{p.k}, {p.n}]",
        f"{count(p.num_samples)} samples, 10th to 90th percentile {seconds(p.p10)}{EN_DASH}{seconds(p.p90)}",
        field("timing", f"gemm[{i}].flops_per_s"),
    ]


def gemm_table(name: str, own: Points, scale: float, prefix: str) -> Table:
    """One layer over M."""
    unit, symbol = time_unit([p.t_s for _, p in own])
    rows = [
        Row(
            cells=[
                key(p.M),
                number(figures(p.flops_per_s * scale), field("timing", f"gemm[{i}].flops_per_s")),
                number(figures(p.t_s * unit), field("timing", f"gemm[{i}].t_s", f"{count(p.num_samples)} samples")),
                number(
                    f"{figures(p.p10 * unit)}{EN_DASH}{figures(p.p90 * unit)}", field("timing", f"gemm[{i}].p10, p90")
                ),
                key(count(p.num_samples)),
            ],
            source=field("timing", f"gemm[{i}]"),
        )
        for i, p in own
    ]
    first = own[0][1]
    return Table(
        caption=f"{name}: [M, {first.k}] x [{first.k}, {first.n}]",
        heads=[
            "M (rows)",
            f"throughput ({prefix}FLOP/s)",
            f"time, median ({symbol})",
            f"10th{EN_DASH}90th percentile ({symbol})",
            "samples",
        ],
        rows=rows,
    )
