"""MTP modules inside a target, and quantization of either side."""

import re

import numpy as np

from tests.checkpoints import as_layout, bf16
from tests.models.inspect.case import DRAFTER, TARGET, Case, Change, NearMiss, asks
from tests.models.inspect.cases_weights import HF_QUANT, sparse
from tests.models.inspect.pairs import H, L, Two, layer

ROTATED = {"quant_method": "compressed-tensors", "transform_config": {"config_groups": {"R1": {"type": "hadamard"}}}}
MODULE = f"model.layers.{L}"
FP8 = {"quant_method": "fp8", "bits": 8}


def module(part: str = "", dtype: str = "BF16") -> Change:
    """The projections of the quantized target's MTP module in another type, with scales of this name."""

    def change(two: Two) -> None:
        tensors = two.target.tensors
        for name in [n for n in tensors if n.startswith(MODULE) and n.endswith("_proj.weight")]:
            tensors[name] = (dtype, as_layout(tensors[name])[1])
            if part:
                tensors[name.removesuffix("weight") + part] = ("F32", (1,))

    return change


def ignore(*patterns: str) -> Change:
    """What the quantized target's config leaves out."""
    return TARGET.says("quantization_config.ignored_layers", ["lm_head", *patterns])


def second() -> Change:
    """A second module behind the first."""

    def change(two: Two) -> None:
        tensors = two.target.tensors
        more = {name.replace(f".{L}.", f".{L + 1}."): tensor for name, tensor in tensors.items() if f".{L}." in name}
        tensors.update(more)

    return change


