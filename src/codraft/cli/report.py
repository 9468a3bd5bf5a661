"""`codraft report`: a study as one page."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o


def report(
    study: Annotated[Path, Parameter(help="A study folder, as `codraft tune` leaves it.")],
    /,
    *,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Where to write it; default report.html in the study.")
    ] = None,
    json: o.Json = None,
) -> int:
    """Write a study's report anew: one HTML file that needs no network, for a browser or a phone.

    `codraft tune` writes it by itself; this is for records that were edited, moved or brought together by hand.
    `--json` writes the study's decision record.

        codraft report study-demo
    """
    from codraft.cli.ui import console
    from codraft.core.errors import SpecError
    from codraft.core.files import check_writable
    from codraft.core.record import check_destination, emit, read_record
    from codraft.core.schema import DecisionRecord
    from codraft.study.page import write_page

    check_destination(json)
    if not (study / "study.toml").is_file():
        raise SpecError(
            f"{study} is no study folder (it has no study.toml); make one with `codraft tune TARGET -o {study}`"
        )
    check_writable(output or study / "report.html")
    path = write_page(study, output)
    emit(read_record(study / "records" / "decision.json", DecisionRecord), json)
    console.print(f"Report: {path}", markup=False)
    return 0
