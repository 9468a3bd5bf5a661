"""What to do now, and what to mind before relying on the verdict, in plain words."""

from codraft.core.constants import LEAST_GAIN
from codraft.core.schema import AcceptanceRecord, Candidate, Confirmation, ScheduleEntry
from codraft.report.blocks import Num, Prose
from codraft.report.study import Book, field
from codraft.report.verdict import front, schedule_source
from codraft.report.words import count, listing, load, percent, plural, ratio, seconds


def advice(book: Book) -> list[Prose]:
    """What to do now."""
    drafting = {}
    for i, entry in enumerate(book.study.decision.schedule):
        if entry.drafter is not None:
            drafting[entry.drafter, entry.D] = flags(i, entry)
    lines: list[Prose] = list(drafting.values())
    if lines:
        lines.append(["Step times of another engine are others: measure there before you rely on this."])
    off = [i for i, point in enumerate(book.points) if point.best is None]
    if off:
        loads = listing([f"B = {book.points[i].B}, S = {book.points[i].S}" for i in off])
        lines += [[f"At {loads}: run plain decoding (leave speculative decoding unset)."], *nearest_miss(book, off[0])]
    if book.points:
        largest = max(point.B for point in book.points)
        lines.append([f"Nothing was measured above B = {largest}; there the answer may be another."])
    return lines


def flags(i: int, entry: ScheduleEntry) -> Prose:
    """A line of the schedule in the words of serving engines."""
    D = schedule_source(i, "D")
    return [
        f"Up to B = {entry.max_batch}, {entry.drafter} with ",
        Num(f"D = {entry.D}", D),
        ": num_speculative_tokens = ",
        Num(str(entry.D), D),
        " (vLLM), max_draft_len = ",
        Num(str(entry.D), D),
        " (TensorRT-LLM), num_draft_tokens = ",
        Num(str(entry.D + 1), D),
        " (SGLang, which counts the anchor too).",
    ]


def nearest_miss(book: Book, i: int) -> list[Prose]:
    """Where it is off: what is missing, and where the time goes."""
    point = book.points[i]
    c = front(point)
    if c is None or "t_step_s" not in point.plain:
        return []
    words: list[str | Num] = [
        f"At B = {point.B} {c.drafter} with D = {c.D} comes closest: AL ",
        Num(ratio(c.AL), book.candidate_source(i, c, "AL")),
        " where ",
        Num(ratio(c.break_even_AL), book.candidate_source(i, c, "break_even_AL")),
        " tokens per step would break even. ",
    ]
    grown = c.t_step_s - point.plain["t_step_s"]
    if c.t_draft_s is not None and c.t_draft_s > 0.5 * grown > 0:
        share = Num(seconds(c.t_draft_s), book.candidate_source(i, c, "t_draft_s"))
        words += ["Most of the extra time is drafting (", share, " a step): a lighter drafter would change this."]
    elif grown > 0 and c.t_draft_s is not None:
        words += ["Most of the extra time is verification, which is no longer free at this load."]
    return [words, *better_categories(book, c)]


def better_categories(book: Book, c: Candidate) -> list[Prose]:
    """Categories whose own AL passes the break-even of the nearest miss."""
    record, i = book.study.acceptance, book.results.get(c.drafter)
    if record is None or i is None:
        return []
    words: list[str | Num] = []
    for name, domain in record.results[i].domains.items():
        for k, point in enumerate(domain.curve):
            if point.D == c.D and LEAST_GAIN * c.break_even_AL < point.AL:
                where = field(
                    "acceptance", f"results[{i}].domains[{name!r}].curve[{k}].AL", f"{count(point.steps)} steps"
                )
                words += [", " if words else "", f"{name} (AL ", Num(ratio(point.AL), where), ")"]
    if not words:
        return []
    return [
        ["Some traffic may gain all the same, since its AL is above that break-even: ", *words, ". Measure it apart."]
    ]


