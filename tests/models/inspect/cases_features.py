"""Hidden states that a head reads, and the two ends that it borrows or brings."""

from tests.checkpoints import bf16
from tests.models.inspect.case import DRAFTER, TARGET, Case, Change, NearMiss, asks
from tests.models.inspect.cases_attention import says
from tests.models.inspect.pairs import EMBEDDING, VD, H, L, Tensors, V

TOP = "eagle_aux_hidden_state_layer_ids"
NESTED = "eagle_config.eagle_aux_hidden_state_layer_ids"
BLOCK = "dflash_config.target_layer_ids"
OTHER_ROWS = bf16([[0.5] * H] * V)


def narrow(*names: str) -> Tensors:
    """Tensors of an EAGLE-3 head that is half as wide as the target."""
    half = H // 2
    shapes = {
        "fc.weight": (half, 3 * H), "norm.weight": (half,), "lm_head.weight": (VD, half),
        "midlayer.hidden_norm.weight": (half,), "midlayer.input_layernorm.weight": (half,),
        "midlayer.post_attention_layernorm.weight": (half,), "midlayer.self_attn.q_proj.weight": (64, 2 * half),
        "midlayer.self_attn.k_proj.weight": (32, 2 * half), "midlayer.self_attn.v_proj.weight": (32, 2 * half),
        "midlayer.self_attn.o_proj.weight": (half, 64), "midlayer.mlp.gate_proj.weight": (128, half),
        "midlayer.mlp.up_proj.weight": (128, half), "midlayer.mlp.down_proj.weight": (half, 128),
        "embed_tokens.weight": (V, half),
    }  # fmt: skip
    return {name: ("BF16", shape) for name, shape in shapes.items() if name not in names}


def tapped(
    name: str,
    base: str,
    key: str,
    ids: list[int],
    code: str,
    severity: str,
    words: str,
    *beside: str,
    more: tuple[Change, ...] = (),
) -> Case:
    """Another list of layer ids."""
    return Case(
        name=name, base=base, changes=(DRAFTER.says(key, ids), *more), code=code, severity=severity, words=words,
        key=key,
        beside=beside,
    )  # fmt: skip