def packed(two: Two) -> None:
    """Every matrix of the module in bytes, two weights in each."""
    for name in [name for name in two.target.tensors if name.startswith(MODULE)]:
        shape = as_layout(two.target.tensors[name])[1]
        if len(shape) == 2:
            two.target.tensors[name] = ("U8", (shape[0], shape[1] // 2))


def mixture(two: Two) -> None:
    """A target of one dense layer and experts, and a module with experts; one matrix of all experts in it."""
    sparse(two)
    for name in [name for name in two.target.tensors if name.startswith(f"{MODULE}.mlp")]:
        del two.target.tensors[name]
    two.target.tensors |= {
        f"{MODULE}.mlp.gate.weight": ("BF16", (4, H)), f"{MODULE}.mlp.experts.gate_up_proj": ("BF16", (4, 64, H)),
        f"{MODULE}.mlp.experts.down_proj": ("BF16", (4, H, 32)),
    }  # fmt: skip


TENSORS = [
    Case(
        name="a projection of another width", base="mtp",
        changes=(TARGET.holds({f"{MODULE}.eh_proj.weight": ("BF16", (H, H))}),),
        code="weights.shape", severity="error", words="is [64, 64], and it should be [64, 128]",
        key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="a projection of another width that nobody asks for", base="mtp",
        changes=(TARGET.holds({f"{MODULE}.eh_proj.weight": ("BF16", (H, H))}), asks(method=None)),
        code="weights.shape", severity="warning", words="is [64, 64]", key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="a projection of another width where a head drafts", base="eagle3_on_quantized",
        changes=(TARGET.holds({f"{MODULE}.eh_proj.weight": ("BF16", (H, H))}),),
        code="weights.shape", severity="note", words="is [64, 64]", key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="a norm of another width", base="mtp",
        changes=(TARGET.holds({f"{MODULE}.enorm.weight": ("BF16", (32,))}),),
        code="weights.shape", severity="error", words="is [32], and it should be [64]", key=f"{MODULE}.enorm.weight",
    ),
    Case(
        name="an attention of another width", base="mtp",
        changes=(TARGET.holds({f"{MODULE}.self_attn.q_proj.weight": ("BF16", (32, H))}),),
        code="weights.shape", severity="error", words="is [32, 64], and it should be [64, 64]",
        key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a module without its norms", base="mtp",
        changes=(TARGET.lacks(f"{MODULE}.enorm", f"{MODULE}.hnorm", f"{MODULE}.shared_head"),),
        code="weights.missing", severity="error", words="3 missing, the MTP module lacks",
        key=f"{MODULE}.shared_head.norm.weight",
    ),
    Case(
        name="a module without its attention", base="mtp", changes=(TARGET.lacks(f"{MODULE}.self_attn"),),
        code="weights.missing", severity="error", words="6 missing", key=f"{MODULE}.self_attn.o_proj.weight",
    ),
    Case(
        name="a module without its FFN", base="mtp", changes=(TARGET.lacks(f"{MODULE}.mlp"),),
        code="weights.missing", severity="error", words="3 missing", key=f"{MODULE}.mlp.up_proj.weight",
    ),
    Case(
        name="a module without a matrix of its FFN", base="mtp", changes=(TARGET.lacks(f"{MODULE}.mlp.up_proj"),),
        code="weights.missing", severity="error", words="1 missing", key=f"{MODULE}.mlp.up_proj.weight",
    ),
    Case(
        name="a module without a norm of its layer", base="mtp", changes=(TARGET.lacks(f"{MODULE}.input_layernorm"),),
        code="weights.missing", severity="error", words="1 missing", key=f"{MODULE}.input_layernorm.weight",
    ),
    Case(
        name="a module of which the projection alone is left", base="mtp",
        changes=(TARGET.lacks(*(f"{MODULE}.{part}" for part in ("enorm", "hnorm", "shared_head", "self_attn", "mlp",
                                                                "input_layernorm", "post_attention_layernorm"))),),
        code="weights.missing", severity="error", words="4 missing", key=f"{MODULE}.self_attn.*",
    ),
    Case(
        name="a namespace without its norms and its keys", base="mtp_namespace",
        changes=(TARGET.lacks("mtp.norm", "mtp.pre_fc_norm_hidden", "mtp.layers.0.self_attn.k_proj"),),
        code="weights.missing", severity="error", words="3 missing", key="mtp.pre_fc_norm_hidden.weight",
    ),
    Case(
        name="a namespace without its norms where nothing is asked", base="mtp_namespace",
        changes=(TARGET.lacks("mtp.norm"), asks(method=None)),
        code="weights.missing", severity="warning", words="mtp.norm.weight", key="mtp.norm.weight",
    ),
    Case(
        name="a packed module in a target that declares nothing", base="mtp", changes=(packed,),
        code="weights.packed", severity="error", words="8 tensors of the MTP module", key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="a packed module that nobody asks for", base="mtp", changes=(packed, asks(method=None)),
        code="weights.packed", severity="warning", words="8 tensors of the MTP module", key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="a projection of zeros", base="mtp",
        changes=(TARGET.holds({f"{MODULE}.eh_proj.weight": bf16(np.zeros((H, 2 * H)))}),),
        code="weights.constant", severity="error", words="1 of 8 matrices", key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="a projection of NaN that nobody asks for", base="mtp",
        changes=(TARGET.holds({f"{MODULE}.eh_proj.weight": bf16(np.full((H, 2 * H), np.nan))}), asks(method=None)),
        code="weights.not_finite", severity="warning", words="1 of 15 tensors", key=f"{MODULE}.eh_proj.weight",
    ),
    Case(
        name="fewer modules than the config counts", base="mtp",
        changes=(TARGET.says("num_nextn_predict_layers", 2), asks(depth=2)),
        code="mtp.absent", severity="error", words="declares 2 MTP modules, and the files hold 1",
        key="num_nextn_predict_layers",
    ),
    Case(
        name="fewer layers in a namespace than the config counts", base="mtp_namespace",
        changes=(TARGET.says("mtp_num_hidden_layers", 2), asks(depth=2)),
        code="mtp.absent", severity="error", words="the files hold 1", key="mtp_num_hidden_layers",
    ),
    Case(
        name="more modules than the config counts", base="mtp", changes=(second(),),
        code="mtp.undeclared", severity="note", words="declares 1 MTP module, and the files hold 2",
        key="num_nextn_predict_layers",
    ),
    Case(
        name="a second module without its norms", base="mtp",
        changes=(TARGET.says("num_nextn_predict_layers", 2), asks(depth=2), second(),
                 TARGET.lacks(f"model.layers.{L + 1}.enorm")),
        code="weights.missing", severity="error", words="1 missing", key=f"model.layers.{L + 1}.enorm.weight",
    ),
]  # fmt: skip

MTP = [
    Case(
        name="MTP from a target without one", base="mtp",
        changes=(TARGET.silent("num_nextn_predict_layers"), TARGET.lacks(MODULE)),
        code="mtp.none", severity="error", words="declares no MTP module and holds none", key="--method",
    ),
    Case(
        name="a module that a quantizer dropped", base="mtp", changes=(TARGET.lacks(MODULE),),
        code="mtp.absent", severity="error", words="declares 1 MTP module", key="num_nextn_predict_layers",
    ),
    Case(
        name="a module in a namespace that was dropped", base="mtp_namespace", changes=(TARGET.lacks("mtp."),),
        code="mtp.absent", severity="error", words="no file holds one", key="mtp_num_hidden_layers",
    ),
    Case(
        name="a dropped module that nobody asks for", base="mtp", changes=(TARGET.lacks(MODULE), asks(method=None)),
        code="mtp.absent", severity="warning", words="declares 1 MTP module", key="num_nextn_predict_layers",
    ),
    Case(
        name="a dropped module where a head drafts", base="eagle3",
        changes=(TARGET.says("num_nextn_predict_layers", 1),),
        code="mtp.absent", severity="note", words="declares 1 MTP module", key="num_nextn_predict_layers",
    ),
    Case(
        name="a module in a file that the index does not name", base="mtp",
        changes=(TARGET.lacks(MODULE), TARGET.has(shards=2, extra={"mtp.safetensors": {
            "mtp.fc.weight": ("BF16", (H, 2 * H)), **layer("mtp.layers.0")}})),
        code="mtp.unlisted", severity="error", words="10 tensors in mtp.safetensors", key="mtp.fc.weight",
        # Any file that the index does not name is said.
        beside=("index.unlisted",),
    ),
    Case(
        name="a module that the config does not count", base="mtp_namespace",
        changes=(TARGET.silent("mtp_num_hidden_layers"),),
        code="mtp.undeclared", severity="warning", words="15 tensors", key="num_nextn_predict_layers",
    ),
    Case(
        name="a module that the config counts as none", base="mtp",
        changes=(TARGET.says("num_nextn_predict_layers", 0),),
        code="mtp.undeclared", severity="warning", words="15 tensors", key="num_nextn_predict_layers",
    ),
    Case(
        name="a module without its projection", base="mtp", changes=(TARGET.lacks(f"{MODULE}.eh_proj"),),
        code="mtp.incomplete", severity="error", words="none of them eh_proj or fc",
        key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a namespace without its projection", base="mtp_namespace", changes=(TARGET.lacks("mtp.fc"),),
        code="mtp.incomplete", severity="error", words="14 tensors", key="mtp.layers.0.self_attn.q_proj.weight",
    ),
    Case(
        name="a head for a target that brings its own module", base="eagle3_on_quantized", changes=(),
        code="mtp.available", severity="note", words="1 MTP module, 15 tensors", key="num_nextn_predict_layers",
    ),
    Case(
        name="more drafts than modules", base="mtp", changes=(asks(depth=3),),
        code="mtp.depth", severity="note", words="D = 3, 1 MTP module", key="--depth",
    ),
    Case(
        name="no multiple of the modules", base="mtp",
        changes=(asks(depth=3), TARGET.says("num_nextn_predict_layers", 2), second()),
        code="mtp.depth", severity="warning", words="3 is no multiple of 2", key="--depth",
    ),
    Case(
        name="no multiple of the modules, for vLLM", base="mtp",
        changes=(asks(depth=3, engine="vllm"), TARGET.says("num_nextn_predict_layers", 2), second()),
        code="mtp.depth", severity="error", words="3 is no multiple of 2", key="--depth",
    ),
    Case(
        name="more drafts than a file of modules has", base="mtp_file", changes=(asks(depth=2),),
        code="mtp.depth", severity="note", words="D = 2, 1 MTP module", key="--depth",
    ),
    Case(
        name="DSpark stages under mtp", base="mtp_namespace", changes=(TARGET.says("dspark_block_size", 5),),
        code="mtp.dspark", severity="error", words="dspark_ keys", key="dspark_block_size",
    ),
    Case(
        name="DSpark stages, and DSpark asked for with too many drafts", base="mtp_namespace",
        changes=(TARGET.says("dspark_block_size", 5), asks(method="dspark", depth=9)),
        code="mtp.dspark", severity="note", words="dspark_ keys", key="dspark_block_size", beside=("block.depth",),
    ),
    Case(
        name="layer ids of DSpark stages that the target has not", base="mtp_namespace",
        changes=(TARGET.says("dspark_block_size", 5), TARGET.says("dspark_target_layer_ids", [1, 99]),
                 TARGET.says("dspark_noise_token_id", 10**6), asks(method="dspark", depth=5)),
        code="taps.range", severity="error", words="has [99]", key="dspark_target_layer_ids", beside=("mask.range",),
    ),
    Case(
        name="norms that multiply by 1 + weight", base="mtp_namespace",
        changes=(TARGET.says("model_type", "qwen3_5_text"),),
        code="mtp.norm", severity="note", words="qwen3_5_text", key="mtp.layers.0.self_attn.q_proj.weight",
    ),
]  # fmt: skip

QUANTIZATION = [
    Case(
        name="a rotated target", base="eagle3_on_quantized", changes=(TARGET.says("quantization_config", ROTATED), ),
        code="quant.rotated", severity="error", words="compressed-tensors with a rotation", key="quantization_config",
    ),
    Case(
        name="a plain module that no list leaves out", base="mtp_quantized", changes=(ignore(),),
        code="quant.mtp_plain", severity="warning", words="8 of 8 matrices", key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a list that leaves out a part of it", base="mtp_quantized", changes=(ignore(f"{MODULE}.self_attn"),),
        code="quant.mtp_plain", severity="warning", words="4 of 8 matrices", key=f"{MODULE}.mlp.gate_proj.weight",
    ),
    Case(
        name="a pattern that names another layer", base="mtp_quantized", changes=(ignore(r"re:.*layers\.13\..*"),),
        code="quant.mtp_plain", severity="warning", words="8 of 8 matrices", key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a plain module where a head drafts", base="eagle3_on_quantized", changes=(ignore(),),
        code="quant.mtp_plain", severity="note", words="8 of 8 matrices", key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a packed module without scales", base="mtp_quantized", changes=(module(dtype="F8_E4M3"),),
        code="quant.mtp_scales", severity="error", words="their scales: none; the trunk's: weight_scale",
        key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a packed module with scales of another name", base="mtp_quantized", changes=(module("scale", "F8_E4M3"),),
        code="quant.mtp_scales", severity="error", words="their scales: scale; the trunk's: weight_scale",
        key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a packed module with scales of activations only", base="mtp_quantized",
        changes=(module("input_scale", "F8_E4M3"),
                 TARGET.holds({"model.layers.0.self_attn.q_proj.input_scale": ("F32", (1,))})),
        code="quant.mtp_scales", severity="error", words="their scales: none", key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="a module of four bits", base="mtp_quantized",
        changes=(module("weight_scale", "U8"), TARGET.says("quantization_config.bits", 4)),
        code="quant.mtp_bits", severity="note", words="8 packed tensors", key=f"{MODULE}.self_attn.q_proj.weight",
    ),
    Case(
        name="scales in a drafter that declares nothing", base="eagle3",
        changes=(DRAFTER.stores("midlayer.mlp.up_proj.weight", "F8_E4M3"),
                 DRAFTER.holds({"midlayer.mlp.up_proj.weight_scale": ("F32", (1,))})),
        code="quant.undeclared", severity="error", words="1 scales", key="midlayer.mlp.up_proj.weight_scale",
    ),
    Case(
        name="scales in an external drafter that declares nothing", base="external",
        changes=(DRAFTER.holds({"model.layers.0.mlp.up_proj.weight_scale": ("F32", (1,))}),),
        code="quant.undeclared", severity="error", words="1 scales", key="quantization_config",
    ),
    Case(
        name="a drafter that declares what it does not have", base="dflash",
        changes=(DRAFTER.says("quantization_config", FP8),),
        code="quant.not_quantized", severity="error", words="fp8 is declared, and every tensor is plain",
        key="quantization_config",
    ),
    Case(
        name="a drafter that Model-Optimizer's file declares and nobody quantized", base="dflash",
        changes=(DRAFTER.has(extra={"hf_quant_config.json": HF_QUANT}),),
        code="quant.not_quantized", severity="error", words="FP8 is declared", key="quantization.quant_algo",
    ),
    Case(
        name="a target that Model-Optimizer's file declares", base="dflash",
        changes=(TARGET.has(extra={"hf_quant_config.json": HF_QUANT}),),
        code="quant.target", severity="note", words="FP8, 8 bits", key="quantization.quant_algo",
    ),
    Case(
        name="a packed output head that a block drafter borrows", base="dflash",
        changes=(TARGET.says("quantization_config", FP8), TARGET.stores("lm_head.weight", "F8_E4M3")),
        code="quant.target_head", severity="warning", words="lm_head.weight is F8_E4M3", key="lm_head.weight",
    ),
    Case(
        name="a quantized target", base="dflash", changes=(TARGET.says("quantization_config", FP8),),
        code="quant.target", severity="note", words="fp8, 8 bits", key="quantization_config",
    ),
]  # fmt: skip


CASES = [*TENSORS, *MTP, *QUANTIZATION]
NEAR_MISSES = [
    NearMiss(name="a module whose weights do not matter", base="eagle3_on_quantized", code="weights.constant",
             changes=(TARGET.holds({f"{MODULE}.eh_proj.weight": bf16(np.zeros((H, 2 * H)))}),)),
    NearMiss(name="a module that has no number", base="mtp", changes=(TARGET.renames(MODULE, "model.nextn"),),
             code="weights.missing"),
    NearMiss(name="a module with experts of another form", base="mtp", changes=(mixture,), code="weights.missing"),
    NearMiss(name="a dense module beside experts", base="mtp", changes=(sparse,), code="weights.missing"),
    NearMiss(name="copies of embedding and head", base="mtp", code="weights.shape", changes=(TARGET.holds({
        f"{MODULE}.{part}.weight": ("BF16", (512, H)) for part in ("embed_tokens", "shared_head.head")}),)),
    NearMiss(name="as many modules as the config counts", base="mtp", code="mtp.absent",
             changes=(TARGET.says("num_nextn_predict_layers", 2), asks(depth=2), second())),
    NearMiss(
        name="an eight-bit drafter that Model-Optimizer declares in a file of its own", base="eagle3",
        changes=(DRAFTER.stores("midlayer.mlp.up_proj.weight", "F8_E4M3"),
                 DRAFTER.holds({"midlayer.mlp.up_proj.weight_scale": ("F32", (1,))}),
                 DRAFTER.has(extra={"hf_quant_config.json": HF_QUANT})),
        code="quant.undeclared",
    ),
    NearMiss(
        name="Model-Optimizer's file of a cache alone", base="eagle3", code="quant.not_quantized",
        changes=(DRAFTER.has(extra={"hf_quant_config.json": {"quantization": {"quant_algo": None,
                                                                              "kv_cache_quant_algo": "FP8"}}}),),
    ),
    NearMiss(name="MTP in its own file", base="mtp_file", changes=(), code="mtp.none"),
    NearMiss(name="the target declares a module that lies in the drafter", base="mtp_file",
             changes=(TARGET.says("num_nextn_predict_layers", 1),), code="mtp.absent"),
    NearMiss(name="zero modules are declared", base="alone", changes=(TARGET.says("num_nextn_predict_layers", 0),),
             code="mtp.absent"),
    NearMiss(
        name="ERNIE's names", base="mtp",
        changes=(TARGET.lacks(MODULE), TARGET.holds({
            **layer("model.mtp_block.0", normed=True), "model.mtp_linear_proj.0.weight": ("BF16", (H, 2 * H)),
            "model.mtp_emb_norm.0.weight": ("BF16", (H,)), "model.mtp_hidden_norm.0.weight": ("BF16", (H,))})),
        code="mtp.absent",
    ),
    NearMiss(
        name="a tower with more layers than the decoder", base="alone",
        changes=(TARGET.holds(layer("vision_tower.vision_model.encoder.layers.20")),), code="mtp.incomplete",
    ),
    NearMiss(name="a module that is counted", base="mtp_namespace", changes=(), code="mtp.undeclared"),
    NearMiss(
        name="MiMo's names", base="mtp",
        changes=(TARGET.lacks(MODULE), TARGET.holds({
            **layer("model.mtp_layers.0", normed=True), "model.mtp_layers.0.input_proj.weight": ("BF16", (H, 2 * H)),
            **{f"model.mtp_layers.0.{part}_layernorm.weight": ("BF16", (H,)) for part in ("token", "hidden", "final")},
        })),
        code="mtp.incomplete",
    ),
    NearMiss(name="a packed projection", base="mtp", changes=(
        TARGET.lacks(f"{MODULE}.eh_proj"), TARGET.holds({f"{MODULE}.eh_proj.qweight": ("I32", (16, H))}),
        TARGET.says("quantization_config", {"quant_method": "gptq", "bits": 4})), code="mtp.incomplete"),
    NearMiss(name="the module itself drafts", base="mtp", changes=(), code="mtp.available"),
    NearMiss(name="as many drafts as modules", base="mtp", changes=(), code="mtp.depth"),
    NearMiss(name="plain norms", base="mtp_namespace", changes=(), code="mtp.norm"),
    *(
        NearMiss(name=f"the list leaves the module out by {pattern}", base="mtp_quantized", changes=(ignore(pattern),),
                 code="quant.mtp_plain")
        for pattern in (MODULE, f"{MODULE}.*", f"{MODULE}*", "layers.12", rf"re:^{re.escape(MODULE)}\..*",
                        r"re:.*(mtp|layers\.12)\..*", r"re:model\.layers\.(12|13)\.")
    ),
    NearMiss(
        name="GPTQModel's way to leave it out", base="mtp_quantized",
        changes=(TARGET.says("quantization_config", {"quant_method": "gptq", "bits": 4,
                                                     "dynamic": {r"-:model\.layers\.12\..*": {}}}),),
        code="quant.mtp_plain",
    ),
    NearMiss(name="a packed module with the trunk's scales", base="mtp_quantized",
             changes=(module("weight_scale", "F8_E4M3"),), code="quant.mtp_scales"),
    NearMiss(
        name="a packed module with a joint in full precision", base="mtp_quantized",
        changes=(module("weight_scale", "F8_E4M3"), TARGET.stores(f"{MODULE}.eh_proj.weight", "BF16")),
        code="quant.mtp_plain",
    ),
    NearMiss(name="a module of eight bits in a model of four", base="mtp_quantized",
             changes=(module("weight_scale", "F8_E4M3"), TARGET.says("quantization_config.bits", 4)),
             code="quant.mtp_bits"),
    NearMiss(name="a quantized target without a rotation", base="eagle3_on_quantized",
             changes=(), code="quant.rotated"),
    NearMiss(name="a rotated target whose drafter reads no states", base="external",
             changes=(TARGET.says("quantization_config", ROTATED),), code="quant.rotated"),
    NearMiss(
        name="scales that belong to no weight", base="external",
        changes=(DRAFTER.holds({"model.layers.0.self_attn.per_dim_scale": ("F32", (8,)),
                                "model.layers.0.ls1.scale": ("F32", (16,)), "logit_scale": ("F32", ()),
                                "model.layers.0.self_attn.k_proj.k_scale": ("F32", (1,))}),),
        code="quant.undeclared",
    ),
    NearMiss(
        name="a declared format that the list takes back", base="dflash",
        changes=(DRAFTER.says("quantization_config", {**FP8, "ignore": ["re:.*"]}),), code="quant.not_quantized",
    ),
    NearMiss(
        name="bitsandbytes' flat bytes", base="external",
        changes=(DRAFTER.says("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
                 DRAFTER.holds({"model.layers.0.mlp.up_proj.weight": ("U8", (256, 1))})),
        code="quant.not_quantized",
    ),
    NearMiss(name="a declared format and no tensors to look into", base="dflash",
             changes=(DRAFTER.says("quantization_config", FP8), DRAFTER.empty()), code="quant.not_quantized"),
    NearMiss(
        name="a packed output head that a reduced head does not borrow", base="eagle3",
        changes=(TARGET.says("quantization_config", FP8), TARGET.stores("lm_head.weight", "F8_E4M3")),
        code="quant.target_head",
    ),
    NearMiss(name="a target in full precision", base="dflash", changes=(), code="quant.target"),
]  # fmt: skip
