"""Draft vocabularies as a table."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from codraft.cli.convert_table import size as size_text
from codraft.cli.ui import console
from codraft.core.training import TrainVocabRecord, VocabularyMeasure, VocabularyPart, VocabularyReport

SHOWN_DEPTHS = (1, 3, 5, 8)
# A category or language of fewer tokens says little about the vocabulary.
LEAST_TOKENS = 200


def print_vocabularies(record: TrainVocabRecord, output: Path | None) -> None:
    """Size by size on stderr: what is covered, the AL ceiling, and the bytes of the output head."""
    data = record.data
    console.print(
        f"[bold]{escape(record.target)}[/bold]: {data.supervised} supervised tokens in {data.rows} rows of "
        f"{escape(data.file)}, {data.distinct} of {record.vocab_size} token ids seen"
    )
    apart = record.whole.held_out is not None
    where = "on held-out rows, as what is least covered" if apart else "on the rows counted, which flatters"
    title = f"AL ceiling: of a drafter that is right on every token it has, {where}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for name in ("size", "covered", "held out", *(f"AL({D})" for D in SHOWN_DEPTHS), "head a draft step"):
        table.add_column(name, justify="right")
    table.add_column("least covered")
    for report in (*record.sizes, record.whole):
        table.add_row(*row_of(report, whole=report is record.whole))
    console.print(table)
    for report in record.sizes:
        console.print(f"  {report.size}: {made_of(report)}")
    for note in record.notes:
        console.print(f"  [yellow]note[/yellow]: {escape(note)}")
    if output is not None:
        console.print(f"  written: {escape(str(output))}; train with: --draft-vocab {escape(str(output))}")


def row_of(report: VocabularyReport, *, whole: bool) -> list[str]:
    """One vocabulary's cells."""
    measured = report.counted if report.held_out is None else report.held_out
    al = {point.D: point.AL for point in measured.all.curve}
    return [
        f"{report.size}{' (all)' if whole else ''}",
        percent(report.counted.all.coverage),
        "-" if report.held_out is None else percent(measured.all.coverage),
        *(f"{al[D]:.2f}" if D in al else "-" for D in SHOWN_DEPTHS),
        size_text(report.head_bytes),
        "-" if whole else least_covered(measured),
    ]


def least_covered(measured: VocabularyMeasure) -> str:
    """The worst category and the worst language."""
    worst = [worst_of(parts) for parts in (measured.categories, measured.languages)]
    return ", ".join(f"{escape(one.name)} {percent(one.coverage)}" for one in worst if one is not None) or "-"


def worst_of(parts: Sequence[VocabularyPart]) -> VocabularyPart | None:
    """The part of a fair size that is covered least."""
    fair = [part for part in parts if part.tokens >= LEAST_TOKENS]
    return min(fair, key=lambda part: part.coverage, default=None)


def made_of(report: VocabularyReport) -> str:
    """What a vocabulary holds, in words."""
    frequent = report.size - report.special - report.byte - report.unseen
    filled = f", {report.unseen} never seen" if report.unseen else ""
    return f"{report.special} special and {report.byte} byte tokens, the {frequent} most frequent others{filled}"


def percent(share: float) -> str:
    """A share for people: 100 % only where nothing is missing."""
    return "100 %" if share == 1 else f"{min(share, 0.9999):.2%}".replace("%", " %")
