"""The seven mechanisms side by side, with the memory each would take beside a target."""

import json
from pathlib import Path
from typing import Any

import pytest

from codraft.core.schema import DrafterInfo, Mechanism
from codraft.core.spec import MECHANISMS
from codraft.models.mechanisms import Widths, mechanisms, read_widths, usual_bytes

# Every width is another, so that no two can be mistaken for each other: 8 heads of 11, 2 of them for keys and values.
CONFIG = {
    "num_hidden_layers": 3,
    "hidden_size": 100,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 11,
    "intermediate_size": 300,
    "vocab_size": 50_000,
}
WIDTHS = Widths(hidden=100, q=88, kv=22, ffn=300, vocab=50_000)
LAYER = 100 * (88 + 22 + 22) + 88 * 100 + 3 * 100 * 300


def folder_with(folder: Path, config: Any) -> Path:
    """A folder with this config.json."""
    (folder / "config.json").write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return folder


def table(folder: Path, *drafters: DrafterInfo, **sizes: int) -> dict[str, Mechanism]:
    """The table by mechanism; sizes by drafter name."""
    return {row.mechanism: row for row in mechanisms(folder, drafters, sizes)}


def info(name: str, mechanism: str) -> DrafterInfo:
    """A drafter."""
    return DrafterInfo(name=name, mechanism=mechanism, options={})


def test_every_mechanism_has_one_row_with_every_cell_filled(tmp_path: Path) -> None:
    rows = mechanisms(tmp_path, [], {})
    assert sorted(row.mechanism for row in rows) == sorted(MECHANISMS)
    for row in rows:
        assert all([row.inputs, row.generation, row.memory, row.cost, row.training, row.fits])
        assert row.measured_as == []


def test_widths_are_those_of_the_config(tmp_path: Path) -> None:
    assert read_widths(folder_with(tmp_path, CONFIG)) == WIDTHS
    assert read_widths(folder_with(tmp_path, {"text_config": CONFIG})) == WIDTHS


def test_head_width_and_key_heads_may_go_without_saying(tmp_path: Path) -> None:
    config = {**CONFIG, "hidden_size": 96, "head_dim": None, "num_key_value_heads": None}
    assert read_widths(folder_with(tmp_path, config)) == Widths(hidden=96, q=96, kv=96, ffn=300, vocab=50_000)


@pytest.mark.parametrize("key", ["hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"])
def test_a_config_that_does_not_say_enough_leaves_the_sizes_unknown(key: str, tmp_path: Path) -> None:
    config = {k: v for k, v in CONFIG.items() if k != key}
    assert read_widths(folder_with(tmp_path, config)) is None
    assert {row.memory_bytes for row in table(tmp_path).values()} == {None}


@pytest.mark.parametrize("config", ["{", "[]", "[" * 100_000, {**CONFIG, "num_attention_heads": 0, "head_dim": None}])
def test_a_config_that_makes_no_sense_leaves_the_sizes_unknown(config: Any, tmp_path: Path) -> None:
    assert read_widths(folder_with(tmp_path, config)) is None


def test_a_folder_without_a_config_still_has_a_table(tmp_path: Path) -> None:
    assert {row.memory_bytes for row in table(tmp_path).values()} == {None}


BLOCK = 5 * LAYER + 5 * 100**2


@pytest.mark.parametrize(
    ("mechanism", "parameters"),
    [
        # Queries, keys and values of EAGLE-3's layer read embedding and features side by side.
        ("eagle3", LAYER + 100 * (88 + 22 + 22) + 3 * 100**2 + 32_000 * 100),
        ("mtp", LAYER + 2 * 100**2),
        ("dflash", BLOCK),
        ("dspark", BLOCK + 2 * 256 * 50_000),
        ("ngram", 0),
        ("suffix", 0),
    ],
)
def test_a_head_of_the_usual_shape_is_counted_to_the_parameter_at_two_bytes_each(
    mechanism: str, parameters: int
) -> None:
    assert usual_bytes(mechanism, WIDTHS) == 2 * parameters


def test_an_external_model_has_no_usual_size(tmp_path: Path) -> None:
    assert table(folder_with(tmp_path, CONFIG))["external"].memory_bytes is None


def test_a_reduced_head_is_never_larger_than_the_vocabulary() -> None:
    small = Widths(hidden=100, q=88, kv=22, ffn=300, vocab=1000)
    full, reduced = usual_bytes("eagle3", WIDTHS), usual_bytes("eagle3", small)
    assert full is not None
    assert reduced is not None
    assert full - reduced == 2 * 31_000 * 100


def test_a_drafter_that_was_measured_is_named_with_its_own_size(tmp_path: Path) -> None:
    drafters = [info("small", "external"), info("smaller", "external"), info("ngram", "ngram")]
    rows = table(folder_with(tmp_path, CONFIG), *drafters, small=1234, smaller=99, ngram=0)
    assert (rows["external"].measured_as, rows["external"].memory_bytes) == (["small", "smaller"], 1234)
    assert (rows["ngram"].measured_as, rows["ngram"].memory_bytes) == (["ngram"], 0)
    assert (rows["mtp"].measured_as, rows["mtp"].memory_bytes) == ([], usual_bytes("mtp", WIDTHS))


def test_a_drafter_whose_size_is_not_known_leaves_that_of_the_usual_shape(tmp_path: Path) -> None:
    row = table(folder_with(tmp_path, CONFIG), info("head", "eagle3"))["eagle3"]
    assert (row.measured_as, row.memory_bytes) == (["head"], usual_bytes("eagle3", WIDTHS))
