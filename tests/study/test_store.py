"""Records made once: used again while their inputs are the same, made anew where they are not or cannot be read."""

from dataclasses import replace
from pathlib import Path

import pytest

from codraft.core.record import hash_of, read_record
from codraft.core.schema import AcceptanceRecord, TimingPoint, TimingRecord
from codraft.study.store import Store
from codraft.study.timing import joined

from tests.build import acceptance_record, provenance, timing
from tests.study.desk import ListUi


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, ListUi())


def timed(*points: TimingPoint, **hashes: str) -> TimingRecord:
    return TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=replace(provenance(), input_hashes=hashes),
        target="t",
        ragged="padded",
        points=list(points),
    )


def test_a_record_is_made_once_for_the_same_inputs(store: Store) -> None:
    first = store.cached("timing", TimingRecord, {"a": 1}, lambda: timed(timing(0, 1.0)))
    assert first.provenance.input_hashes == {"inputs": hash_of({"a": 1})}
    assert read_record(store.path("timing"), TimingRecord) == first

    def never() -> TimingRecord:
        raise AssertionError

    assert store.cached("timing", TimingRecord, {"a": 1}, never) == first
    assert store.ui.titles == ["timing: used again, inputs unchanged"]  # type: ignore[attr-defined]
    second = store.cached("timing", TimingRecord, {"a": 2}, lambda: timed(timing(0, 2.0)))
    assert second.points[0].t_verif_s == 2
    assert store.found("timing", TimingRecord, {"a": 2}) == second
    assert store.found("timing", TimingRecord, {"a": 1}) is None


def test_a_record_keeps_the_hashes_it_was_made_with(store: Store) -> None:
    made = store.cached("timing", TimingRecord, 1, lambda: timed(streams="ab"))
    assert made.provenance.input_hashes == {"inputs": hash_of(1), "streams": "ab"}


def test_what_cannot_be_read_is_not_there(store: Store) -> None:
    assert store.read("timing", TimingRecord) is None
    store.cached("timing", TimingRecord, 1, timed)
    assert store.read("timing", TimingRecord) is not None
    assert store.read("timing", AcceptanceRecord) is None, "a record of another kind"
    store.path("timing").write_text("{")
    assert store.read("timing", TimingRecord) is None
    assert store.found("timing", TimingRecord, 1) is None


def test_an_interruption_in_the_making_leaves_the_record_that_was_there(store: Store) -> None:
    before = store.cached("timing", TimingRecord, 1, timed)

    def interrupted() -> TimingRecord:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.cached("timing", TimingRecord, 2, interrupted)
    assert store.read("timing", TimingRecord) == before


def test_parts_are_joined_by_context_batch_and_depth_whatever_their_order() -> None:
    loads = [(1, 90), (2, 50), (1, 50)]
    parts = [timed(*(timing(D, 1.0, B=B, S=S) for D in (1, 0)), inputs=str(B), streams="ab") for B, S in loads]
    whole = joined(parts)
    assert [(p.S, p.B, p.D) for p in whole.points] == [
        (S, B, D) for S, B in ((50, 1), (50, 2), (90, 1)) for D in (0, 1)
    ]
    assert whole.provenance.input_hashes == {"streams": "ab"}, "the key of a part is not the key of the whole"
    assert (whole.gemm, whole.attention) == (None, None)


def test_kernels_come_from_the_part_that_has_them() -> None:
    kernels = replace(timed(), gemm=[], attention=[])
    assert joined([timed(timing(0, 1.0)), kernels]).gemm == []
    assert joined([kernels, timed(timing(0, 1.0))]).attention == []


def test_records_of_other_kinds_are_stored_alike(store: Store) -> None:
    record = store.cached("acceptance", AcceptanceRecord, 1, acceptance_record)
    assert store.found("acceptance", AcceptanceRecord, 1) == record
