"""The log of a run: JSON lines for machines, TensorBoard where it is installed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from codraft.core.curve import CurvePoint
from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, write_failure
from codraft.core.schema import AcceptanceResult
from codraft.core.training import Forecast
from codraft.train.loop import StepReport
from codraft.train.state import Progress

FILE, BOARD = "log.jsonl", "tensorboard"


class Log:
    """Rows of `kind` step or evaluation. A run that goes on cuts off what it will do again."""

    def __init__(self, folder: Path, progress: Progress, *, writes: bool) -> None:
        self.path = folder / FILE
        self._file = self._board = None
        if not writes:
            return
        try:
            keep_until(self.path, progress.step)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise SpecError(write_failure(self.path, error)) from error
        self._board = board(folder / BOARD, progress.step)

    def step(self, found: StepReport, progress: Progress) -> None:
        """One step."""
        row = found.row(progress)
        self._write({"kind": "step", **row})
        self._scalars(
            found.step + 1,
            {
                "loss": found.loss,
                "tokens_per_s": row["tokens_per_s"],
                "lr": found.lr,
                "grad_norm": found.norm,
                **{f"accuracy/{k}": value for k, value in enumerate(found.accuracy, start=1)},
                **{f"seconds/{name}": value for name, value in found.seconds.items()},
            },
        )

    def evaluation(self, result: AcceptanceResult, progress: Progress, forecast: Forecast | None) -> None:
        """One evaluation, with AL(D) by domain."""
        told = None if forecast is None or forecast.AL is None else forecast.AL
        domains = {name: by_depth(part.curve) for name, part in result.domains.items()}
        row = {"kind": "evaluation", "step": progress.step, "seen": progress.tokens, "AL": by_depth(result.curve)}
        self._write({**row, "domains": domains, **({} if told is None else {"forecast_AL": told})})
        self._scalars(progress.step, {f"AL/{D}": value for D, value in by_depth(result.curve).items()})
        for name, curve in domains.items():
            self._scalars(progress.step, {f"AL_{name}/{D}": value for D, value in curve.items()})

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            with self._telling():
                self._file.write(json.dumps(row) + "\n")
                self._file.flush()

    def _scalars(self, step: int, values: dict[str, float | None]) -> None:
        if self._board is not None:
            with self._telling():
                for name, value in values.items():
                    if value is not None:
                        self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """All on disk."""
        with self._telling():
            for one in (self._file, self._board):
                if one is not None:
                    one.close()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SpecError(write_failure(self.path, error)) from error


def by_depth(curve: list[CurvePoint]) -> dict[str, float]:
    """AL by D."""
    return {str(point.D): round(point.AL, 4) for point in curve}


def keep_until(path: Path, step: int) -> None:
    """Rows of steps before `step`, and evaluations up to it; whole lines only."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        row = json.loads(line)
        if row["step"] < step or (row["kind"] == "evaluation" and row["step"] <= step):
            kept.append(line)
    with atomic_write(path) as handle:
        handle.write("".join(kept))


def board(folder: Path, step: int) -> Any:
    """A TensorBoard writer, None where the package is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1 if step else None)
