"""The top of the page: what to run, what it gains, what that rests on, and what to mind."""

from math import log

from codraft.core.schema import AcceptanceRecord, Candidate, Confirmation, DecisionPoint, ScheduleEntry
from codraft.report.blocks import Card, Fact, Num, Prose, Strip
from codraft.report.study import Book, ci_text, field
from codraft.report.words import listing, load, pair, plural, rate, ratio, seconds, times


class Scale:
    """One logarithmic scale of speed-ups for all strips of a page, with 1 (plain decoding) inside it."""

    def __init__(self, book: Book) -> None:
        values = [1.0]
        for point in book.points:
            c = front(point)
            values += [c.speedup, *(c.speedup_ci95 or ())] if c else []
        confirmed = book.study.decision.confirmation
        if confirmed:
            values += [confirmed.predicted, confirmed.measured, *(confirmed.measured_ci95 or ())]
        self.low, self.high = min(0.8, 0.94 * min(values)), max(1.25, 1.06 * max(values))

    def at(self, speedup: float) -> float:
        """Place on the strip, in percent of its width."""
        return round(100 * log(speedup / self.low) / log(self.high / self.low), 2)

    def strip(
        self, label: str, speedup: float, interval: tuple[float, float] | None, source: str, look: str = ""
    ) -> Strip:
        """A dot and its interval."""
        band = None if interval is None else (self.at(interval[0]), self.at(interval[1]))
        return Strip(label=label, dot=self.at(speedup), band=band, source=source, look=look)


def headline(book: Book) -> Prose:
    """The choice in one sentence."""
    entries = book.study.decision.schedule
    if not entries:
        return ["No load was decided"]
    choices = list(dict.fromkeys((entry.drafter, entry.D) for entry in entries))
    if choices == [(None, 0)]:
        loads = listing([f"B = {point.B}" for point in smallest_context(book)])
        return ["Leave speculative decoding off: no drafter pays at ", loads or "any load"]
    if len(entries) == 1:
        return ["Run ", *ran(0, entries[0]), *gain_words(book, entries[0])]
    words: list[str | Num] = []
    for i, entry in enumerate(entries):
        words += ["Up to " if i == 0 else "; up to ", Num(f"B = {entry.max_batch}", schedule_source(i, "max_batch"))]
        if entry.drafter is None:
            words += [" leave drafting off"]
        else:
            words += [" run ", *ran(i, entry), *gain_at(book, entry)]
    return words


def ran(i: int, entry: ScheduleEntry) -> Prose:
    """A drafter and its D, as the schedule has them."""
    return [
        Num(f"{entry.drafter}", schedule_source(i, "drafter")),
        " with ",
        Num(f"D = {entry.D}", schedule_source(i, "D")),
    ]


def gain_at(book: Book, entry: ScheduleEntry) -> Prose:
    """The gain of a schedule's line at the load it ends with."""
    for i, point in enumerate(book.points):
        if entry.max_batch == point.B and point.best and point.best.drafter == entry.drafter:
            return [
                " (",
                Num(f"{ratio(point.best.speedup)} times", book.candidate_source(i, point.best, "speedup")),
                ")",
            ]
    return []


def schedule_source(i: int, name: str) -> str:
    """Where the schedule says so."""
    return field("decision", f"schedule[{i}].{name}")


def smallest_context(book: Book) -> list[DecisionPoint]:
    """The loads that the schedule is about: those at the smallest S."""
    smallest = min((point.S for point in book.points), default=0)
    return [point for point in book.points if smallest == point.S]


def gain_words(book: Book, entry: ScheduleEntry) -> Prose:
    """The gain of the one choice there is, over the loads it holds for."""
    gains = [p.best.speedup for p in smallest_context(book) if p.best and p.best.drafter == entry.drafter]
    if not gains:
        return []
    source = field("decision", "points[].best.speedup")
    low, high = min(gains), max(gains)
    if ratio(low) == ratio(high):
        return [": ", Num(f"{ratio(high)} times", source), " as fast as plain decoding"]
    return [": ", Num(f"{ratio(low)} to {ratio(high)} times", source), " as fast as plain decoding"]


