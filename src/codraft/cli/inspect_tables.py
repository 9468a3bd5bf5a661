"""An inspection for people: the models in a few lines, then findings, worst first."""

import json
import textwrap

from rich.markup import escape

from codraft.cli.ui import console
from codraft.core.inspection import (
    SEVERITIES,
    Evidence,
    Finding,
    HeadSummary,
    InspectionRecord,
    ModelSummary,
    Vocabulary,
)

ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TRT-LLM"}
COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def print_inspection(record: InspectionRecord, *, full: bool) -> None:
    """Everything; notes in one line each unless `full`."""
    print_model("Target", record.target)
    if isinstance(record.drafter, ModelSummary):
        print_model("Drafter", record.drafter)
    elif record.drafter is not None:
        print_head(record.drafter)
    if record.vocabulary is not None:
        console.print(f"Vocabulary: {escape(vocabulary_words(record.vocabulary))}")
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}"
        for word in SEVERITIES
        if (count := sum(finding.severity == word for finding in record.findings))
    ]
    console.print(f"\n{', '.join(counts) or 'Nothing found'}.  [dim]{record.bytes_read / 1e6:.1f} MB read[/dim]")
    for finding in record.findings:
        print_finding(finding, full=full)


def print_model(title: str, model: ModelSummary) -> None:
    """A language model in a few lines."""
    mixers = ", ".join(f"{count} {kind}" for kind, count in model.mixers.items())
    ffns = ", ".join(f"{count} {kind}" for kind, count in model.ffns.items() if kind != "none")
    console.print(f"[bold]{title}[/bold] {escape(model.id)} ({escape(model.model_type)})")
    heads = ""
    if model.num_heads:
        basis = "" if model.head_dim_basis == "given" else f" ({model.head_dim_basis})"
        heads = f"; {model.num_heads} heads on {model.num_kv_heads} of {model.head_dim}{basis}, G = {model.G}"
    console.print(f"  {model.num_layers} layers: {mixers}; {ffns}; hidden {model.hidden_size}{heads}")
    lines = []
    if model.parameters is not None:
        p = model.parameters
        active = "" if p.active == p.total else f", {count(p.active)} read for a token"
        mtp = f", MTP {count(p.mtp)}" if p.mtp else ""
        lines.append(
            f"{count(p.total)} parameters{active}{mtp} (counted from {p.basis}){', tied head' if model.tied else ''}"
        )
    if model.weight_bytes:
        lines.append(
            "weights " + ", ".join(f"{size / 1e9:.2f} GB {dtype}" for dtype, size in model.weight_bytes.items())
        )
    caches = [f"{size:,} B {dtype}" for dtype, size in model.kv_bytes_per_token.items() if size]
    if caches:
        lines.append("cache for a token " + ", ".join(caches))
    states = [f"{size / 1e6:.1f} MB {dtype}" for dtype, size in model.state_bytes_per_sequence.items() if size]
    if states:
        lines.append("state for a sequence " + ", ".join(states))
    console.print("  " + escape("; ".join(lines)))
    rest = [f"vocabulary {model.vocab_size:,}"]
    rest += [f"{model.max_positions:,} positions"] if model.max_positions else []
    rest += [f"window {model.window:,}"] if model.window else []
    rest += [f"{model.mtp_layers} MTP module{'s' if model.mtp_layers > 1 else ''}"] if model.mtp_layers else []
    rest += [f"quantized: {model.quantization}"] if model.quantization else []
    console.print("  " + escape("; ".join(rest)))
    for sentence in model.assumed:
        console.print(f"  [dim]assumed: {escape(sentence)}[/dim]")


def print_head(head: HeadSummary) -> None:
    """A drafter's head in a few lines."""
    console.print(f"[bold]Drafter[/bold] {escape(head.id)} ({head.mechanism}, {head.family} layout)")
    size = "" if head.parameters is None else f"; {count(head.parameters)} parameters"
    console.print(f"  {head.num_layers} layer{'s' if head.num_layers > 1 else ''}, hidden {head.hidden_size}{size}")
    parts = []
    if head.taps is not None:
        written = f" (written {head.taps_as_written}, {head.taps_convention} convention)"
        parts.append(f"reads the outputs of layers {head.taps}{written}")
    if head.draft_vocab_size is not None:
        parts.append(f"drafts from {head.draft_vocab_size:,} of {head.vocab_size or 0:,} tokens")
    if head.block_size is not None:
        parts.append(f"block of {head.block_size}, D up to {head.max_D}")
    if head.borrows:
        parts.append(f"borrows the target's {' and '.join(head.borrows)}")
    if parts:
        console.print("  " + escape("; ".join(parts)))


def vocabulary_words(vocabulary: Vocabulary) -> str:
    """The verdict, with counts."""
    words: list[str] = [vocabulary.verdict]
    if vocabulary.num_target is not None:
        words.append(f"{vocabulary.num_target:,} and {vocabulary.num_drafter:,} ids")
    if vocabulary.rows_target != vocabulary.rows_drafter:
        words.append(f"{vocabulary.rows_target:,} and {vocabulary.rows_drafter:,} rows")
    if vocabulary.num_differing:
        words.append(f"{vocabulary.num_differing:,} ids differ")
    if vocabulary.safe_padding is not None and vocabulary.rows_target != vocabulary.rows_drafter:
        words.append("padding is safe" if vocabulary.safe_padding else "padding is not safe")
    if vocabulary.affected_share is not None:
        words.append(f"{vocabulary.affected_share:.2%} of the sample's tokens affected")
    return ", ".join(words)


def print_finding(finding: Finding, *, full: bool) -> None:
    """One finding: what it is, where it was seen, what it leads to, what to do."""
    colour = COLOURS[finding.severity]
    head = f"{finding.severity:<8} {finding.code}: {finding.message}"
    first, *more = wrapped(head, "         ")
    rest = escape(first[len(finding.severity) :])
    console.print(f"[{colour}]{finding.severity}[/{colour}]{rest}", *map(escape, more), sep="\n")
    if not full and finding.severity == "note":
        return
    lines = [("seen", "; ".join(seen(item) for item in finding.evidence))]
    lines += [("leads to", finding.consequence), ("do", finding.fix)]
    lines += [(ENGINE_NAMES[engine], words) for engine, words in finding.engines.items()]
    for label, text in lines:
        block = wrapped(f"         {label:<9}{text}", " " * 18)
        console.print(*map(escape, block), sep="\n", style="dim" if label == "seen" else None)


def wrapped(text: str, indent: str) -> list[str]:
    """A text in lines of the terminal's width, the later ones indented."""
    return textwrap.wrap(text, min(console.width, 120), subsequent_indent=indent, break_long_words=False) or [text]


def seen(evidence: Evidence) -> str:
    """Where it stands, and what."""
    value = "absent" if evidence.value is None else json.dumps(evidence.value)
    if evidence.side == "asked":
        return f"asked {evidence.key} {value}"
    return f"{evidence.side} {evidence.file}: {evidence.key} {'is' if evidence.value is None else '='} {value}"


def count(parameters: int) -> str:
    """Parameters for people."""
    return f"{parameters / 1e9:.2f}B" if parameters >= 1e8 else f"{parameters / 1e6:.1f}M"