IDS = [
    tapped("an id past the end of a top-level list", "eagle3_speculators", TOP, [2, 6, 13], "taps.range", "error",
           "has [13]; allowed for 12 layers are 0..12"),
    tapped("an id past the end of a nested list", "eagle3_modelopt", NESTED, [1, 5, 13], "taps.range", "error",
           "allowed for 12 layers are -1..11"),
    # What can only be an input: the stream behind the last layer.
    tapped("an id that only the other convention has", "eagle3_modelopt", NESTED, [2, 6, 12], "taps.convention",
           "warning", "those of [1, 5, 11]", "taps.last"),
    tapped("an id past the end of a block drafter's list", "dflash", BLOCK, [1, 5, 12], "taps.range", "error",
           "has [12]"),
    tapped("an id before the embedding", "dspark", "target_layer_ids", [-2, 5, 9], "taps.range", "error", "has [-2]"),
    tapped("the last layer by a top-level list, where no engine is named", "eagle3_speculators", TOP, [2, 6, 12],
           "taps.last", "warning", "has 12, the output of the last of 12 layers", "taps.engine",
           more=(asks(engine=None),)),
    tapped("the last layer by a top-level list, for vLLM", "eagle3_speculators", TOP, [2, 6, 12],
           "taps.last", "error", "has 12"),
    tapped("the last layer by a nested list", "eagle3_modelopt", NESTED, [1, 5, 11], "taps.last", "warning", "has 11"),
    tapped("the last layer of a block drafter", "dflash", BLOCK, [1, 5, 11], "taps.last", "warning", "has 11"),
    tapped("inputs of layers where outputs belong", "eagle3_modelopt", NESTED, [2, 6, 9], "taps.convention", "warning",
           "counts what a layer puts out"),
    tapped("outputs of layers where inputs belong", "eagle3_speculators", TOP, [1, 5, 8], "taps.convention", "warning",
           "counts what enters a layer"),
    tapped("a block drafter's inputs where outputs belong", "dflash", BLOCK, [2, 6, 10], "taps.convention", "warning",
           "the usual choice of the other convention"),
    tapped("a speculators block drafter's outputs where inputs belong", "dflash_speculators",
           "aux_hidden_state_layer_ids", [1, 5, 9], "taps.convention", "warning", "counts what enters a layer"),
    tapped("other nested ids, for vLLM", "eagle3_modelopt", NESTED, [2, 5, 7], "taps.engine", "warning",
           "vLLM would read [1, 4, 6]", more=(asks(engine="vllm"),)),
    tapped("other nested ids, where no engine is named", "eagle3_modelopt", NESTED, [2, 5, 7], "taps.engine", "warning",
           "outputs of layers [2, 5, 7]", more=(asks(engine=None),)),
    tapped("other top-level ids, for SGLang", "eagle3_speculators", TOP, [3, 6, 8], "taps.engine", "warning",
           "SGLang would read [1, 5, 8]", more=(asks(engine="sglang"),)),
    tapped("other top-level ids, for TensorRT-LLM", "eagle3_speculators", TOP, [3, 6, 8], "taps.engine", "warning",
           "TensorRT-LLM would read [1, 5, 8]", more=(asks(engine="trtllm"),)),
    tapped("a second list that means other layers", "eagle3_speculators", NESTED, [2, 6, 9], "taps.conflict", "error",
           "means the outputs of layers [1, 5, 8]"),
    tapped("a block drafter's second list", "dspark", BLOCK, [2, 6, 10], "taps.conflict", "error", "[2, 6, 10]",
           # The list that counts for a block drafter is the nested one, and it looks like the other convention.
           "taps.convention"),
    tapped("ids out of order", "dflash", BLOCK, [5, 1, 9], "taps.order", "warning", "[5, 1, 9]"),
    tapped("an id twice", "dflash", BLOCK, [1, 5, 5], "taps.order", "warning", "[1, 5, 5]"),
    tapped("four ids for an fc of three features", "dflash", BLOCK, [1, 4, 6, 9], "fc.width", "error",
           "fc takes 192 (3 features of 64), and 4 layer ids give 256"),
    tapped("two ids for an fc of three features", "eagle3_modelopt", NESTED, [1, 8], "fc.width", "error",
           "2 layer ids give 128"),
]  # fmt: skip

