"""Headers of safetensors files: right, or refused in one sentence, and never more read than needed."""

import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save

from codraft.core.errors import SpecError
from codraft.formats import safetensors as module
from codraft.formats.safetensors import DTYPE_BITS, TensorInfo, read_header, read_values
from codraft.formats.source import FolderSource

from tests.checkpoints import Bits, Fill, Tensor, bf16, write_safetensors

FILE = "model.safetensors"


class MemorySource:
    """One file in memory; counts what is asked for."""

    def __init__(self, content: bytes, size: int | None = None) -> None:
        self.label, self.content, self.bytes_read, self.num_reads = "m", content, 0, 0
        self.size = len(content) if size is None else size

    def sizes(self) -> dict[str, int]:
        return {FILE: self.size}

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        stop = self.size if stop is None else stop
        assert 0 <= start <= stop <= self.size
        self.bytes_read += stop - start
        self.num_reads += 1
        return self.content[start:stop]


def file_of(header: Any, data: bytes = b"") -> bytes:
    """A file by its header, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def outcome(source: MemorySource) -> dict[str, TensorInfo] | str:
    """The tensors of a file, or the one sentence that refuses it."""
    try:
        return read_header(source, FILE)[0]
    except SpecError as error:
        sentence = str(error)
    assert "\n" not in sentence
    assert "m/model.safetensors" in sentence
    assert len(sentence) < 500
    return sentence


def entry(dtype: Any = "F32", shape: Any = (2,), offsets: Any = (0, 8)) -> dict[str, Any]:
    """One tensor of a header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


dtypes = st.sampled_from(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "bool"])
shapes = st.lists(st.integers(0, 4), max_size=3)
tables = st.dictionaries(
    st.text(max_size=8).filter(lambda name: name != "__metadata__"), st.tuples(dtypes, shapes), max_size=5
)


# safetensors 0.8 writes broken JSON for metadata without entries.
@given(tables, st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1, max_size=3))
def test_headers_and_values_are_those_the_library_wrote(
    table: Mapping[str, tuple[str, list[int]]], metadata: dict[str, str] | None
) -> None:
    arrays = {
        name: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
        for name, (dtype, shape) in table.items()
    }
    source = MemorySource(save(arrays, metadata))
    tensors, found = read_header(source, FILE)
    assert found == (metadata or {})
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        info = tensors[name]
        assert (info.shape, info.num_bytes, info.num_elements) == (array.shape, array.nbytes, array.size)
        values = read_values(source, info)
        assert values.dtype == array.dtype
        np.testing.assert_array_equal(values, array.reshape(-1))


def library_accepts(content: bytes) -> bool:
    """Does the reference implementation take this file?"""
    try:
        deserialize(content)
    except SafetensorError:
        return False
    return True


GOOD = save(
    {"a": np.arange(6, dtype="f4").reshape(2, 3), "b": np.arange(3, dtype="i1"), "c": np.zeros((0, 5), "f2")},
    {"k": "v"},
)
GOOD_HEADER = 8 + int.from_bytes(GOOD[:8], "little")


# One damage of four is likely, so that what lies behind the first checks is reached too.
@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.integers(8, GOOD_HEADER - 1), st.sampled_from(b'0123456789",:[]{} aFI') | st.integers(0, 255)),
        max_size=4,
    ),
    st.just(len(GOOD)) | st.just(len(GOOD)) | st.just(len(GOOD)) | st.integers(0, len(GOOD)),
    st.none() | st.none() | st.none() | st.integers(0, 2**64 - 1) | st.integers(0, 400),
    st.just(b"") | st.just(b"") | st.just(b"") | st.binary(max_size=4),
)
@example([], len(GOOD), 2**64 - 1, b"")
@example([], len(GOOD), 100_000_001, b"")
def test_a_damaged_file_is_read_right_or_refused_in_one_sentence(
    changes: list[tuple[int, int]], keep: int, length: int | None, tail: bytes
) -> None:
    """What is accepted the reference accepts too, with the same shapes, and what is refused it refuses, but for keys
    that stand twice; no more than two reads, and none beyond the file."""
    content = bytearray(GOOD)
    for at, byte in changes:
        content[at] = byte
    if length is not None:
        content[:8] = struct.pack("<Q", length)
    source = MemorySource(bytes(content[:keep]) + tail)
    tensors = outcome(source)
    if isinstance(tensors, str):
        assert "twice" in tensors or not library_accepts(source.content)
    else:
        assert library_accepts(source.content)
        assert {name: list(info.shape) for name, info in tensors.items()} == {
            name: view["shape"] for name, view in deserialize(source.content)
        }
    assert source.bytes_read <= source.size
    assert source.num_reads <= 2


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 9)
    | st.sampled_from([2**63, 2**64, 10**40, 1.5, float("nan"), "F32", "XX"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["dtype", "shape"]), inner, max_size=2),
    max_leaves=5,
)


