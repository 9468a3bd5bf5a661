"""Step times at every load, one record each, and the machine's kernels; joined into one timing record."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from codraft.core.provenance import machine, provenance
from codraft.core.record import hash_of
from codraft.core.schema import TimingRecord
from codraft.decode.hf.load import device_label, engine_versions
from codraft.measure.kernels import time_kernels
from codraft.measure.steps import largest_context, texts_of, time_steps, typical_context
from codraft.replay.job import Workbench
from codraft.study.store import Store


class Timings:
    """The timing half of a study: what is to be timed, under which inputs, and the timing itself."""

    def __init__(
        self,
        store: Store,
        *,
        batches: Sequence[int],
        contexts: Sequence[int] | None,
        depths: Sequence[int],
        rounds: int,
    ) -> None:
        self.store, self.depths, self.rounds = store, list(depths), rounds
        self.batches, self.contexts = list(batches), contexts

    def loads(self, bench: Workbench) -> list[tuple[int, int]]:
        """Every (B, S)."""
        contexts = self.contexts
        if contexts is None:
            typical = typical_context(bench.streams.measurable)
            most = largest_context(bench.window, self.depths, self.rounds)
            contexts = [typical if most is None else min(typical, most)]
        return [(B, S) for S in contexts for B in self.batches]

    def load_key(self, inputs: Mapping[str, Any], B: int, S: int) -> dict[str, Any]:
        """What the step times at one (B, S) depend on."""
        where = {"B": B, "S": S, "depths": self.depths}
        return {"inputs": inputs, "rounds": self.rounds, "machine": machine(device_label()), **where}

    def kernels_key(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """What the kernels depend on: neither drafters nor prompts."""
        return {"machine": machine(device_label()), **{key: inputs[key] for key in ("target", "dtype", "software")}}

    def run(self, bench: Workbench, inputs: Mapping[str, Any], kernels: bool) -> TimingRecord:
        """All of it; each load is a record of its own, so a killed run loses one load at most."""
        parts = []
        for B, S in self.loads(bench):
            key = self.load_key(inputs, B, S)
            parts.append(self.store.cached(f"timing-b{B}-s{S}", TimingRecord, key, partial(self.load, bench, B, S)))
        if kernels:
            key = self.kernels_key(inputs)
            parts.append(self.store.cached("kernels", TimingRecord, key, lambda: self.kernels(bench)))
        return self.store.cached("timing", TimingRecord, [hash_of(part) for part in parts], lambda: joined(parts))

    def load(self, bench: Workbench, B: int, S: int) -> TimingRecord:
        """Step times at one (B, S)."""
        target, drafters = bench.target, bench.drafters
        with bench.ui.stage(f"time steps at B = {B}, S = {S}") as progress:
            points = time_steps(
                target,
                drafters,
                texts_of(bench.streams.measurable),
                bench.sampling,
                B=B,
                S=S,
                depths=self.depths,
                rounds=self.rounds,
                window=bench.window,
                progress=progress,
            )
        return replace(self.empty(bench), points=points)

    def kernels(self, bench: Workbench) -> TimingRecord:
        """GEMM and attention microbenchmarks."""
        with bench.ui.stage("time GEMMs and attention") as progress:
            gemm, attention = time_kernels(bench.target, progress=progress)
        return replace(self.empty(bench), gemm=gemm, attention=attention)

    def empty(self, bench: Workbench) -> TimingRecord:
        """A timing record without figures."""
        return TimingRecord(
            schema=TimingRecord.SCHEMA,
            provenance=provenance(
                engine=engine_versions(),
                input_hashes={"streams": bench.streams.sha256},
                dtype=bench.target.dtype,
                device=device_label(),
                seeds=(bench.sampling.seed,),
            ),
            target=bench.job.target,
            ragged=bench.target.ragged,
            points=[],
        )


def joined(parts: Sequence[TimingRecord]) -> TimingRecord:
    """One record of all points; its provenance is that of the last part."""
    last = parts[-1]
    hashes = {key: value for key, value in last.provenance.input_hashes.items() if key != "inputs"}
    return replace(
        last,
        provenance=replace(last.provenance, input_hashes=hashes),
        points=sorted((p for part in parts for p in part.points), key=lambda p: (p.S, p.B, p.D)),
        gemm=next((part.gemm for part in parts if part.gemm is not None), None),
        attention=next((part.attention for part in parts if part.attention is not None), None),
    )
