"""What people see of training data: what was written, and what became of rows."""

from collections.abc import Mapping

from rich.markup import escape

from codraft.cli.ui import console
from codraft.core.traindata import Lengths, RowsInfo, TrainDataRecord


def print_data(record: TrainDataRecord) -> None:
    """A few lines on stderr."""
    if record.prompts is not None:
        print_rows("rows" if record.writer != "streams" else "streams", record.prompts)
    if record.self_written is not None:
        print_rows("user turns by the target", record.self_written.turns)
        if record.self_written.tokens is not None:
            console.print(f"    tokens: {quantiles(record.self_written.tokens)}")
    share = record.supervised_tokens / record.tokens
    console.print(
        f"[bold]{escape(record.output)}[/bold]: {record.file_rows} rows of {record.conversations} conversations, "
        f"{record.tokens} tokens, {record.supervised_tokens} ({share:.0%}) supervised"
    )
    console.print(f"  prompts: {quantiles(record.prompt_tokens)} tokens")
    console.print(f"  answers: {quantiles(record.answer_tokens)} tokens; {record.ended} ended by themselves")
    for count, what in (
        (record.skipped_turns, "turns not answered: the conversation had outgrown the window"),
        (record.empty_answers, "answers left out: empty"),
        (record.resumed_answers, "answers were there from an earlier run"),
    ):
        if count:
            console.print(f"  {count} {what}")
    for what, mix in record.languages.items():
        console.print(f"  languages {what}: {shares(mix)}")
    console.print(f"  categories: {shares({name: part.rows for name, part in record.categories.items()})}")
    if record.tokens_per_s is not None:
        console.print(f"  {record.tokens_per_s:.0f} tokens/s with {record.writer}, {record.seconds['answers']:.0f} s")
    if record.written_by not in (None, record.target):
        console.print(
            f"  [yellow]warning[/yellow]: written by {escape(str(record.written_by))}: a drafter for "
            f"{escape(record.target)} learns from it only if that is the same model"
        )


def print_rows(what: str, info: RowsInfo) -> None:
    """Rows in = kept + dropped by reason."""
    dropped = ", ".join(f"{count} {reason}" for reason, count in info.dropped.items())
    console.print(
        f"  {info.rows} {what} = {info.kept} kept + {sum(info.dropped.values())} dropped"
        + (f" ({dropped})" if dropped else "")
    )
    if info.repaired:
        console.print(f"    mended or cut: {', '.join(f'{count} {name}' for name, count in info.repaired.items())}")


def quantiles(lengths: Lengths) -> str:
    """Lengths for people."""
    return f"10 % {lengths.p10}, half {lengths.p50}, 90 % {lengths.p90}, longest {lengths.max}"


def shares(counts: Mapping[str, int]) -> str:
    """Counts as shares, the largest first."""
    total = sum(counts.values()) or 1
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{escape(name)} {count / total:.0%}" for name, count in ordered)
