"""MTP modules as files hold them: every fault is named, and what codraft does not run is refused by a sentence."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from codraft.core.errors import SpecError
from codraft.formats.checkpoint import Checkpoint, Index
from codraft.formats.heads.mtp_layout import MtpLayout, read_layout
from codraft.formats.heads.mtp_options import NATIVE, SPECULATORS, GroupedShape, LatentShape, read_mtp
from codraft.formats.safetensors import TensorInfo

H, L = 16, 3
GLM: dict[str, Any] = {
    "model_type": "glm4_moe", "vocab_size": 24, "hidden_size": H, "intermediate_size": 20, "num_hidden_layers": L,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-5, "n_routed_experts": 3,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 6, "num_nextn_predict_layers": 1,
}  # fmt: skip
QWEN = GLM | {
    "model_type": "qwen3_5_text", "mtp_num_hidden_layers": 1, "n_routed_experts": None,
    "num_nextn_predict_layers": None,
}  # fmt: skip
Tensors = dict[str, tuple[str, tuple[int, ...]]]
Change = Callable[[dict[str, Any], Tensors], None]


def norms(*names: str) -> Tensors:
    return {f"{name}.weight": ("BF16", (H,)) for name in names}


def grouped(before: str, *, gated: bool = False) -> Tensors:
    q = 64 if gated else 32
    shapes = {"q_proj": (q, H), "k_proj": (16, H), "v_proj": (16, H), "o_proj": (H, 32)}
    found: Tensors = {f"{before}self_attn.{name}.weight": ("BF16", shape) for name, shape in shapes.items()}
    if gated:
        found |= {f"{before}self_attn.{name}_norm.weight": ("BF16", (8,)) for name in "qk"}
    return found | norms(f"{before}input_layernorm", f"{before}post_attention_layernorm")


def dense(before: str, width: int = 20) -> Tensors:
    return {
        f"{before}gate_proj.weight": ("BF16", (width, H)),
        f"{before}up_proj.weight": ("BF16", (width, H)),
        f"{before}down_proj.weight": ("BF16", (H, width)),
    }


def glm(layer: int = L) -> Tensors:
    """A module with a dense layer, in DeepSeek's names."""
    at = f"model.layers.{layer}."
    joint = norms(f"{at}enorm", f"{at}hnorm", f"{at}shared_head.norm") | {f"{at}eh_proj.weight": ("BF16", (H, 2 * H))}
    return joint | grouped(at) | dense(f"{at}mlp.")


def experts(layer: int = L) -> Tensors:
    at = f"model.layers.{layer}.mlp."
    found: Tensors = {
        f"{at}gate.weight": ("BF16", (3, H)),
        f"{at}gate.e_score_correction_bias": ("F32", (3,)),
    }
    for e in range(3):
        found |= dense(f"{at}experts.{e}.", 6)
    return found | dense(f"{at}shared_experts.", 6)


def qwen(layers: int = 1) -> Tensors:
    found = norms("mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.norm")
    found["mtp.fc.weight"] = ("BF16", (H, 2 * H))
    for i in range(layers):
        found |= grouped(f"mtp.layers.{i}.", gated=True) | dense(f"mtp.layers.{i}.mlp.")
    return found


def headers(tensors: Mapping[str, tuple[str, tuple[int, ...]]], file: str = "model.safetensors") -> Any:
    return {
        name: TensorInfo(name=name, dtype=dtype, shape=shape, file=file, start=0, stop=0)
        for name, (dtype, shape) in tensors.items()
    }


def checkpoint(config: Mapping[str, Any], tensors: Tensors) -> Checkpoint:
    return Checkpoint(source=cast(Any, None), config=dict(config), tensors=headers(tensors))


def layout_of(config: Mapping[str, Any], tensors: Tensors) -> MtpLayout:
    return read_layout(checkpoint(config, tensors), "target t")


