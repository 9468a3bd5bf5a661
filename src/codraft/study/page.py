"""A study's page, from what lies in its folder."""

from dataclasses import asdict
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.record import hash_of, read_record
from codraft.core.schema import AcceptanceRecord, DecisionRecord, FrontierRecord, TimingRecord
from codraft.cost.bring import is_csv
from codraft.report.page import write_report
from codraft.report.study import Study
from codraft.study.spec import StudySpec, read_study


def write_page(folder: Path, output: Path | None = None) -> Path:
    """Write `report.html` (or `output`) anew. Figures that came as CSV have no record, and the page says so."""
    spec = read_study(folder / "study.toml")
    records = folder / "records"
    decision = read_record(records / "decision.json", DecisionRecord)
    acceptance = shown(folder, "acceptance", spec.acceptance)
    timing = shown(folder, "timing", spec.timing)
    check_together(decision, folder, spec)
    path = output or folder / "report.html"
    try_report(
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


def try_report(study: Study, path: Path) -> None:
    """Write the page; records that were edited into contradictions become one sentence."""
    try:
        write_report(study, path)
    except (KeyError, ValueError, ZeroDivisionError, IndexError) as error:
        raise SpecError(
            f"the records of this study contradict each other ({type(error).__name__}: {error}); run codraft tune again"
        ) from error


def check_together(decision: DecisionRecord, folder: Path, spec: StudySpec) -> None:
    """Refuse measured records that the decision does not rest on: a later run replaced them and was stopped."""
    hashes = decision.provenance.input_hashes
    measured = {
        "acceptance": None
        if spec.acceptance
        else read_record(folder / "records" / "acceptance.json", AcceptanceRecord),
        "timing": None if spec.timing else read_record(folder / "records" / "timing.json", TimingRecord),
    }
    for kind, record in measured.items():
        rests_on = record.results if isinstance(record, AcceptanceRecord) else record
        if record is not None and hashes.get(kind) != hash_of(rests_on):
            raise SpecError(
                f"{folder}: the decision rests on another {kind} record than that one; run codraft tune to the end"
            )


def shown(folder: Path, kind: str, brought: str | None) -> Path | None:
    """The record to show: the measured one, or the copy of the user's own; None where that is a CSV."""
    if brought is None:
        return folder / "records" / f"{kind}.json"
    copy = brought_copy(folder, kind, Path(brought))
    return None if is_csv(copy) else copy


def brought_copy(folder: Path, kind: str, brought: Path) -> Path:
    """Where a study keeps its copy of a file of the user's own figures."""
    return folder / "brought" / f"{kind}{brought.suffix.lower()}"
