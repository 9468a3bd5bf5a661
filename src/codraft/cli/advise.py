"""`codraft advise`: the decision from figures that are there already."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o

Acceptance = Annotated[
    Path, Parameter(help="AL curves: an acceptance record, or CSV with drafter,D,AL[,AL_low,AL_high][,domain].")
]
Timing = Annotated[
    Path,
    Parameter(
        help="Step times: a timing record, or CSV with B,S,D and t_verif_s[,t_sys_s][,drafter,t_draft_s], or t_step_s."
    ),
]


def advise(
    *,
    acceptance: Acceptance,
    timing: Timing,
    target: Annotated[
        str | None, Parameter(help="Model folder, for the guidelines that need its heads (config.json is enough).")
    ] = None,
    tile: Annotated[
        int | None, o.Whole, Parameter(help="Query rows of the attention kernel's tile; 128 on the article's GPUs.")
    ] = None,
    batch: Annotated[str | None, Parameter(help="Only these B.")] = None,
    context: Annotated[str | None, Parameter(help="Only these S.")] = None,
    json: o.Json = None,
) -> int:
    """The best drafter and D at every load, or "off", from AL curves and step times: yours, an engine's, or ours.

    Needs no model and no torch. Every (drafter, D, B, S) gets its speed-up, break-even AL, and the five guidelines with
    what following each would cost.

        codraft advise --acceptance al.csv --timing steps.csv
        codraft advise --acceptance study/records/acceptance.json --timing steps.csv --json decision.json
    """
    from codraft.cli.advice import advice_of, selected
    from codraft.cli.tables import print_decision
    from codraft.core.errors import SpecError
    from codraft.core.record import check_destination, emit
    from codraft.core.spec import check_positive
    from codraft.cost.bring import read_acceptance, read_timing

    check_positive(tile, "--tile")
    if tile is not None and target is None:
        raise SpecError("--tile says nothing without the target's heads; name a model folder with --target")
    check_destination(json)
    curves = read_acceptance(acceptance)
    brought = selected(read_timing(timing), batch, context)
    record = advice_of(curves, brought, (acceptance, timing), target=target, tile=tile)
    emit(record, json)
    print_decision(record)
    return 0