@st.composite
def almost_right(draw: st.DrawFn) -> tuple[dict[str, Any], int]:
    """(header, bytes of data) of a good file, with up to two fields replaced."""
    header: dict[str, Any] = {}
    at = 0
    for name in "abc"[: draw(st.integers(1, 3))]:
        dtype, shape = draw(st.sampled_from(["F32", "U8", "F4", "F16"])), draw(st.lists(st.integers(0, 3), max_size=3))
        stop = at + (math.prod(shape) * DTYPE_BITS[dtype] + 7) // 8
        header[name] = entry(dtype, shape, [at, stop])
        at = stop
    for _ in range(draw(st.integers(0, 2))):
        tensor = header[draw(st.sampled_from(sorted(header)))]
        field, value = draw(st.sampled_from(sorted(tensor))), draw(values | st.integers(0, at))
        inner = tensor[field] if isinstance(tensor[field], list) and tensor[field] else None
        if inner is not None and draw(st.booleans()):
            inner[draw(st.integers(0, len(inner) - 1))] = value
        else:
            tensor[field] = value
    return header, at + draw(st.sampled_from([0, 0, 0, 1]))


@settings(max_examples=300)
@given(almost_right())
def test_a_wrong_header_is_refused_in_one_sentence_and_a_right_one_tiles_its_file(
    case: tuple[dict[str, Any], int],
) -> None:
    header, data = case
    tensors = outcome(MemorySource(file_of(header, b"\0" * data)))
    if not isinstance(tensors, str):
        assert sum(info.num_bytes for info in tensors.values()) == data
        assert {name: list(info.shape) for name, info in tensors.items()} == {
            name: field["shape"] for name, field in header.items()
        }


