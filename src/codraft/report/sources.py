"""Where everything comes from: each record's provenance, and what the study was asked."""

from collections.abc import Mapping
from typing import Any

from codraft.core.provenance import Record
from codraft.report.blocks import Prose, Row, Section, Table, cell
from codraft.report.study import Book, field
from codraft.report.words import count, seconds, size


def provenance_section(book: Book) -> Section:
    """One fold for each record."""
    study = book.study
    records: list[tuple[str, Record | None]] = [
        ("decision", study.decision),
        ("timing", study.timing),
        ("acceptance", study.acceptance),
        ("frontier", study.frontier),
    ]
    absent = [name for name, record in records if record is None]
    lead: list[Prose] = [
        ["Hover over a number, or tap it, to see the record and field it comes from, and what stands behind it."]
    ]
    if absent:
        lead.append([f"Not in this study: {', '.join(absent)}."])
    for name in ("acceptance", "timing"):
        if isinstance(study.asked.get(name), str):
            lead.append([f"Where records/{name}.json is named, {study.asked[name]} is meant, which was brought along."])
    folds = [provenance_table(name, record) for name, record in records if record is not None]
    return Section(id="provenance", title="Where the numbers come from", lead=lead, folds=folds)


def provenance_table(name: str, record: Record) -> Table:
    """One record's provenance as name and value."""
    p = record.provenance
    facts: dict[str, str] = {
        "schema": record.schema,
        "codraft": p.version + (f", git {p.git}" if p.git else ", git not recorded (installed as a package)"),
        "time (UTC)": p.time,
        "machine": flat(machine_words(p.machine)),
        "engine": flat(p.engine),
        "dtype": p.dtype or "not recorded (no model ran)",
        "seeds": ", ".join(str(seed) for seed in p.seeds) or "none",
        "input hashes": flat(p.input_hashes) or "none",
        "command": " ".join(quoted(word) for word in p.command),
    }
    wall = getattr(record, "wall_s", None)
    if wall is not None:
        facts["measuring took"] = seconds(wall)
    basis = getattr(record, "basis", None)
    if basis:
        facts["basis"] = flat(basis)
    ragged = getattr(record, "ragged", None)
    if ragged:
        facts["unequal drafts cost"] = "as the longest (padded)" if ragged == "padded" else "as their sum (packed)"
    rows = [Row(cells=[cell(key), cell(value, field(name, "provenance"), "code")]) for key, value in facts.items()]
    return Table(caption=f"records/{name}.json", heads=["what", "value"], rows=rows, pairs=True)


def machine_words(machine: Mapping[str, Any]) -> dict[str, str]:
    """Machine facts, memory with its unit."""
    words = {key: str(value) for key, value in machine.items()}
    if "memory_bytes" in machine:
        words["memory"] = size(machine["memory_bytes"])
        del words["memory_bytes"]
    return words


def flat(facts: Mapping[str, Any]) -> str:
    """`a: 1, b: 2`."""
    return ", ".join(f"{key}: {value}" for key, value in facts.items())


def quoted(word: str) -> str:
    """A word of a command line, in quotes where it has to be."""
    plain = word and all(ch.isalnum() or ch in "-_=./:,+@%" for ch in word)
    return word if plain else "'" + word.replace("'", "'\\''") + "'"


def asked_section(book: Book) -> Section:
    """study.toml, and the text AL was measured on."""
    asked = book.study.asked
    rows = [
        Row(cells=[cell(key), cell(value_words(value), f"study.toml {key}", "code")]) for key, value in asked.items()
    ]
    tables = [Table(caption="study.toml", heads=["key", "value"], rows=rows, pairs=True)] if rows else []
    lead: list[Prose] = [] if rows else [["What was asked is not at hand: there was no study.toml."]]
    record = book.study.acceptance
    if record is not None:
        facts = {
            "text": record.prompts.name,
            "answers": count(record.prompts.num_prompts),
            "conversations": count(record.prompts.num_conversations),
            "asked tokens in all": count(record.stream_tokens),
            "longest answer asked (tokens)": count(record.max_new_tokens),
            "template": record.prompts.template,
            "sampling": flat(record.sampling),
            "sha256 of the text": record.prompts.sha256,
            **{
                f"drafter {r.drafter.name}": drafter_words(r.drafter.mechanism, r.drafter.id, r.drafter.options)
                for r in record.results
            },
        }
        workload = [
            Row(cells=[cell(key), cell(value, field("acceptance", "prompts"), "code")]) for key, value in facts.items()
        ]
        tables.append(Table(caption="The text and the drafters", heads=["what", "value"], rows=workload, pairs=True))
    return Section(id="asked", title="What was asked", lead=lead, tables=tables)


def drafter_words(mechanism: str, model: str | None, options: Mapping[str, Any]) -> str:
    """A drafter as on the command line."""
    words = mechanism + (f":{model}" if model else "")
    return ",".join([words, *(f"{key}={value}" for key, value in options.items())])


def value_words(value: Any) -> str:
    """A value of study.toml."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(value_words(item) for item in value) or "none"
    if isinstance(value, Mapping):
        return flat(value)
    return str(value)