def test_modules_stand_in_the_order_in_which_they_are_run() -> None:
    tensors = {**glm(L + 10), **glm(L + 2), **glm(L)}
    found = layout_of(GLM | {"num_nextn_predict_layers": 3}, tensors)
    assert [module["proj.weight"] for module in found.modules] == [
        f"model.layers.{i}.eh_proj.weight" for i in (3, 5, 13)
    ]
    assert sorted(found.stored()) == sorted(tensors)
    shared = layout_of(QWEN | {"mtp_num_hidden_layers": 11}, qwen(11))
    assert [module["mlp.up_proj.weight"] for module in shared.modules] == [
        f"mtp.layers.{i}.mlp.up_proj.weight" for i in range(11)
    ]
    assert {module["proj.weight"] for module in shared.modules} == {"mtp.fc.weight"}


def test_modules_that_the_config_does_not_count_are_left_out() -> None:
    found = layout_of(GLM, {**glm(L), **glm(L + 1)})
    assert len(found.modules) == 1
    assert not any(f".{L + 1}." in name for name in found.stored())
    silent = layout_of(GLM | {"num_nextn_predict_layers": None}, {**glm(L), **glm(L + 1)})
    assert len(silent.modules) == 2


def test_tensors_of_a_trunk_are_never_a_modules() -> None:
    trunk: Tensors = {"model.embed_tokens.weight": ("BF16", (24, H)), "lm_head.weight": ("BF16", (24, H))}
    alone = layout_of(GLM, glm() | trunk)
    assert (alone.embed, alone.modules[0]["head"]) == ("model.embed_tokens.weight", "lm_head.weight")
    inside = layout_of(GLM, glm() | trunk | norms("model.layers.0.input_layernorm"))
    assert (inside.embed, "head" in inside.modules[0]) == (None, False)


def sparse(tensors: Tensors) -> Tensors:
    return {name: info for name, info in tensors.items() if ".mlp." not in name} | experts()


def test_a_mixture_is_known_by_its_router() -> None:
    assert layout_of(GLM, glm()).sparse == (False,)
    found = layout_of(GLM, sparse(glm()))
    assert (found.sparse, found.fused) == ((True,), (False,))
    fused = {name: info for name, info in sparse(glm()).items() if ".experts." not in name}
    fused |= {f"model.layers.{L}.mlp.experts.gate_up_proj": ("BF16", (3, 12, H))}
    fused |= {f"model.layers.{L}.mlp.experts.down_proj": ("BF16", (3, H, 6))}
    assert layout_of(GLM, fused).fused == (True,)


def without(name: str) -> Change:
    return lambda config, tensors: cast(None, tensors.pop(name))


def has(name: str, shape: tuple[int, ...], dtype: str = "BF16") -> Change:
    return lambda config, tensors: tensors.update({name: (dtype, shape)})


def says(**keys: Any) -> Change:
    return lambda config, tensors: config.update(keys)


def both(*changes: Change) -> Change:
    def change(config: dict[str, Any], tensors: Tensors) -> None:
        for one in changes:
            one(config, tensors)

    return change


