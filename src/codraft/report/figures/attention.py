"""Attention over query rows, and what share of a pass it takes."""

from collections.abc import Sequence

from codraft.core.constants import ARTICLE_TILE
from codraft.core.schema import AttentionPoint, TimingPoint
from codraft.report.blocks import Choice, Figure, Json, Key, Num, Panel, Prose, Row, Table, absent, key, number
from codraft.report.figures.common import MARKS, SEQUENCE, line
from codraft.report.study import Book, field
from codraft.report.words import EN_DASH, count, figures, flops, listing, load, percent, rate_unit, seconds, time_unit

# Query rows of the article's attention kernel [NVIDIA26]; what this machine's kernel takes is not recorded.


def attention_figure(book: Book) -> Figure | None:
    """None where attention was not timed."""
    points = book.study.timing.attention if book.study.timing else None
    if not points:
        return None
    batches = sorted({p.B for p in points})
    contexts = sorted({p.S for p in points})
    scale, unit = time_unit([p.t_s for p in points])
    widest = max(p.rows for p in points)
    G = sorted({p.rows // (1 + p.D) for p in points})
    lead: list[Prose] = [
        [
            "Drafts of one sequence share its cache, so attention works on G (1 + D) query rows for each KV head. "
            "Here G = ",
            Num(listing([str(g) for g in G]), field("timing", "attention[].rows divided by 1 + attention[].D")),
            " query heads per KV head. A flat line means that wider passes are free; where time climbs in steps, the "
            "kernel works in tiles.",
        ]
    ]
    if widest >= ARTICLE_TILE:
        lead.append([f"Upright lines: multiples of {ARTICLE_TILE} rows, the tile of the article's kernel."])
    return Figure(
        id="attention",
        title="Attention: what more query rows cost",
        lead=lead,
        panels=[
            Panel(
                id="attention-chart",
                label="Time of one layer's attention against query rows, one line for each context length; "
                "the table below holds the data.",
                y_title=f"{unit}, one layer",
                variants=[attention_variant(points, B, contexts, scale, widest) for B in batches],
            )
        ],
        legend=[
            Key(text=f"S = {S:,} tokens", colour=f"@step{k % SEQUENCE}", symbol=MARKS[k % SEQUENCE])
            for k, S in enumerate(contexts)
        ],
        ask="Batch" if len(batches) > 1 else "",
        choices=[Choice(label=f"B = {B}") for B in batches],
        tables=[attention_table(points, B, scale, unit) for B in batches],
    )


def attention_variant(
    points: Sequence[AttentionPoint], B: int, contexts: Sequence[int], scale: float, widest: int
) -> Json:
    """One line for each context; whiskers are 10th and 90th percentile."""
    data: list[Json] = []
    for k, S in enumerate(contexts):
        own = sorted(((i, p) for i, p in enumerate(points) if (p.B, p.S) == (B, S)), key=lambda item: item[1].rows)
        if not own:
            continue
        hover = [attention_hover(i, p) for i, p in own]
        trace = line(
            [p.rows for _, p in own],
            [p.t_s * scale for _, p in own],
            hover,
            f"@step{k % SEQUENCE}",
            MARKS[k % SEQUENCE],
        )
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, p.p90 - p.t_s) * scale for _, p in own],
            "arrayminus": [max(0.0, p.t_s - p.p10) * scale for _, p in own],
            "color": f"@step{k % SEQUENCE}",
            "thickness": 1.25,
            "width": 3,
        }
        data.append(trace)
    tiles = [
        {
            "type": "line",
            "x0": x,
            "x1": x,
            "yref": "paper",
            "y0": 0,
            "y1": 1,
            "line": {"color": "@muted", "width": 1, "dash": "dot"},
        }
        for x in range(ARTICLE_TILE, widest + 1, ARTICLE_TILE)
    ]
    return {
        "data": data,
        "layout": {
            "shapes": tiles,
            "xaxis": {"title": {"text": "query rows, G (1 + D)"}},
            "yaxis": {"rangemode": "tozero"},
        },
    }


def attention_hover(i: int, p: AttentionPoint) -> list[str]:
    """What a point says."""
    scale, prefix = rate_unit([p.bytes_per_s])
    return [
        f"D = {p.D} tokens: {p.rows} rows; {load(p.B, p.S)}",
        f"{seconds(p.t_s)}, {flops(p.flops_per_s)}, {figures(p.bytes_per_s * scale)} {prefix}B/s",
        f"{count(p.num_samples)} samples, 10th to 90th percentile {seconds(p.p10)}{EN_DASH}{seconds(p.p90)}",
        field("timing", f"attention[{i}].t_s"),
    ]


