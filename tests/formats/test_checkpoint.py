"""What a checkpoint's files say together: index against shards, files beside, other formats."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codraft.core.errors import SpecError
from codraft.formats import checkpoint as module
from codraft.formats.checkpoint import open_checkpoint

from tests.checkpoints import Layout, llama_tensors, write_checkpoint, write_index, write_safetensors, write_tokenizer

CONFIG = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 100, "dtype": "bfloat16",
}  # fmt: skip
TENSORS = llama_tensors(CONFIG)
INDEX = "model.safetensors.index.json"
W: dict[str, Layout] = {"w": ("F32", (2, 3))}


def refusal(model: Path | str) -> str:
    """The one sentence that refuses a checkpoint."""
    with pytest.raises(SpecError) as caught:
        open_checkpoint(str(model))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("shards", "index"), [(1, None), (1, True), (3, None), (3, False)])
def test_the_tensors_are_those_of_all_files_however_they_are_split(
    tmp_path: Path, shards: int, index: bool | None
) -> None:
    folder = write_checkpoint(tmp_path / "m", CONFIG, TENSORS, shards=shards, index=index)
    found = open_checkpoint(str(folder))
    assert found.config == CONFIG
    assert {name: (info.dtype, info.shape) for name, info in found.tensors.items()} == TENSORS
    assert (found.unlisted, found.duplicated, found.pickled, found.label) == ({}, [], [], str(folder))
    if found.index is None:
        assert index is False or shards == 1
    else:
        assert found.index.weight_map.keys() == TENSORS.keys()
        lists = (found.index.absent_files, found.index.absent_tensors, found.index.unlisted_files)
        assert (*lists, found.index.unlisted_tensors) == ([], [], [], [])


def test_an_index_and_its_shards_are_compared_both_ways(tmp_path: Path) -> None:
    folder = write_checkpoint(
        tmp_path, CONFIG, TENSORS, shards=3, extra_files={"mtp.safetensors": {"mtp.w": ("BF16", (2,))}}
    )
    weight_map = json.loads((folder / INDEX).read_text())["weight_map"]
    weight_map["ghost"] = "model-00001-of-00003.safetensors"
    del weight_map["model.norm.weight"]
    write_index(folder, weight_map, 0)
    (folder / "model-00002-of-00003.safetensors").unlink()
    found = open_checkpoint(str(folder))
    assert found.index is not None
    assert found.index.absent_files == ["model-00002-of-00003.safetensors"]
    assert found.index.absent_tensors == ["ghost"]
    assert found.index.unlisted_files == ["mtp.safetensors"]
    assert found.index.unlisted_tensors == ["model.norm.weight"]
    assert found.unlisted.keys() == {"mtp.w"}
    absent = {name for name, file in weight_map.items() if file == "model-00002-of-00003.safetensors"}
    assert found.tensors.keys() == TENSORS.keys() - absent


def test_an_index_alone_says_that_every_shard_is_absent(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, TENSORS, shards=2)
    for file in folder.glob("*.safetensors"):
        file.unlink()
    found = open_checkpoint(str(folder))
    assert found.tensors == {}
    assert found.index is not None
    assert len(found.index.absent_files) == 2
    assert found.index.absent_tensors == []


def test_an_index_without_its_shards_is_not_rescued_by_files_beside(tmp_path: Path) -> None:
    """Engines read what the index names, or stop."""
    folder = write_checkpoint(tmp_path, CONFIG, TENSORS)
    write_index(folder, dict.fromkeys(TENSORS, "model-00001-of-00001.safetensors"), 0)
    found = open_checkpoint(str(folder))
    assert found.index is not None
    assert (found.tensors, found.files, found.index.absent_files) == ({}, [], ["model-00001-of-00001.safetensors"])
    assert found.index.unlisted_files == ["model.safetensors"]
    assert found.unlisted.keys() == TENSORS.keys()


def test_a_weight_file_without_tensors_is_not_the_same_as_none(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, {})
    found = open_checkpoint(str(folder))
    assert (found.tensors, found.files, found.index) == ({}, ["model.safetensors"], None)
    (folder / "model.safetensors").unlink()
    assert open_checkpoint(str(folder)).files == []


def test_the_files_are_those_whose_tensors_count(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, TENSORS, shards=2, extra_files={"mtp.safetensors": W})
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    assert open_checkpoint(str(folder)).files == shards
    (folder / shards[0]).unlink()
    assert open_checkpoint(str(folder)).files == shards[1:]


def test_a_checkpoint_of_more_tensors_than_any_model_has_is_refused_at_the_file_where_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    layouts: dict[str, Layout] = {f"w{k:02}": ("F32", (0,)) for k in range(12)}
    folder = write_checkpoint(tmp_path / "m", CONFIG, layouts, shards=3)
    monkeypatch.setattr(module, "MAX_TENSORS", 12)
    assert len(open_checkpoint(str(folder)).tensors) == 12
    monkeypatch.setattr(module, "MAX_TENSORS", 7)
    assert "/m has more than 7 tensors up to 'model-00002-of-00003.safetensors'; check that" in refusal(folder)
    monkeypatch.setattr(module, "MAX_TENSORS", 12)
    monkeypatch.setattr(module, "MAX_HEADERS_BYTES", 100)
    assert "/m has more than 100 bytes of headers up to 'model-00001-of-00003.safetensors'" in refusal(folder)


def test_a_config_without_weights_is_a_checkpoint_without_tensors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = open_checkpoint(str(tmp_path / "config.json"))
    assert (found.tensors, found.index, found.label) == ({}, None, str(tmp_path))


def test_weights_in_another_layout_are_not_counted_twice(tmp_path: Path) -> None:
    """Mistral's repositories hold everything twice; the second copy is beside the index, or beside plain shards."""
    copy = {"consolidated.safetensors": {"layers.0.w": ("BF16", (4,)), "lm_head.weight": TENSORS["lm_head.weight"]}}
    for index in (True, False):
        folder = write_checkpoint(tmp_path / str(index), CONFIG, TENSORS, shards=2, index=index, extra_files=copy)
        found = open_checkpoint(str(folder))
        assert found.tensors.keys() == TENSORS.keys()
        assert found.unlisted.keys() == {"layers.0.w"}
    only = write_checkpoint(tmp_path / "only", CONFIG, {}, extra_files=copy)
    (only / "model.safetensors").unlink()
    assert open_checkpoint(str(only)).tensors.keys() == {"layers.0.w", "lm_head.weight"}