AT = f"model.layers.{L}."
REFUSED: dict[str, tuple[Change, list[str]]] = {
    "a norm is missing": (without(f"{AT}hnorm.weight"), [f"{AT}hnorm.weight is missing"]),
    "the last norm is missing": (without(f"{AT}shared_head.norm.weight"), [f"{AT}shared_head.norm.weight is missing"]),
    "a matrix is missing": (without(f"{AT}mlp.up_proj.weight"), [f"{AT}mlp.up_proj.weight is missing"]),
    "a matrix has another shape": (
        has(f"{AT}self_attn.k_proj.weight", (8, H)),
        [f"{AT}self_attn.k_proj.weight is [8, 16], and it should be [16, 16]"],
    ),
    "a tensor too many": (has(f"{AT}self_attn.k_norm.weight", (8,)), [f"{AT}self_attn.k_norm.weight is unexpected"]),
    "a sparse index": (has(f"{AT}self_attn.indexer.wk.weight", (8, H)), ["self_attn.indexer.wk.weight is unexpected"]),
    "no projection": (without(f"{AT}eh_proj.weight"), ["projection that joins hidden state and embedding is missing"]),
    "fewer than counted": (says(num_nextn_predict_layers=2), ["the config counts 2 MTP modules and the files hold 1"]),
    "another family": (says(model_type="deepseek_v32"), ["model_type 'deepseek_v32'", "glm4_moe", "with an engine"]),
    "a family without a name": (says(model_type=None), ["model_type ''"]),
    "a family in others' names": (says(model_type="qwen3_next"), ["'qwen3_next' with a projection called eh_proj"]),
    "DSpark": (says(dspark_block_size=7), ["holds DSpark stages (dspark_block_size in config.json), not MTP modules"]),
    "Nemotron-H": (has(f"{AT}mixer.q_proj.weight", (8, H)), ["hybrid of Nemotron-H", "mixer.q_proj.weight"]),
    "a window": (says(use_sliding_window=True), ["use_sliding_window is true"]),
    "heads that do not divide": (says(num_key_value_heads=3), ["num_key_value_heads is 3, expected a divisor of 4"]),
    "more than a head turns": (says(partial_rotary_factor=1.5), ["partial_rotary_factor is 1.5, expected at most 1"]),
    "another scale of experts": (says(scoring_func="softmax"), ["scoring_func is 'softmax', expected 'sigmoid'"]),
    "another choice of experts": (says(topk_method="greedy"), ["topk_method is 'greedy', expected 'noaux_tc'"]),
    "groups that do not divide": (says(n_group=2), ["n_group is 2, expected a divisor of 3 experts"]),
    "more groups than there are": (says(n_group=3, topk_group=4), ["topk_group is 4, expected at most n_group, 3"]),
    "fewer experts than are chosen": (
        says(n_group=3, topk_group=1),
        ["num_experts_per_tok is 2, expected at most 1, the experts of the chosen groups"],
    ),
    "a head of another width": (
        has(f"{AT}shared_head.head.weight", (24, 8)), ["shared_head.head.weight is [24, 8], and it should be [24, 16]"]
    ),
    "an embedding cut short": (has(f"{AT}embed_tokens.weight", (20, H)), ["is [20, 16], and it should be [24, 16]"]),
    "FP8 without scales": (
        has(f"{AT}mlp.up_proj.weight", (20, H), "F8_E4M3"),
        [f"{AT}mlp.up_proj.weight is stored as F8_E4M3", "FP8 blocks"],
    ),
    "integers": (has(f"{AT}mlp.up_proj.weight", (20, H), "I8"), [f"{AT}mlp.up_proj.weight is stored as I8"]),
    "packed": (
        both(without(f"{AT}mlp.up_proj.weight"), has(f"{AT}mlp.up_proj.weight_packed", (20, 2), "I32")),
        ["mlp.up_proj.weight is missing", "mlp.up_proj.weight_packed is unexpected", "stored as I32"],
    ),
    "FP8 blocks of another size": (
        both(
            says(quantization_config={"weight_block_size": [8, 8]}),
            has(f"{AT}mlp.up_proj.weight", (20, H), "F8_E4M3"),
            has(f"{AT}mlp.up_proj.weight_scale_inv", (2, 2), "F32"),
        ),
        ["mlp.up_proj.weight_scale_inv is [2, 2], and blocks of [8, 8] need [3, 2]"],
    ),
    "two layers in one module": (
        lambda config, tensors: tensors.update(
            {name.replace(AT, f"model.layers.{L + 1}."): info for name, info in glm().items() if "mlp" in name}
        ),
        ["has 2 decoder layers and not 1"],
    ),
    "no experts in the config": (
        both(lambda config, tensors: tensors.update(experts()), says(n_routed_experts=None)),
        ["says nothing of experts, and an MTP module has them"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_run_is_refused_in_one_sentence(name: str) -> None:
    change, words = REFUSED[name]
    config, tensors = dict(GLM), glm()
    change(config, tensors)
    with pytest.raises(SpecError) as error:
        layout_of(config, tensors)
    message = str(error.value)
    assert message.startswith("target t")
    for word in words:
        assert word in message
    assert "\n" not in message


def test_many_faults_are_counted() -> None:
    with pytest.raises(SpecError, match="and 5 more"):
        layout_of(GLM, {f"{AT}eh_proj.weight": ("BF16", (H, 2 * H)), f"{AT}mlp.up_proj.weight": ("BF16", (20, H))})


def test_what_older_exports_leave_behind_is_no_fault() -> None:
    found = layout_of(GLM, glm() | {f"{AT}self_attn.rotary_emb.inv_freq": ("F32", (2,))})
    assert not any(part.endswith(".missing") for part in found.modules[0])


def test_modules_in_a_lost_shard_or_beside_the_index_are_told_so() -> None:
    whole = checkpoint(GLM, {"lm_head.weight": ("BF16", (24, H))})
    aside = replace(whole, unlisted=headers(glm(), "mtp.safetensors"))
    with pytest.raises(SpecError, match=r"lie in mtp\.safetensors, which the index does not name"):
        read_layout(aside, "target t")
    index = Index(
        file="model.safetensors.index.json", weight_map={**dict.fromkeys(glm(), "gone.safetensors")},
        absent_files=["gone.safetensors"], absent_tensors=[], unlisted_files=[], unlisted_tensors=[],
    )  # fmt: skip
    with pytest.raises(SpecError, match=r"gone\.safetensors, which holds .*, is not there; fetch it"):
        read_layout(replace(whole, index=index), "target t")
    with pytest.raises(SpecError, match="holds no MTP module; name a folder that does"):
        read_layout(whole, "target t")


@pytest.mark.parametrize("place", ["", "text_config", "transformer_layer_config"])
def test_options_are_read_where_the_layers_are_described(place: str) -> None:
    speculators = {"speculators_model_type": "mtp", "num_nextn_predict_layers": 1} if "layer" in place else {}
    join = "input_proj" if speculators else "fc"
    config = {**speculators, **({place: QWEN} if place else QWEN)}
    options = read_mtp(config, join, "config.json")
    assert (options.family, options.declared, options.hidden, options.eps) == ("qwen3_5_text", 1, H, 1e-5)
    assert options.attention == GroupedShape(
        heads=4, kv_heads=2, head_dim=8, rotated=2, bias=False, output_bias=False, qk_norm=True, gated=True
    )


def test_yarn_scales_the_scores_of_latent_attention() -> None:
    config = GLM | {
        "model_type": "deepseek_v3", "kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 4, "v_head_dim": 6,
    }  # fmt: skip
    plain = read_mtp(config, "eh_proj", "config.json").attention
    assert isinstance(plain, LatentShape)
    assert (plain.scale, plain.q_rank, plain.interleaved) == (0.25, None, True)
    # DeepSeek-V3: factor 40, mscale_all_dim 1, so 0.1 ln 40 + 1 = 1.3689.
    yarn = {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0}
    for key in ("rope_scaling", "rope_parameters"):
        scaled = read_mtp(config | {key: yarn}, "eh_proj", "config.json").attention
        assert isinstance(scaled, LatentShape)
        assert abs(scaled.scale / 0.25 - 1.3688879454**2) < 1e-9
    for silent in ({"type": "yarn", "factor": 40}, {"rope_type": "default", "factor": 40, "mscale_all_dim": 1.0}):
        assert read_mtp(config | {"rope_scaling": silent}, "eh_proj", "config.json").attention == plain


def test_every_family_has_one_row() -> None:
    """What vLLM 0.32 does, family by family; drafts of more than one token, or all of them, hang on it."""
    told = {
        name: (row.hidden_first, row.blank_first, row.unit_offset, row.feedback, row.reads)
        for name, row in {**NATIVE, **{f"speculators {name}": row for name, row in SPECULATORS.items()}}.items()
    }
    assert told == {
        "deepseek_v3": (False, True, False, "post_norm", "final"),
        "glm4_moe": (False, True, False, "pre_norm", "final"),
        "glm4_moe_lite": (False, True, False, "pre_norm", "final"),
        "qwen3_next": (False, False, True, "post_norm", "final"),
        "qwen3_5_text": (False, False, True, "post_norm", "final"),
        "qwen3_5_moe_text": (False, False, True, "post_norm", "final"),
        "mimo": (True, True, False, "post_norm", "last_layer"),
        "speculators qwen3_next": (False, False, True, "post_norm", "final"),
        "speculators qwen3_5_text": (False, False, True, "post_norm", "final"),
        "speculators qwen3_5_moe_text": (False, False, True, "post_norm", "final"),
        "speculators qwen3": (False, False, False, "post_norm", "final"),
    }
