"""Pairs from the outside: a head on the wrong target, layer ids engine by engine, files that cannot be."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codraft.core.errors import SpecError
from codraft.formats.heads.detect import detect
from codraft.formats.heads.read import read_head
from codraft.models.inspect.engines import engine_readings
from codraft.models.inspect.job import inspect
from codraft.models.inspect.pair import Question

from tests.checkpoints import llama_tensors
from tests.models.inspect.case import DRAFTER, Bench, asks, grave
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import L, Side, Two, eagle3_tensors, layer_config, target_config

Outputs = list[tuple[int, ...] | None]
DEFAULT = (1, L // 2 - 1, L - 4)
OTHER = (2, 5, 7)
# One less than OTHER: outputs taken for inputs.
OFF = (1, 4, 6)
# (key, ids as written, what each engine reads as outputs of layers; two where versions or runners differ).
TOP, NESTED = "eagle_aux_hidden_state_layer_ids", "eagle_config.eagle_aux_hidden_state_layer_ids"
EAGLE3: list[tuple[dict[str, tuple[int, ...]], Outputs, Outputs, Outputs]] = [
    # vLLM takes ids at the top as inputs, SGLang and TensorRT-LLM nested ones as outputs.
    ({TOP: (3, 6, 8)}, [OTHER], [DEFAULT], [DEFAULT]),
    ({TOP: (2, L // 2, L - 3)}, [DEFAULT], [DEFAULT], [DEFAULT]),
    ({NESTED: OTHER}, [OFF, DEFAULT], [OTHER, OFF], [OTHER]),
    ({NESTED: DEFAULT}, [(0, 4, 7), DEFAULT], [DEFAULT], [DEFAULT]),
    ({TOP: (3, 6, 8), NESTED: OTHER}, [OTHER], [OTHER, OFF], [OTHER]),
    # An argument of TensorRT-LLM, which no engine reads in a checkpoint.
    ({"eagle3_layers_to_capture": OTHER}, [DEFAULT], [DEFAULT], [DEFAULT]),
    ({"target_layer_ids": OTHER}, [OTHER], [DEFAULT], [DEFAULT]),
]
BLOCK: list[tuple[str, dict[str, tuple[int, ...]], Outputs, Outputs, Outputs]] = [
    # Outputs for everybody; vLLM's converter takes one off the speculators library's inputs.
    ("dflash", {"dflash_config.target_layer_ids": OTHER}, [OTHER], [OTHER], [OTHER]),
    ("dspark", {"target_layer_ids": OTHER}, [OTHER], [OTHER], [OTHER]),
    ("dspark_modelopt", {"dflash_config.target_layer_ids": (-1, 5, 7)}, [(-1, 5, 7)], [(-1, 5, 7)], [(-1, 5, 7)]),
    ("dflash_speculators", {"aux_hidden_state_layer_ids": (3, 6, 8)}, [OTHER], [None], [None]),
    ("dspark_speculators", {"aux_hidden_state_layer_ids": (0, 6, 8)}, [(-1, 5, 7)], [None], [None]),
]
ENGINES = ("vllm", "sglang", "trtllm")


def outputs(config: dict[str, Any]) -> list[Outputs]:
    """What each engine reads, of a config without tensors."""
    kind = detect(config, ())
    assert kind is not None
    head = read_head(kind, config, {}, "config.json")
    return [[reading.outputs for reading in engine_readings(head, L, engine)] for engine in ENGINES]


@pytest.mark.parametrize(("ids", "vllm", "sglang", "trtllm"), EAGLE3)
def test_each_engine_reads_the_layers_of_an_eagle3_head_in_its_own_way(
    ids: dict[str, tuple[int, ...]], vllm: Outputs, sglang: Outputs, trtllm: Outputs
) -> None:
    two = ALL["eagle3"]()
    DRAFTER.silent(TOP)(two)
    for key, written in ids.items():
        DRAFTER.says(key, list(written))(two)
    assert two.drafter is not None

    assert outputs(two.drafter.config) == [vllm, sglang, trtllm]


@pytest.mark.parametrize(("base", "ids", "vllm", "sglang", "trtllm"), BLOCK)
def test_engines_agree_on_the_layers_of_a_block_drafter(
    base: str, ids: dict[str, tuple[int, ...]], vllm: Outputs, sglang: Outputs, trtllm: Outputs
) -> None:
    two = ALL[base]()
    for key, written in ids.items():
        DRAFTER.says(key, list(written))(two)
    assert two.drafter is not None

    assert outputs(two.drafter.config) == [vllm, sglang, trtllm]


@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_says_how_it_comes_to_its_layers(engine: str, tmp_path: Path) -> None:
    record = Bench(tmp_path).changed(
        "eagle3_speculators", (DRAFTER.says(TOP, [3, 6, 8]), asks(engine=None if engine == "vllm" else engine))
    )

    (finding,) = [finding for finding in record.findings if finding.code == "taps.engine"]
    assert set(finding.engines) == (set(ENGINES) if engine == "vllm" else {engine})
    assert str(list(OTHER if engine == "vllm" else DEFAULT)) in finding.engines[engine]


def small_model(hidden: int, heads: int, vocab: int) -> Side:
    """A Llama in the proportions of SmolLM2-135M and 360M."""
    config = target_config(
        architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=hidden, num_attention_heads=heads,
        num_key_value_heads=heads // 3, head_dim=64, intermediate_size=hidden * 2, vocab_size=vocab,
    )  # fmt: skip
    return Side(config, dict(llama_tensors(config)))


def head_for(hidden: int, vocab: int) -> Side:
    """An EAGLE-3 head for a target of this width; the widths of its other tensors follow."""
    config = layer_config(
        architectures=["LlamaForCausalLMEagle3"], hidden_size=hidden, vocab_size=vocab, draft_vocab_size=128,
        eagle_aux_hidden_state_layer_ids=[2, L // 2, L - 3],
    )  # fmt: skip
    tensors = eagle3_tensors("midlayer")
    for name, tensor in tensors.items():
        if isinstance(tensor, tuple):
            shape = tuple(hidden * n // 64 if n in (64, 128, 192) and not fixed(name, i) else n
                          for i, n in enumerate(tensor[1]))  # fmt: skip
            tensors[name] = (tensor[0], shape)
    return Side(config, {name: tensors[name] for name in tensors if name != "t2d"}, tokenizer=False)


def fixed(name: str, axis: int) -> bool:
    """Whether a dimension has nothing to do with the hidden size: heads, the FFN, the draft vocabulary."""
    first = ("q_proj", "gate_proj", "up_proj", "lm_head")
    return any(part in name for part in (first if axis == 0 else ("o_proj", "down_proj")))


@pytest.mark.parametrize("tensors", [True, False], ids=["with tensors", "by the configs alone"])
def test_a_head_for_another_target_is_found_by_width_and_by_vocabulary(tensors: bool, tmp_path: Path) -> None:
    two = Two(small_model(960, 15, 2048), head_for(576, 49152))
    assert two.drafter is not None
    if not tensors:
        for side in (two.target, two.drafter):
            side.tensors, side.shards = {}, 0

    record = Bench(tmp_path).run(two)

    assert grave(record) == ["hidden.mismatch", "vocab.size"]
    messages = " ".join(finding.message for finding in record.findings if finding.severity == "error")
    assert "576" in messages
    assert "960" in messages
    assert "49152" in messages


def test_the_same_head_on_its_own_target_is_right(tmp_path: Path) -> None:
    record = Bench(tmp_path).run(Two(small_model(576, 9, 2048), head_for(576, 2048)))

    assert grave(record) == []


def test_a_head_in_the_place_of_the_target_is_refused(tmp_path: Path) -> None:
    two = ALL["dflash"]()
    assert two.drafter is not None
    folder = str(two.drafter.write(tmp_path / "head"))

    with pytest.raises(SpecError, match=r"is a drafter's head \(dflash, seen by architectures\)"):
        inspect(folder)


@pytest.mark.parametrize(
    "wrong",
    [{"hidden_size": None}, {"hidden_size": "64"}, {"num_hidden_layers": 10**9}, {"block_size": 0}, {"block_size": -8},
     {"block_size": True}, {"num_attention_heads": 0}, {"dflash_config": {"target_layer_ids": "1,5,9"}},
     {"dflash_config": {"target_layer_ids": [1.5]}}, {"rope_scaling": [1]}, {"vocab_size": 1 << 60}],
    ids=str,
)  # fmt: skip
def test_a_malformed_config_is_one_sentence_that_names_the_file(wrong: dict[str, Any], tmp_path: Path) -> None:
    two = ALL["dflash"]()
    assert two.drafter is not None
    two.drafter.config |= wrong
    target, drafter = two.target.write(tmp_path / "target"), two.drafter.write(tmp_path / "drafter")

    with pytest.raises(SpecError) as raised:
        inspect(str(target), str(drafter), Question(depth=4))

    assert next(iter(wrong)) in str(raised.value)
    assert "\n" not in str(raised.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "yarn", "qwen3_moe", "deepseek_v3", "full_attention"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "factor", "a"]), inner),
    max_leaves=4,
)  # fmt: skip
MORE = (
    "quantization_config", "rope_scaling", "rope_parameters", "layer_types", "sliding_window", "num_target_layers",
    "num_nextn_predict_layers", "tie_word_embeddings", "dflash_config", "eagle_config", "text_config", "model_type",
)  # fmt: skip


@pytest.mark.parametrize("base", ["eagle3", "dflash_speculators", "dspark", "mtp_file", "external"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_whatever_a_config_says_gives_findings_or_one_sentence(base: str, tmp_path: Path, data: st.DataObject) -> None:
    two = ALL[base]()
    assert two.drafter is not None
    side = data.draw(st.sampled_from([two.target, two.drafter]))
    side.config[data.draw(st.sampled_from([*side.config, *MORE]))] = data.draw(JSON)
    for folder, one in (("target", two.target), ("drafter", two.drafter)):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "config.json").write_text(json.dumps(one.config))

    try:
        record = inspect(str(tmp_path / "target"), str(tmp_path / "drafter"), Question(tp=2, depth=4, context=9000))
    except SpecError as error:
        words = [str(error)]
    else:
        words = [finding.message for finding in record.findings]
        assert all(finding.evidence for finding in record.findings)
    assert not [text for text in words if "\n" in text]


def test_configs_of_mechanisms_that_are_only_named_are_read(tmp_path: Path) -> None:
    target = ALL["alone"]().target.write(tmp_path / "target")
    for name, config in (
        ("medusa", {"medusa_num_heads": 5, "medusa_num_layers": 1, "hidden_size": 64}),
        ("mlp_speculator", {"architectures": ["MLPSpeculatorPreTrainedModel"], "model_type": "mlp_speculator",
                            "emb_dim": 64, "inner_dim": 32, "n_predict": 3, "vocab_size": 512}),
        ("gemma4_assistant", {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
                              "text_config": layer_config()}),
    ):  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))

        record = inspect(str(target), str(folder), Question(tp=4))

        assert "method.other" in [finding.code for finding in record.findings]
        assert not [finding.code for finding in record.findings if finding.severity == "error"]
