"""The sections that are tables: schedule, confirmation, guidelines, mechanisms, all candidates."""

from collections.abc import Sequence

from codraft.core.schema import Candidate, Guideline, Mechanism
from codraft.report.blocks import Cell, Key, Num, Prose, Row, Section, Table, absent, cell, key, nothing, number
from codraft.report.study import Book, by_drafter, field
from codraft.report.verdict import Scale, measured_strip
from codraft.report.words import (
    figures,
    load,
    pair,
    percent,
    plural,
    rate,
    ratio,
    signed_percent,
    size,
    time_unit,
    times,
)

# What each guideline is about, in a few words; premise and reason are the record's.
GUIDELINES = {
    1: "Fill the linear layers",
    2: "Fill one attention tile",
    3: "Fill whole attention tiles",
    4: "Fast drafts at low latency",
    5: "Best mechanism by speed-up",
}

PARTS = (
    Key(text="T_verif, verification", colour="@part0", line="patch"),
    Key(text="T_draft, drafting", colour="@part2", line="patch"),
    Key(text="T_sys, the rest", colour="@part3", line="patch"),
)


def schedule_section(book: Book) -> Section:
    """What to run up to which number of sequences."""
    entries = book.study.decision.schedule
    points = {p.B: i for i, p in reversed(list(enumerate(book.points)))}
    rows = []
    for k, entry in enumerate(entries):
        at = f"schedule[{k}]"
        i = points.get(entry.max_batch)
        words = book.points[i].verdict if i is not None else ""
        gain = absent("none")
        if i is not None and (best := book.points[i].best) is not None:
            gain = number(times(best.speedup), book.candidate_source(i, best, "speedup"))
        choice = entry.drafter or "off (plain decoding)"
        rows.append(
            Row(
                cells=[
                    cell(f"up to B = {entry.max_batch}", field("decision", f"{at}.max_batch")),
                    cell(choice, field("decision", f"{at}.drafter"), "" if entry.drafter else "off"),
                    number(str(entry.D), field("decision", f"{at}.D")),
                    gain,
                    cell(words, field("decision", f"points[{i}].verdict")) if words else nothing("not stated"),
                ]
            )
        )
    heads = ["load (sequences)", "run", "D (tokens)", "speed-up (times)", "verdict of the record"]
    lead: list[Prose] = [["Each line holds for loads up to its B, from the line above on."]]
    contexts = sorted({p.S for p in book.points})
    if len(contexts) > 1:
        lead.append([f"It is made at S = {contexts[0]} tokens, the shortest context timed."])
    if not entries:
        return Section(id="schedule", title="What to run at each load", lead=[["No schedule was recorded."]])
    table = Table(caption="Schedule", heads=heads, rows=rows, stacked=True)
    return Section(id="schedule", title="What to run at each load", lead=lead, tables=[table])


def confirmation_section(book: Book, scale: Scale) -> Section:
    """Predicted against measured, with the error's sign."""
    c = book.study.decision.confirmation
    title = "Confirmation: predicted and measured"
    if c is None:
        words: list[Prose] = [["Nothing was generated to confirm this decision; every gain on this page is predicted."]]
        return Section(id="confirmation", title=title, lead=words)

    def at(name: str) -> str:
        return field("decision", f"confirmation.{name}", f"{plural(c.num_pairs, 'pair')} of answers")

    interval = (
        Num(f"95 % {pair(c.measured_ci95)}", at("measured_ci95")) if c.measured_ci95 else "no interval for one pair"
    )
    side = "too high" if c.signed_error > 0 else "too low" if c.signed_error < 0 else "right"
    lead: list[Prose] = [
        [
            Num(plural(c.num_pairs, "answer"), at("num_pairs")),
            f", generated with {c.drafter} at D = {c.D} tokens and without drafts in turn. Measured: ",
            Num(f"{ratio(c.measured)} times", at("measured")),
            " plain decoding (",
            interval,
            "). Predicted for these very prompts: ",
            Num(f"{ratio(c.predicted)} times", at("predicted")),
            f"; that is {side}, its signed error (predicted / measured - 1) is ",
            Num(signed_percent(c.signed_error), at("signed_error")),
            ". Speed went from ",
            Num(rate(c.plain_tokens_per_s), at("plain_tokens_per_s")),
            " to ",
            Num(rate(c.drafted_tokens_per_s), at("drafted_tokens_per_s")),
            "; ",
            Num(f"{c.identical_outputs} of {c.num_outputs}", at("identical_outputs")),
            " answers are identical token for token.",
        ]
    ]
    predicted = f"predicted: {ratio(c.predicted)} times plain decoding"
    strips = [scale.strip(predicted, c.predicted, None, at("predicted"), look="predicted"), measured_strip(scale, c)]
    return Section(id="confirmation", title=title, lead=lead, strips=strips)