@pytest.mark.parametrize(
    ("header", "data", "sentence"),
    [
        ({"w": entry("F99")}, 8, "tensor 'w' has the unknown dtype 'F99'"),
        ({"w": entry(["F32"])}, 8, "tensor 'w' lacks a dtype"),
        ({"w": {"dtype": "F32", "shape": [2]}}, 8, "tensor 'w' lacks a dtype, a shape or two data_offsets"),
        ({"w": 5}, 8, "tensor 'w' lacks a dtype"),
        ({"w": entry(shape=[True, 2])}, 8, "the shape of tensor 'w' holds something else than sizes"),
        ({"w": entry(shape=[-1, -2])}, 8, "the shape of tensor 'w' holds something else than sizes"),
        ({"w": entry(shape="ab")}, 8, "the shape of tensor 'w' is not a list"),
        ({"w": entry(shape=[2**62, 2])}, 8, "tensor 'w' has 2^63 elements or more"),
        ({"w": entry(shape=[2**64, 0])}, 8, "the shape of tensor 'w' holds something else than sizes"),
        ({"w": entry(shape=[10**9] * 32)}, 8, "tensor 'w' has 2^63 elements or more"),
        ({"w": entry(shape=[1] * 33)}, 8, "tensor 'w' has 33 dimensions, and 32 are the most"),
        ({"w": entry(shape=[10**9] * 500_000)}, 8, "tensor 'w' has 500000 dimensions, and 32 are the most"),
        ({"w" * 4097: entry()}, 8, "...' has a name of 4097 characters, and 4096 are the most"),
        ({"w": entry(offsets=[8, 0])}, 8, "the data_offsets of tensor 'w' are not two ascending positions"),
        ({"w": entry(offsets=[0, 8.0])}, 8, "the data_offsets of tensor 'w' are not two ascending positions"),
        ({"w": entry(offsets=[False, 8])}, 8, "the data_offsets of tensor 'w' are not two ascending positions"),
        ({"w": entry(offsets=[0, 8, 9])}, 8, "two data_offsets"),
        ({"w": entry(offsets=[0, 7])}, 7, "tensor 'w' has 7 bytes, but its shape [2] as F32 takes 8"),
        ({"w": entry(), "x": entry(offsets=[4, 12])}, 12, "tensor 'x' overlaps the one before it"),
        ({"w": entry(), "x": entry()}, 8, "overlaps the one before it"),
        ({"w": entry(), "x": entry(offsets=[9, 17])}, 17, "tensor 'x' leaves a gap before it"),
        ({"w": entry(offsets=[4, 12])}, 12, "tensor 'w' leaves a gap before it"),
        ({"w": entry()}, 7, "is cut short: its header describes"),
        ({"w": entry()}, 9, "is too long: its header describes"),
        ({"__metadata__": {"a": 1}}, 0, "__metadata__ is not a table of strings"),
        (b'{"w": 1, "w": 2}', 0, "names 'w' twice in one object"),
        (b'{"w": {"dtype": "F32", "dtype": "F16"}}', 0, "names 'dtype' twice in one object"),
        (b" {}", 0, "its header does not begin with {"),
        (b"[]", 0, "its header does not begin with {"),
        (b"", 0, "its header does not begin with {"),
        (b'{"a":' * 100_000, 0, "(nested too deeply)"),
        (b'{"a":' + b"[" * 100_000, 0, "(nested too deeply)"),
        (b'{"w": {"dtype": "F32", "shape": [' + b"9" * 5000 + b"]}}", 0, "(a number with too many digits)"),
        (b'{"\xff": 1}', 0, "(not UTF-8 text at byte 2)"),
        (b'{"\\ud800": 1}', 0, "half of a surrogate pair"),
        ({"two\nlines" * 50: entry("F99")}, 8, "tensor 'two\\nlines"),
    ],
)  # fmt: skip
def test_every_rule_of_the_format_is_kept_and_its_breach_named(header: Any, data: int, sentence: str) -> None:
    assert sentence in outcome(MemorySource(file_of(header, b"\0" * data)))


def test_a_file_without_tensors_and_one_with_unknown_extras_are_read() -> None:
    assert read_header(MemorySource(file_of({})), FILE) == ({}, {})
    tensors, _ = read_header(MemorySource(file_of({"w": {**entry(), "extra": 1}}, b"\0" * 8)), FILE)
    assert tensors == {"w": TensorInfo("w", "F32", (2,), FILE, tensors["w"].start, tensors["w"].start + 8)}


def test_names_and_shapes_up_to_their_bounds_are_read() -> None:
    name = "w" * 4096
    tensors, _ = read_header(MemorySource(file_of({name: entry(shape=[1] * 31 + [2])}, b"\0" * 8)), FILE)
    assert tensors[name].num_elements == 2


@pytest.mark.parametrize("spelled", [b'"data_offsets"', b'"data_\\u006fffsets"'])
def test_a_header_of_more_tensors_than_any_model_has_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch, spelled: bytes
) -> None:
    one = b'{"dtype": "F32", "shape": [0, 1, 1, 1, 1], ' + spelled + b": [0, 0]}"

    def header(count: int) -> bytes:
        return b"{" + b", ".join(b'"%d": %s' % (i, one) for i in range(count)) + b"}"

    monkeypatch.setattr(module, "MAX_TENSORS", 50)
    assert len(read_header(MemorySource(file_of(header(50))), FILE)[0]) == 50
    monkeypatch.setattr(module, "parse_object", lambda *_: pytest.fail("parsed"))
    assert outcome(MemorySource(file_of(header(52)))) == (
        "the header of m/model.safetensors has more than 50 tensors; check that it is the right file"
    )


