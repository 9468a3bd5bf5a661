"""Records as tables for people."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from codraft.cli.ui import console, interval, milliseconds
from codraft.core.schema import (
    AcceptanceRecord,
    DecisionPoint,
    DecisionRecord,
    FrontierRecord,
    GenerationRecord,
    Guideline,
)
from codraft.core.silent import silent_failures


def print_acceptance(record: AcceptanceRecord) -> None:
    """AL(D) of every drafter."""
    what = record.prompts
    console.print(
        f"\n{escape(record.target)}: {what.num_prompts} streams of {what.num_conversations} conversations, "
        f"{record.stream_tokens} tokens, {sampling_words(record.sampling)}, {record.mode}"
    )
    for count, why in (
        (what.skipped_long, "longer than the window"),
        (what.skipped_short, "too short for one step"),
    ):
        if count:
            console.print(f"  left out: {count} {why}")
    if what.written_by not in (None, record.target):
        console.print(
            f"  these streams were written by {escape(what.written_by)}: AL holds for {escape(record.target)} only "
            "if it is the same model"
        )
    for result in record.results:
        table = Table(
            title=f"{result.drafter.name} ({result.drafter.mechanism})",
            title_justify="left",
            box=None,
            pad_edge=False,
        )
        for name in (
            "D",
            "AL",
            "95 %",
            "AL_macro",
            "coverage",
            "steps",
            "accepted/drafted",
            "conditional acceptance",
        ):
            table.add_column(name, justify="left" if name.startswith("cond") else "right")
        for point in result.curve:
            rates = " ".join("-" if rate is None else f"{rate:.2f}" for rate in point.conditional)
            table.add_row(
                str(point.D),
                f"{point.AL:.3f}",
                interval(point.AL_ci95),
                f"{point.AL_macro:.3f}",
                f"{point.coverage:.0%}",
                f"{point.steps:.0f}",
                f"{point.accepted:.0f}/{point.drafted:.0f}",
                rates,
            )
        console.print(table)
        if result.cold:
            curve = "  ".join(f"{point.AL:.2f}" for point in result.cold)
            console.print(f"  cold (nothing remembered of other streams): AL by D  {curve}")
        for name, domain in result.domains.items():
            curve = "  ".join(f"{point.AL:.2f}" for point in domain.curve)
            console.print(f"  {escape(name)} ({domain.num_prompts} prompts): AL by D  {curve}")
        if not result.curve:
            console.print("  no step was taken")
    for line in silent_failures(record.results, record.target):
        console.print(f"[yellow]warning[/yellow]: {escape(line)}")
    if what.num_conversations < 2:
        console.print("  no interval: it needs at least two conversations")
    console.print(f"measured in {record.wall_s:.2f} s (loading and writing streams apart)")


def sampling_words(sampling: dict[str, float]) -> str:
    """Sampling in words."""
    if sampling["temperature"] == 0:
        return "greedy"
    return ", ".join(f"{key} {value}" for key, value in sampling.items())


def print_generation(record: GenerationRecord) -> None:
    """The answers, and how they came about."""
    for output in record.outputs:
        console.print(f"\n[bold]#{output.index}[/bold]", end=" ")
        console.print(output.text, markup=False)
        tokens = len(output.output_ids)
        AL = f", AL {1 + output.accepted / output.steps:.2f}" if output.steps and record.D else ""
        console.print(
            f"[dim]{tokens} tokens ({output.stop_reason}) in {output.seconds:.2f} s, {output.steps} steps{AL}, "
            f"accepted {output.accepted} of {output.drafted} drafted[/dim]"
        )
    if record.skipped_long:
        console.print(f"  left out: {record.skipped_long} longer than the window")
    tokens = sum(len(output.output_ids) - 1 for output in record.outputs)
    seconds = sum(output.seconds - output.prefill_s for output in record.outputs)
    if tokens and seconds > 0:
        console.print(f"\n{tokens / seconds:.1f} tokens/s after prefill, {record.provenance.dtype}")


def print_decision(record: DecisionRecord, folder: Path | None = None) -> None:
    """Speed-up table, guidelines, verdict and confirmation at every load, then the schedule."""
    for point in record.points:
        console.print(
            f"\nB = {point.B}, S = {point.S}: plain decoding takes {milliseconds(point.plain['t_step_s'])} a step, "
            f"{point.plain['tokens_per_s']:.1f} tokens/s  ({escape(basis_words(record))})"
        )
        for note in ("dtype", "drafting", "acceptance"):
            if note in record.basis:
                console.print(f"  {note}: {record.basis[note]}", markup=False)
        console.print(speedup_table(point))
        console.print(f"[bold]Verdict at B = {point.B}, S = {point.S}: {escape(point.verdict)}[/bold]")
        for line in point.warnings:
            console.print(f"  {line}", markup=False)
        for line in guideline_lines(point.guidelines):
            console.print(f"[dim]  {escape(line)}[/dim]")
    if len(record.schedule) > 1:
        words = [
            f"up to B = {entry.max_batch}: " + (f"{entry.drafter} with D = {entry.D}" if entry.drafter else "off")
            for entry in record.schedule
        ]
        console.print(
            f"\nSchedule by load: {escape('; '.join(words))}. Loads between take the next higher one's answer."
        )
    print_confirmation(record)
    if folder is not None:
        console.print(
            f"\nReport: {folder}/report.html   launch files: {folder}/launch   records: {folder}/records", markup=False
        )


def basis_words(record: DecisionRecord) -> str:
    """What timed it, and in which dtype."""
    return ", ".join(word for word in (record.basis["machine"], record.provenance.dtype) if word)


GUIDELINES = (
    "fill the linear layers",
    "fill one attention tile",
    "fill whole attention tiles",
    "raise D while it pays",
    "weigh AL against drafting",
)


def guideline_lines(guidelines: Sequence[Guideline]) -> list[str]:
    """A line each; the shares of a pass, which all reasons end with, once and last."""
    tails = {guideline.reason.rpartition("; ")[2] for guideline in guidelines}
    if len(tails) != 1:
        return [guideline_words(guideline, guideline.reason) for guideline in guidelines]
    lines = [guideline_words(guideline, guideline.reason.rpartition("; ")[0]) for guideline in guidelines]
    return [*lines, *tails]


def guideline_words(guideline: Guideline, reason: str) -> str:
    """One guideline in a line: what it says, what is best, what following it costs, why."""
    value = "" if guideline.value is None else f" -> {guideline.value}"
    best = (
        ""
        if guideline.optimum is None or guideline.loss is None
        else f" (best {guideline.optimum}, loss {guideline.loss:.0%})"
    )
    applies = "applies" if guideline.applies else "does not apply"
    return f"guideline {guideline.id} ({GUIDELINES[guideline.id - 1]}) {applies}{value}{best}: {reason}"


def print_frontier(record: FrontierRecord) -> None:
    """The undominated ways to run, and those of plain decoding."""
    for S in sorted({point.S for point in record.points}):
        table = Table(title=f"S = {S}", title_justify="left", box=None, pad_edge=False)
        for name in ("B", "drafter", "D", "AL", "tokens/s/user", "tokens/s", "frontier"):
            table.add_column(name, justify="left" if name in ("drafter", "frontier") else "right")
        shown = [p for p in record.points if S == p.S and (p.frontier or p.plain_frontier)]
        for p in sorted(shown, key=lambda p: (-p.tokens_per_s_user, -p.tokens_per_s)):
            table.add_row(
                str(p.B),
                escape(p.drafter or "off"),
                str(p.D),
                f"{p.AL:.2f}",
                f"{p.tokens_per_s_user:.4g}",
                f"{p.tokens_per_s:.4g}",
                "yes" if p.frontier else "of plain decoding only",
            )
        console.print(table)


def speedup_table(point: DecisionPoint) -> Table:
    """Every candidate, by drafter and D."""
    table = Table(box=None, pad_edge=False)
    for name in ("drafter", "D", "AL", "95 %", "tokens/pass", "break-even AL", "T_step", "speed-up", "95 % "):
        table.add_column(name, justify="left" if name == "drafter" else "right")
    order = {name: i for i, name in enumerate(dict.fromkeys(c.drafter for c in point.candidates))}
    for c in sorted(point.candidates, key=lambda c: (order[c.drafter], c.D)):
        mark = "bold green" if c == point.best else ("red" if c.speedup < 1 else "")
        table.add_row(
            escape(c.drafter),
            str(c.D),
            f"{c.AL:.2f}",
            interval(c.AL_ci95),
            f"{c.x:.2f}",
            f"{c.break_even_AL:.2f}",
            milliseconds(c.t_step_s),
            f"{c.speedup:.2f}",
            interval(c.speedup_ci95),
            style=mark,
        )
    return table


def print_confirmation(record: DecisionRecord) -> None:
    """Measured beside predicted."""
    c = record.confirmation
    if c is None:
        if record.points:
            console.print("\nNot confirmed by generating: that needs AL and step times measured here, at B = 1.")
        return
    console.print(
        f"\nConfirmed by generating {c.num_pairs} answers with {c.drafter} at D = {c.D} and plain, in turn: measured "
        f"[bold]{c.measured:.2f}[/bold] times ({interval(c.measured_ci95)}), predicted for these prompts "
        f"{c.predicted:.2f} ({c.signed_error:+.0%}); "
        f"{c.plain_tokens_per_s:.1f} -> {c.drafted_tokens_per_s:.1f} tokens/s; "
        f"{c.identical_outputs} of {c.num_outputs} answers identical token for token"
    )