def guidelines_section(book: Book) -> Section:
    """The five guidelines at each load."""
    folds = [
        Table(
            caption=f"Guidelines at {load(p.B, p.S)}",
            heads=["guideline", "premise", "applies", "its value", "exact optimum", "lost by following it", "reason"],
            rows=[guideline_row(i, k, g) for k, g in enumerate(p.guidelines)],
            stacked=True,
        )
        for i, p in enumerate(book.points)
        if p.guidelines
    ]
    lead: list[Prose] = [
        [
            "The co-design article's five guidelines [NVIDIA26], held against the exact choice at each load. A value "
            "of a guideline whose premise fails is what it would have said."
        ]
    ]
    if not folds:
        lead = [["No guideline was recorded."]]
    return Section(id="guidelines", title="The five guidelines", lead=lead, folds=folds)


def guideline_row(i: int, k: int, g: Guideline) -> Row:
    """One guideline at one load."""
    at = f"points[{i}].guidelines[{k}]"
    loss = (
        nothing("not stated")
        if g.loss is None
        else cell(f"{percent(g.loss, 1)} of speed", field("decision", f"{at}.loss"))
    )
    return Row(
        cells=[
            cell(f"{g.id}. {GUIDELINES.get(g.id, 'Guideline')}", field("decision", f"{at}.id")),
            cell(g.premise, field("decision", f"{at}.premise")),
            cell("yes" if g.applies else "no", field("decision", f"{at}.applies"), "yes" if g.applies else "no"),
            choice_cell(g.value, field("decision", f"{at}.value")),
            choice_cell(g.optimum, field("decision", f"{at}.optimum")),
            loss,
            cell(g.reason, field("decision", f"{at}.reason")),
        ],
        look="" if g.applies else "faint",
    )


def choice_cell(value: int | str | None, source: str) -> Cell:
    """A draft length or a drafter."""
    if value is None:
        return nothing("none")
    return cell(f"D = {value} tokens" if isinstance(value, int) else value, source)


def mechanisms_section(book: Book) -> Section:
    """What each way of drafting needs and costs, for this target."""
    found = book.study.decision.mechanisms
    title = "Ways of drafting, for this target"
    if not found:
        return Section(id="mechanisms", title=title, lead=[["No table of mechanisms was recorded."]])
    heads = ["mechanism", "measured here as", "inputs", "generation", "memory", "cost of drafting", "training", "fits"]
    table = Table(
        caption="Mechanisms", heads=heads, rows=[mechanism_row(k, m) for k, m in enumerate(found)], stacked=True
    )
    return Section(id="mechanisms", title=title, tables=[table])


def mechanism_row(k: int, m: Mechanism) -> Row:
    """One mechanism."""

    def at(name: str) -> str:
        return field("decision", f"mechanisms[{k}].{name}")

    memory: Prose = [Num(m.memory, at("memory"))]
    if m.memory_bytes is not None:
        memory = [Num(size(m.memory_bytes), at("memory_bytes")), ": ", *memory]
    measured = cell(", ".join(m.measured_as), at("measured_as")) if m.measured_as else nothing("not measured here")
    return Row(
        cells=[
            cell(m.mechanism, at("mechanism")),
            measured,
            cell(m.inputs, at("inputs")),
            cell(m.generation, at("generation")),
            Cell(body=memory),
            cell(m.cost, at("cost")),
            cell(m.training, at("training")),
            cell(m.fits, at("fits")),
        ]
    )


