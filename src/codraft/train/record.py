"""A finished run as a record."""

import json
import statistics
from dataclasses import asdict
from typing import Any

from codraft.core.provenance import provenance
from codraft.core.training import TrainedPoint, TrainRecord
from codraft.decode.hf.load import device_label, engine_versions
from codraft.train.card import FACTS
from codraft.train.logs import FILE
from codraft.train.run import Run


def record_of(run: Run) -> TrainRecord:
    """What it was, what it took, what it gave."""
    job, bench, progress = run.bench.job, run.bench, run.progress
    facts = json.loads((job.output / FACTS).read_text(encoding="utf-8"))
    rows = [json.loads(line) for line in (job.run / FILE).read_text(encoding="utf-8").splitlines()]
    steps: list[dict[str, Any]] = [row for row in rows if row["kind"] == "step"]
    parts = sorted({name for row in steps for name in row["seconds"]})
    rates = [row["tokens_per_s"] for row in steps if row["tokens_per_s"]]
    return TrainRecord(
        schema=TrainRecord.SCHEMA,
        provenance=provenance(
            engine=engine_versions(),
            input_hashes={"data": bench.data.sha256[:16]},
            dtype="float32",
            device=device_label(),
            seeds=(job.seed,),
        ),
        mechanism=job.mechanism,
        target=job.target,
        output=str(job.output),
        weights_sha256=facts["weights_sha256"],
        parameters=facts["parameters"],
        columns=facts["columns"],
        steps=bench.loop.steps,
        best_step=progress.best_step,
        supervised_tokens_seen=progress.tokens,
        training_s=progress.seconds,
        tokens_per_s=statistics.median(rates) if rates else None,
        seconds={name: sum(row["seconds"].get(name, 0.0) for row in steps) for name in parts},
        select_D=job.select,
        AL=facts["held_out"]["AL"],
        domains=facts["held_out"]["domains"],
        points=[
            TrainedPoint(tokens=int(tokens), AL=AL, AL_ci95=None if low == high else (low, high))
            for tokens, AL, low, high in progress.points
        ],
        forecast=run.forecast,
        recipe=asdict(job.recipe),
        wall_s=run.wall_s,
    )
