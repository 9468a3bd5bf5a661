"""Run a study: acceptance, step times, decision, confirmation; each record is made once and used again.

A record is used again when the hash of its inputs is unchanged, so killing a study loses at most the record in the
making. Streams lie beside the records, named by the hash of what they were written from.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from codraft import __version__
from codraft.core.acceptance import Acceptance
from codraft.core.errors import SpecError
from codraft.core.files import check_writable, sha256_file, sha256_text
from codraft.core.provenance import machine, provenance
from codraft.core.record import hash_of, read_record, write_record
from codraft.core.schema import AcceptanceRecord, Candidate, Confirmation, DecisionRecord, Record, TimingRecord
from codraft.core.spec import check_depth, parse_drafters
from codraft.core.stats import evenly
from codraft.cost.choose import decide
from codraft.cost.step import StepTimes, speedup, times_at
from codraft.decode.drafter import Drafter
from codraft.decode.hf.load import device_label, engine_versions, resolve_folder, resolved_dtype
from codraft.measure.steps import time_steps, typical_context
from codraft.models.shape import checkpoint_dtype, read_shape
from codraft.replay.job import AcceptJob, Ui, Workbench, measure
from codraft.replay.measure import reads_target, replay
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import TokenStream, save_streams
from codraft.study.confirm import confirm
from codraft.study.spec import NEW_TOKENS, StudySpec, read_study, write_study

R = TypeVar("R", bound=Record)
# Query rows of the attention kernel's tile on the GPUs of the co-design article [NVIDIA26].
ARTICLE_TILE = 128


class Study:
    """One study folder at work."""

    def __init__(self, spec: StudySpec, folder: Path, ui: Ui) -> None:
        self.spec, self.folder, self.ui = spec, folder, ui
        self.sampling = spec.sampling()
        self.drafter_specs = parse_drafters(spec.drafters)
        self.depths = sorted({0, *(check_depth(D, lowest=0) for D in spec.depth)})
        if self.depths[-1] < 1:
            raise SpecError("--depth needs at least one D above 0, for example 0..8")
        if spec.batch != [1]:
            raise SpecError(f"--batch {spec.batch}: this version times B = 1 only")
        # An n-gram draft may be shorter than D, so every shorter pass must be timed too.
        self.timed = list(range(self.depths[-1] + 1))

    def run(self) -> DecisionRecord:
        """All four parts, in order; returns the decision."""
        check_writable(self.folder / "study.toml")
        self.resolved = resolve_folder(self.spec.target)
        inputs = self.inputs()
        self.announce_changes()
        write_study(self.spec, self.folder / "study.toml")
        bench = self.workbench(inputs)
        acceptance = self.cached("acceptance", AcceptanceRecord, inputs, lambda key: self.accept(bench, key))
        # Times hold for the machine and the software they were taken with; a copied folder is timed anew.
        here = {**inputs, "rounds": self.spec.rounds, "machine": machine(device_label())}
        timing = self.cached("timing", TimingRecord, here, lambda key: self.time(bench, key))
        based_on = {
            "confirm_prompts": self.spec.confirm_prompts,
            "acceptance": hash_of(acceptance.results),
            "timing": hash_of(timing),
        }
        return self.cached(
            "decision", DecisionRecord, based_on, lambda key: self.decide(bench, acceptance, timing, key)
        )

    def announce_changes(self) -> None:
        """Say what this run asks differently from the last one in the same folder."""
        path = self.folder / "study.toml"
        if path.exists():
            before, now = asdict(read_study(path)), asdict(self.spec)
            changed = [f"{key} {before[key]} -> {now[key]}" for key in now if before[key] != now[key]]
            if changed:
                with self.ui.stage(f"this study was asked something else before: {'; '.join(changed)}"):
                    pass

    def inputs(self) -> dict[str, Any]:
        """Everything the measurements depend on, as plain data."""
        spec = self.spec
        workload = (
            {"streams": sha256_file(Path(spec.streams))}
            if spec.streams
            else {"prompts": load_prompts(spec.prompts).sha256}
        )
        return {
            "target": [spec.target, fingerprint(self.resolved)],
            "drafters": [asdict(d) for d in self.drafter_specs],
            "models": [fingerprint(resolve_folder(path)) for d in self.drafter_specs for path in d.model_paths()],
            **workload,
            "max_new_tokens": spec.max_new_tokens,
            "depths": self.depths,
            "sampling": None if self.sampling is None else asdict(self.sampling),
            "dtype": resolved_dtype(self.resolved, spec.dtype),
            "software": {"codraft": __version__, **engine_versions()},
            "skip_long": spec.skip_long,
        }

    def workbench(self, inputs: dict[str, Any]) -> Workbench:
        """Models and streams, made when first asked for; streams already written are read instead."""
        spec = self.spec
        job = AcceptJob(
            target=spec.target,
            drafters=self.drafter_specs,
            depths=[D for D in self.depths if D > 0],
            prompts=spec.prompts,
            streams=Path(spec.streams) if spec.streams else None,
            max_new_tokens=spec.max_new_tokens or (None if spec.streams else NEW_TOKENS),
            sampling=self.sampling,
            dtype=spec.dtype,
            domains=True,
            skip_long=spec.skip_long,
        )
        if spec.streams:
            return Workbench(job, self.ui)
        # Drafters bear on what is written through their windows alone.
        written_from = {key: value for key, value in inputs.items() if key not in ("drafters", "models")}
        bench = Workbench(job, self.ui)
        written_from["window"] = bench.window
        path = self.folder / f"streams-{hash_of(written_from)}.jsonl"
        if not path.exists():
            save_streams(path, bench.streams, spec.target)
            return bench
        # Our own file: it says itself how long and with what sampling it was written.
        return Workbench(replace(job, prompts=[], streams=path, sampling=None, max_new_tokens=None), self.ui)

    def cached(self, name: str, kind: type[R], inputs: dict[str, Any], make: Callable[[str], R]) -> R:
        """The record `name`: read where its inputs are unchanged, else made and written."""
        key, path = hash_of(inputs), self.folder / "records" / f"{name}.json"
        if path.exists():
            try:
                found = read_record(path, kind)
            except SpecError:
                found = None
            if found is not None and found.provenance.input_hashes.get("inputs") == key:
                with self.ui.stage(f"{name}: used again, inputs unchanged"):
                    return found
        record = make(key)
        write_record(record, path)
        return record

    def accept(self, bench: Workbench, key: str) -> AcceptanceRecord:
        """AL(D) of every drafter, by replay."""
        return stamped(measure(bench), key)

    def time(self, bench: Workbench, key: str) -> TimingRecord:
        """Step times at the workload's typical context."""
        streams = bench.streams.measurable
        target, drafters = bench.target, bench.drafters
        with self.ui.stage("time steps") as progress:
            points = time_steps(
                target,
                drafters,
                streams,
                bench.sampling,
                B=1,
                S=typical_context(streams),
                depths=self.timed,
                rounds=self.spec.rounds,
                progress=progress,
            )
        return TimingRecord(
            schema=TimingRecord.SCHEMA,
            provenance=provenance(
                engine=engine_versions(),
                input_hashes={"inputs": key, "streams": bench.streams.sha256},
                dtype=target.dtype,
                device=device_label(),
                seeds=(bench.sampling.seed,),
            ),
            target=self.spec.target,
            points=points,
        )

    def decide(self, bench: Workbench, acceptance: AcceptanceRecord, timing: TimingRecord, key: str) -> DecisionRecord:
        """Choose, then confirm the front-runner by generating with it and without."""
        tile = ARTICLE_TILE if timing.provenance.machine["device"].startswith("cuda") else None
        points, schedule = decide(acceptance.results, timing.points, read_shape(self.resolved, tile))
        front = points[0].candidates[0] if points[0].candidates else None
        place = timing.provenance.machine
        return DecisionRecord(
            schema=DecisionRecord.SCHEMA,
            provenance=provenance(
                engine=engine_versions(),
                input_hashes={"inputs": key, "acceptance": hash_of(acceptance), "timing": hash_of(timing)},
                dtype=timing.provenance.dtype,
                device=place["device"],
                seeds=(bench.sampling.seed,),
            ),
            target=self.spec.target,
            basis={
                "engine": "torch",
                "machine": f"{place['cpu']}, {place['cores']} cores, {place['device']}",
                **self.dtype_note(timing.provenance.dtype),
            },
            points=points,
            schedule=schedule,
            confirmation=self.confirm(bench, timing, front) if front else None,
        )

    def dtype_note(self, used: str | None) -> dict[str, str]:
        """What `auto` chose against the checkpoint's own dtype: the baseline is slower or faster for it."""
        own = checkpoint_dtype(self.resolved)
        if self.spec.dtype != "auto" or own in (None, used):
            return {}
        return {"dtype": f"{used}, since this CPU has no fast {own}; plain decoding in {own} may still be faster"}

    def confirm(self, bench: Workbench, timing: TimingRecord, front: Candidate) -> Confirmation:
        """Speed-up of `generate` on some of the prompts beside the prediction for those very prompts."""
        drafter = next(d for d in bench.drafters if d.info.name == front.drafter)
        chosen = evenly(bench.streams.measurable, self.spec.confirm_prompts)
        plain, drafted, AL = prediction(bench, timing, drafter, front.D, chosen)
        with self.ui.stage(f"confirm {front.drafter} at D = {front.D} against plain decoding") as progress:
            return confirm(
                bench.target,
                drafter,
                bench.codec,
                chosen,
                bench.sampling,
                D=front.D,
                predicted=speedup(AL, plain, drafted),
                progress=progress,
            )