def summary(book: Book) -> list[Prose]:
    """The facts behind the headline: gain, AL, break-even, proof, and what they rest on."""
    first = next((i for i, p in enumerate(book.points) if p.best), 0)
    words: list[str | Num] = [*facts_at(book, first), " "] if book.points else []
    decision = book.study.decision
    dtype = decision.provenance.dtype
    words += [
        "Step times: ",
        Num(decision.basis.get("engine", "engine not recorded"), field("decision", "basis.engine")),
        ", ",
        Num(decision.basis.get("machine", "machine not recorded"), field("decision", "basis.machine")),
        *([", ", Num(dtype, field("decision", "provenance.dtype"))] if dtype else [", dtype not recorded"]),
        ".",
    ]
    return [words]


def facts_at(book: Book, i: int) -> Prose:
    """Gain, AL and break-even at one load, of the choice or of the nearest miss, and what generating measured."""
    point = book.points[i]
    c = front(point)
    if c is None:
        return ["No candidate was measured."]
    who = "" if point.best else f" the closest is {c.drafter} with D = {c.D}:"
    interval = f" (95 % {pair(c.AL_ci95)})" if c.AL_ci95 else ""
    words: list[str | Num] = [
        f"At B = {point.B}{who} a step yields AL ",
        Num(ratio(c.AL), book.candidate_source(i, c, "AL")),
        f" tokens{interval} where ",
        Num(ratio(c.break_even_AL), book.candidate_source(i, c, "break_even_AL")),
        " would break even: predicted ",
        Num(f"{ratio(c.speedup)} times", book.candidate_source(i, c, "speedup")),
        f" plain decoding ({ci_text(c.speedup_ci95)})",
    ]
    measured = confirmed_at(book, i)
    if measured:
        # The proof runs on some of the answers only, so its own prediction must stand beside it.
        words += [
            f". {measured.num_pairs} of these answers, generated both ways: measured ",
            Num(f"{ratio(measured.measured)} times", field("decision", "confirmation.measured")),
            f" ({ci_text(measured.measured_ci95)}), predicted for them ",
            Num(f"{ratio(measured.predicted)} times", field("decision", "confirmation.predicted")),
        ]
    return [*words, "."]


def front(point: DecisionPoint) -> Candidate | None:
    """The choice at a load; where it is off, the nearest miss."""
    return point.best or max(point.candidates, key=lambda c: c.speedup, default=None)


def confirmed_at(book: Book, i: int) -> Confirmation | None:
    """The confirmation, at the load that it is about: the first with B = 1, and its front-runner."""
    c, confirmed = front(book.points[i]), book.study.decision.confirmation
    same = c is not None and confirmed is not None and (confirmed.drafter, confirmed.D) == (c.drafter, c.D)
    alone = next((k for k, point in enumerate(book.points) if point.B == 1), None)
    return confirmed if same and i == alone else None


def basis(book: Book) -> list[Prose]:
    """How the numbers come about, and on which text."""
    formula = "Speed-up is tokens per second over plain decoding of the same load: AL(D) T_step(0) / T_step(D). "
    return [[formula, *acceptance_words(book.study.acceptance)]]


def acceptance_words(record: AcceptanceRecord | None) -> Prose:
    """Which acceptance, on how much text."""
    if record is None:
        return ["There is no acceptance record beside this decision: AL is as the decision took it in."]
    prompts = record.prompts
    sampling = (
        "greedy" if record.sampling.get("temperature") == 0 else f"temperature {record.sampling.get('temperature')}"
    )
    return [
        "AL: ",
        Num(record.mode, field("acceptance", "mode")),
        " on ",
        Num(plural(prompts.num_prompts, "answer"), field("acceptance", "prompts.num_prompts")),
        " of ",
        Num(plural(prompts.num_conversations, "conversation"), field("acceptance", "prompts.num_conversations")),
        " (",
        Num(prompts.name, field("acceptance", "prompts.name")),
        "), ",
        Num(plural(record.stream_tokens, "token"), field("acceptance", "stream_tokens")),
        ", ",
        Num(sampling, field("acceptance", "sampling")),
        ".",
    ]


