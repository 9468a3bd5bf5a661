"""Tensors that are missing, too many, misshapen, packed or empty; files and their index."""

from itertools import product

import numpy as np

from tests.checkpoints import Bits, bf16
from tests.models.inspect.case import DRAFTER, TARGET, Case, NearMiss, asks
from tests.models.inspect.layouts import dflash2
from tests.models.inspect.pairs import EMBEDDING, KV, RANK, H, L, Two, V

NAN = bf16(np.full((H, 3 * H), np.nan))
INF = bf16(np.where(np.arange(3 * H * H).reshape(H, 3 * H) == 0, np.inf, 0.02))
FRESH = np.random.default_rng(3).normal(0, 0.02, (H, 3 * H))
ZEROS = bf16(np.zeros((H, 3 * H)))
FP8 = DRAFTER.says("quantization_config", {"quant_method": "fp8", "bits": 8})


# What a base has as it is; DeepSpec's class name promises norms, so that their absence is said twice.
DESERVED = {
    "dspark_modelopt": ("block.alignment",), "domino": ("block.alignment",),
    "eagle3_deepspec": ("architecture.layers", "taps.engine"),
}  # fmt: skip


def missing(base: str, tensor: str, key: str) -> Case:
    """One tensor of a layout is left out."""
    return Case(
        name=f"{base} without {tensor}", base=base, changes=(DRAFTER.lacks(tensor),),
        code="weights.missing", severity="error", words="1 missing", key=key,
        beside=DESERVED.get(base, ()),
    )  # fmt: skip


MISSING = [
    missing("eagle3", "midlayer.hidden_norm.weight", "midlayer.hidden_norm.weight"),
    missing("eagle3", "midlayer.self_attn.o_proj.weight", "midlayer.self_attn.o_proj.weight"),
    missing("eagle3", "fc.weight", "fc.weight"),
    missing("eagle3_modelopt", "layers.0.input_layernorm.weight", "layers.0.input_layernorm.weight"),
    missing("eagle3_modelopt", "norm.weight", "norm.weight"),
    missing("eagle3_speculators", "layers.0.mlp.down_proj.weight", "layers.0.mlp.down_proj.weight"),
    missing("eagle3_deepspec", "layers.0.self_attn.q_norm.weight", "layers.0.self_attn.q_norm.weight"),
    missing("dflash", "hidden_norm.weight", "hidden_norm.weight"),
    missing("dflash", "layers.1.self_attn.k_norm.weight", "layers.1.self_attn.k_norm.weight"),
    missing("dflash_speculators", "layers.1.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight"),
    missing("dspark", "markov_head.markov_w2.weight", "markov_head.markov_w2.weight"),
    missing("dspark", "confidence_head.proj.weight", "confidence_head.proj.weight"),
    missing("dspark_modelopt", "markov_w1.weight", "markov_head.markov_w1.weight"),
    missing("dspark_modelopt", "gate_proj.weight", "markov_head.gate_proj.weight"),
    missing("dspark_specforge", "logit_head.joint_proj.weight", "markov_head.joint_proj.weight"),
    missing("dspark_speculators", "confidence_head.proj.bias", "confidence_head.proj.bias"),
    Case(
        name="a second layer that the config promises",
        base="dflash", changes=(DRAFTER.lacks("layers.1."),),
        code="weights.missing", severity="error", words="11 missing", key="layers.1.self_attn.q_proj.weight",
    ),
    Case(
        name="a norm for each feature that the config promises",
        base="eagle3", changes=(DRAFTER.says("fc_norm", True),),
        code="weights.missing", severity="error", words="3 missing", key="fc_norm.0.weight",
    ),
    Case(
        name="a weight of which only the bias and the scale are there",
        base="eagle3",
        changes=(
            DRAFTER.lacks("midlayer.self_attn.v_proj.weight"), FP8,
            DRAFTER.holds({"midlayer.self_attn.v_proj.bias": ("BF16", (KV * 8,)),
                           "midlayer.self_attn.v_proj.weight_scale": ("F32", (1,))}),
        ),
        code="weights.missing", severity="error", words="v_proj.weight", key="midlayer.self_attn.v_proj.weight",
        # Nothing in this file is packed.
        beside=("quant.not_quantized",),
    ),
]  # fmt: skip

HF_QUANT = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
LAYER = "model.layers.0"
ATTENTION = f"{LAYER}.self_attn"


