"""What people see, all of it on stderr: stages with progress bars, tables."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:  # `advise`, `frontier` and `report` show tables without torch
    from codraft.replay.streams import Progress as Report


class Screen(Console):
    """A console whose reader may leave: that is the program's to answer, not the library's."""

    def on_broken_pipe(self) -> None:
        """Called within the handler of the error."""
        raise


# A file or a pipe has no edge to fold a table at.
console = Screen(
    stderr=True,
    highlight=False,
    emoji=False,
    soft_wrap=not sys.stderr.isatty(),
    width=None if sys.stderr.isatty() else 200,
)


class RichUi:
    """Stages as bars on a terminal, as one line each elsewhere."""

    @contextmanager
    def stage(self, title: str) -> "Iterator[Report]":
        """One stage; its line with the time taken stays."""
        start = time.perf_counter()
        if console.is_terminal:
            columns = (
                TextColumn("  {task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
            )
            with Progress(*columns, console=console, transient=True) as bar:
                task = bar.add_task(escape(title), total=None)
                yield lambda done, total: bar.update(task, completed=done, total=total)
        else:
            yield lambda done, total: None
        console.print(f"  {escape(title)} [dim]({time.perf_counter() - start:.1f} s)[/dim]")


class QuietUi:
    """Nothing at all: for processes beside the one that people read."""

    @contextmanager
    def stage(self, title: str) -> "Iterator[Report]":
        """See `RichUi.stage`."""
        yield lambda done, total: None


def interval(pair: tuple[float, float] | None, digits: int = 2) -> str:
    """`low..high`, or why there is none."""
    return "-" if pair is None else f"{pair[0]:.{digits}f}..{pair[1]:.{digits}f}"


def milliseconds(seconds: float) -> str:
    """Seconds for people."""
    return f"{seconds * 1e3:.1f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:.0f} us"
