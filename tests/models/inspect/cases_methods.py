"""Mechanism, method and class name; what the config says of norms, switches and the target it was made for."""

from tests.models.inspect.case import DRAFTER, TARGET, Case, NearMiss, asks
from tests.models.inspect.pairs import H, layer

CASES = [
    Case(
        name="a method that needs a drafter, and a target alone",
        base="alone", changes=(asks(method="eagle3"),),
        code="method.no_drafter", severity="error", words="only a target is given", key="--method",
    ),
    Case(
        name="the numbers for one D", base="eagle3", changes=(asks(depth=3),),
        code="depth.numbers", severity="note", words="D = 3", key="--depth",
    ),
    Case(
        name="more drafts than older kernels take", base="eagle3", changes=(asks(depth=40),),
        code="depth.large", severity="warning", words="D = 40", key="--depth",
    ),
    Case(
        name="positions in several dimensions", base="external",
        changes=(DRAFTER.says("rope_scaling", {"type": "mrope", "mrope_section": [2, 1, 1]}),),
        code="external.multimodal", severity="warning", words="mrope", key="rope_scaling",
    ),
    Case(
        name="more drafts proposed than the block has", base="dflash_speculators",
        changes=(DRAFTER.says("speculators_config.proposal_methods", [{"speculative_tokens": 99}]),),
        code="block.proposal", severity="warning", words="speculative_tokens is 99",
        key="speculators_config.proposal_methods",
    ),
    Case(
        name="two dtypes", base="eagle3", changes=(DRAFTER.says("torch_dtype", "float16"),),
        code="dtype.differs", severity="note", words="float16 in the drafter, bfloat16 in the",
        key="torch_dtype",
    ),
    Case(
        name="code of its own", base="dflash", changes=(DRAFTER.says("auto_map", {"AutoModel": "dflash.Model"}),),
        code="code.remote", severity="note", words="auto_map", key="auto_map",
    ),
    Case(
        name="an EAGLE-3 head under the method EAGLE",
        base="eagle3", changes=(asks(method="eagle"),),
        code="method.mismatch", severity="error", words="the method is eagle, and the checkpoint is eagle3",
        key="--method",
    ),
    Case(
        name="a DSpark head under the method DFlash",
        base="dspark", changes=(asks(method="dflash"),),
        code="method.mismatch", severity="error", words="the checkpoint is dspark", key="architectures",
    ),
    Case(
        name="a head beside a method that takes none",
        base="eagle3", changes=(asks(method="ngram"),),
        code="method.mismatch", severity="error", words="the method is ngram", key="--method",
    ),
    Case(
        name="an MTP module under the method EAGLE of an engine that means EAGLE-1",
        base="mtp_file", changes=(asks(method="eagle", engine="vllm"),),
        code="method.mismatch", severity="error", words="the checkpoint is mtp", key="--method",
        beside=("engine.mechanism",),
    ),
    Case(
        name="a head as an external drafter",
        base="eagle3", changes=(asks(method="external"),),
        code="method.head_as_model", severity="error", words="this is a head (eagle3", key="--method",
    ),
    Case(
        name="an MTP module as an external drafter",
        base="mtp_file", changes=(asks(method="external", depth=None),),
        code="method.head_as_model", severity="error", words="this is a head (mtp", key="--method",
    ),
    Case(
        name="a language model as a head",
        base="external", changes=(asks(method="eagle3"),),
        code="method.model_as_head", severity="error", words="a language model of 1 layers", key="architectures",
    ),
    Case(
        name="a language model without MTP as an MTP module",
        base="external", changes=(asks(method="mtp"),),
        code="method.model_as_head", severity="error", words="it has no MTP module", key="--method",
    ),
    Case(
        name="a mechanism that is only named",
        base="eagle3", changes=(DRAFTER.says("architectures", ["LlamaForCausalLMEagle"]),
                                DRAFTER.lacks("d2t", "t2d", "midlayer.hidden_norm"),
                                DRAFTER.lacks("midlayer", "fc", "lm_head"), DRAFTER.silent("draft_vocab_size"),
                                DRAFTER.holds({"fc.weight": ("BF16", (H, 2 * H)), **layer("layers.0")}),
                                asks(method="eagle")),
        code="method.other", severity="note", words="the checkpoint is eagle", key="architectures",
    ),
    Case(
        name="a kind of the speculators library that nobody knows",
        base="eagle3_speculators", changes=(DRAFTER.says("speculators_model_type", "hydra"), asks(engine=None)),
        code="method.other", severity="note", words="the checkpoint is hydra", key="architectures",
    ),
    Case(
        name="a head without a class name",
        base="eagle3", changes=(DRAFTER.silent("architectures"),),
        code="architecture.absent", severity="warning", words="absent or empty", key="architectures",
    ),
    Case(
        name="an external drafter with an empty list of class names",
        base="external", changes=(DRAFTER.says("architectures", []),),
        code="architecture.absent", severity="warning", words="absent or empty", key="architectures",
    ),
    Case(
        name="a head under the class name of a plain Llama",
        base="eagle3", changes=(DRAFTER.says("architectures", ["LlamaForCausalLM"]),),
        code="architecture.plain", severity="warning", words="the class is LlamaForCausalLM", key="architectures",
    ),
    Case(
        name="a Llama class over layers with norms of queries and keys",
        base="eagle3", changes=(DRAFTER.holds(layer("midlayer", inputs=2, normed=True)),),
        code="architecture.layers", severity="warning", words="layer 0 has q_norm", key="architectures",
    ),
    Case(
        name="a Qwen3 class over layers without norms",
        base="eagle3", changes=(DRAFTER.says("architectures", ["Qwen3ForCausalLMEagle3"]),),
        code="architecture.layers", severity="warning", words="layer 0 has no q_norm", key="architectures",
        # The class name promises the norms, so they are missing too.
        beside=("weights.missing",),
    ),
    Case(
        name="an engine without the mechanism",
        base="peagle", changes=(asks(engine="sglang"),),
        code="engine.mechanism", severity="warning", words="SGLang has no method for peagle", key="--engine",
    ),
    Case(
        name="a mechanism that one engine runs in some versions",
        base="dspark", changes=(asks(engine="vllm"),),
        code="engine.mechanism", severity="note", words="newer GPU runner only", key="--engine",
    ),
    Case(
        name="a speculators file that leaves the residual open",
        base="eagle3_speculators", changes=(DRAFTER.silent("norm_before_residual"),),
        code="norm.before_residual", severity="warning", words="absent", key="norm_before_residual",
    ),
    Case(
        name="norm_output on in a speculators file",
        base="eagle3_speculators", changes=(DRAFTER.says("norm_output", True),),
        code="norm.output", severity="warning", words="norm_output is True in a speculators file", key="norm_output",
    ),
    Case(
        name="norm_output off in a SpecForge file",
        base="eagle3", changes=(DRAFTER.says("norm_output", False),),
        code="norm.output", severity="warning", words="norm_output is False", key="norm_output",
    ),
    Case(
        name="both norms in front of fc",
        base="eagle3_speculators",
        changes=(
            DRAFTER.says("fc_norm", True), DRAFTER.says("norm_before_fc", True),
            DRAFTER.holds({f"fc_norm.{i}.weight": ("BF16", (H,)) for i in range(3)}),
            DRAFTER.holds({"input_norm.weight": ("BF16", (3 * H,))}),
        ),
        code="norm.exclusive", severity="error", words="both true", key="norm_before_fc",
    ),
    Case(
        name="features of other layers switched off",
        base="eagle3_modelopt", changes=(DRAFTER.says("eagle_config.use_aux_hidden_state", False),),
        code="taps.off", severity="warning", words="is false", key="eagle_config.use_aux_hidden_state",
    ),
    Case(
        name="an early head that counts the target's layers",
        base="eagle3", changes=(DRAFTER.says("num_hidden_layers", 12),),
        code="layers.declared", severity="warning", words="num_hidden_layers is 12, and the file holds 1",
        key="num_hidden_layers",
    ),
    Case(
        name="a drafter that sees",
        base="external", changes=(DRAFTER.says("vision_config", {"hidden_size": 16}),),
        code="external.multimodal", severity="warning", words="its config has vision_config", key="vision_config",
    ),
    Case(
        name="a language model as a head, by its config alone",
        base="external", changes=(asks(method="eagle3"), DRAFTER.empty()),
        code="method.model_as_head", severity="error", words="a language model of 1 layers", key="--method",
    ),
    Case(
        name="what may be an early head, in a pickle",
        base="external",
        changes=(asks(method="eagle3"), DRAFTER.empty(), DRAFTER.has(extra={"pytorch_model.bin": b"x"})),
        code="method.model_as_head", severity="warning", words="a language model of 1 layers", key="--method",
        beside=("weights.pickled",),
    ),
    Case(
        name="a drafter beside a method that takes none",
        base="external", changes=(asks(method="ngram"),),
        code="method.mismatch", severity="error", words="the method is ngram, which takes no drafter", key="--method",
    ),
    Case(
        name="a head that names a target of another class",
        base="eagle3_speculators",
        changes=(DRAFTER.says("speculators_config.verifier.architectures", ["LlamaForCausalLM"]),),
        code="verifier.other", severity="warning", words="made for LlamaForCausalLM",
        key="speculators_config.verifier.architectures",
    ),
    Case(
        name="a head that names a target of another name",
        base="eagle3_speculators",
        changes=(DRAFTER.says("speculators_config.verifier.name_or_path", "Qwen/Qwen3-8B"),),
        code="verifier.name", severity="note", words="it names Qwen/Qwen3-8B",
        key="speculators_config.verifier.name_or_path",
    ),
    Case(
        name="keys that engines do not read",
        base="dflash", changes=(DRAFTER.says("dflash_config.use_swa", True),
                                DRAFTER.says("dflash_config.swa_window_size", 64)),
        code="keys.ignored", severity="note", words="dflash_config.use_swa", key="dflash_config.use_swa",
        beside=("window.drafter",),
    ),
    Case(
        name="a tensor that an engine skips",
        base="dspark_speculators", changes=(),
        code="keys.ignored", severity="note", words="lm_head.weight", key="lm_head.weight",
    ),
    Case(
        name="a reduced vocabulary that only the tensors show",
        base="eagle3", changes=(DRAFTER.silent("draft_vocab_size"),),
        code="draft_vocab.key", severity="error", words="d2t maps 128 tokens", key="draft_vocab_size",
    ),
]  # fmt: skip

