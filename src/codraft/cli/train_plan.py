"""`codraft train plan`: what a run will take, before it begins."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.cli.train import BatchFlags, Data, From, MeasureFlags, Mechanism, RecipeFlags, ShapeFlags


def plan(
    mechanism: Mechanism,
    target: o.Target,
    /,
    *,
    data: Data,
    source: From = None,
    recipe: Annotated[str | None, Parameter(help="As for `codraft train`.")] = None,
    how: Annotated[RecipeFlags | None, Parameter(name="*")] = None,
    shape: Annotated[ShapeFlags | None, Parameter(name="*")] = None,
    batch: Annotated[BatchFlags | None, Parameter(name="*")] = None,
    measure: Annotated[MeasureFlags | None, Parameter(name="*")] = None,
    seed: o.Seed = None,
    dtype: o.Dtype = "auto",
    json: o.Json = None,
) -> int:
    """Disk, memory and time of a training run, by term, before anything is loaded.

    Flags are those of `codraft train`, without -o. Sizes come from the target's config and the token file; time from
    one matrix product that is measured here. With --features the target's pass counts once, or not at all where they
    are written already; without it in every epoch.

        codraft train plan eagle3 path/to/target --data tokens.safetensors
    """
    from codraft.cli.train import job_of
    from codraft.core.provenance import provenance
    from codraft.core.record import check_apart, check_destination, emit
    from codraft.core.training import TrainPlanRecord

    check_destination(json)
    check_apart({"--json": json}, {"--data": [data]})
    from codraft.cli.plan_table import print_training_plan
    from codraft.decode.hf.load import device, device_label, engine_versions, load_card, resolved_dtype
    from codraft.train import plan as planning
    from codraft.train.tokens import TokenFile

    job = job_of(
        mechanism, target, data, Path("-"), source, recipe, how or RecipeFlags(), shape or ShapeFlags(),
        batch or BatchFlags(), measure or MeasureFlags(), 0 if seed is None else seed, dtype,
    )  # fmt: skip
    card, file = load_card(target), TokenFile(data, job.rows)
    sizes, work = planning.sizes_of(job, card), planning.work_of(job, file)
    rate = planning.measured_rate(sizes, job.batch_tokens, device())
    target_bytes = 4 if resolved_dtype(card.folder, dtype) == "float32" else 2
    record = TrainPlanRecord(
        schema=TrainPlanRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions(), input_hashes={"data": file.sha256[:16]}, device=device_label(), dtype="float32"
        ),
        mechanism=mechanism,
        target=target,
        tokens=work.tokens,
        steps=work.steps,
        epochs=work.epochs,
        rate=rate,
        disk=planning.disk(job, sizes, work),
        memory=planning.memory(job, sizes, work, target_bytes, device()),
        time=planning.timed(planning.operations(job, sizes, work), rate),
    )
    emit(record, json)
    print_training_plan(record)
    return 0