def prediction(
    bench: Workbench, timing: TimingRecord, drafter: Drafter, D: int, chosen: Sequence[TokenStream]
) -> tuple[StepTimes, StepTimes, float]:
    """Step times, plain and drafted, and AL by replay, of one drafter at D on the chosen prompts alone."""
    target = bench.target if reads_target(drafter) else None
    logs = replay(target, drafter, chosen, bench.sampling, bench.card.eos_ids, [D])
    pooled = Acceptance.pool([Acceptance.from_log(log, D) for log in logs.by_depth[D]])
    by_depth = {point.D: point for point in timing.points}
    drafted = times_at(by_depth, drafter.info.name, D, pooled.proposal_lengths().tolist())
    return times_at(by_depth, None, 0, [1.0]), drafted, pooled.AL


def stamped(record: AcceptanceRecord, key: str) -> AcceptanceRecord:
    """The record with the hash of its inputs."""
    hashes = {"inputs": key, **record.provenance.input_hashes}
    return replace(record, provenance=replace(record.provenance, input_hashes=hashes))


def fingerprint(folder: Path) -> str:
    """Hash of names, sizes and times of a checkpoint's files: cheap, and it moves when they do."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".json", ".safetensors", ".bin", ".jinja"))
    return sha256_text(repr([(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files]))[:16]
