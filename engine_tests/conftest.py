"""One desk for the session: vLLM is at work in the background before the first comparison asks for anything."""

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"

from engine_tests.desk import Desk
from engine_tests.pairs import Case

ROWS: list["Row"] = []
HEADER = ("mechanism", "layout", "weights", "dtype", "D", "requests", "steps", "drafted", "accepted")
RESULTS = ("AL ours", "AL vLLM", "differences", "excused", "compared")


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table at the end."""

    case: Case
    counts: tuple[int, int, int, int]
    AL: tuple[float, float]
    differences: int
    excused: int
    compared: str

    def cells(self) -> list[str]:
        """As text."""
        pair = self.case.pair
        left = (pair.mechanism, pair.layout, pair.weights, self.case.dtype, self.case.D, *self.counts)
        right = (f"{self.AL[0]:.3f}", f"{self.AL[1]:.3f}", self.differences, self.excused, self.compared)
        return [str(cell) for cell in (*left, *right)]


@pytest.fixture(scope="session")
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """Starts vLLM on every selected case: those that need no training first, the others when their heads are ready."""
    asked = [item.callspec.params["case"] for item in request.session.items if hasattr(item, "callspec")]
    cases = list(dict.fromkeys(case for case in asked if isinstance(case, Case)))
    desk = Desk(tmp_path_factory.mktemp("engines"))
    try:
        desk.start([case for case in cases if case.pair.weights != "overfitted"], "untaught")
        desk.start([case for case in cases if case.pair.weights == "overfitted"], "taught")
        yield desk
    finally:
        desk.close()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of all cases that were compared."""
    if not ROWS:
        return
    rows = [[*HEADER, *RESULTS], *(row.cells() for row in ROWS)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    terminalreporter.write_sep("=", "codraft beside vLLM")
    for row in rows:
        terminalreporter.write_line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