CASES = [
    *IDS,
    Case(
        name="a head for hidden states of another width", base="eagle3",
        changes=(DRAFTER.says("hidden_size", 32), DRAFTER.holds({**narrow(), "fc.weight": ("BF16", (32, 96))})),
        code="hidden.mismatch", severity="error", words="takes hidden states of 32, and the target's are 64",
        key="hidden_size",
    ),
    Case(
        name="a head that declares another width", base="eagle3_speculators",
        changes=(DRAFTER.says("target_hidden_size", 128), DRAFTER.holds({"fc.weight": ("BF16", (H, 3 * 128))})),
        code="hidden.mismatch", severity="error", words="of 128", key="target_hidden_size",
    ),
    Case(
        name="a block drafter for another width, by its config alone", base="dflash",
        changes=(DRAFTER.empty(), DRAFTER.says("hidden_size", 32), DRAFTER.says("head_dim", 8)),
        code="hidden.mismatch", severity="error", words="of 32", key="hidden_size",
    ),
    Case(
        name="an MTP module for another width", base="mtp_file",
        changes=(DRAFTER.empty(), DRAFTER.says("transformer_layer_config.hidden_size", 32)),
        code="hidden.mismatch", severity="error", words="of 32", key="transformer_layer_config.hidden_size",
    ),
    Case(
        name="a narrower head that does not say how wide the target is", base="eagle3",
        changes=(DRAFTER.says("hidden_size", 32), DRAFTER.holds(narrow())),
        code="hidden.key", severity="error", words="fc takes 3 x 64", key="fc.weight",
    ),
    Case(
        name="fc for no whole number of features", base="eagle3",
        changes=(DRAFTER.holds({"fc.weight": ("BF16", (H, 100))}),),
        code="fc.width", severity="error", words="no whole number of features", key="fc.weight",
    ),
    Case(
        name="no layer ids in SafeAILab's layout", base="eagle3", changes=(DRAFTER.silent(TOP),),
        code="taps.absent", severity="note", words="outputs of layers [1, 5, 8] of 12", key=TOP,
    ),
    Case(
        name="no layer ids in a speculators file", base="eagle3_speculators", changes=(DRAFTER.silent(TOP),),
        code="taps.absent", severity="note", words="no layer ids", key=TOP,
    ),
    Case(
        name="no layer ids, and an fc of five features", base="eagle3",
        changes=(DRAFTER.silent(TOP), DRAFTER.holds({"fc.weight": ("BF16", (H, 5 * H))})),
        code="taps.absent", severity="warning", words="fc takes 5 features", key=TOP,
    ),
    Case(
        name="an empty list of layer ids", base="eagle3_modelopt", changes=(DRAFTER.says(NESTED, []),),
        code="taps.absent", severity="warning", words="no layer ids", key=TOP,
    ),
    Case(
        name="a block drafter without layer ids", base="dflash", changes=(DRAFTER.silent(BLOCK),),
        code="taps.absent_block", severity="error", words="target_layer_ids is absent", key="target_layer_ids",
    ),
    Case(
        name="a DSpark head without layer ids", base="dspark_speculators",
        changes=(DRAFTER.silent("aux_hidden_state_layer_ids"),),
        code="taps.absent_block", severity="error", words="absent", key="target_layer_ids",
    ),
    Case(
        name="a head for a target of another depth", base="dflash", changes=(DRAFTER.says("num_target_layers", 36),),
        code="taps.num_target_layers", severity="error", words="num_target_layers is 36, and the target has 12",
        key="num_target_layers",
    ),
    Case(
        name="features of recurrent layers", base="dflash",
        changes=(TARGET.empty(), says(TARGET, model_type="qwen3_next", partial_rotary_factor=1.0),
                 TARGET.says("layer_types", [
            "full_attention" if i % 4 == 3 else "linear_attention" for i in range(L)])),
        code="taps.hybrid", severity="note", words="names layers of kind linear", key=BLOCK,
    ),
    Case(
        name="a reduced vocabulary without an output head", base="eagle3", changes=(DRAFTER.lacks("lm_head"),),
        code="head.absent", severity="error", words="lm_head.weight is not there", key="lm_head.weight",
    ),
    Case(
        name="a reduced block drafter without an output head", base="dspark_speculators",
        changes=(DRAFTER.lacks("lm_head"),),
        code="head.absent", severity="error", words="128 of 512", key="lm_head.weight",
    ),
    Case(
        name="an output head that is borrowed", base="eagle3_deepspec", changes=(DRAFTER.lacks("lm_head"),),
        code="head.borrowed", severity="note", words="the vocabulary is whole", key="lm_head.weight",
        beside=("taps.engine",),
    ),
    Case(
        name="a block drafter's head that is not the target's", base="dspark",
        changes=(DRAFTER.holds({"lm_head.weight": ("BF16", (V, H))}),
                 TARGET.holds({"lm_head.weight": EMBEDDING})),
        code="head.differs", severity="warning", words="other than the target's", key="lm_head.weight",
    ),
    Case(
        name="an embedding that is not the target's", base="eagle3",
        changes=(DRAFTER.holds({"embed_tokens.weight": ("BF16", (V, H))}),),
        code="embedding.differs", severity="warning", words="embed_tokens.weight are other", key="embed_tokens.weight",
    ),
    Case(
        name="an embedding that is a placeholder", base="dspark",
        changes=(DRAFTER.holds({"embed_tokens.weight": OTHER_ROWS}),),
        code="embedding.differs", severity="warning", words="embed_tokens.weight are other",
        key="model.embed_tokens.weight",
        # A constant is a placeholder by itself.
        beside=("weights.constant",),
    ),
    Case(
        name="a narrower head that borrows the embedding", base="eagle3",
        changes=(DRAFTER.says("hidden_size", 32), DRAFTER.says("target_hidden_size", H),
                 DRAFTER.holds(narrow("embed_tokens.weight"))),
        code="embedding.width", severity="error", words="the head is 32 wide and the target 64",
        key="embed_tokens.weight",
    ),
    Case(
        name="tied ends and a reduced vocabulary", base="eagle3", changes=(DRAFTER.says("tie_word_embeddings", True),),
        code="tie.reduced", severity="error", words="tie_word_embeddings is true", key="tie_word_embeddings",
    ),
    Case(
        name="tied ends in the part with the layers only", base="eagle3_speculators",
        changes=(DRAFTER.says("transformer_layer_config.tie_word_embeddings", True),),
        code="tie.reduced", severity="warning", words="transformer_layer_config.tie_word_embeddings",
        key="transformer_layer_config.tie_word_embeddings",
    ),
    Case(
        name="tied ends that only the part with the layers mentions", base="eagle3_speculators",
        changes=(DRAFTER.silent("tie_word_embeddings"),
                 DRAFTER.says("transformer_layer_config.tie_word_embeddings", True)),
        code="tie.reduced", severity="error", words="128 of 512", key="transformer_layer_config.tie_word_embeddings",
    ),
    Case(
        name="tied ends and a head of its own", base="eagle3_whole",
        changes=(DRAFTER.says("tie_word_embeddings", True), DRAFTER.holds({"lm_head.weight": ("BF16", (V, H))})),
        code="tie.own_head", severity="warning", words="the file has lm_head.weight", key="lm_head.weight",
    ),
    Case(
        name="a head of other rows than the draft vocabulary", base="eagle3_modelopt",
        changes=(DRAFTER.holds({"lm_head.weight": ("BF16", (96, H))}),),
        code="head.rows", severity="error", words="has 96 rows, and the draft vocabulary is 128", key="lm_head.weight",
    ),
]  # fmt: skip

