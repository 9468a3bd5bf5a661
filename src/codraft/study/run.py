"""Run a study: acceptance, step times, decision, frontier, launch files, report.

Streams lie beside the records, named by the hash of what they were written from. Whatever the user brings (AL curves,
step times) stands in for the half that would have been measured.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from codraft import __version__
from codraft.core.errors import SpecError
from codraft.core.files import atomic_write, check_writable, sha256_file, sha256_text
from codraft.core.provenance import machine_words
from codraft.core.record import hash_of
from codraft.core.schema import AcceptanceRecord, DecisionRecord, DrafterInfo, FrontierRecord, TimingRecord
from codraft.core.silent import silent_failures
from codraft.core.spec import (
    MECHANISMS,
    Sampling,
    check_depth,
    options_of,
    parse_drafters,
    side_files,
    windowed_models,
)
from codraft.cost.bring import Timing, at_loads, read_acceptance, read_timing
from codraft.cost.curves import DrafterCurve, curves_of
from codraft.decode.hf.load import (
    Card,
    engine_versions,
    load_card,
    load_model,
    resolve_folder,
    resolved_dtype,
    shortest_window,
)
from codraft.drafters.beside import Beside
from codraft.drafters.registry import check
from codraft.engines.launch import launch_files
from codraft.formats.borrowed import read_borrows
from codraft.measure.steps import largest_context
from codraft.models.shape import checkpoint_dtype
from codraft.replay.job import AcceptJob, Ui, Workbench, measure
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import read_sampling, save_streams
from codraft.study.decision import Evidence, make_decision, make_frontier
from codraft.study.page import brought_copy, write_page
from codraft.study.spec import NEW_TOKENS, StudySpec, read_study, write_study
from codraft.study.store import Store
from codraft.study.timing import Timings


class Study:
    """One study folder at work."""

    def __init__(self, spec: StudySpec, folder: Path, ui: Ui) -> None:
        self.spec, self.folder, self.ui = spec, folder, ui
        self.sampling = spec.sampling()
        self.drafter_specs = parse_drafters(spec.drafters)
        self.depths = sorted({0, *(check_depth(D, lowest=0) for D in spec.depth)})
        if self.depths[-1] < 1:
            raise SpecError("--depth needs at least one D above 0, for example 0..8")
        self.store = Store(folder, ui)
        # A draft may be shorter than D, so every shorter pass is timed too.
        self.timings = Timings(
            self.store,
            batches=spec.batch,
            contexts=spec.context,
            depths=list(range(self.depths[-1] + 1)),
            rounds=spec.rounds,
        )
        self.brought_curves = read_acceptance(Path(spec.acceptance)) if spec.acceptance else None
        self.brought_timing = read_timing(Path(spec.timing)) if spec.timing else None
        if self.brought_timing is not None:
            self.brought_timing = at_loads(self.brought_timing, spec.batch or None, spec.context)
        if self.brought_curves is not None:
            self.brought_curves = [curve.at(self.depths) for curve in self.brought_curves]
        self.check_names()

    def check_names(self) -> None:
        """What is brought must be of the drafters that the other half is measured with here."""
        known = [spec.name for spec in self.drafter_specs]
        if self.brought_curves is not None and self.brought_timing is None:
            for curve in self.brought_curves:
                if curve.name not in known:
                    raise SpecError(
                        f"{self.spec.acceptance} holds drafter '{curve.name}', which no --drafter names (given: "
                        f"{', '.join(known)}); give it a --drafter with name={curve.name}, or bring --timing too"
                    )
        if self.brought_timing is None:
            return
        timed = {name for point in self.brought_timing.points for name in point.t_draft_s}
        mend = "give the --drafter the name= that it has there"
        if self.brought_curves is not None:
            known, mend = [curve.name for curve in self.brought_curves], f"take it out of {self.spec.acceptance}"
        for name in known:
            if timed and name not in timed:
                raise SpecError(
                    f"{self.spec.timing} has no drafting time of '{name}' (timed: {', '.join(sorted(timed))}); add it, "
                    f"or {mend}"
                )

    @cached_property
    def card(self) -> Card:
        """Config and tokenizer of the target."""
        return load_card(self.spec.target)

    @property
    def window(self) -> int | None:
        """The shortest context window of target and drafters."""
        return shortest_window(self.card, windowed_models(self.drafter_specs))

    def run(self) -> DecisionRecord:
        """All parts, in order; returns the decision."""
        for name in ("study.toml", "records/decision.json", "launch/vllm.sh", "report.html"):
            check_writable(self.folder / name)
        inputs = self.check()
        for left in self.folder.rglob(".*.part"):
            left.unlink(missing_ok=True)
        self.announce_changes()
        write_study(self.spec, self.folder / "study.toml")
        self.keep_brought()
        evidence = self.evidence(inputs)
        rests_on = {
            **evidence.hashes,
            "codraft": __version__,
            "target": [self.spec.target, fingerprint(self.resolved)],
            "drafters": evidence.infos,
            "loads": [self.spec.batch, self.spec.context],
            "depths": self.depths,
            "confirm_prompts": self.spec.confirm_prompts,
        }
        decision = self.store.cached(
            "decision", DecisionRecord, rests_on, lambda: make_decision(evidence, self.spec.confirm_prompts)
        )
        hashes = {"decision": hash_of(decision)}
        self.store.cached("frontier", FrontierRecord, hashes, lambda: make_frontier(decision, hashes))
        self.write_launch(decision, evidence.infos)
        write_page(self.folder)
        return decision

    def keep_brought(self) -> None:
        """Copy the user's own figures into the study, so that it stays whole when they move."""
        for kind, path in (("acceptance", self.spec.acceptance), ("timing", self.spec.timing)):
            if path is not None:
                text = Path(path).read_text(encoding="utf-8-sig")
                with atomic_write(brought_copy(self.folder, kind, Path(path))) as handle:
                    handle.write(text)

    def check(self) -> dict[str, Any]:
        """Refuse what config files alone show to be impossible, before anything is written; returns the inputs."""
        self.resolved = resolve_folder(self.spec.target)
        if self.brought_curves is not None and self.brought_timing is not None:
            return {}
        made = read_sampling(Path(self.spec.streams)) if self.spec.streams else None
        sampling = self.sampling or made or Sampling()
        check(self.drafter_specs, Beside.of(self.card, sampling, self.spec.dtype, lambda: load_model(self.spec.target)))
        inputs = self.inputs()
        if self.brought_timing is None:
            window = self.window
            most = largest_context(window, self.timings.depths, self.spec.rounds)
            if most is not None and max(self.spec.context or [0]) > most:
                raise SpecError(f"--context {max(self.spec.context or [0])}: at most {most} tokens fit the window")
        return inputs

    def evidence(self, inputs: dict[str, Any]) -> Evidence:
        """AL curves and step times, measured or brought."""
        spec = self.spec
        measured = self.brought_curves is None or self.brought_timing is None
        bench = self.workbench(inputs) if measured else None
        curves: list[DrafterCurve]
        broken: list[str] = []
        if self.brought_curves is None:
            assert bench is not None
            acceptance = self.store.cached("acceptance", AcceptanceRecord, inputs, lambda: measure(bench))
            broken = silent_failures(acceptance.results, spec.target)
            curves, infos = curves_of(acceptance.results), [result.drafter for result in acceptance.results]
            hashes = {"acceptance": hash_of(acceptance.results)}
        else:
            curves, infos = self.brought_curves, self.named(self.brought_curves)
            hashes = {"acceptance": sha256_file(Path(str(spec.acceptance)))[:16]}
        timing, dtype = self.brought_timing, None
        if timing is None:
            assert bench is not None
            record = self.timings.run(bench, inputs, spec.kernels)
            timing, dtype = self.measured_timing(record), record.provenance.dtype
            hashes["timing"] = hash_of(record)
        else:
            hashes["timing"] = sha256_file(Path(str(spec.timing)))[:16]
        if broken:
            timing = replace(timing, basis={**timing.basis, "acceptance": "; ".join(broken)})
        both_here = self.brought_curves is None and self.brought_timing is None
        return Evidence(
            target=spec.target,
            folder=self.resolved,
            curves=curves,
            infos=infos,
            timing=timing,
            dtype=dtype,
            bench=bench if both_here else None,
            hashes=hashes,
        )

    def measured_timing(self, record: TimingRecord) -> Timing:
        """Our own timing with its basis in words."""
        place = record.provenance.machine
        basis = {
            "engine": "torch",
            "machine": machine_words(place),
            **self.dtype_note(record.provenance.dtype),
        }
        return Timing(points=record.points, ragged=record.ragged, basis=basis, device=place["device"])

    def named(self, curves: list[DrafterCurve]) -> list[DrafterInfo]:
        """Drafters of brought curves, as far as their names tell."""
        specs = {spec.name: spec for spec in self.drafter_specs}
        infos = []
        for curve in curves:
            spec = specs.get(curve.name)
            if spec is not None:
                path = next(iter(spec.model_paths()), None)
                infos.append(DrafterInfo(name=spec.name, mechanism=spec.mechanism, id=path, options=options_of(spec)))
            else:
                mechanism = curve.name.partition("-")[0]
                infos.append(
                    DrafterInfo(
                        name=curve.name, mechanism=mechanism if mechanism in MECHANISMS else "unknown", options={}
                    )
                )
        return infos

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
            "files": [sha256_file(Path(path)) for path in side_files(self.drafter_specs)],
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
        bench = Workbench(job, self.ui)
        path = self.streams_path(inputs, bench.window)
        facts = path.with_suffix(".json")
        if path.exists() and facts.exists():
            # Our own file: it says itself how long and with what sampling it was written.
            again = Workbench(replace(job, prompts=[], streams=path, sampling=None, max_new_tokens=None), self.ui)
            try:
                again.streams = replace(again.streams, target=None, **json.loads(facts.read_text(encoding="utf-8")))
                return again
            except (SpecError, ValueError, TypeError):
                path.unlink()
        written = bench.streams
        with atomic_write(facts) as handle:
            kept = {"name": written.name, "num_too_long": written.num_too_long, "num_too_short": written.num_too_short}
            handle.write(json.dumps(kept) + "\n")
        save_streams(path, written, spec.target)
        return bench

    def streams_path(self, inputs: dict[str, Any], window: int | None) -> Path:
        """Where the streams lie; drafters bear on what is written through their windows alone."""
        written_from = {key: value for key, value in inputs.items() if key not in ("drafters", "models", "files")}
        return self.folder / f"streams-{hash_of({**written_from, 'window': window})}.jsonl"

    def write_launch(self, decision: DecisionRecord, infos: Sequence[DrafterInfo]) -> None:
        """The launch files of every engine; none where a chosen drafter's name does not tell its mechanism."""
        folder = self.folder / "launch"
        chosen = {entry.drafter for entry in decision.schedule}
        unknown = [info.name for info in infos if info.name in chosen and info.mechanism not in MECHANISMS]
        if unknown:
            shutil.rmtree(folder, ignore_errors=True)
            with self.ui.stage(
                f"no launch files: '{unknown[0]}' names no mechanism; call it, say, eagle3-{unknown[0]}"
            ):
                return
        whole = [served(info) for info in infos]
        for file in launch_files(decision.target, decision.schedule, whole, basis=decision.basis):
            with atomic_write(folder / file.name) as handle:
                handle.write(file.text)

    def dtype_note(self, used: str | None) -> dict[str, str]:
        """What `auto` chose against the checkpoint's own dtype: the baseline is slower or faster for it."""
        own = checkpoint_dtype(self.resolved)
        if self.spec.dtype != "auto" or own in (None, used):
            return {}
        return {"dtype": f"{used}, since this CPU has no fast {own}; plain decoding in {own} may still be faster"}


def served(info: DrafterInfo) -> DrafterInfo:
    """A drafter as engines are given it: where its folder lacks what is its target's, the one put together of both."""
    folder = Path(info.id or "")
    if info.id is None or not folder.is_dir() or read_borrows(folder) is None:
        return info
    return replace(info, id=str(resolve_folder(info.id)))


CHECKPOINT = (".json", ".safetensors", ".bin", ".jinja", ".txt", ".model")


def fingerprint(folder: Path) -> str:
    """Hash of names, sizes and times of a checkpoint's files: cheap, and it moves when they do."""
    files = sorted(path for path in folder.iterdir() if path.suffix in CHECKPOINT)
    return sha256_text(repr([(p.name, p.stat().st_size, p.stat().st_mtime_ns) for p in files]))[:16]
