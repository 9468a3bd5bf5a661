"""`codraft frontier`: throughput against interactivity, with and without speculation."""

from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.cli.advise import Acceptance, Timing


def frontier(
    *,
    acceptance: Acceptance,
    timing: Timing,
    batch: Annotated[str | None, Parameter(help="Only these B.")] = None,
    context: Annotated[str | None, Parameter(help="Only these S.")] = None,
    json: o.Json = None,
) -> int:
    """Tokens per second for one user against tokens per second of the machine, over every load: the ways to run that
    no other beats, with and without speculation; `--json` has them all.

    A point is on the frontier where no other is better in one and no worse in the other. Needs no model and no torch.

        codraft frontier --acceptance al.csv --timing steps.csv
        codraft frontier --acceptance study/records/acceptance.json --timing study/records/timing.json --json -
    """
    from codraft.cli.advice import advice_of, frontier_of, selected
    from codraft.cli.tables import print_frontier
    from codraft.core.record import check_destination, emit
    from codraft.cost.bring import read_acceptance, read_timing

    check_destination(json)
    curves = read_acceptance(acceptance)
    brought = selected(read_timing(timing), batch, context)
    record = frontier_of(advice_of(curves, brought, (acceptance, timing)))
    emit(record, json)
    print_frontier(record)
    return 0