def test_model_safetensors_stands_alone_where_no_index_names_others(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, TENSORS, extra_files={"mtp.safetensors": W, "sub/x.safetensors": W})
    found = open_checkpoint(str(folder))
    assert found.tensors.keys() == TENSORS.keys()
    assert found.unlisted.keys() == {"w"}
    assert found.unlisted["w"].file == "mtp.safetensors"


def test_a_shard_in_a_subfolder_counts_where_the_index_names_it(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, {}, extra_files={"sub/x.safetensors": W, "sub/y.safetensors": W})
    write_index(folder, {"w": "sub/x.safetensors"}, 24)
    found = open_checkpoint(str(folder))
    assert found.tensors["w"].file == "sub/x.safetensors"
    assert found.index is not None
    assert (found.index.absent_files, found.index.unlisted_files) == ([], ["model.safetensors"])


def test_a_tensor_in_two_files_is_recorded_and_the_indexed_one_stands(tmp_path: Path) -> None:
    files = {"a.safetensors": {**W, "a": ("F32", (1,))}, "b.safetensors": {**W, "b": ("F32", (1,))}}
    folder = write_checkpoint(tmp_path, CONFIG, {}, extra_files=files)
    (folder / "model.safetensors").unlink()
    found = open_checkpoint(str(folder))
    assert (found.duplicated, found.tensors["w"].file) == (["w"], "a.safetensors")
    for first in ("a", "b"):
        write_index(folder, {"w": f"{first}.safetensors", "a": "a.safetensors", "b": "b.safetensors"}, 32)
        found = open_checkpoint(str(folder))
        assert (found.duplicated, found.tensors["w"].file) == (["w"], f"{first}.safetensors")
        assert found.tensors.keys() == {"w", "a", "b"}


def test_two_tensors_of_one_name_and_different_shape_need_an_index(tmp_path: Path) -> None:
    files = {"a.safetensors": W, "b.safetensors": {"w": ("F32", (6,))}}
    folder = write_checkpoint(tmp_path, CONFIG, {}, extra_files=files)
    (folder / "model.safetensors").unlink()
    sentence = refusal(folder)
    assert "tensor 'w' is in 'a.safetensors' and in 'b.safetensors' with different shapes" in sentence
    write_index(folder, {"w": "b.safetensors"}, 24)
    assert open_checkpoint(str(folder)).tensors["w"].shape == (6,)
    assert open_checkpoint(str(folder)).unlisted == {}


def test_pickled_weights_are_named_and_never_opened(tmp_path: Path) -> None:
    pickles = {"pytorch_model-00001-of-00002.bin": b"cos\nsystem\n", "x.pt": b"", "consolidated.00.pth": b""}
    others = {"training_args.bin": b"", "optimizer.pt": b"", "rng_state_0.pth": b"", "sub/y.bin": b""}
    folder = write_checkpoint(tmp_path, CONFIG, W, extra_files={**pickles, **others})
    assert open_checkpoint(str(folder)).pickled == sorted(pickles)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"adapter_config.json": {}, "adapter_model.safetensors": W}, "is a LoRA adapter (adapter_config.json); merge"),
        ({"adapter_config.json": {}, "config.json": {}}, "is a LoRA adapter (adapter_config.json); merge it into"),
        ({"params.json": {}}, "has no config.json but 'params.json', which is another format; convert it"),
        ({"model-q4.gguf": b"GGUF"}, "has no config.json but 'model-q4.gguf', which is another format; convert it"),
        ({"model.safetensors": W}, "has no config.json; name the folder or hub id that holds config.json and weights"),
        ({"config.json": []}, "/config.json holds a JSON list, not an object"),
        ({"config.json": {}, INDEX: {"weight_map": {"w": "../w.safetensors"}}}, "is no safetensors file beside it"),
        ({"config.json": {}, "model.safetensors": b"\x09\0\0\0\0\0\0\0{}"}, "/model.safetensors is cut short or not a"),
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused_in_one_sentence(tmp_path: Path, files: dict[str, Any], sentence: str) -> None:
    folder = write_checkpoint(tmp_path / "m", CONFIG, {}, extra_files=files)
    for name in ("config.json", "model.safetensors"):
        if name not in files:
            (folder / name).unlink()
    assert sentence in refusal(folder)


