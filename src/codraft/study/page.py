"""A study's page, from what lies in its folder."""

from dataclasses import asdict
from pathlib import Path

from codraft.core.record import read_record
from codraft.core.schema import AcceptanceRecord, DecisionRecord, FrontierRecord, TimingRecord
from codraft.cost.bring import is_csv
from codraft.report.page import write_report
from codraft.report.study import Study
from codraft.study.spec import read_study


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write `report.html` (or `output`) anew. Figures that came as CSV have no record, and the page says so."""
    spec = read_study(folder / "study.toml")
    records = folder / "records"
    decision = read_record(records / "decision.json", DecisionRecord)
    acceptance = own(spec.acceptance, records / "acceptance.json")
    timing = own(spec.timing, records / "timing.json")
    path = output or folder / "report.html"
    write_report(
        Study(
            target=decision.target,
            asked={key: value for key, value in asdict(spec).items() if value is not None},
            acceptance=read_record(acceptance, AcceptanceRecord) if acceptance else None,
            timing=read_record(timing, TimingRecord) if timing else None,
            decision=decision,
            frontier=read_record(records / "frontier.json", FrontierRecord),
        ),
        path,
    )
    return path


def own(brought: str | None, measured: Path) -> Path | None:
    """The record to show: the user's own where one was brought, None for a CSV, else the measured one."""
    if brought is None:
        return measured
    return None if is_csv(Path(brought)) else Path(brought)
