"""Records to one page. The order of its parts is in `sections`; how each part looks is in `templates/`."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from codraft.core.files import atomic_write
from codraft.report.advice import advice, warnings
from codraft.report.blocks import Choice, Figure, Num, Prose, Section
from codraft.report.figures.acceptance import acceptance_figure
from codraft.report.figures.attention import attention_figure, shares_figure
from codraft.report.figures.breakeven import breakeven_figure
from codraft.report.figures.frontier import frontier_figure
from codraft.report.figures.gemm import gemm_figure
from codraft.report.figures.heat import heat_figure
from codraft.report.sources import asked_section, provenance_section
from codraft.report.study import Book, Study
from codraft.report.tables import (
    candidates_section,
    confirmation_section,
    guidelines_section,
    mechanisms_section,
    schedule_section,
)
from codraft.report.verdict import Scale, basis, cards, headline, summary
from codraft.report.words import NBSP

# In JSON within a script element: what could end the element, open a comment, or break a line of an old parser.
UNSAFE = "<>&\u2028\u2029"
TIES = re.compile(r"\b[BDSMG] = (?=\d)|\d (?:%|times\b)")
# Each part in a word or two, for the list at the top.
NAMES = {
    "schedule": "Schedule",
    "confirmation": "Confirmation",
    "frontier": "Frontier",
    "acceptance": "AL against D",
    "breakeven": "Break-even",
    "heat": "Speed-up map",
    "machine": "Machine",
    "guidelines": "Guidelines",
    "mechanisms": "Mechanisms",
    "candidates": "All candidates",
    "provenance": "Provenance",
    "asked": "What was asked",
}


def render(study: Study) -> str:
    """The whole page. Equal records give equal bytes."""
    book = Book(study)
    scale = Scale(book)
    parts = sections(book, scale)
    environment = Environment(
        loader=PackageLoader("codraft.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["variable"] = variable
    environment.filters["tie"] = tie
    environment.globals["grouped"] = grouped
    page = environment.get_template("page.html").render(
        target=study.target,
        plain_title=plain(headline(book)),
        headline=headline(book),
        summary=summary(book),
        basis=basis(book),
        cards=cards(book, scale),
        confirmed=study.decision.confirmation is not None,
        scale=scale,
        advice=advice(book),
        warnings=warnings(book),
        sections=parts,
        names=NAMES,
        figures=script_json({figure.id: figure_json(figure) for part in parts for figure in part.figures}),
        style=asset(environment, "report.css"),
        script=asset(environment, "report.js"),
        plotly=plotly_bundle() if any(part.figures for part in parts) else "",
    )
    # A record may hold half a surrogate pair, which no UTF-8 file can take.
    return page.encode("utf-8", "replace").decode("utf-8")


def write_report(study: Study, path: Path) -> None:
    """Write the page, whole or not at all."""
    page = render(study)
    with atomic_write(path) as handle:
        handle.write(page)


def sections(book: Book, scale: Scale) -> list[Section]:
    """All parts below the verdict, in reading order; what was not measured is a sentence."""
    return [
        schedule_section(book),
        confirmation_section(book, scale),
        drawn("frontier", "Throughput against interactivity", [frontier_figure(book)], "No frontier was recorded."),
        drawn(
            "acceptance",
            "Tokens per step (AL) against draft length (D)",
            [acceptance_figure(book)],
            "No acceptance curve was recorded; the AL that the decision used is in the table of all candidates.",
        ),
        drawn("breakeven", "Where drafting pays", [breakeven_figure(book)], "No candidate was decided on."),
        drawn("heat", "Speed-up over load and draft length", [heat_figure(book)], "No candidate was decided on."),
        drawn(
            "machine",
            "What the machine does with wider passes",
            [gemm_figure(book), attention_figure(book), shares_figure(book)],
            "Linear layers, attention and the shares of a pass were not timed in this study.",
        ),
        guidelines_section(book),
        mechanisms_section(book),
        candidates_section(book),
        provenance_section(book),
        asked_section(book),
    ]


def drawn(id: str, title: str, figures: Sequence[Figure | None], otherwise: str) -> Section:
    """A part made of figures, or the sentence that says why there is none."""
    found = [figure for figure in figures if figure is not None]
    return Section(id=id, title=title, lead=[] if found else [[otherwise]], figures=found)


def figure_json(figure: Figure) -> dict[str, Any]:
    """What the script needs of a figure."""
    return {
        "panels": [{"id": panel.id, "variants": list(panel.variants)} for panel in figure.panels],
        "notes": [choice.note for choice in figure.choices],
    }


def grouped(choices: Sequence[Choice]) -> list[tuple[str, list[tuple[int, Choice]]]]:
    """Choices with their index, neighbours of one group together."""
    groups: list[tuple[str, list[tuple[int, Choice]]]] = []
    for index, choice in enumerate(choices):
        if not groups or groups[-1][0] != choice.group:
            groups.append((choice.group, []))
        groups[-1][1].append((index, choice))
    return groups


def plain(prose: Prose) -> str:
    """Prose without its sources."""
    return "".join(part.text if isinstance(part, Num) else part for part in prose)


def tie(text: str) -> str:
    """Keeps `D = 5` and `95 %` on one line."""
    return TIES.sub(lambda found: found[0].replace(" ", NBSP), text)


def variable(colour: str) -> str:
    """`@name` as the stylesheet's variable."""
    return f"var(--{colour.removeprefix('@')})"


def script_json(data: Any) -> Markup:
    """JSON that is inert inside a script element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for char in UNSAFE:
        text = text.replace(char, f"\\u{ord(char):04x}")
    return Markup(text)


def asset(environment: Environment, name: str) -> Markup:
    """A stylesheet or script of the package, as it is."""
    if environment.loader is None:
        raise ValueError("the environment has no loader")
    return Markup(environment.loader.get_source(environment, name)[0])


def plotly_bundle() -> Markup:
    """Plotly's script, which the package carries: the page asks no network for it."""
    # Importing plotly takes longer than the rest of the page.
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    return Markup(get_plotlyjs().replace("</script", "<\\/script"))