def cards(book: Book, scale: Scale) -> list[Card]:
    """One card for each load."""
    return [card(book, i, scale) for i in range(len(book.points))]


def card(book: Book, i: int, scale: Scale) -> Card:
    """The choice at one load; where it is off, the nearest miss."""
    point = book.points[i]
    c = front(point)
    title = load(point.B, point.S)
    verdict_source = field("decision", f"points[{i}].best", point.verdict)
    facts = [Fact(name="plain decoding", body=plain_words(book, i))]
    if c is None:
        return Card(
            title=title,
            choice=[Num("off", verdict_source)],
            off=True,
            gain=["No candidate was measured here."],
            strips=[],
            facts=facts,
        )
    source = book.candidate_source(i, c, "speedup")
    interval = f" (95 % {pair(c.speedup_ci95)})" if c.speedup_ci95 else " (no interval)"
    label = f"{c.drafter} with D = {c.D}: {ratio(c.speedup)} times plain decoding{interval}"
    strips = [scale.strip(label, c.speedup, c.speedup_ci95, source, look="predicted")]
    measured = confirmed_at(book, i)
    if measured:
        strips.append(measured_strip(scale, measured))
    if point.best is None:
        gain: Prose = [
            "Closest: ",
            Num(f"{c.drafter}, D = {c.D}", source),
            ", ",
            Num(times(c.speedup), source),
            interval,
        ]
        choice: Prose = [Num("off", verdict_source)]
    else:
        gain = [Num(times(c.speedup), source), f" plain decoding, predicted{interval}"]
        choice = [Num(c.drafter, verdict_source), ", ", Num(f"D = {c.D}", verdict_source)]
    facts = [*candidate_facts(book, i, c), *facts]
    colour = book.colour(c.drafter) if point.best else ""
    return Card(
        title=title, choice=choice, off=point.best is None, gain=gain, strips=strips, facts=facts, colour=colour
    )


def plain_words(book: Book, i: int) -> Prose:
    """Speed and step time without drafting."""
    point = book.points[i]
    behind = book.samples_behind(point.B, point.S, 0)
    words: list[str | Num] = []
    if "tokens_per_s" in point.plain:
        words += [Num(rate(point.plain["tokens_per_s"]), field("decision", f"points[{i}].plain.tokens_per_s", behind))]
    if "t_step_s" in point.plain:
        step = Num(
            f"{seconds(point.plain['t_step_s'])} a step", field("decision", f"points[{i}].plain.t_step_s", behind)
        )
        words += [", ", step] if words else [step]
    return words or ["not recorded"]


def candidate_facts(book: Book, i: int, c: Candidate) -> list[Fact]:
    """AL against break-even, and the rate that follows."""
    point = book.points[i]
    interval = f" (95 % {pair(c.AL_ci95)})" if c.AL_ci95 else " (no interval)"
    facts = [
        Fact(name="AL", body=[Num(ratio(c.AL), book.candidate_source(i, c, "AL")), f" tokens per step{interval}"]),
        Fact(
            name="break-even AL",
            body=[Num(ratio(c.break_even_AL), book.candidate_source(i, c, "break_even_AL")), " tokens per step"],
        ),
    ]
    if "tokens_per_s" in point.plain:
        source = book.candidate_field(i, c, "speedup", f"times points[{i}].plain.tokens_per_s")
        facts.append(Fact(name="with drafting", body=[Num(rate(point.plain["tokens_per_s"] * c.speedup), source)]))
    return facts


def measured_strip(scale: Scale, c: Confirmation) -> Strip:
    """The confirmation's gain."""
    source = field("decision", "confirmation.measured", f"{plural(c.num_pairs, 'pair')} of answers")
    interval = f" (95 % {pair(c.measured_ci95)})" if c.measured_ci95 else " (no interval)"
    label = f"measured by generating: {ratio(c.measured)} times plain decoding{interval}"
    return scale.strip(label, c.measured, c.measured_ci95, source, look="measured")
