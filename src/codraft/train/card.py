"""A trained drafter's folder: the checkpoint, `codraft.json` that says how it was made, and a README for people."""

import json
import os
import shutil
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from codraft.core.errors import SpecError
from codraft.core.files import PART, atomic_write, sha256_file, write_failure
from codraft.core.provenance import provenance
from codraft.core.schema import AcceptanceResult
from codraft.core.training import Forecast
from codraft.decode.hf.load import device_label, engine_versions
from codraft.train.checkpoint import CONFIG, WEIGHTS, Trainable, export
from codraft.train.kinds import idle_words
from codraft.train.state import Progress

if TYPE_CHECKING:
    from codraft.train.job import Bench

FACTS, README = "codraft.json", "README.md"
SCHEMA = "codraft.drafter/1"


def write_drafter(
    bench: "Bench", trainable: Trainable, result: AcceptanceResult, progress: Progress, forecast: Forecast | None
) -> None:
    """The drafter as it stands into the output folder, file by file, each whole."""
    output = bench.job.output
    try:
        part = Path(tempfile.mkdtemp(dir=bench.job.run, prefix=".export.", suffix=PART))
        try:
            values = {name: p.detach() for name, p in trainable.module.named_parameters() if p.requires_grad}
            export(trainable, values, part, torch.bfloat16)
            facts = facts_of(bench, trainable, result, progress, sha256_file(part / WEIGHTS))
            (part / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
            (part / README).write_text(readme(facts), encoding="utf-8")
            # Weights last: a config without weights is refused, weights beside another's config might not be.
            for file in sorted(part.iterdir(), key=lambda one: one.name == WEIGHTS):
                os.replace(file, output / file.name)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise SpecError(write_failure(output / CONFIG, error)) from error


def facts_of(
    bench: "Bench", trainable: Trainable, result: AcceptanceResult, progress: Progress, sha256: str
) -> dict[str, Any]:
    """How a drafter was made, and what it does."""
    job, data, shortlist = bench.job, bench.data, bench.loop.objective.shortlist
    learning = sum(p.numel() for p in trainable.module.parameters() if p.requires_grad)
    return {
        "schema": SCHEMA,
        "mechanism": job.mechanism,
        "target": job.target,
        "from": job.source,
        "parameters": learning,
        "weights_sha256": sha256,
        # Steps that were asked for take the place of epochs.
        "recipe": {name: value for name, value in asdict(job.recipe).items() if name != "epochs" or not job.max_steps},
        "columns": {"always": len(shortlist.fixed.ids_C), "drawn": shortlist.drawn},
        "data": {
            "sha256": data.sha256,
            "rows": len(data),
            "tokens": data.num_tokens,
            "supervised": data.num_supervised,
            "written_by": data.origin.target,
            "sampling": data.origin.sampling,
        },
        "training": {
            "step": progress.step,
            "of_steps": bench.loop.steps,
            "supervised_tokens_seen": progress.tokens,
            "seconds": round(progress.seconds, 1),
            "batch_tokens": job.batch_tokens * job.accumulate * bench.ranks.world,
            "autocast": job.autocast,
            "target_dtype": bench.target.dtype,
            "seed": job.seed,
            "processes": bench.ranks.world,
        },
        "held_out": table_of(bench, result),
        "provenance": asdict(
            provenance(
                engine=engine_versions(), input_hashes={"data": data.sha256[:16]}, dtype="float32",
                device=device_label(), seeds=(job.seed,),
            )
        ),
    }  # fmt: skip


def table_of(bench: "Bench", result: AcceptanceResult) -> dict[str, Any]:
    """AL(D) on what was held out, in all and by category."""
    return {
        "streams": len(bench.held.streams),
        "AL": {str(point.D): round(point.AL, 4) for point in result.curve},
        "domains": {
            name: {str(point.D): round(point.AL, 4) for point in part.curve}
            for name, part in result.domains.items()
            if not name.startswith("context ")
        },
    }


def read_facts(folder: Path) -> dict[str, Any]:
    """`codraft.json` of a trained drafter."""
    facts: dict[str, Any] = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    return facts


def refuse_changed(output: Path) -> None:
    """SpecError where the best drafter so far is not there as the run wrote it: nothing could give it back."""
    weights = output / WEIGHTS
    try:
        whole = sha256_file(weights) == read_facts(output)["weights_sha256"]
    except (OSError, KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise SpecError(
            f"{weights} is not what this run wrote there, the best drafter so far; put it back beside its "
            "codraft.json, or train in another folder"
        )


def write_table(bench: "Bench", result: AcceptanceResult) -> None:
    """The AL table of the drafter in the output folder, anew."""
    facts = read_facts(bench.job.output) | {"held_out": table_of(bench, result)}
    for name, text in ((FACTS, json.dumps(facts, indent=1) + "\n"), (README, readme(facts))):
        with atomic_write(bench.job.output / name) as handle:
            handle.write(text)


def readme(facts: dict[str, Any]) -> str:
    """The same for people, as a model card."""
    data, training, held = facts["data"], facts["training"], facts["held_out"]
    curve = " | ".join(f"{AL:.2f}" for AL in held["AL"].values())
    idle = idle_words(facts["mechanism"])
    recipe = ", ".join(f"{name} {value}" for name, value in facts["recipe"].items() if name not in idle)
    mechanism = facts["mechanism"]
    began = "fresh" if facts["from"] is None else facts["from"]
    columns = facts["columns"]
    looked = f"{columns['always']:,} tokens" + (f" and {columns['drawn']:,} drawn others" if columns["drawn"] else "")
    arithmetic = "bfloat16 beside float32 weights" if training["autocast"] else "float32"
    return "\n".join(
        [
            "---",
            f"base_model: {facts['target']}",
            "tags: [speculative-decoding, codraft]",
            "---",
            f"# {mechanism} drafter for {facts['target']}",
            "",
            f"Drafts tokens for {facts['target']}, whose text stays its own. Made by `codraft train {mechanism}`.",
            "",
            "| D | " + " | ".join(held["AL"]) + " |",
            "|---" * (len(held["AL"]) + 1) + "|",
            f"| AL | {curve} |",
            "",
            f"Acceptance length (bonus token included) by replay on {held['streams']} streams of the same data, whose "
            "prompts were held out. Other text gives other AL: measure on yours.",
            "",
            f"* {facts['parameters']:,} parameters of its own; sha256 of the weights {facts['weights_sha256']}",
            f"* began as: {began}; step {training['step']} of {training['of_steps']}, batches of "
            f"{training['batch_tokens']:,} tokens, {training['supervised_tokens_seen']:,} supervised tokens seen, "
            f"{training['seconds'] / 60:.1f} minutes in {arithmetic}, target in {training['target_dtype']}",
            f"* losses look at {looked}",
            f"* data: {data['rows']:,} rows, {data['tokens']:,} tokens, {data['supervised']:,} of them written by "
            f"{data['written_by']}",
            f"* recipe: {recipe}",
            "",
            "    codraft accept " + str(facts["target"]) + f" -d {mechanism}:THIS_FOLDER -p PROMPTS",
            "",
        ]
    )
