"""What `advise` and `frontier` share: records from figures at hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.files import sha256_file
from codraft.core.provenance import provenance
from codraft.core.record import hash_of
from codraft.core.schema import DecisionRecord, FrontierRecord
from codraft.core.spec import parse_list
from codraft.cost.bring import Timing, at_loads
from codraft.cost.choose import decide
from codraft.cost.curves import DrafterCurve
from codraft.cost.frontier import frontier
from codraft.models.shape import read_shape


def selected(timing: Timing, batch: str | None, context: str | None) -> Timing:
    """The points at the asked loads."""
    batches = None if batch is None else parse_list(batch, "--batch", lowest=1)
    contexts = None if context is None else parse_list(context, "--context", lowest=0)
    return at_loads(timing, batches, contexts)


def advice_of(
    curves: Sequence[DrafterCurve],
    timing: Timing,
    files: tuple[Path, Path],
    target: str | None = None,
    tile: int | None = None,
) -> DecisionRecord:
    """The decision that these figures lead to."""
    shape = None
    if target is not None:
        shape = read_shape(Path(target).expanduser(), tile)
        if shape is None:
            raise SpecError(f"--target {target}: no config.json of a dense transformer there; name a model folder")
    points, schedule = decide(curves, timing.points, shape, timing.ragged, whole_steps=timing.whole_steps)
    acceptance, times = files
    return DecisionRecord(
        schema=DecisionRecord.SCHEMA,
        provenance=provenance(
            engine={"name": timing.basis["engine"]},
            input_hashes={"acceptance": sha256_file(acceptance)[:16], "timing": sha256_file(times)[:16]},
        ),
        target=target or "unnamed",
        basis=timing.basis,
        points=points,
        schedule=schedule,
        mechanisms=[],
    )


def frontier_of(decision: DecisionRecord) -> FrontierRecord:
    """Throughput against interactivity at every load of a decision."""
    return FrontierRecord(
        schema=FrontierRecord.SCHEMA,
        provenance=replace(decision.provenance, input_hashes={"decision": hash_of(decision.points)}),
        target=decision.target,
        basis=decision.basis,
        points=frontier(decision.points),
    )
