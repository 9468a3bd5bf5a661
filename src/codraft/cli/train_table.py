"""What people see of a training run."""

from rich.markup import escape
from rich.table import Table

from codraft.cli.ui import console
from codraft.core.training import TrainRecord


def print_training(record: TrainRecord) -> None:
    """AL by D and domain of the best checkpoint, and where the time went."""
    depths = list(record.AL)
    table = Table(box=None, pad_edge=False)
    for name in ("AL", *(f"D = {D}" for D in depths)):
        table.add_column(name, justify="left" if name == "AL" else "right")
    table.add_row("all", *(f"{AL:.2f}" for AL in record.AL.values()))
    for name, curve in record.domains.items():
        table.add_row(escape(name), *(f"{curve[D]:.2f}" if D in curve else "-" for D in depths))
    console.print(table)
    whole = sum(record.seconds.values())
    shares = ", ".join(f"{name} {seconds / whole:.0%}" for name, seconds in record.seconds.items()) if whole else ""
    console.print(
        f"[bold]{escape(record.output)}[/bold]: the best of {record.steps} steps, step {record.best_step}; "
        f"{record.supervised_tokens_seen:,} supervised tokens seen in {record.training_s / 60:.1f} min"
        + ("" if record.tokens_per_s is None else f", {record.tokens_per_s:.0f} tokens/s")
    )
    if not record.best_step:
        console.print("  [yellow]No evaluation beat the beginning: what is written has learnt nothing.[/yellow]")
    if shares:
        console.print(f"  time: {shares}")
    console.print(
        f"  {record.parameters:,} parameters that learnt; sha256 of the weights {record.weights_sha256[:16]}; try: "
        f"codraft accept {escape(record.target)} -d {record.mechanism}:{escape(record.output)} -p demo:16"
    )