def test_an_adapter_beside_whole_weights_is_only_unlisted(tmp_path: Path) -> None:
    extra = {"adapter_config.json": {}, "adapter_model.safetensors": W}
    found = open_checkpoint(str(write_checkpoint(tmp_path, CONFIG, TENSORS, extra_files=extra)))
    assert found.tensors.keys() == TENSORS.keys()
    assert found.unlisted.keys() == {"w"}


def test_an_index_given_by_name_counts_before_others(tmp_path: Path) -> None:
    files = {"a.safetensors": W, "b.safetensors": {"w": ("F32", (6,))}}
    folder = write_checkpoint(tmp_path, CONFIG, {}, extra_files=files)
    write_index(folder, {"w": "a.safetensors"}, 24)
    other = folder / "model.fp16.safetensors.index.json"
    other.write_text(json.dumps({"weight_map": {"w": "b.safetensors"}}))
    assert open_checkpoint(str(folder)).tensors["w"].file == "a.safetensors"
    assert open_checkpoint(str(other)).tensors["w"].file == "b.safetensors"


def test_a_lone_file_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, TENSORS, shards=3)
    found = open_checkpoint(str(folder / "model-00001-of-00003.safetensors"))
    assert found.index is None
    assert 0 < len(found.tensors) < len(TENSORS)
    assert {info.file for info in found.tensors.values()} == {"model-00001-of-00003.safetensors"}


def test_the_headers_of_400_gb_take_few_bytes(tmp_path: Path) -> None:
    experts: dict[str, Layout] = {
        f"model.layers.{layer}.mlp.experts.{e}.{part}_proj.weight": ("F8_E4M3", (4096, 4096))
        for layer in range(40)
        for e in range(200)
        for part in ("gate", "up", "down")
    }
    folder = write_checkpoint(tmp_path, CONFIG, experts, shards=100, fill="zeros")
    found = open_checkpoint(str(folder))
    assert sum(info.num_bytes for info in found.tensors.values()) > 400e9
    assert len(found.tensors) == 24_000
    assert found.source.bytes_read < 10e6
    shutil.rmtree(folder)


def test_fake_tokenizers_are_read_by_the_tokenizers_library(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    path = write_tokenizer(tmp_path, 300, [{"id": 300, "content": "<end>"}])
    tokenizer = Tokenizer.from_file(str(path))
    assert tokenizer.get_vocab_size() == 301
    assert tokenizer.encode("ab<end>").ids[-1] == 300
    assert tokenizer.decode(tokenizer.encode("grün").ids) == "grün"


def test_fake_values_are_the_same_each_time_and_differ_by_name(tmp_path: Path) -> None:
    tensors: dict[str, Layout] = {"a": ("BF16", (600, 1000)), "b": ("BF16", (600, 1000)), "c": ("I64", (5,))}
    one, two = (write_safetensors(tmp_path / name, tensors).read_bytes() for name in ("1", "2"))
    assert one == two
    size = 600 * 1000 * 2
    a, b = one[-40 - 2 * size : -40 - size], one[-40 - size : -40]
    assert a != b
    assert not np.isnan((np.frombuffer(a, "<u2").astype("<u4") << 16).view("<f4")).any()


HF_QUANT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}


def test_model_optimizers_file_is_part_of_a_config_that_names_no_quantization(tmp_path: Path) -> None:
    files = {"hf_quant_config.json": HF_QUANT}
    silent = write_checkpoint(tmp_path / "silent", CONFIG, TENSORS, extra_files=files)
    assert open_checkpoint(str(silent)).config == {**CONFIG, "hf_quant_config": HF_QUANT}
    fp8 = {"quantization_config": {"quant_method": "fp8"}}
    both: list[dict[str, Any]] = [fp8, {"text_config": fp8}]
    for number, more in enumerate(both):
        named = write_checkpoint(tmp_path / str(number), {**CONFIG, **more}, TENSORS, extra_files=files)
        assert open_checkpoint(str(named)).config == {**CONFIG, **more}


def test_model_optimizers_file_that_is_no_json_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, CONFIG, TENSORS, extra_files={"hf_quant_config.json": "{"})
    assert "hf_quant_config.json" in refusal(folder)