NEAR_MISSES = [
    NearMiss(
        name="a narrower head that says how wide the target is", base="eagle3",
        changes=(DRAFTER.says("hidden_size", 32), DRAFTER.says("target_hidden_size", H), DRAFTER.holds(narrow())),
        code="hidden.key",
    ),
    NearMiss(
        name="a narrower head whose norms show how wide the target is", base="eagle3",
        changes=(DRAFTER.says("hidden_size", 32), DRAFTER.says("fc_norm", True), DRAFTER.holds(
            {**narrow(), **{f"fc_norm.{i}.weight": ("BF16", (H,)) for i in range(3)}})),
        code="hidden.mismatch",
    ),
    NearMiss(
        name="a head that reads the last hidden state alone", base="eagle3_modelopt",
        changes=(DRAFTER.says("eagle_config", {"use_aux_hidden_state": False}),), code="taps.absent",
        beside=("taps.off",),
    ),
    NearMiss(name="the first id of each convention", base="eagle3_speculators",
             changes=(DRAFTER.says(TOP, [0, 6, 9]),), code="taps.range"),
    NearMiss(name="the embedding as an output", base="dspark",
             changes=(DRAFTER.says("target_layer_ids", [-1, 5, 9]),), code="taps.range"),
    NearMiss(name="the last layer but one", base="dflash",
             changes=(DRAFTER.says(BLOCK, [1, 5, 10]),), code="taps.last"),
    NearMiss(name="the last layer's input", base="eagle3_speculators", changes=(DRAFTER.says(TOP, [2, 6, 11]),),
             code="taps.last"),
    NearMiss(name="the usual outputs", base="eagle3_modelopt", changes=(), code="taps.convention"),
    NearMiss(name="the usual inputs, whatever the engine", base="eagle3_speculators", changes=(asks(engine=None),),
             code="taps.engine"),
    NearMiss(name="the usual outputs, whatever the engine", base="eagle3_modelopt", changes=(asks(engine="vllm"),),
             code="taps.convention",
             # vLLM 0.32 takes them one off.
             beside=("taps.engine",)),
    NearMiss(name="other nested ids for SGLang", base="eagle3_modelopt", changes=(DRAFTER.says(NESTED, [1, 5, 7]),),
             code="taps.engine"),
    NearMiss(name="other top-level ids for vLLM", base="eagle3_speculators", changes=(DRAFTER.says(TOP, [3, 6, 8]),),
             code="taps.engine"),
    NearMiss(name="other ids of a block drafter", base="dflash", changes=(DRAFTER.says(BLOCK, [2, 5, 7]),),
             code="taps.engine"),
    NearMiss(name="the same layers in both conventions", base="eagle3_speculators",
             changes=(DRAFTER.says(NESTED, [1, 5, 8]),), code="taps.conflict"),
    NearMiss(name="a block drafter's two lists agree", base="dflash_speculators",
             changes=(DRAFTER.says("target_layer_ids", [1, 5, 9]),), code="taps.conflict"),
    NearMiss(name="ids ascend", base="dflash", changes=(DRAFTER.says(BLOCK, [0, 1, 2]),), code="taps.order"),
    NearMiss(name="the target's own depth", base="dspark", changes=(), code="taps.num_target_layers"),
    NearMiss(
        name="features of the attention layers of a hybrid", base="dflash",
        changes=(TARGET.empty(), says(TARGET, model_type="qwen3_next", partial_rotary_factor=1.0),
                 DRAFTER.says(BLOCK, [3, 7, 10]),
                 TARGET.says("layer_types", ["full_attention" if i in (3, 7, 10) else "linear_attention"
                                             for i in range(L)])),
        code="taps.hybrid",
    ),
    NearMiss(name="a block drafter borrows its head", base="dflash", changes=(), code="head.absent"),
    NearMiss(
        name="a packed output head", base="eagle3",
        changes=(DRAFTER.lacks("lm_head"), DRAFTER.holds({"lm_head.qweight": ("I32", (8, VD)),
                                                          "lm_head.scales": ("F16", (1, VD))}),
                 DRAFTER.says("quantization_config", {"quant_method": "gptq", "bits": 4})),
        code="head.absent",
    ),
    NearMiss(name="a copy of the target's head", base="dspark_speculators", changes=(), code="head.differs"),
    NearMiss(
        name="a copy of the target's tied head", base="dspark",
        changes=(TARGET.lacks("lm_head"), TARGET.says("tie_word_embeddings", True),
                 DRAFTER.holds({"lm_head.weight": EMBEDDING, "embed_tokens.weight": EMBEDDING})),
        code="head.differs",
    ),
    NearMiss(name="an EAGLE-3 head is trained", base="eagle3_whole",
             changes=(DRAFTER.holds({"lm_head.weight": ("BF16", (V, H))}),), code="head.differs"),
    NearMiss(name="a copy of the target's embedding", base="eagle3_speculators", changes=(), code="embedding.differs"),
    NearMiss(
        name="a narrower head with an embedding of its own", base="eagle3",
        changes=(DRAFTER.says("hidden_size", 32), DRAFTER.says("target_hidden_size", H), DRAFTER.holds(narrow())),
        code="embedding.width",
    ),
    NearMiss(name="tied ends that are both borrowed", base="dflash",
             changes=(DRAFTER.says("tie_word_embeddings", True),),
             code="tie.own_head"),
    NearMiss(
        name="tied ends, and both stored as one matrix", base="dspark",
        changes=(DRAFTER.says("tie_word_embeddings", True), TARGET.holds({"lm_head.weight": EMBEDDING}),
                 DRAFTER.holds({"lm_head.weight": EMBEDDING, "embed_tokens.weight": EMBEDDING})),
        code="tie.own_head",
    ),
    NearMiss(name="a head of the whole vocabulary", base="eagle3_deepspec", changes=(), code="head.rows",
             beside=("taps.engine",)),
]  # fmt: skip
