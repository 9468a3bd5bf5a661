"""Rows of a token file on the screen, which is stdout here: the text is what was asked for."""

import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rich.text import Text

from codraft.cli.ui import Screen

if TYPE_CHECKING:  # numpy and torch come with them
    from codraft.train.data.rows import Finding
    from codraft.train.tokens import Row, TokenFile

OPEN, CLOSE = "[[", "]]"
STYLES = {
    ("prompt", False): "dim",
    ("prompt", True): "cyan dim",
    ("answer", False): "bold green",
    ("answer", True): "black on green",
}
# What would move the cursor or colour the screen; line ends and tabs stay.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
LONGEST_SHOWN = 100


def screen() -> Screen:
    """stdout: not folded where it is no terminal."""
    piped = not sys.stdout.isatty()
    return Screen(highlight=False, emoji=False, markup=False, soft_wrap=True, width=200 if piped else None)


def harmless(text: str) -> str:
    """Control characters as their codes."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class MaskView:
    """Shows rows with one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        from codraft.train.data.selfwrite import special_ids

        self.tokenizer = tokenizer
        self.special = special_ids(tokenizer)
        self.screen = screen()
        self.coloured = self.screen.color_system is not None and self.screen.is_terminal

    def header(self, tokens: "TokenFile") -> None:
        """What the file holds."""
        origin, supervised = tokens.origin, tokens.num_supervised
        share = supervised / tokens.num_tokens if tokens.num_tokens else 0.0
        self.screen.print(
            f"{tokens.path}: {len(tokens)} rows, {tokens.num_tokens} tokens, {supervised} ({share:.0%}) supervised; "
            f"target {origin.target}, template {origin.template}"
        )
        counts = tokens.rows_by_category()
        self.screen.print("categories: " + ", ".join(f"{name or 'none'} {number}" for name, number in counts.items()))
        if self.coloured:
            legend = Text("legend: ")
            for word, style in (("prompt", ("prompt", False)), ("supervised", ("answer", False))):
                legend.append(word, STYLES[style]).append(" ")
            self.screen.print(legend.append("special", STYLES["prompt", True]))
        else:
            self.screen.print(f"legend: {OPEN}supervised{CLOSE}")

    def row(self, number: int, row: "Row") -> None:
        """One row, its mask on its text."""
        told = f"category {row.category}" if row.category else "no category"
        self.screen.print(f"\n--- row {number}: {len(row.ids)} tokens, {int(row.mask.sum())} supervised, {told}")
        text = Text()
        for part, special, answer in self.pieces(row):
            text.append(harmless(part), STYLES["answer" if answer else "prompt", special] if self.coloured else None)
        self.screen.print(text)

    def pieces(self, row: "Row") -> Iterator[tuple[str, bool, bool]]:
        """(text, special token?, supervised?) in order; brackets included where there is no colour.

        Runs are decoded whole: a character may be spread over several tokens.
        """
        bounds = [0, *(edge for span in row.spans() for edge in span), len(row.ids)]
        for place, (first, last) in enumerate(pairwise(bounds)):
            answer = place % 2 == 1
            if first == last:
                continue
            if answer and not self.coloured:
                yield OPEN, False, True
            for ids, special in self.runs(row.ids[first:last].tolist()):
                yield self.tokenizer.decode(ids, skip_special_tokens=False), special, answer
            if answer and not self.coloured:
                yield CLOSE, False, True

    def runs(self, ids: Sequence[int]) -> Iterator[tuple[list[int], bool]]:
        """Special tokens one by one, the others in runs."""
        run: list[int] = []
        for token in ids:
            if token in self.special:
                if run:
                    yield run, False
                yield [token], True
                run = []
            else:
                run.append(token)
        if run:
            yield run, False


def print_findings(every: Sequence["Finding"], shown: Sequence["Finding"]) -> None:
    """A line for each row shown; the counts of all; what the words mean."""
    from codraft.train.data.rows import DROPS, REPAIRS, count

    out = screen()
    for finding in shown:
        out.print(line_of(finding))
    info = count(every)
    out.print(f"\n{info.rows} rows = {info.kept} kept + {sum(info.dropped.values())} dropped")
    for what, counts, meanings in (("dropped", info.dropped, DROPS), ("mended", info.repaired, REPAIRS)):
        for name, number in counts.items():
            out.print(f"  {number} {what}: {name} ({meanings[name]})")


def line_of(finding: "Finding") -> Text:
    """Where it is, what became of it, how its first user message begins."""
    if finding.conversation is None:
        return Text.assemble(f"{finding.where}: ", (f"dropped, {finding.reason}", "red"))
    asked = next(m["content"] for m in finding.conversation.opening if m["role"] == "user")
    begins = harmless(" ".join(asked[: 2 * LONGEST_SHOWN].split()))[:LONGEST_SHOWN]
    how = ("kept, " + ", ".join(finding.repairs), "yellow") if finding.repairs else ("kept", "green")
    turns = finding.conversation.num_turns
    return Text.assemble(f"{finding.where}: ", how, f" ({turns} turn{'s' if turns > 1 else ''}) ", (begins, "dim"))
