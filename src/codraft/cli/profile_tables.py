"""Timing records as tables for people."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from codraft.cli.ui import console, milliseconds
from codraft.core.provenance import machine_words
from codraft.core.schema import AttentionPoint, GemmPoint, TimingPoint, TimingRecord


def print_profile(record: TimingRecord) -> None:
    """Step times at every load, then the kernels where they were measured."""
    place = machine_words(record.provenance.machine)
    console.print(f"\n{record.target} on {place}, {record.provenance.dtype}", markup=False)
    for load in sorted({(point.S, point.B) for point in record.points}):
        console.print(step_table([p for p in record.points if load == (p.S, p.B)]))
    for layer in dict.fromkeys(point.layer for point in record.gemm or ()):
        console.print(gemm_table([p for p in record.gemm or () if p.layer == layer]))
    for S in sorted({point.S for point in record.attention or ()}):
        console.print(attention_table([p for p in record.attention or () if S == p.S]))


def step_table(points: Sequence[TimingPoint]) -> Table:
    """T_verif with its spread, T_sys, every drafter's T_draft, and where the time of a pass goes."""
    names = list(dict.fromkeys(name for point in points for name in point.t_draft_s))
    first = points[0]
    drafting = {name: n for point in points for name, n in (point.t_draft_num_samples or {}).items()}
    counts = ", ".join(f"{n} of {escape(name)}'s drafting" for name, n in drafting.items())
    table = titled(f"B = {first.B}, S = {first.S} ({first.num_samples} samples each{', ' + counts if counts else ''})")
    for name in ("D", "x", "T_verif", "p10..p90", "over D = 0", "T_sys", *(f"T_draft {n}" for n in names)):
        table.add_column(name, justify="right")
    table.add_column("FFN / linear / attention / head / other", justify="right")
    for p in points:
        table.add_row(
            str(p.D),
            str(p.x),
            milliseconds(p.t_verif_s),
            f"{milliseconds(p.p10)}..{milliseconds(p.p90)}",
            f"{p.t_verif_s / first.t_verif_s:.2f}",
            milliseconds(p.t_sys_s),
            *(milliseconds(p.t_draft_s[name]) if name in p.t_draft_s else "-" for name in names),
            " / ".join(f"{share:.0%}" for share in p.shares.values()) if p.shares else "-",
        )
    return table


def gemm_table(points: Sequence[GemmPoint]) -> Table:
    """Throughput over M of one layer."""
    first = points[0]
    table = titled(f"GEMM {escape(first.layer)}: [M, {first.k}] x [{first.k}, {first.n}]")
    for name in ("M", "time", "p10..p90", "GFLOP/s", "of the best"):
        table.add_column(name, justify="right")
    best = max(point.flops_per_s for point in points)
    for p in points:
        table.add_row(
            str(p.M),
            milliseconds(p.t_s),
            f"{milliseconds(p.p10)}..{milliseconds(p.p90)}",
            f"{p.flops_per_s / 1e9:.1f}",
            f"{p.flops_per_s / best:.0%}",
        )
    return table


def attention_table(points: Sequence[AttentionPoint]) -> Table:
    """Time over the rows of a query tile."""
    table = titled(f"attention of one layer: B = {points[0].B}, S = {points[0].S}")
    for name in ("D", "G (1 + D)", "time", "p10..p90", "over D = 0", "GB/s of cache"):
        table.add_column(name, justify="right")
    for p in points:
        table.add_row(
            str(p.D),
            str(p.rows),
            milliseconds(p.t_s),
            f"{milliseconds(p.p10)}..{milliseconds(p.p90)}",
            f"{p.t_s / points[0].t_s:.2f}",
            f"{p.bytes_per_s / 1e9:.2f}",
        )
    return table


def titled(title: str) -> Table:
    """A plain table with a title."""
    return Table(title=title, title_justify="left", box=None, pad_edge=False)
