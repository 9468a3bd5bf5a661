"""A study's plan as a table."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from codraft.cli.ui import console
from codraft.study.plan import PlanRow


def print_plan(rows: Sequence[PlanRow], folder: Path) -> None:
    """What is done, what would run, and for how long."""
    table = Table(title=f"plan of {escape(str(folder))}", title_justify="left", box=None, pad_edge=False)
    for name in ("part", "what", "state", "estimate"):
        table.add_column(name, justify="right" if name == "estimate" else "left")
    for row in rows:
        state = "done, used again if its inputs are unchanged" if row.done else "to do"
        table.add_row(row.part, escape(row.what), state, "-" if row.done else duration(row.seconds))
    console.print(table)
    total = sum(row.seconds for row in rows if not row.done)
    console.print(f"About {duration(total)} in all, roughly; nothing in the study was run or written.")


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
