"""From a decision to launch files for vLLM, SGLang and TensorRT-LLM: pure functions, one table of rules per engine.

What an engine cannot run as measured is said in the file and left out of the command; nothing is emitted in silence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo, ScheduleEntry
from codraft.engines import sglang, trtllm, vllm
from codraft.engines.plan import Drafting, Model, Plan, Rules, at, choice, loads, model_of, narrow
from codraft.engines.shell import comments, one_line, refusal

RELATIVE = "where a model is a relative folder, start this from the folder that codraft ran in"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFile:
    """A file for the study's launch folder."""

    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine: its name for people, its name in records, and what its module offers."""

    title: str
    key: str
    rules: Rules
    files: Callable[[Plan, Model], dict[str, str]]
    extra_notes: Callable[[Plan, Model], tuple[str, ...]]


ENGINES = (
    Engine(title="vLLM", key="vllm", rules=vllm.RULES, files=vllm.files, extra_notes=vllm.extra_notes),
    Engine(title="SGLang", key="sglang", rules=sglang.RULES, files=sglang.files, extra_notes=sglang.extra_notes),
    Engine(title="TensorRT-LLM", key="trtllm", rules=trtllm.RULES, files=trtllm.files, extra_notes=trtllm.extra_notes),
)


def launch_files(
    target: str, schedule: Sequence[ScheduleEntry], drafters: Sequence[DrafterInfo], *, basis: Mapping[str, str]
) -> list[LaunchFile]:
    """The files of every engine, the same for the same decision; `basis` says what timed it (engine, machine)."""
    by_name = {drafter.name: drafter for drafter in drafters}
    check(schedule, by_name, basis)
    model = model_of(target, "target")
    return [file for engine in ENGINES for file in engine_files(engine, target, model, schedule, by_name, basis)]


def check(schedule: Sequence[ScheduleEntry], drafters: Mapping[str, DrafterInfo], basis: Mapping[str, str]) -> None:
    """Refuse what no decision record can hold."""
    if missing := [key for key in ("engine", "machine") if not one_line(basis.get(key, ""))]:
        raise SpecError(f"basis has no {' and no '.join(missing)}; a launch file must say what was timed, and where")
    if not schedule:
        raise SpecError("the schedule is empty; a decision has one entry at least")
    before = 0
    for entry in schedule:
        if entry.max_batch <= before:
            raise SpecError(f"schedule: max_batch must rise from 1; {entry.max_batch} follows {before}")
        if entry.drafter is not None and entry.drafter not in drafters:
            raise SpecError(f"schedule: no drafter is named '{entry.drafter}'; known: {', '.join(sorted(drafters))}")
        if (entry.drafter is None) != (entry.D == 0) or entry.D < 0:
            raise SpecError(f"schedule: drafter {entry.drafter} with D = {entry.D}; off has D = 0, a drafter D >= 1")
        before = entry.max_batch


def engine_files(
    engine: Engine,
    target: str,
    model: Model | str,
    schedule: Sequence[ScheduleEntry],
    drafters: Mapping[str, DrafterInfo],
    basis: Mapping[str, str],
) -> list[LaunchFile]:
    """One engine's files; a target that cannot be served gives scripts that say so."""
    if isinstance(model, str):
        plan = Plan(drafting=None, notes=())
        bodies = engine.files(plan, Model(path=target))
        bodies = {name: refusal(model) if name.endswith(".sh") else body for name, body in bodies.items()}
        notes = [f"this file starts nothing: {model}"]
    else:
        plan = narrow(schedule, drafters, engine.rules)
        bodies = engine.files(plan, model)
        about = [model.note] if model.note else [] if model.path.startswith("/") else [RELATIVE]
        notes = [f"this file: {summary(plan.drafting)}", *about, *plan.notes, *engine.extra_notes(plan, model)]
    # One line, however long the machine's name: readers look for it on the first.
    first = f"# {one_line('timed with ' + basis['engine'] + ' on ' + basis['machine'])}{verdict(engine, basis)}\n"
    head = first + comments(["", *decided(target, schedule), "", *notes]) + "\n"
    return [LaunchFile(name=name, text=head + body) for name, body in bodies.items()]


def verdict(engine: Engine, basis: Mapping[str, str]) -> str:
    """What the timing says of this engine."""
    return "" if basis["engine"].lower() == engine.key else f", not verified on {engine.title}"


def decided(target: str, schedule: Sequence[ScheduleEntry]) -> list[str]:
    """The whole decision as lines of a table."""
    rows = [
        f"{at(*load)}: {choice(entry.drafter, entry.D)}" for load, entry in zip(loads(schedule), schedule, strict=True)
    ]
    return [
        f"decision for {target}, by load (B sequences decoded together):",
        *rows,
        f"above B = {schedule[-1].max_batch}: not measured; drafting usually gains less there",
    ]


def summary(drafting: Drafting | None) -> str:
    """What the command starts, in words."""
    if drafting is None:
        return "plain decoding, speculation is off"
    if len(drafting.ranges) == 1:
        return f"{drafting.rule.spelling} with D = {drafting.D} at every load"
    return "; ".join(f"{choice(drafting.rule.spelling, D)} at {at(first, last)}" for first, last, D in drafting.ranges)
