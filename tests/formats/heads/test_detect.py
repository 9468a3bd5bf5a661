"""Which mechanism and family a checkpoint is of, by its config and the names of its tensors."""

from typing import Any

import pytest

from codraft.formats.heads.detect import detect

from tests.models.inspect.layouts import ALL

Config = dict[str, Any]
PLAIN = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
LAYER = "layers.0.self_attn.q_proj.weight"
MODEL = ("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "lm_head.weight")

# (config, names of tensors, mechanism, family, what it is seen by)
HEADS: list[tuple[Config, tuple[str, ...], str, str, str]] = [
    # EAGLE-3, family by family.
    ({"architectures": ["LlamaForCausalLMEagle3"]}, (), "eagle3", "safeailab", "architectures"),
    ({"architectures": ["LlamaForCausalLMEagle3"]}, ("midlayer.mlp.up_proj.weight",), "eagle3", "safeailab",
     "architectures"),
    (PLAIN, ("fc.weight", "midlayer.mlp.up_proj.weight"), "eagle3", "safeailab", "midlayer.mlp.up_proj.weight"),
    (PLAIN, ("fc.weight", LAYER, "d2t"), "eagle3", "safeailab", "d2t"),
    ({**PLAIN, "draft_vocab_size": 32000}, (), "eagle3", "safeailab", "draft_vocab_size"),
    ({"architectures": ["LlamaForCausalLMEagle3"], "eagle_config": {"use_aux_hidden_state": True}}, (LAYER,), "eagle3",
     "modelopt", "architectures"),
    ({**PLAIN, "eagle_config": {"use_aux_hidden_state": True}}, (LAYER,), "eagle3", "modelopt", "eagle_config"),
    ({"architectures": ["Eagle3DeepseekV2ForCausalLM"], "eagle_config": {"a": 1}}, (), "eagle3", "modelopt",
     "architectures"),
    (PLAIN, ("fc.weight", LAYER, "layers.0.hidden_norm.weight"), "eagle3", "modelopt", "layers.0.hidden_norm.weight"),
    ({"speculators_model_type": "eagle3", "architectures": ["Eagle3Speculator"]}, (), "eagle3", "speculators",
     "speculators_model_type"),
    ({"architectures": ["Qwen3Eagle3Model"]}, (), "eagle3", "deepspec", "architectures"),
    ({"architectures": ["Gemma4Eagle3Model"]}, (), "eagle3", "deepspec", "architectures"),
    # DFlash.
    ({"architectures": ["DFlashDraftModel"], "dflash_config": {"target_layer_ids": [1]}}, (), "dflash", "zlab",
     "architectures"),
    ({"architectures": ["DFlashDraftModel"]}, (), "dflash", "zlab", "architectures"),
    ({"dflash_config": {"mask_token_id": 4}}, (), "dflash", "zlab", "dflash_config"),
    ({"speculators_model_type": "dflash"}, (), "dflash", "speculators", "speculators_model_type"),
    # DSpark.
    ({"architectures": ["Qwen3DSparkModel"], "markov_rank": 256}, (), "dspark", "deepspec", "architectures"),
    ({"architectures": ["Gemma4DSparkModel"], "markov_rank": 0}, (), "dspark", "deepspec", "architectures"),
    ({"architectures": ["DSparkDraftModel"], "dflash_config": {"markov_rank": 8}}, (), "dspark", "specforge",
     "architectures"),
    ({"architectures": ["DSparkDraftModel"], "dflash_config": {"projector_type": "dspark"}}, (), "dspark", "specforge",
     "dflash_config.projector_type"),
    ({"architectures": ["DFlashDraftModel"], "dflash_config": {"projector_type": "dspark"}}, (), "dspark", "modelopt",
     "dflash_config.projector_type"),
    ({"dflash_config": {"projector_type": "dspark"}}, ("markov_w1.weight",), "dspark", "modelopt",
     "dflash_config.projector_type"),
    ({"speculators_model_type": "dspark"}, (), "dspark", "speculators", "speculators_model_type"),
    # MTP in a file of its own.
    ({"architectures": ["Qwen3NextMTP"]}, (), "mtp", "native", "architectures"),
    ({"model_type": "deepseek_mtp"}, (), "mtp", "native", "architectures"),
    ({**PLAIN, "model_type": "qwen3"}, ("mtp.fc.weight", "mtp.layers.0.mlp.up_proj.weight"), "mtp", "native",
     "tensors"),
    ({"speculators_model_type": "mtp", "architectures": ["MTPDraftModel"]}, (), "mtp", "speculators",
     "speculators_model_type"),
    # Heads that are only named.
    ({**PLAIN, "parallel_drafting": True}, (), "peagle", "other", "parallel_drafting"),
    (PLAIN, ("fc.weight", "midlayer.mlp.up_proj.weight", "mask_hidden"), "peagle", "other", "mask_hidden"),
    ({"speculators_model_type": "peagle"}, (), "peagle", "speculators", "speculators_model_type"),
    ({"architectures": ["EagleLlamaForCausalLM"]}, (), "eagle", "safeailab", "architectures"),
    ({"model_type": "eagle"}, (), "eagle", "safeailab", "architectures"),
    (PLAIN, ("fc.weight", LAYER), "eagle", "safeailab", "fc.weight"),
    ({"architectures": ["DFlash2DraftModel"], "dflash_config": {"selector_rank": 64}}, (), "dflash2", "zlab",
     "dflash_config.selector_rank"),
    ({"architectures": ["DFlashDraftModel"], "dflash_config": {"selector_rank": 64}}, (), "dflash2", "zlab",
     "dflash_config.selector_rank"),
    ({"architectures": ["DFlashDraftModel"], "dflash_config": {"projector_type": "domino"}}, (), "domino", "specforge",
     "dflash_config.projector_type"),
    ({"medusa_num_heads": 5}, (), "medusa", "other", "architectures"),
    ({"architectures": ["MedusaModel"]}, (), "medusa", "other", "architectures"),
    ({"model_type": "mlp_speculator"}, (), "mlp_speculator", "other", "architectures"),
    ({"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant"}, (), "gemma4_assistant",
     "native", "architectures"),
    ({"speculators_model_type": "later-one"}, (), "later-one", "speculators", "speculators_model_type"),
    ({"speculators_model_type": "no\nname"}, (), "unknown", "speculators", "speculators_model_type"),
]  # fmt: skip

MODELS: list[tuple[str, Config, tuple[str, ...]]] = [
    ("a plain model", PLAIN, MODEL),
    ("a model by its config alone", PLAIN, ()),
    ("a model with MTP layers inside", {**PLAIN, "num_nextn_predict_layers": 1}, (*MODEL, "mtp.fc.weight")),
    ("DeepSeek-V4 with DSpark stages inside", {"architectures": ["DeepseekV4ForCausalLM"], "dspark_markov_rank": 256},
     (*MODEL, "mtp.0.main_proj.weight")),
    ("a model that sees and is called Eagle",
     {"architectures": ["Eagle2_5_VLForConditionalGeneration"], "model_type": "eagle_2_5_vl", "vision_config": {}}, ()),
    ("an encoder with fc", {"architectures": ["BertModel"]}, ("fc.weight", "encoder.layer.0.output.dense.weight")),
    ("Gemma 4 itself", {"architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4"}, MODEL),
    ("no config at all", {}, ()),
]  # fmt: skip

NAMES = {
    "eagle3": ("eagle3", "safeailab"), "eagle3_modelopt": ("eagle3", "modelopt"),
    "eagle3_speculators": ("eagle3", "speculators"), "eagle3_whole": ("eagle3", "safeailab"),
    "eagle3_deepspec": ("eagle3", "deepspec"), "dflash": ("dflash", "zlab"),
    "dflash_speculators": ("dflash", "speculators"), "dspark": ("dspark", "deepspec"),
    "dspark_speculators": ("dspark", "speculators"), "dspark_modelopt": ("dspark", "modelopt"),
    "dspark_specforge": ("dspark", "specforge"), "mtp_file": ("mtp", "speculators"),
}  # fmt: skip


@pytest.mark.parametrize(("config", "tensors", "mechanism", "family", "seen"), HEADS)
def test_a_head_is_known_by_its_surest_marker(
    config: Config, tensors: tuple[str, ...], mechanism: str, family: str, seen: str
) -> None:
    kind = detect(config, tensors)

    assert kind is not None
    assert (kind.mechanism, kind.family, kind.seen[0]) == (mechanism, family, seen)


@pytest.mark.parametrize(("name", "config", "tensors"), MODELS, ids=[name for name, _, _ in MODELS])
def test_a_model_is_no_head(name: str, config: Config, tensors: tuple[str, ...]) -> None:
    assert detect(config, tensors) is None


@pytest.mark.parametrize("name", NAMES)
def test_a_layout_is_known_with_and_without_its_tensors(name: str) -> None:
    drafter = ALL[name]().drafter
    assert drafter is not None

    whole, alone = detect(drafter.config, drafter.tensors), detect(drafter.config, ())

    assert whole is not None
    assert alone is not None
    assert (whole.mechanism, whole.family) == NAMES[name]
    assert alone.mechanism == whole.mechanism


@pytest.mark.parametrize("value", [None, 5, "DFlashDraftModel", {}, [5, None], [[]]])
def test_class_names_of_another_kind_are_no_names(value: Any) -> None:
    assert detect({"architectures": value}, ()) is None
