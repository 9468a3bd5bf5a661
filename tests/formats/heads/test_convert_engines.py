"""Layer ids and switches in the words of each layout, and in those that an engine reads."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.formats.heads.test_convert_said import (
    FULL,
    SLIDING,
    config_of,
    nested,
    refused,
    run,
    target,
    with_keys,
)
from tests.formats.heads.test_read import side
from tests.models.inspect.pairs import RANK, V

__all__ = ["target"]


def test_each_layout_counts_layers_in_its_own_way(tmp_path: Path, target: str) -> None:
    run(side("eagle3"), "modelopt", tmp_path / "a")
    run(side("eagle3"), "speculators", tmp_path / "b", target)
    run(side("dflash_speculators"), "speculators", tmp_path / "c")
    run(side("dflash"), "speculators", tmp_path / "d", target)

    key = "eagle_aux_hidden_state_layer_ids"
    assert config_of(tmp_path / "a")["eagle_config"][key] == [1, 5, 8]
    assert key not in config_of(tmp_path / "a")
    assert config_of(tmp_path / "b")[key] == [2, 6, 9]
    assert config_of(tmp_path / "c")["aux_hidden_state_layer_ids"] == [2, 6, 10]
    assert config_of(tmp_path / "d")["aux_hidden_state_layer_ids"] == [2, 6, 10]


@pytest.mark.parametrize(
    ("name", "to", "engine", "top", "inner"),
    [
        ("eagle3_modelopt", "modelopt", "vllm", [2, 6, 9], [1, 5, 8]),
        ("eagle3_modelopt", "safeailab", "vllm", [2, 6, 9], [1, 5, 8]),
        ("eagle3", "safeailab", "sglang", [2, 6, 9], [1, 5, 8]),
        ("eagle3", "safeailab", "trtllm", [2, 6, 9], [1, 5, 8]),
        ("eagle3", "safeailab", "vllm", [2, 6, 9], None),
        ("eagle3", "modelopt", None, None, [1, 5, 8]),
    ],
)
def test_an_engine_gets_the_ids_under_the_key_and_in_the_count_that_it_reads(
    name: str, to: str, engine: str | None, top: list[int] | None, inner: list[int] | None, tmp_path: Path
) -> None:
    record = run(side(name), to, tmp_path, engine=engine)

    config, key = config_of(tmp_path), "eagle_aux_hidden_state_layer_ids"
    assert config.get(key) == top
    assert config.get("eagle_config", {}).get(key) == inner
    assert record.engine == engine
    added = engine is not None and (name, engine) != ("eagle3", "vllm")
    assert any("layer ids written as" in note for note in record.notes) is added
    assert any("one runner of vLLM takes them for inputs" in note for note in record.notes) is (engine is None)
    assert record.taps is not None
    assert record.taps.outputs == [1, 5, 8]
    written = {one.key: one.ids for one in record.taps.written}
    assert written == {name: ids for name, ids in ((key, top), (f"eagle_config.{key}", inner)) if ids is not None}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_specforges_norm_output_is_kept_from_engines_that_take_it_for_another(engine: str, tmp_path: Path) -> None:
    base = with_keys("eagle3", norm_output=True)
    record = run(base, "safeailab", tmp_path, engine=engine)

    assert "norm_output" not in config_of(tmp_path)
    assert any("norm_output left out" in note for note in record.notes)
    run(base, "safeailab", tmp_path / "plain")
    assert config_of(tmp_path / "plain")["norm_output"] is True


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_the_normed_feedback_is_said_in_the_words_of_an_engine(engine: str, tmp_path: Path) -> None:
    base = with_keys("eagle3_speculators", norm_output=True, norm_before_residual=False)
    run(base, "modelopt", tmp_path, engine=engine)

    config = config_of(tmp_path)
    assert config["norm_output"] is True
    assert config["eagle_config"]["return_hidden_post_norm"] is True


@pytest.mark.parametrize(
    ("name", "to", "engine", "words"),
    [
        ("dflash", "speculators", "sglang", "SGLang does not read speculators files of dflash; write --to zlab"),
        ("dflash", "speculators", "trtllm", "TensorRT-LLM does not read speculators files"),
        ("dspark", "modelopt", "vllm", "vLLM does not read Model-Optimizer files of dspark; write --to deepspec"),
        (
            "mtp_file",
            "speculators",
            "vllm",
            "vLLM does not read speculators files of mtp; and no target's own names fit",
        ),
    ],
)
def test_a_layout_that_an_engine_does_not_read_is_refused(
    name: str, to: str, engine: str, words: str, tmp_path: Path, target: str
) -> None:
    assert words in refused(side(name), to, tmp_path, target, engine)


def test_what_vllm_would_run_otherwise_is_refused(tmp_path: Path, target: str) -> None:
    mixed = {"layers": {"layer_types": [SLIDING, FULL], "sliding_window": 32}}
    said = refused(with_keys("dflash", **mixed), "speculators", tmp_path, target, "vllm")
    assert "vLLM makes the full layers of such a speculators file causal too" in said
    said = refused(nested("dflash", "dflash_config", shift_label=True), "zlab", tmp_path, None, "vllm")
    assert "vLLM runs no DFlash head whose slots predict the token after" in said
    said = refused(with_keys("eagle3", norm_output=False), "modelopt", tmp_path, None, "vllm")
    assert "vLLM always norms before the output head" in said


@pytest.mark.parametrize("engine", [None, "vllm", "sglang"])
def test_specforges_dspark_has_the_class_and_the_keys_that_engines_want(engine: str | None, tmp_path: Path) -> None:
    run(side("dspark_modelopt"), "specforge", tmp_path, engine=engine)

    config = config_of(tmp_path)
    assert config["architectures"] == ["DSparkDraftModel" if engine is None else "Qwen3DSparkModel"]
    assert config["dflash_config"]["markov_rank"] == RANK
    assert config.get("markov_rank") == (None if engine is None else RANK)


def test_what_absence_would_turn_into_something_else_is_always_written(tmp_path: Path, target: str) -> None:
    run(side("eagle3"), "speculators", tmp_path / "a", target)
    assert config_of(tmp_path / "a")["norm_before_residual"] is False
    run(side("dflash"), "speculators", tmp_path / "b", target)
    # vLLM makes every layer causal by false, also those without a window.
    assert config_of(tmp_path / "b")["sliding_window_non_causal"] is True
    assert config_of(tmp_path / "b")["sample_from_anchor"] is False
    sliding = with_keys("dflash", layer_types=[SLIDING, FULL], sliding_window=32)
    run(sliding, "speculators", tmp_path / "c", target)
    assert config_of(tmp_path / "c")["sliding_window_non_causal"] is False
    verifier = config_of(tmp_path / "b")["speculators_config"]["verifier"]
    assert verifier == {"name_or_path": target, "architectures": ["Qwen3ForCausalLM"]}


def test_modules_named_in_a_quantization_config_get_their_new_names(tmp_path: Path) -> None:
    base = with_keys("eagle3", quantization_config={"ignore": ["lm_head", "midlayer.self_attn.q_proj", "re:.*norm"]})
    base.extra["hf_quant_config.json"] = {"quantization": {"exclude_modules": ["midlayer.mlp.up_proj"]}}
    run(base, "modelopt", tmp_path)

    assert config_of(tmp_path)["quantization_config"] == {
        "ignore": ["lm_head", "layers.0.self_attn.q_proj", "re:.*norm"]
    }
    beside = json.loads((tmp_path / "out" / "hf_quant_config.json").read_text())
    assert beside == {"quantization": {"exclude_modules": ["layers.0.mlp.up_proj"]}}


def test_a_switch_of_the_graph_is_never_dropped_for_an_engine(tmp_path: Path) -> None:
    """Only SafeAILab's layout means another thing by norm_output than vLLM takes it for."""
    base = with_keys("eagle3_modelopt", norm_output=True)
    run(base, "modelopt", tmp_path, engine="vllm")
    assert config_of(tmp_path)["norm_output"] is True


def test_a_map_that_reorders_a_whole_vocabulary_is_not_dropped_for_vllm(tmp_path: Path) -> None:
    base = side("eagle3_whole")
    turned = np.roll(np.arange(V), 1) - np.arange(V)
    base.tensors["d2t"] = turned.astype("<i8")
    assert "in another order, for which vLLM has no place" in refused(base, "safeailab", tmp_path, engine="vllm")
    base.tensors["d2t"] = np.zeros(V, "<i8")
    record = run(base, "safeailab", tmp_path / "same", engine="vllm")
    assert record.dropped == ["d2t"]