def candidates_section(book: Book) -> Section:
    """Every (drafter, D) at every load, with the parts of its step."""
    folds = [candidates_table(book, i) for i, point in enumerate(book.points) if point.candidates]
    lead: list[Prose] = [
        ["The bar under T_step shows what it is made of. Bold is the choice, grey is slower than plain decoding."]
    ]
    if not folds:
        lead = [["There was no candidate: no drafter was measured."]]
    return Section(id="candidates", title="All candidates", lead=lead, folds=folds, legend=PARTS if folds else ())


def candidates_table(book: Book, i: int) -> Table:
    """All candidates at one load, by drafter and D."""
    point = book.points[i]
    scale, unit = time_unit([min(c.t_step_s for c in point.candidates)])
    with_bytes = any(c.bytes is not None for c in point.candidates)
    heads = [
        "drafter",
        "D (tokens)",
        "speed-up (times)",
        "95 % interval",
        "AL (tokens per step)",
        "95 % interval",
        "break-even AL (tokens per step)",
        f"T_step ({unit})",
        f"T_verif ({unit})",
        f"T_draft ({unit})",
        f"T_sys ({unit})",
        "tokens in a pass",
        *(["memory"] if with_bytes else []),
    ]
    groups = by_drafter(book, point).values()
    rows = [candidate_row(book, i, c, scale, with_bytes, first=c == own[0]) for own in groups for c in own]
    return Table(caption=f"Candidates at {load(point.B, point.S)}", heads=heads, rows=rows)


def candidate_row(book: Book, i: int, c: Candidate, scale: float, with_bytes: bool, first: bool) -> Row:
    """One candidate."""

    def num(text: str, name: str) -> Cell:
        return number(text, book.candidate_source(i, c, name))

    def interval(value: tuple[float, float] | None, name: str) -> Cell:
        return num(pair(value), name) if value else absent("none")

    step = Cell(
        body=[Num(figures(c.t_step_s * scale), book.candidate_source(i, c, "t_step_s"))],
        look="num",
        parts=step_parts(c),
    )
    cells: Sequence[Cell] = [
        cell(c.drafter),
        key(c.D),
        num(ratio(c.speedup), "speedup"),
        interval(c.speedup_ci95, "speedup_ci95"),
        num(ratio(c.AL), "AL"),
        interval(c.AL_ci95, "AL_ci95"),
        num(ratio(c.break_even_AL), "break_even_AL"),
        step,
        *(
            absent("not given") if value is None else num(figures(value * scale), name)
            for name, value in (("t_verif_s", c.t_verif_s), ("t_draft_s", c.t_draft_s), ("t_sys_s", c.t_sys_s))
        ),
        num(figures(c.x), "x"),
    ]
    if with_bytes:
        cells = [*cells, absent("none") if c.bytes is None else num(size(c.bytes), "bytes")]
    look = "best" if c == book.points[i].best else "loss" if c.speedup < 1 else ""
    source = field("decision", f"points[{i}].candidates[{book.places[i][c.drafter, c.D]}]")
    return Row(cells=cells, look=f"{look} first".strip() if first else look, source=source)


def step_parts(c: Candidate) -> list[tuple[str, float]]:
    """Shares of a step in percent, for the bar behind it."""
    named = (("verif", c.t_verif_s), ("draft", c.t_draft_s), ("sys", c.t_sys_s))
    parts = [(name, value) for name, value in named if value is not None]
    whole = sum(value for _, value in parts)
    return [(name, round(100 * max(0.0, value) / whole, 1)) for name, value in parts] if whole > 0 else []