def warnings(book: Book) -> list[Prose]:
    """What to mind before relying on the verdict, in plain words: doubts about it first, then each load's own."""
    decision = book.study.decision
    notes: list[Prose] = [
        [f"{name}: ", Num(note, field("decision", f"basis.{name}"))]
        for name, note in decision.basis.items()
        if name not in ("engine", "machine") and note != decision.provenance.dtype
    ]
    return [
        *confirmation_doubts(decision.confirmation),
        *doubts(book),
        *gaps(book.study.acceptance),
        *notes,
        *warnings_by_load(book),
    ]


def warnings_by_load(book: Book) -> list[Prose]:
    """The record's own warnings, those of a load together; loads with the same ones are named together."""
    loads: dict[tuple[str, ...], list[int]] = {}
    for i, point in enumerate(book.points):
        if point.warnings:
            loads.setdefault(tuple(point.warnings), []).append(i)
    lines: list[Prose] = []
    for texts, at in loads.items():
        words: list[str | Num] = [f"At {'; '.join(f'B = {book.points[i].B}, S = {book.points[i].S}' for i in at)}: "]
        for k, text in enumerate(texts):
            words += ["; " if k else "", Num(text, field("decision", f"points[{at[0]}].warnings[{k}]"))]
        lines.append([*words, "."])
    return lines


def doubts(book: Book) -> list[Prose]:
    """Choices whose interval reaches below 1, and missing records."""
    lines: list[Prose] = []
    for i, point in enumerate(book.points):
        c = point.best
        if c and c.speedup_ci95 and c.speedup_ci95[0] < 1 and not any("interval" in text for text in point.warnings):
            low = Num(ratio(c.speedup_ci95[0]), book.candidate_source(i, c, "speedup_ci95"))
            lines.append(
                [
                    f"At {load(point.B, point.S)} the interval of the gain reaches down to ",
                    low,
                    " times: measure more prompts before you rely on it.",
                ]
            )
    missing = [
        name for name, found in (("acceptance", book.study.acceptance), ("timing", book.study.timing)) if not found
    ]
    if missing:
        lines.append(
            [f"This folder holds no {' and no '.join(missing)} record; the page shows what the decision kept."]
        )
    return lines


def confirmation_doubts(c: Confirmation | None) -> list[Prose]:
    """No proof, a wrong prediction, or texts that differ."""
    if c is None:
        return [["The gain is predicted. It was not confirmed by generating."]]
    lines: list[Prose] = []
    if abs(c.signed_error) > 0.1:
        error = Num(percent(abs(c.signed_error)), field("decision", "confirmation.signed_error"))
        side = "above" if c.signed_error > 0 else "below"
        lines.append(["The prediction lies ", error, f" {side} what generating measured; trust the measurement."])
    if c.measured < 1 <= c.predicted:
        lines.append(["Generating was slower with drafting than without, although the prediction says otherwise."])
    if c.identical_outputs < c.num_outputs:
        same = Num(f"{c.identical_outputs} of {c.num_outputs}", field("decision", "confirmation.identical_outputs"))
        lines.append(
            [
                "Only ",
                same,
                " answers were identical with and without drafting. Drawn drafts (draft=sample) keep the distribution, "
                "not the text; otherwise a near-tie fell the other way.",
            ]
        )
    return lines


def gaps(record: AcceptanceRecord | None) -> list[Prose]:
    """What the acceptance record left out or could not say."""
    if record is None:
        return []
    lines: list[Prose] = []
    prompts = record.prompts
    for name, why in (("skipped_long", "longer than the window"), ("skipped_short", "too short for one step")):
        number = getattr(prompts, name)
        if number:
            lines.append(
                ["Left out: ", Num(plural(number, "answer"), field("acceptance", f"prompts.{name}")), f" {why}."]
            )
    if prompts.num_conversations < 2:
        lines.append(["AL has no interval: that takes at least two conversations."])
    if prompts.written_by not in (None, record.target):
        writer = Num(str(prompts.written_by), field("acceptance", "prompts.written_by"))
        lines.append(
            ["These streams were written by ", writer, f": AL holds for {record.target} only if it is the same model."]
        )
    for i, result in enumerate(record.results):
        if result.basis == "drafted_steps":
            basis_of = Num(result.drafter.name, field("acceptance", f"results[{i}].basis"))
            lines.append(["AL of ", basis_of, " counts drafted steps only, so it may not enter a speed-up."])
    return lines