NEAR_MISSES = [
    NearMiss(name="a method that needs none", base="alone", changes=(asks(method="ngram"),), code="method.no_drafter"),
    NearMiss(name="no D", base="eagle3", changes=(), code="depth.numbers"),
    NearMiss(name="the most that older kernels take", base="eagle3", changes=(asks(depth=32),), code="depth.large"),
    NearMiss(
        name="as many drafts proposed as the block has", base="dflash_speculators",
        changes=(DRAFTER.says("speculators_config.proposal_methods", [{"speculative_tokens": 7}]),),
        code="block.proposal",
    ),
    NearMiss(name="the same dtype under another key", base="eagle3",
             changes=(DRAFTER.silent("torch_dtype"), DRAFTER.says("dtype", "bfloat16")), code="dtype.differs"),
    NearMiss(name="no code", base="dflash", changes=(), code="code.remote"),
    NearMiss(name="no method is asked for", base="eagle3", changes=(asks(method=None),), code="method.mismatch"),
    NearMiss(
        name="vLLM serves P-EAGLE under eagle3",
        base="peagle", changes=(asks(method="eagle3"),), code="method.mismatch",
    ),
    NearMiss(
        name="SGLang serves MTP under EAGLE",
        base="mtp_file", changes=(asks(method="eagle", engine="sglang"),), code="method.mismatch",
        # Not this layout of them.
        beside=("engine.mechanism",),
    ),
    NearMiss(
        name="vLLM and SGLang serve what grew out of DFlash under its name",
        base="dflash2", changes=(asks(method="dflash"),),
        code="method.mismatch",
    ),
    NearMiss(name="a head under no method", base="mtp_file", changes=(asks(method=None),), code="method.head_as_model"),
    NearMiss(name="an external drafter under none", base="external", changes=(asks(method=None),),
             code="method.model_as_head"),
    NearMiss(
        name="a target with MTP as the drafter of MTP",
        base="external", changes=(DRAFTER.says("num_nextn_predict_layers", 1), asks(method="mtp")),
        code="method.model_as_head",
    ),
    NearMiss(
        name="class names of heads end like those of models",
        base="eagle3", changes=(DRAFTER.says("architectures", ["Eagle3LlamaForCausalLM"]),), code="architecture.plain",
    ),
    NearMiss(
        name="a plain class that says eagle3 beside it",
        base="eagle3", changes=(DRAFTER.says("architectures", ["LlamaForCausalLM", "LlamaForCausalLMEagle3"]),),
        code="architecture.plain",
    ),
    NearMiss(name="DeepSpec's class has the norms", base="eagle3_deepspec", changes=(), code="architecture.layers",
             beside=("taps.engine",)),
    NearMiss(name="SGLang runs EAGLE-3", base="eagle3", changes=(asks(engine="sglang"),), code="engine.mechanism"),
    NearMiss(name="SGLang runs DSpark", base="dspark", changes=(asks(engine="sglang"),), code="engine.mechanism"),
    NearMiss(
        name="norm_before_residual is false",
        base="eagle3_speculators", changes=(DRAFTER.says("norm_before_residual", False),), code="norm.before_residual",
    ),
    NearMiss(
        name="norm_output is each family's own default",
        base="eagle3_speculators", changes=(DRAFTER.says("norm_output", False),), code="norm.output",
    ),
    NearMiss(
        name="SpecForge's norm_output is its default",
        base="eagle3", changes=(DRAFTER.says("norm_output", True),), code="norm.output",
    ),
    NearMiss(
        name="one norm in front of fc",
        base="eagle3_speculators",
        changes=(DRAFTER.says("norm_before_fc", True), DRAFTER.holds({"input_norm.weight": ("BF16", (3 * H,))})),
        code="norm.exclusive",
    ),
    NearMiss(
        name="a norm for each feature",
        base="eagle3_speculators",
        changes=(DRAFTER.says("fc_norm", True),
                 DRAFTER.holds({f"fc_norm.{i}.weight": ("BF16", (H,)) for i in range(3)})),
        code="norm.exclusive",
    ),
    NearMiss(name="two layers, and both there", base="dflash", changes=(), code="layers.declared"),
    NearMiss(
        name="a tower that is switched off",
        base="external", changes=(DRAFTER.says("vision_config", 0),), code="external.multimodal",
    ),
    NearMiss(name="features are on", base="eagle3_modelopt", changes=(), code="taps.off"),
    NearMiss(
        name="one of several class names is the target's",
        base="eagle3_speculators",
        changes=(DRAFTER.says("speculators_config.verifier.architectures", ["Other", "Qwen3ForCausalLM"]),),
        code="verifier.other",
    ),
    NearMiss(
        name="the target has no class name to compare with",
        base="eagle3_speculators", changes=(TARGET.silent("architectures"),), code="verifier.other",
    ),
    NearMiss(
        name="the same name with an owner and a revision",
        base="eagle3_speculators",
        changes=(DRAFTER.says("speculators_config.verifier.name_or_path", "owner/Target@main"),), code="verifier.name",
    ),
    NearMiss(
        name="another engine ignores the key",
        base="dflash", changes=(DRAFTER.says("dflash_config.use_swa", True), asks(engine="vllm")), code="keys.ignored",
        beside=("window.drafter",),
    ),
    NearMiss(name="the draft vocabulary is declared", base="eagle3_modelopt", changes=(), code="draft_vocab.key"),
]  # fmt: skip
