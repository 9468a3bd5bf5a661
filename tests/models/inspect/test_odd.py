"""Odd, hostile and broken checkpoints: each is inspected and its record can be read back, or it is one sentence."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codraft.core.errors import SpecError
from codraft.core.inspection import InspectionRecord
from codraft.core.record import dumps, read_record
from codraft.models.inspect.job import inspect
from codraft.models.inspect.pair import LONGEST_MESSAGE, Question, brief, short
from codraft.models.inspect.quantization import matches, quick

from tests.checkpoints import Tensor
from tests.models.inspect.case import DRAFTER, TARGET, Change
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import VD


def inspected(base: str, folder: Path, *changes: Change) -> InspectionRecord:
    """The changed pair's record, after a way through a file."""
    two = ALL[base]()
    for change in changes:
        change(two)
    paths = [two.target.write(folder / "target")]
    if two.drafter is not None:
        paths.append(two.drafter.write(folder / "drafter"))
    target, *drafters = map(str, paths)
    record = inspect(target, drafters[0] if drafters else None, Question(**two.asked))
    (folder / "record.json").write_text(dumps(record), encoding="utf-8")
    assert read_record(folder / "record.json", InspectionRecord) == record
    for finding in record.findings:
        texts = [finding.message, *finding.engines.values(), *(e.key for e in finding.evidence)]
        assert all(text.isprintable() and len(text) <= LONGEST_MESSAGE for text in texts), finding
    return record


NESTED: list[Any] = []
for _ in range(30):
    NESTED = [NESTED]


@pytest.mark.parametrize("value", [math.nan, math.inf, [math.nan], {"a": [math.inf]}, NESTED, 10**400, "x" * 5000])
@pytest.mark.parametrize("key", ["num_anchors", "sliding_window", "norm_output", "verifier"])
def test_no_value_of_a_config_spoils_the_record(key: str, value: Any, tmp_path: Path) -> None:
    inspected("eagle3", tmp_path, DRAFTER.says(key, value), TARGET.says("dspark_block_size", value))


def test_a_quantization_config_with_nan_is_shown(tmp_path: Path) -> None:
    record = inspected(
        "eagle3", tmp_path,
        TARGET.says("quantization_config", {"quant_method": "gptq", "bits": 4, "damp_percent": math.nan}),
    )  # fmt: skip
    (finding,) = [finding for finding in record.findings if finding.code == "quant.target"]
    assert finding.evidence[0].value["damp_percent"] == "nan"


SHAPES: list[tuple[str, str, dict[str, Tensor]]] = [
    ("target", "eagle3_speculators", {"model.embed_tokens.weight": ("BF16", ())}),
    ("target", "eagle3_speculators", {"model.embed_tokens.weight": ("BF16", (512,))}),
    ("drafter", "eagle3", {"d2t": ("I64", (*[1] * 20, 128))}),
    ("drafter", "eagle3", {"d2t": ("I64", (0, 4))}),
    ("drafter", "eagle3", {"d2t": ("BOOL", (VD,))}),
    ("drafter", "eagle3", {"t2d": ("I64", (2, 2))}),
    ("drafter", "eagle3", {"midlayer.self_attn.q_proj.weight": ("BF16", ()),
                           "midlayer.self_attn.k_proj.weight": ("BF16", (7, 128))}),
    ("drafter", "dflash", {"embed_tokens.weight": ("BF16", ())}),
    ("drafter", "eagle3_speculators", {"embed_tokens.weight": ("BF16", (0, 64)), "lm_head.weight": ("BF16", (0, 64))}),
    ("drafter", "eagle3", {"fc.weight": ("BF16", (0, 0))}),
    ("drafter", "eagle3", {"norm.weight": ("F8_E4M3", (64,)), "fc.weight": ("F4", (64, 192))}),
    ("drafter", "dspark", {"markov_head.markov_w1.weight": ("BF16", (1,))}),
]  # fmt: skip


@pytest.mark.parametrize(("side", "base", "tensors"), SHAPES)
def test_no_shape_of_a_tensor_is_taken_for_granted(
    side: str, base: str, tensors: dict[str, Tensor], tmp_path: Path
) -> None:
    at = TARGET if side == "target" else DRAFTER
    inspected(base, tmp_path, at.holds(tensors))


