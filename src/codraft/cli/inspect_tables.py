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
from codraft.models.inspect.pair import ENGINE_NAMES
from codraft.models.inspect.sizes import billions

MIXERS = {
    "full": "full attention", "sliding": "sliding window", "chunked": "chunked attention", "mla": "latent attention",
    "linear": "linear attention", "mamba": "Mamba", "conv": "convolution", "none": "without attention",
}  # fmt: skip
FFNS = {"dense": "dense FFN", "moe": "mixture of experts"}
ASKED = {"depth": "D", "tp": "ranks", "context": "longest sequence"}
COLOURS = {"error": "bold red", "warning": "yellow", "note": "dim"}


def print_inspection(record: InspectionRecord, *, full: bool) -> None:
    """Everything; notes in one line each unless `full`."""
    print_model("Target", record.target)
    if isinstance(record.drafter, ModelSummary):
        print_model("Drafter", record.drafter)
    elif record.drafter is not None:
        print_head(record.drafter)
    if record.vocabulary is not None:
        say(f"Vocabulary: {vocabulary_words(record.vocabulary)}")
    counts = [
        f"{count} {word}{'s' if count != 1 else ''}"
        for word in SEVERITIES
        if (count := sum(finding.severity == word for finding in record.findings))
    ]
    console.print()
    say(f"{', '.join(counts) or 'Nothing to report'}. {looked_at(record)}", "")
    for finding in record.findings:
        print_finding(finding, full=full)
    if not full and any(finding.severity == "note" for finding in record.findings):
        say("--full shows the notes whole.", style="dim")


def say(text: str, indent: str = "  ", style: str | None = None) -> None:
    """One statement, wrapped, as it is."""
    console.print(*map(escape, wrapped(text, indent)), sep="\n", style=style)


def looked_at(record: InspectionRecord) -> str:
    """What the answer rests on, and what was not looked at."""
    models = [("target", record.target), ("drafter", record.drafter)]
    there = [(side, model) for side, model in models if model is not None]
    headers = [side for side, model in there if model.weight_bytes]
    parts = ["configs" if len(there) > 1 else "config"]
    parts += [f"tensors of the {' and the '.join(headers)}"] if headers else []
    parts += ["tokenizers"] if record.vocabulary is not None and record.vocabulary.verdict != "unknown" else []
    parts += [f"{ASKED[key]} = {value}" for key, value in record.asked.items()]
    if record.sample is not None:
        parts.append(f"{record.sample.num_prompts} prompts, the longest of {record.sample.longest} tokens")
    without = [side for side, model in there if not model.weight_bytes]
    missed = f" Not looked at: tensors of the {' and the '.join(without)}, which are not there." if without else ""
    return f"Looked at: {', '.join(parts)}.{missed}"


def print_model(title: str, model: ModelSummary) -> None:
    """A language model in a few lines."""
    console.print(f"[bold]{title}[/bold] {escape(model.id)} ({escape(model.model_type)})")
    ffns = [f"{count} {FFNS[kind]}" for kind, count in model.ffns.items() if kind != "none"]
    mixers = [f"{count} {MIXERS.get(kind, kind)}" for kind, count in model.mixers.items()]
    kinds = f"{', '.join(mixers)}; {', '.join(ffns)}"
    say(f"  {model.num_layers} layers: {kinds}; hidden {model.hidden_size}{heads(model)}")
    lines = []
    if model.parameters is not None:
        p = model.parameters
        active = "" if p.active == p.total else f", {billions(p.active)} read for a token"
        tied = ", head tied to the embedding" if model.tied else ""
        mtp = f", MTP {billions(p.mtp)} more" if p.mtp else ""
        lines.append(f"{billions(p.total)} parameters of the decoder{active}{tied}{mtp} (counted from {p.basis})")
    if model.weight_bytes:
        lines.append("weights " + ", ".join(f"{size / 1e9:.2f} GB {kind}" for kind, size in model.weight_bytes.items()))
    say("  " + "; ".join(lines))
    say("  " + "; ".join(memory(model)))
    rest = [f"vocabulary {model.vocab_size:,}"]
    rest += [f"{model.max_positions:,} positions"] if model.max_positions else []
    rest += [f"{model.mtp_layers} MTP module{'s' if model.mtp_layers > 1 else ''}"] if model.mtp_layers else []
    rest += [f"quantized: {model.quantization}"] if model.quantization else []
    say("  " + "; ".join(rest))
    for sentence in model.assumed:
        say(f"  assumed: {sentence}", style="dim")


def heads(model: ModelSummary) -> str:
    """Attention's heads in words."""
    if not model.num_heads:
        return ""
    if model.latent is not None:
        return f"; {model.num_heads} query heads on a latent of {model.latent[0]} + {model.latent[1]}"
    basis = "" if model.head_dim_basis == "given" else f" ({model.head_dim_basis})"
    return f"; {model.num_heads} query heads, {model.num_kv_heads} KV heads of {model.head_dim}{basis}, G = {model.G}"


def memory(model: ModelSummary) -> list[str]:
    """What sequences keep."""
    parts = []
    caches = [f"{size:,} B {dtype}" for dtype, size in model.kv_bytes_per_token.items() if size]
    if caches:
        parts.append("cache for a token " + ", ".join(caches))
    windows = model.window_bytes_per_sequence.get("bf16")
    if windows:
        parts.append(f"in windows of {model.window:,} at most {windows / 1e6:.1f} MB bf16 for a sequence")
    states = [f"{size / 1e6:.1f} MB {dtype}" for dtype, size in model.state_bytes_per_sequence.items() if size]
    if states:
        parts.append("state for a sequence " + ", ".join(states))
    return parts or ["no cache"]


def print_head(head: HeadSummary) -> None:
    """A drafter's head in a few lines."""
    console.print(f"[bold]Drafter[/bold] {escape(head.id)} ({escape(head.mechanism)}, {head.family} layout)")
    size = "" if head.parameters is None else f"; {billions(head.parameters)} parameters"
    layers = f"{head.num_layers} layer{'s' if head.num_layers != 1 else ''}, " if head.num_layers else ""
    cache = head.kv_bytes_per_token.get("bf16")
    kept = f"; cache for a token {cache:,} B bf16" if cache else ""
    say(f"  {layers}hidden {head.hidden_size}{size}{kept}")
    parts = []
    if head.taps is not None:
        written = f" (written {head.taps_as_written}, {head.taps_convention} convention)"
        parts.append(f"reads the outputs of layers {head.taps}{written}")
    if head.draft_vocab_size is not None and head.draft_vocab_size != head.vocab_size:
        parts.append(f"drafts from {head.draft_vocab_size:,} of {head.vocab_size or 0:,} tokens")
    if head.block_size is not None:
        parts.append(f"block of {head.block_size}, D up to {head.max_D}")
    if head.borrows:
        parts.append(f"borrows the target's {' and '.join(head.borrows)}")
    if parts:
        say("  " + "; ".join(parts))


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
        block = wrapped(f"         {label:<13}{text}", " " * 22)
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