def attention_table(points: Sequence[AttentionPoint], B: int, scale: float, unit: str) -> Table:
    """One batch."""
    rows = []
    order = sorted((p.S, p.D, i) for i, p in enumerate(points) if p.B == B)
    for _, _, i in order:
        p = points[i]
        at = f"attention[{i}]"
        rows.append(
            Row(
                cells=[
                    key(p.S),
                    key(p.D),
                    key(p.rows),
                    number(figures(p.t_s * scale), field("timing", f"{at}.t_s", f"{count(p.num_samples)} samples")),
                    number(
                        f"{figures(p.p10 * scale)}{EN_DASH}{figures(p.p90 * scale)}", field("timing", f"{at}.p10, p90")
                    ),
                    number(figures(p.flops_per_s * 1e-9), field("timing", f"{at}.flops_per_s")),
                    number(figures(p.bytes_per_s * 1e-9), field("timing", f"{at}.bytes_per_s")),
                ],
                source=field("timing", at),
            )
        )
    heads = [
        "S (tokens)",
        "D (tokens)",
        "rows",
        f"time, median ({unit})",
        f"10th{EN_DASH}90th percentile ({unit})",
        "GFLOP/s",
        "GB/s",
    ]
    return Table(caption=f"Attention of one layer at B = {B}", heads=heads, rows=rows)


def shares_figure(book: Book) -> Figure | None:
    """None where passes were not taken apart."""
    timing = book.study.timing
    points = [(i, p) for i, p in enumerate(timing.points) if p.shares] if timing else []
    if not points:
        return None
    kinds = list(dict.fromkeys(kind for _, p in points for kind in p.shares or {}))
    loads = sorted({(p.B, p.S) for _, p in points})
    return Figure(
        id="shares",
        title="What a pass is made of",
        lead=[
            [
                "Time of a target pass by kind of work. Where the FFN dominates, guideline 1 leads; where attention "
                "does, guidelines 2 and 3. Projections are attention's linear layers; attention is the part that "
                "reads the cache."
            ]
        ],
        panels=[
            Panel(
                id="shares-chart",
                label="Shares of a target pass by kind of work, stacked, over D; the table below holds the data.",
                y_title="% of T_verif",
                variants=[shares_variant([(i, p) for i, p in points if at == (p.B, p.S)], kinds) for at in loads],
                height="short",
            )
        ],
        legend=[Key(text=kind, colour=f"@part{k % 5}", line="patch") for k, kind in enumerate(kinds)],
        ask="Load" if len(loads) > 1 else "",
        choices=[Choice(label=load(B, S)) for B, S in loads],
        tables=[shares_table([(i, p) for i, p in points if at == (p.B, p.S)], kinds, at) for at in loads],
    )


def shares_variant(own: Sequence[tuple[int, TimingPoint]], kinds: Sequence[str]) -> Json:
    """Stacked bars over D."""
    data: list[Json] = []
    for k, kind in enumerate(kinds):
        shown = [(i, p, p.shares[kind]) for i, p in own if p.shares and kind in p.shares]
        data.append(
            {
                "type": "bar",
                "x": [str(p.D) for _, p, _ in shown],
                "y": [100 * share for _, _, share in shown],
                "customdata": [
                    [
                        f"{kind} at D = {p.D} tokens: {percent(share, 1)} of the pass",
                        f"T_verif {seconds(p.t_verif_s)}",
                        field("timing", f"points[{i}].shares.{kind}"),
                    ]
                    for i, p, share in shown
                ],
                "hoverinfo": "none",
                "marker": {"color": f"@part{k % 5}", "line": {"color": "@card", "width": 1}},
            }
        )
    return {
        "data": data,
        "layout": {
            "barmode": "stack",
            "bargap": 0.25,
            "xaxis": {"type": "category", "tickangle": 0, "title": {"text": "D, tokens drafted"}},
            "yaxis": {"range": [0, 100]},
        },
    }


def shares_table(own: Sequence[tuple[int, TimingPoint]], kinds: Sequence[str], at: tuple[int, int]) -> Table:
    """Shares and T_verif over D."""
    rows = []
    for i, p in own:
        source = field("timing", f"points[{i}].t_verif_s", f"{count(p.num_samples)} samples")
        cells = [key(p.D), number(seconds(p.t_verif_s), source)]
        for kind in kinds:
            share = (p.shares or {}).get(kind)
            cells.append(
                absent()
                if share is None
                else number(f"{100 * share:.1f}", field("timing", f"points[{i}].shares.{kind}"))
            )
        rows.append(Row(cells=cells, source=field("timing", f"points[{i}]")))
    return Table(
        caption=f"Shares of a pass at {load(*at)}",
        heads=["D (tokens)", "T_verif", *(f"{kind} (%)" for kind in kinds)],
        rows=rows,
    )