@pytest.mark.parametrize("claimed", [100_000_001, 2**40, 2**64 - 1])
def test_a_huge_header_is_refused_before_it_is_read(claimed: int) -> None:
    source = MemorySource(struct.pack("<Q", claimed) + b"{}", size=2**50)
    with pytest.raises(SpecError, match=f"claims a header of {claimed} bytes"):
        read_header(source, FILE)
    assert source.bytes_read == 8


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is not a safetensors file: it has 0 bytes"),
        (b"1234567", "is not a safetensors file: it has 7 bytes"),
        (b"PK\x03\x04" + b"\0" * 100, "is cut short or not a safetensors file"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", "is a Git LFS pointer"),
    ],
)
def test_a_file_of_another_kind_is_told_apart(content: bytes, sentence: str) -> None:
    assert sentence in outcome(MemorySource(content))


def test_values_of_every_dtype_come_as_they_are_or_as_raw_bytes(tmp_path: Path) -> None:
    half = np.array([1.5, -2.0, 0.0, 3.0])
    tensors: dict[str, Tensor] = {
        "bf16": bf16(half),
        "bool": np.array([True, False]),
        "f8": Bits("F8_E4M3", (3,), b"\x30\x31\x32"),
        "f4": Bits("F4", (4,), b"\x12\x34"),
        "f6": Bits("F6_E2M3", (4,), b"abc"),
        "c64": Bits("C64", (1,), np.array([1 + 2j], "<c8").tobytes()),
    }
    write_safetensors(tmp_path / FILE, tensors)
    source = FolderSource(tmp_path, "m")
    infos, _ = read_header(source, FILE)
    found = {name: read_values(source, info) for name, info in infos.items()}
    assert (found["bf16"].dtype, found["bf16"].tolist()) == (np.float32, half.tolist())
    assert (found["bool"].dtype, found["bool"].tolist()) == (np.bool_, [True, False])
    assert (found["f8"].dtype, found["f8"].tobytes()) == (np.uint8, b"\x30\x31\x32")
    assert (found["f4"].tobytes(), found["f6"].tobytes()) == (b"\x12\x34", b"abc")
    assert found["c64"].tolist() == [1 + 2j]
    assert read_values(source, infos["f4"], 1, 2).tobytes() == b"\x12\x34", "elements 1 and 2 lie in both bytes"
    assert read_values(source, infos["f4"], 2).tobytes() == b"\x34"


def test_a_piece_is_read_alone_and_a_large_one_not_at_all(tmp_path: Path) -> None:
    write_safetensors(tmp_path / FILE, {"w": np.arange(100, dtype="i8"), "big": ("F32", (2**26,))})
    source = FolderSource(tmp_path, "m")
    infos, _ = read_header(source, FILE)
    before = source.bytes_read
    assert read_values(source, infos["w"], 40, 3).tolist() == [40, 41, 42]
    assert source.bytes_read - before == 24
    with pytest.raises(SpecError, match=r"tensor 'big' of m/model.safetensors has 268435456 bytes where at most"):
        read_values(source, infos["big"])
    assert source.bytes_read - before == 24
    assert len(read_values(source, infos["big"], 2**25, 1000)) == 1000
    with pytest.raises(ValueError, match="has 100 elements"):
        read_values(source, infos["w"], 99, 2)


def test_fake_files_have_the_layout_that_the_library_reads(tmp_path: Path) -> None:
    """The builder behind all other tests: every dtype, both fills."""
    layout = {dtype: (dtype, (2, 3, 4)) for dtype in DTYPE_BITS}
    for fill in get_args(Fill):
        path = write_safetensors(tmp_path / fill / FILE, layout, fill=fill)
        views = dict(deserialize(path.read_bytes()))
        assert {name: (view["dtype"], tuple(view["shape"])) for name, view in views.items()} == layout
        assert all(any(view["data"]) == (fill == "random") for view in views.values())
