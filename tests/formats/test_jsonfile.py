"""JSON of checkpoints: what is read, and that each refusal is one sentence that names the file."""

import json
from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.formats import jsonfile
from codraft.formats.jsonfile import plain, printable, read_json, read_weight_map
from codraft.formats.source import FolderSource


def source_of(folder: Path, content: bytes | str, name: str = "config.json") -> FolderSource:
    """A folder `m` with one file."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return FolderSource(folder, "m")


def test_infinity_and_nan_are_numbers_as_in_real_configs(tmp_path: Path) -> None:
    data = read_json(
        source_of(tmp_path, '{"limit": [0.0, Infinity], "x": NaN, "name": "\\u00fc\\ud83d\\ude00"}'), "config.json"
    )
    assert data["limit"] == [0.0, float("inf")]
    assert data["x"] != data["x"]
    assert data["name"] == "ü😀"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "m/config.json names 'b' twice in one object; remove one"),
        ('{"k\\ny": 1, "k\\ny": 2}', "m/config.json names 'k\\ny' twice in one object; remove one"),
        ("[1]", "m/config.json holds a JSON list, not an object"),
        ("null", "m/config.json holds a JSON null, not an object"),
        ('{"a": 1,}', "line 1, column 9"),
        ("", "m/config.json is not JSON that can be read (Expecting value, line 1, column 1)"),
        ("\ufeff{}", "Unexpected UTF-8 BOM"),
        (b'{"a": "\xff"}', "(not UTF-8 text at byte 7)"),
        ('{"a":' * 100_000, "(nested too deeply)"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "(nested too deeply)"),
        ('{"a": ' + "9" * 5000 + "}", "(a number with too many digits)"),
        ('{"a": "\\ud83d"}', "half of a surrogate pair"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:00", "is a Git LFS pointer"),
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused_in_one_sentence(tmp_path: Path, content: bytes | str, sentence: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_json(source_of(tmp_path, content), "config.json")
    assert sentence in str(caught.value)
    assert str(caught.value).startswith("m/config.json ")
    assert "\n" not in str(caught.value)


def test_a_file_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    source = source_of(tmp_path, '{"a": 1}')
    with pytest.raises(SpecError, match=r"^m/config.json has 8 bytes, and at most 7 are read"):
        read_json(source, "config.json", 7)
    assert source.bytes_read == 0
    assert read_json(source, "config.json", 8) == {"a": 1}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^m has no 'tokenizer.json'"):
        read_json(source_of(tmp_path, "{}"), "tokenizer.json")


def test_duplicates_stand_where_they_are_allowed_and_the_last_counts(tmp_path: Path) -> None:
    assert read_json(source_of(tmp_path, '{"a": 1, "a": 2}'), "config.json", duplicates_ok=True) == {"a": 2}


@pytest.mark.parametrize(
    "file",
    ["../a.safetensors", "/a.safetensors", "a/../../b.safetensors", "a//b.safetensors", "C:a.safetensors",
     "..\\a.safetensors", "a\n.safetensors", "pytorch_model.bin", ".", "", "./a.safetensors"],
)  # fmt: skip
def test_a_weight_map_that_leads_out_of_the_checkpoint_is_refused(tmp_path: Path, file: str) -> None:
    index = "model.safetensors.index.json"
    source = source_of(tmp_path, json.dumps({"weight_map": {"w": "good.safetensors", "x": file}}), index)
    with pytest.raises(
        SpecError, match=r"^m/model.safetensors.index.json names '.*', which is no safetensors file"
    ) as caught:
        read_weight_map(source)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": null}'])
def test_an_index_without_a_table_of_files_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(SpecError, match="has no weight_map of tensor and file names"):
        read_weight_map(source_of(tmp_path, content, "model.safetensors.index.json"))


def test_a_shard_in_a_subfolder_is_a_name_like_any_other(tmp_path: Path) -> None:
    source = source_of(tmp_path, '{"weight_map": {"w": "sub/a.safetensors"}}', "model.safetensors.index.json")
    assert read_weight_map(source) == {"w": "sub/a.safetensors"}


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_64_levels_are_read_and_one_more_is_refused(tmp_path: Path, opening: str, closing: str) -> None:
    """Later code may call itself once a level."""

    def nested(levels: int) -> FolderSource:
        return source_of(tmp_path, '{"a":' + opening * (levels - 1) + "1" + closing * (levels - 1) + "}")

    assert read_json(nested(64), "config.json").keys() == {"a"}
    with pytest.raises(
        SpecError, match=r"^m/config.json is nested more than 64 levels deep; mend it or fetch it again$"
    ):
        read_json(nested(65), "config.json")


def test_an_index_of_more_tensors_than_any_model_has_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonfile, "MAX_TENSORS", 2)
    name = "model.safetensors.index.json"
    source = source_of(tmp_path, '{"weight_map": {"a": "x.safetensors", "b": "x.safetensors"}}', name)
    assert len(read_weight_map(source)) == 2
    source = source_of(
        tmp_path, '{"weight_map": {"a": "x.safetensors", "b": "x.safetensors", "c": "x.safetensors"}}', name
    )
    with pytest.raises(SpecError, match=r"^m/model.safetensors.index.json names more than 2 tensors; check that"):
        read_weight_map(source)


@pytest.mark.parametrize(("key", "file"), [("k" * 4097, "x.safetensors"), ("k", "x" * 4096 + ".safetensors")])
def test_names_in_an_index_have_bounds(tmp_path: Path, key: str, file: str) -> None:
    name = "model.safetensors.index.json"
    content = json.dumps({"weight_map": {key: file}})
    with pytest.raises(SpecError, match=r"^m/model.safetensors.index.json names '[kx]{100}\.\.\.', ") as caught:
        read_weight_map(source_of(tmp_path, content, name))
    assert len(str(caught.value)) < 300


def test_foreign_words_are_shown_on_one_line_cut_and_escaped() -> None:
    assert printable("a\nb\x1b[31m\udcff" + "x" * 300) == "a b\\x1b[31m\\udcff" + "x" * 191
    assert (plain("dir/ü b.bin"), plain("a\nb"), plain("\udcff")) == ("dir/ü b.bin", "'a\\nb'", "'\\udcff'")
