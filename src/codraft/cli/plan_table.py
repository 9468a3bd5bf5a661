"""Plans as tables: of a study, of a training run."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from codraft.cli.ui import console

if TYPE_CHECKING:
    from codraft.core.training import PlanTerm, TrainPlanRecord
    from codraft.study.plan import PlanRow


def print_plan(rows: "Sequence[PlanRow]", folder: Path) -> None:
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


def print_training_plan(record: "TrainPlanRecord") -> None:
    """Disk, memory and time, each by term."""
    parts = (("disk", record.disk, size), ("memory", record.memory, size), ("time", record.time, duration))
    for name, terms, shown in parts:
        table = Table(title=name, title_justify="left", box=None, pad_edge=False, show_header=False)
        for column in range(3):
            table.add_column(justify="right" if column == 1 else "left")
        for term in terms:
            table.add_row(f"  {term.name}", shown(term.value), term.of)
        table.add_row("  in all", shown(summed(terms)), "")
        console.print(table)
    console.print(
        f"{record.steps:,} steps over {record.tokens:,} tokens, {record.epochs:.2g} epochs. Only matrix products are "
        "counted, so it will take somewhat longer. Nothing was loaded or written."
    )


def summed(terms: "Sequence[PlanTerm]") -> float:
    """All terms."""
    return sum(term.value for term in terms)


def size(num_bytes: float) -> str:
    """Bytes for people."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.3g} {unit}"
    return f"{num_bytes / 1e3:.3g} kB"