@pytest.mark.parametrize(
    "name", ["a\x1b[2Jb", "line\nbreak", "[red]x[/red]", "n" * 3000, "\u202e", "model.layers.99.x"]
)
def test_no_name_of_a_tensor_reaches_a_terminal_as_it_is(name: str, tmp_path: Path) -> None:
    record = inspected("eagle3", tmp_path, DRAFTER.holds({name: ("BF16", (4,))}))
    assert "weights.unexpected" in [finding.code for finding in record.findings]


@pytest.mark.parametrize("pattern", ["a?" * 66 + "a" * 66, "(a+)+$", ".*.*.*.*x$", "(.*)*y", "x{9}{9}{9}{9}"])
def test_an_expression_that_may_take_for_ever_is_not_tried(pattern: str) -> None:
    assert not quick(pattern)
    # Its plain words are compared instead.
    assert not matches("model.layers.0.mlp", f"re:{pattern}lm_head")


@pytest.mark.parametrize("pattern", [r".*mtp.*", r"model\.layers\.\d+\.mlp\.gate$", "re.*lm_head"])
def test_an_ordinary_expression_is_tried(pattern: str) -> None:
    assert quick(pattern)


@pytest.mark.parametrize("key", ["markov_rank", "selector_rank", "medusa_num_heads", "draft_vocab_size"])
def test_a_key_that_holds_null_makes_no_head(key: str, tmp_path: Path) -> None:
    two = ALL["alone"]()
    two.target.config[key] = None
    assert inspect(str(two.target.write(tmp_path / "t"))).target.num_layers == 12


def test_a_null_beside_eagle3_changes_nothing(tmp_path: Path) -> None:
    assert not [
        f for f in inspected("eagle3", tmp_path, DRAFTER.says("dflash_config", {})).findings if f.severity == "error"
    ]


@pytest.mark.parametrize("name", ["EagleLM7BForCausalLM", "BaldEagleForCausalLM"])
def test_a_model_whose_name_has_an_eagle_is_a_model(name: str, tmp_path: Path) -> None:
    two = ALL["alone"]()
    two.target.config["architectures"] = [name]
    assert inspect(str(two.target.write(tmp_path / "t"))).target.architectures == [name]


def test_a_block_of_one_slot_asks_for_no_depth_of_zero(tmp_path: Path) -> None:
    record = inspected("dflash", tmp_path, DRAFTER.says("block_size", 1))
    (finding,) = [finding for finding in record.findings if finding.code == "block.depth"]
    assert "mend block_size" in finding.fix


def test_shards_that_are_all_absent_beside_another_file_are_an_error(tmp_path: Path) -> None:
    two = ALL["alone"]()
    folder = two.target.write(tmp_path / "t")
    weight_map = dict.fromkeys(two.target.tensors, "model-00001-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    codes = [f.code for f in inspect(str(folder)).findings if f.severity == "error"]
    assert "index.absent_file" in codes


def test_a_bool_is_no_number_of_positions(tmp_path: Path) -> None:
    record = inspected("eagle3", tmp_path, DRAFTER.says("max_position_embeddings", True))
    assert getattr(record.drafter, "max_positions", 0) is None


def test_a_head_that_is_no_json_object_is_one_sentence(tmp_path: Path) -> None:
    two = ALL["eagle3"]()
    assert two.drafter is not None
    target, drafter = two.target.write(tmp_path / "t"), two.drafter.write(tmp_path / "d")
    (drafter / "config.json").write_text("[1]", encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        inspect(str(target), str(drafter))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0.5, "a", None, True, [1, 2], {"a": 1}, 3])
def test_ordinary_values_are_shown_as_they_are(value: Any) -> None:
    assert brief(value) == value


def test_what_is_shown_is_cut_and_says_so() -> None:
    assert short("x" * 500).endswith("...")
    assert len(short("x" * 500)) <= 120
    assert brief(list(range(100)))[-1] == "... 100 in all"
    assert json.dumps(brief({"a": {"b": {"c": {"d": np.nan}}}}), allow_nan=False)