def zeros(*shape: int) -> Bits:
    """A matrix that nobody trained."""
    return bf16(np.zeros(shape))


# Heads that are only named, by the layouts of the sheet.
NAMED = [
    missing("peagle", "mask_hidden", "mask_hidden"),
    missing("peagle", "layers.1.mlp.up_proj.weight", "layers.1.mlp.up_proj.weight"),
    missing("eagle", "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.q_proj.weight"),
    missing("dflash2", "layers.1.mlp_conv.base_kernel", "layers.1.mlp_conv.base_kernel"),
    missing("dflash2", "candidate_selector.hidden_projection", "candidate_selector.hidden_projection.weight"),
    missing("domino", "prefix_gru.weight_hh_l0", "prefix_gru.weight_hh_l0"),
    missing("domino", "embed_proj.2.weight", "embed_proj.2.weight"),
    Case(
        name="a DFlash2 head", base="dflash",
        changes=(lambda two: setattr(two, "drafter", dflash2()), asks(method="dflash2")),
        code="dflash2.selector", severity="note", words="a candidate selector",
        key="candidate_selector.predecessor_codebook",
    ),
    Case(
        name="a selector that was dropped", base="dflash2", changes=(DRAFTER.lacks("candidate_selector"),),
        code="weights.missing", severity="error", words="3 missing: candidate_selector.predecessor_codebook",
        key="candidate_selector.predecessor_codebook",
    ),
    Case(
        name="a selector of another rank", base="dflash2",
        changes=(DRAFTER.says("dflash_config.selector_rank", RANK // 2),),
        code="weights.shape", severity="error", words="codebook is [512, 16], and the config gives [512, 8]",
        key="candidate_selector.successor_codebook",
    ),
    Case(
        name="a state of another width", base="domino", changes=(DRAFTER.says("dflash_config.gru_hidden_dim", 20),),
        code="weights.shape", severity="error", words="weight_ih_l0 is [72, 64], and the config gives [60, 64]",
        key="embed_proj.0.weight", beside=DESERVED["domino"],
    ),
    Case(
        name="an MTP file without its norms", base="mtp_file",
        changes=(DRAFTER.lacks("mtp_layers.0.token_layernorm", "mtp_layers.0.final_layernorm"),),
        code="weights.missing", severity="error", words="2 missing, the module lacks",
        key="mtp_layers.0.final_layernorm.weight",
    ),
    Case(
        name="an MTP file without its projection", base="mtp_file", changes=(DRAFTER.lacks("mtp_layers.0.input_proj"),),
        code="weights.missing", severity="error", words="input_proj", key="mtp_layers.0.input_proj.weight",
    ),
    Case(
        name="an MTP file without keys", base="mtp_file", changes=(DRAFTER.lacks("mtp_layers.0.self_attn.k_proj"),),
        code="weights.missing", severity="error", words="1 missing", key="mtp_layers.0.self_attn.k_proj.weight",
    ),
    Case(
        name="an MTP file that joins three", base="mtp_file",
        changes=(DRAFTER.holds({"mtp_layers.0.input_proj.weight": ("BF16", (H, 3 * H))}),),
        code="weights.shape", severity="error", words="is [64, 192], and it should be [64, 128]",
        key="mtp_layers.0.input_proj.weight",
    ),
]  # fmt: skip

MODELS = [
    Case(
        name="an external drafter without attention", base="external", changes=(DRAFTER.lacks(ATTENTION),),
        code="weights.missing", severity="error", words="4 missing, the layers lack model.layers.0.self_attn.q_proj",
        key=f"{ATTENTION}.q_proj.weight",
    ),
    Case(
        name="an external drafter without an FFN", base="external", changes=(DRAFTER.lacks(f"{LAYER}.mlp"),),
        code="weights.missing", severity="error", words="3 missing", key=f"{LAYER}.mlp.gate_proj.weight",
    ),
    Case(
        name="an external drafter without a norm", base="external",
        changes=(DRAFTER.lacks(f"{LAYER}.input_layernorm"),),
        code="weights.missing", severity="error", words="input_layernorm", key=f"{LAYER}.input_layernorm.weight",
    ),
    Case(
        name="an external drafter without an embedding", base="external",
        changes=(DRAFTER.lacks("model.embed_tokens"),),
        code="weights.missing", severity="error", words="1 missing", key="model.embed_tokens.weight",
    ),
    Case(
        name="an external drafter without a last norm", base="external", changes=(DRAFTER.lacks("model.norm"),),
        code="weights.missing", severity="error", words="1 missing", key="model.norm.weight",
    ),
    Case(
        name="an external drafter with a head of another width", base="external",
        changes=(DRAFTER.holds({"lm_head.weight": ("BF16", (V, 8))}),),
        code="weights.shape", severity="error", words="lm_head.weight is [512, 8], and it should be [512, 16]",
        key="lm_head.weight",
    ),
    Case(
        name="an external drafter with a matrix cut short", base="external",
        changes=(DRAFTER.holds({f"{LAYER}.mlp.up_proj.weight": ("BF16", (32, 7))}),),
        code="weights.shape", severity="error", words="is [32, 7], and it should be [32, 16]",
        key=f"{LAYER}.mlp.up_proj.weight",
    ),
    Case(
        name="an external drafter packed without a word", base="external",
        changes=(DRAFTER.stores(f"{LAYER}.mlp.up_proj.weight", "U8"),),
        code="weights.packed", severity="error", words="1 tensors of the drafter are not floats",
        key=f"{LAYER}.mlp.up_proj.weight",
    ),
    Case(
        name="an external drafter of zeros", base="external",
        changes=(DRAFTER.holds({f"{LAYER}.mlp.up_proj.weight": zeros(32, 16)}),),
        code="weights.constant", severity="error", words="1 of 9 matrices", key=f"{LAYER}.mlp.up_proj.weight",
    ),
    Case(
        name="an external drafter with NaN", base="external",
        changes=(DRAFTER.holds({f"{LAYER}.mlp.up_proj.weight": bf16(np.full((32, 16), np.nan))}),),
        code="weights.not_finite", severity="error", words="1 of 9 tensors", key=f"{LAYER}.mlp.up_proj.weight",
    ),
    Case(
        name="a target with a layer that lost its attention", base="alone",
        changes=(TARGET.lacks("model.layers.3.self_attn"),),
        code="weights.missing", severity="error", words="6 missing, the layers lack",
        key="model.layers.3.self_attn.q_norm.weight",
    ),
    Case(
        name="a target without a layer in the middle", base="eagle3", changes=(TARGET.lacks("model.layers.3."),),
        code="weights.missing", severity="error", words="11 missing", key="model.layers.3.self_attn.q_proj.weight",
    ),
    Case(
        name="a target with a layer of another width", base="alone",
        changes=(TARGET.holds({"model.layers.5.self_attn.q_norm.weight": ("BF16", (16,))}),),
        code="weights.shape", severity="error", words="is [16], and it should be [8]",
        key="model.layers.5.self_attn.q_norm.weight",
    ),
    Case(
        name="a target packed without a word", base="dflash",
        changes=(TARGET.stores("model.layers.5.mlp.up_proj.weight", "U8"),),
        code="weights.packed", severity="error", words="of the target", key="model.layers.5.mlp.up_proj.weight",
    ),
]  # fmt: skip

CASES = [
    *NAMED, *MODELS,
    Case(
        name="a config without weights", base="eagle3", changes=(DRAFTER.empty(),),
        code="weights.none", severity="note", words="the drafter's weights: only the config", key="weights",
    ),
    Case(
        name="weights in pickle format only", base="eagle3",
        changes=(DRAFTER.empty(), DRAFTER.has(extra={"pytorch_model.bin": b"x"})),
        code="weights.pickled", severity="warning", words="only pytorch_model.bin", key="weights",
    ),
    *MISSING,
    Case(
        name="a tensor under another family's name", base="dflash",
        changes=(DRAFTER.holds({"main_proj.weight": EMBEDDING}),),
        code="weights.unexpected", severity="warning", words="1 unexpected: main_proj.weight", key="main_proj.weight",
    ),
    Case(
        name="a layer more than the config has", base="dflash", changes=(DRAFTER.says("num_hidden_layers", 1),),
        code="weights.unexpected", severity="warning", words="11 unexpected", key="layers.1.mlp.down_proj.weight",
    ),
    Case(
        name="the gate of another Markov head", base="dspark",
        changes=(DRAFTER.holds({"markov_head.gate_proj.weight": ("BF16", (RANK, H + RANK))}),),
        code="weights.unexpected", severity="warning", words="gate_proj", key="markov_head.gate_proj.weight",
    ),
    Case(
        name="an FFN of another width", base="eagle3", changes=(DRAFTER.says("intermediate_size", 96),),
        code="weights.shape", severity="error", words="the config gives [96, 64]", key="midlayer.mlp.gate_proj.weight",
    ),
    Case(
        name="a transposed matrix", base="dflash",
        changes=(DRAFTER.holds({"layers.0.mlp.down_proj.weight": ("BF16", (128, H))}),),
        code="weights.shape", severity="error", words="it is the transpose", key="layers.0.mlp.down_proj.weight",
    ),
    Case(
        name="an attention of another input width in a block drafter", base="dflash",
        changes=(DRAFTER.holds({"layers.0.self_attn.q_proj.weight": ("BF16", (64, 2 * H))}),),
        code="weights.shape", severity="error", words="q_proj.weight is [64, 128]",
        key="layers.0.self_attn.q_proj.weight",
    ),
    Case(
        name="keys of another input width than queries", base="eagle3",
        changes=(DRAFTER.holds({"midlayer.self_attn.k_proj.weight": ("BF16", (KV * 8, H))}),),
        code="weights.shape", severity="error", words="k_proj.weight is [32, 64]",
        key="midlayer.self_attn.k_proj.weight",
    ),
    Case(
        name="another number of KV heads", base="eagle3", changes=(DRAFTER.says("num_key_value_heads", 2),),
        code="weights.shape", severity="error", words="the config gives [16, 128]",
        key="midlayer.self_attn.k_proj.weight",
    ),
    Case(
        name="fc that puts out another width", base="eagle3",
        changes=(DRAFTER.holds({"fc.weight": ("BF16", (32, 3 * H))}),),
        code="weights.shape", severity="error", words="fc.weight is [32, 192]", key="fc.weight",
    ),
    Case(
        name="a Markov head of another rank", base="dspark", changes=(DRAFTER.says("markov_rank", 8),),
        code="weights.shape", severity="error", words="the config gives [512, 8]", key="markov_head.markov_w1.weight",
    ),
    Case(
        name="a confidence head without the Markov part", base="dspark",
        changes=(DRAFTER.says("confidence_head_with_markov", False),),
        code="weights.shape", severity="error", words="the config gives [1, 64]", key="confidence_head.proj.weight",
    ),
    Case(
        name="an embedding of other rows", base="eagle3_speculators",
        changes=(DRAFTER.holds({"embed_tokens.weight": ("BF16", (V - 64, H))}),),
        code="weights.shape", severity="error", words="embed_tokens.weight is [448, 64]", key="embed_tokens.weight",
    ),
    Case(
        name="a head of another width", base="eagle3",
        changes=(DRAFTER.holds({"lm_head.weight": ("BF16", (128, 32))}),),
        code="weights.shape", severity="error", words="lm_head.weight is [128, 32]", key="lm_head.weight",
    ),
    Case(
        name="packed weights without scales or a word in the config", base="eagle3",
        changes=(DRAFTER.holds({"midlayer.mlp.gate_proj.weight": ("U8", (128, H // 2))}),),
        code="weights.packed", severity="error", words="gate_proj.weight is U8 [128, 32]",
        key="midlayer.mlp.gate_proj.weight",
    ),
    Case(
        name="a head in 8-bit floats without a word in the config", base="dflash",
        changes=(DRAFTER.stores("fc.weight", "F8_E4M3"),),
        code="weights.packed", severity="error", words="fc.weight is F8_E4M3", key="fc.weight",
    ),
    Case(
        name="fc holds zeros", base="eagle3", changes=(DRAFTER.holds({"fc.weight": ZEROS}),),
        code="weights.constant", severity="error", words="1 of 9 matrices: fc.weight", key="fc.weight",
    ),
    Case(
        name="a Markov head that nobody trained", base="dspark",
        changes=(DRAFTER.holds({"markov_head.markov_w2.weight": bf16(np.zeros((V, RANK)))}),),
        code="weights.constant", severity="error", words="markov_w2", key="markov_head.markov_w2.weight",
    ),
    Case(
        name="a head as it was initialised", base="eagle3", changes=(DRAFTER.initialised(),),
        code="weights.untrained", severity="warning", words="matrices: fc.weight", key="fc.weight",
    ),
    Case(
        name="fc holds NaN", base="eagle3_modelopt", changes=(DRAFTER.holds({"fc.weight": NAN}),),
        code="weights.not_finite", severity="error", words="1 of 13 tensors hold NaN", key="fc.weight",
    ),
    Case(
        name="fc holds an infinity", base="dflash", changes=(DRAFTER.holds({"fc.weight": INF}),),
        code="weights.not_finite", severity="error", words="fc.weight", key="fc.weight",
    ),
    Case(
        name="an index that names a file that is not there", base="eagle3",
        changes=(TARGET.indexed({"model.more.weight": "model-00002.safetensors"}),),
        code="index.absent_file", severity="error", words="model-00002.safetensors of the target",
        key="model-00002.safetensors",
    ),
    Case(
        name="an index that names a tensor that its file lacks", base="eagle3",
        changes=(DRAFTER.indexed({"gone.weight": "model.safetensors"}),),
        code="index.absent_tensor", severity="error", words="gone.weight of the drafter", key="gone.weight",
    ),
    Case(
        name="a weight file beside the index", base="eagle3",
        changes=(TARGET.has(shards=2, extra={"extra.safetensors": {"x": ("BF16", (2, 2))}}),),
        code="index.unlisted", severity="warning", words="extra.safetensors of the target", key="extra.safetensors",
    ),
    Case(
        name="a tensor in two files", base="eagle3",
        changes=(DRAFTER.has(shards=2, index=False, extra={"more.safetensors": {"fc.weight": ("BF16", (H, 3 * H))}}),),
        code="weights.duplicated", severity="warning", words="fc.weight", key="fc.weight",
    ),
]  # fmt: skip

MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "mlp_only_layers": [0]}


def sparse(two: Two) -> None:
    """A target of experts behind one dense layer."""
    two.target.config |= {**MOE, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}
    tensors = dict(two.target.tensors)
    for i in range(1, L):
        for part in ("gate_proj", "up_proj", "down_proj"):
            del tensors[f"model.layers.{i}.mlp.{part}.weight"]
        tensors[f"model.layers.{i}.mlp.gate.weight"] = ("BF16", (4, H))
        for e, part in product(range(4), ("gate_proj", "up_proj", "down_proj")):
            shape = (H, 32) if part == "down_proj" else (32, H)
            tensors[f"model.layers.{i}.mlp.experts.{e}.{part}.weight"] = ("BF16", shape)
    two.target.tensors = tensors


def left_out(two: Two) -> None:
    """A target in bitsandbytes' format, which leaves one layer as it was."""
    two.target.config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True,
                                                "llm_int8_skip_modules": ["model.layers.3"]}  # fmt: skip
    for name in [
        name
        for name in two.target.tensors
        if "_proj" in name and ".layers.3." not in name and ".layers.12." not in name
    ]:
        two.target.tensors |= {name: ("U8", (512, 1)), f"{name}.absmax": ("F32", (16,)),
                               f"{name}.quant_state.bitsandbytes__nf4": ("U8", (90,))}  # fmt: skip


def pruned(two: Two) -> None:
    """A target whose layers were pruned one by one, as its family's are."""
    two.target.config["model_type"] = "nemotron-nas"
    for i in (2, 5):
        for part, shape in (("gate_proj", (96, H)), ("up_proj", (96, H)), ("down_proj", (H, 96))):
            two.target.tensors[f"model.layers.{i}.mlp.{part}.weight"] = ("BF16", shape)
    for name in [name for name in two.target.tensors if ".layers.7.self_attn" in name]:
        del two.target.tensors[name]


LAYERS = [
    NearMiss(name="experts behind a dense layer", base="alone", changes=(sparse,), code="weights.missing"),
    NearMiss(name="layers pruned one by one of all attention", base="alone", changes=(pruned,),
             code="weights.missing"),
    NearMiss(name="layers pruned one by one", base="alone", changes=(pruned,), code="weights.shape"),
    NearMiss(name="a layer that is left out of a quantization", base="alone", changes=(left_out,),
             code="weights.missing"),
    NearMiss(name="a module beside quantized layers", base="mtp", changes=(left_out,), code="weights.missing",
             beside=("quant.mtp_plain",)),
    NearMiss(
        name="layers that are lost with their file", base="alone", code="weights.missing",
        changes=(TARGET.lacks("model.layers.3.self_attn"), TARGET.indexed({"x.weight": "model-00002.safetensors"})),
        beside=("index.absent_file",),
    ),
    NearMiss(
        name="biases of one half of the layers", base="alone", code="weights.missing",
        changes=(TARGET.holds({f"model.layers.{i}.self_attn.q_proj.bias": ("BF16", (64,)) for i in range(6)}),),
    ),
    NearMiss(
        name="an external drafter with one matrix for all of its heads", base="external", code="weights.missing",
        changes=(DRAFTER.lacks(f"{ATTENTION}.q_proj", f"{ATTENTION}.k_proj", f"{ATTENTION}.v_proj"),
                 DRAFTER.holds({f"{ATTENTION}.qkv_proj.weight": ("BF16", (32, 16))})),
    ),
    NearMiss(
        name="an external drafter in eight bits that Model-Optimizer declares", base="external", code="weights.packed",
        changes=(DRAFTER.stores(f"{LAYER}.mlp.up_proj.weight", "F8_E4M3"),
                 DRAFTER.has(extra={"hf_quant_config.json": HF_QUANT})),
    ),
    NearMiss(
        name="a tower in eight bits", base="alone", code="weights.packed",
        changes=(TARGET.holds({"vision_tower.blocks.0.attn.proj.weight": ("F8_E4M3", (8, 8))}),),
    ),
    NearMiss(
        name="zeros in a target, of which no weights are read", base="alone", code="weights.constant",
        changes=(TARGET.holds({"model.layers.5.mlp.up_proj.weight": zeros(128, H)}),),
    ),
    NearMiss(name="an EAGLE-1 head", base="eagle", changes=(), code="weights.missing"),
    NearMiss(name="an EAGLE-1 head without a bias", base="eagle", changes=(DRAFTER.lacks("fc.bias"),),
             code="weights.missing"),
    NearMiss(name="an MTP file beside a config alone", base="mtp_file", changes=(TARGET.empty(),),
             code="weights.missing"),
    NearMiss(name="a DFlash head", base="dflash", changes=(), code="dflash2.selector"),
]  # fmt: skip

NEAR_MISSES = [
    *LAYERS,
    NearMiss(name="weights are there", base="alone", changes=(), code="weights.none"),
    NearMiss(
        name="a pickle beside safetensors", base="eagle3", changes=(DRAFTER.has(extra={"pytorch_model.bin": b"x"}),),
        code="weights.pickled",
    ),
    NearMiss(
        name="Model-Optimizer leaves the first norm out", base="eagle3_modelopt",
        changes=(DRAFTER.says("eagle_config.use_input_layernorm_in_first_layer", False),
                 DRAFTER.lacks("layers.0.input_layernorm")),
        code="weights.missing",
    ),
    NearMiss(
        name="Model-Optimizer leaves the last norm out", base="eagle3_modelopt",
        changes=(DRAFTER.says("eagle_config.use_last_layernorm", False), DRAFTER.lacks("norm.weight")),
        code="weights.missing",
    ),
    NearMiss(
        name="a DSpark class without Markov and confidence heads", base="dspark",
        changes=(DRAFTER.says("markov_rank", 0), DRAFTER.says("enable_confidence_head", False),
                 DRAFTER.lacks("markov_head", "confidence_head")),
        code="weights.missing", beside=("block.alignment", "markov.absent"),
    ),
    NearMiss(
        name="a confidence head that the config does not mention", base="dspark",
        changes=(DRAFTER.silent("enable_confidence_head"),), code="weights.unexpected",
    ),
    NearMiss(
        name="rotary buffers", base="eagle3",
        changes=(DRAFTER.holds({"midlayer.self_attn.rotary_emb.inv_freq": ("F32", (4,))}),), code="weights.unexpected",
    ),
    NearMiss(
        name="sinks of a block drafter", base="dflash",
        changes=(DRAFTER.holds({"layers.0.self_attn.sinks": ("BF16", (8,))}),), code="weights.unexpected",
    ),
    NearMiss(
        name="biases that the config declares", base="eagle3",
        changes=(
            DRAFTER.says("attention_bias", True), DRAFTER.says("mlp_bias", True),
            DRAFTER.holds({f"midlayer.self_attn.{x}_proj.bias": ("BF16", (r,))
                           for x, r in (("q", 64), ("k", 32), ("v", 32), ("o", H))}),
            DRAFTER.holds({f"midlayer.mlp.{x}_proj.bias": ("BF16", (r,))
                           for x, r in (("gate", 128), ("up", 128), ("down", H))}),
        ),
        code="weights.unexpected",
    ),
    NearMiss(
        name="attention over a latent", base="eagle3_modelopt",
        changes=(
            DRAFTER.says("architectures", ["Eagle3DeepseekV2ForCausalLM"]),
            DRAFTER.lacks("layers.0.self_attn."),
            DRAFTER.holds({f"layers.0.self_attn.{name}.weight": ("BF16", shape) for name, shape in (
                ("q_a_proj", (24, 2 * H)), ("q_a_layernorm", (24,)), ("q_b_proj", (96, 24)),
                ("kv_a_proj_with_mqa", (20, 2 * H)), ("kv_a_layernorm", (16,)), ("kv_b_proj", (128, 16)),
                ("o_proj", (H, 64)))}),
        ),
        code="weights.unexpected",
    ),
    NearMiss(
        name="layers behind a prefix", base="dflash", changes=(DRAFTER.renames("layers.", "model.layers."),),
        code="weights.unexpected",
    ),
    NearMiss(
        name="a quantized head with its scales", base="eagle3",
        changes=(
            FP8, DRAFTER.stores("midlayer.mlp.gate_proj.weight", "F8_E4M3"),
            DRAFTER.holds({"midlayer.mlp.gate_proj.weight_scale": ("F32", (1,)),
                           "midlayer.self_attn.k_scale": ("F32", (1,))}),
        ),
        code="weights.packed",
    ),
    NearMiss(
        name="a head packed under names of its own", base="eagle3",
        changes=(
            DRAFTER.says("quantization_config", {"quant_method": "gptq", "bits": 4}),
            DRAFTER.lacks("midlayer.mlp.gate_proj.weight"),
            DRAFTER.holds({"midlayer.mlp.gate_proj.qweight": ("I32", (8, 128)),
                           "midlayer.mlp.gate_proj.qzeros": ("I32", (1, 16)),
                           "midlayer.mlp.gate_proj.scales": ("F16", (1, 128)),
                           "midlayer.mlp.gate_proj.g_idx": ("I32", (64,))}),
        ),
        code="weights.missing",
    ),
    NearMiss(
        name="bytes that the config declares", base="eagle3",
        changes=(DRAFTER.says("quantization_config", {"quant_method": "bitsandbytes", "load_in_4bit": True}),
                 DRAFTER.holds({"midlayer.mlp.gate_proj.weight": ("U8", (4096, 1))})),
        code="weights.packed",
    ),
    NearMiss(
        name="norms that are all ones", base="eagle3", changes=(DRAFTER.holds({"norm.weight": bf16(np.ones(H))}),),
        code="weights.constant",
    ),
    NearMiss(
        name="a confidence head of zeros decides no draft", base="dspark",
        changes=(DRAFTER.holds({"confidence_head.proj.weight": bf16(np.zeros((1, H + RANK)))}),),
        code="weights.constant",
    ),
    NearMiss(
        name="rows of zeros at both ends of a matrix", base="eagle3",
        changes=(DRAFTER.holds({"fc.weight": bf16(np.pad(np.random.default_rng(3).normal(0, 1, (H - 16, 3 * H)),
                                                         ((8, 8), (0, 0))))}),),
        code="weights.constant",
    ),
    NearMiss(name="large but finite", base="eagle3", changes=(DRAFTER.holds({"fc.weight": bf16(
        1e32 * FRESH)}),), code="weights.not_finite"),
    NearMiss(name="one matrix as even as noise", base="eagle3", changes=(DRAFTER.holds({"fc.weight": bf16(FRESH)}),),
             code="weights.untrained"),
    NearMiss(name="copies of the target's ends are never judged", base="eagle3_whole", code="weights.untrained",
             changes=(DRAFTER.holds({"lm_head.weight": bf16(np.random.default_rng(3).normal(0, 0.02, (V, H)))}),)),
    NearMiss(name="shards with their index", base="eagle3", changes=(TARGET.has(shards=3), DRAFTER.has(shards=2)),
             code="index.unlisted"),
    NearMiss(
        name="Mistral's own copy beside the index", base="alone",
        changes=(TARGET.has(shards=2, extra={"consolidated.safetensors": {"x": ("BF16", (2, 2))}}),),
        code="index.unlisted",
    ),
    NearMiss(name="weights of another type than the config says", base="eagle3",
             changes=(DRAFTER.stores("fc.weight", "F32"), asks(engine="vllm")), code="weights.packed"),
]  # fmt: skip
