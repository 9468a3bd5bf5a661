"""What people see of a conversion."""

from rich.markup import escape

from codraft.cli.ui import console
from codraft.core.conversion import ConversionRecord, TapsInfo


def print_conversion(record: ConversionRecord) -> None:
    """A few lines on stderr: what was written, what was done, what looks wrong."""
    engine = f" for {record.engine}" if record.engine else ""
    console.print(
        f"[bold]{escape(record.input)}[/bold] ({record.mechanism}, {record.from_format}) -> "
        f"[bold]{escape(record.output)}[/bold] ({record.to_format}{engine})"
    )
    console.print(f"  {record.tensors} tensors, {size(record.bytes)}, in {len(record.files)} files")
    if record.taps is not None:
        console.print(f"  {layer_ids(record.taps)}")
    for note in record.notes:
        console.print(f"  {escape(note)}")
    for warning in record.warnings:
        console.print(f"  [yellow]warning[/yellow]: {escape(warning)}")


def layer_ids(taps: TapsInfo) -> str:
    """Which layers are read, and how the result says it."""
    said = "; ".join(f"{one.key} {one.ids} ({one.convention}s)" for one in taps.written) or "no key says so"
    return escape(f"reads the outputs of layers {taps.outputs}; written: {said}")


def size(num_bytes: int) -> str:
    """Bytes for people."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes} bytes"
