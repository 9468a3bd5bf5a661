"""Heads and their widths, positions, rotation and windows."""

from tests.models.inspect.case import DRAFTER, TARGET, Case, Change, NearMiss, asks, together
from tests.models.inspect.pairs import H, layer

NESTED = "transformer_layer_config"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LATENT = {
    "model_type": "deepseek_v3", "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "first_k_dense_replace": 12, "num_attention_heads": 16, "num_key_value_heads": 16,
}  # fmt: skip


def says(side: object, **keys: object) -> Change:
    """Several keys at once."""
    assert side in (TARGET, DRAFTER)
    at = TARGET if side == TARGET else DRAFTER
    return together(*(at.says(key, value) for key, value in keys.items()))


def latent() -> Change:
    """A target with latent attention, by its config alone."""
    return together(TARGET.empty(), TARGET.silent("head_dim"), says(TARGET, **LATENT))


# A head of ordinary attention caches much beside a latent.
WIDE = ("heads.drafter_kv",)
HEADS = [
    Case(
        name="ordinary heads beside a latent", base="eagle3", changes=(latent(),),
        code="heads.drafter_kv", severity="warning", words="27% of the target's cache", key="kv_lora_rank",
    ),
    Case(
        name="query heads that KV heads do not divide", base="eagle3",
        changes=(DRAFTER.says("num_key_value_heads", 3), DRAFTER.empty()),
        code="heads.ratio", severity="error", words="the drafter has 8 query heads and 3 KV heads",
        key="num_key_value_heads",
    ),
    Case(
        name="one latent on four ranks", base="alone", changes=(latent(), asks(tp=4)),
        code="mla.tp", severity="note", words="4 ranks keep it 4 times", key="kv_lora_rank",
    ),
    Case(
        name="a target whose query heads KV heads do not divide", base="alone",
        changes=(TARGET.says("num_key_value_heads", 3), TARGET.empty()),
        code="heads.ratio", severity="error", words="the target has 8 query heads and 3 KV heads",
        key="num_key_value_heads",
    ),
    Case(
        name="a group of three", base="eagle3",
        changes=(TARGET.says("num_attention_heads", 12), TARGET.empty(), asks(depth=3)),
        code="heads.group", severity="note", words="3 query heads for each KV head, 12 rows at D = 3",
        key="num_attention_heads",
    ),
    Case(
        name="a group of five in the drafter", base="dflash",
        changes=(DRAFTER.says("num_attention_heads", 20), DRAFTER.empty()),
        code="heads.group", severity="note", words="the drafter has 5 query heads", key="num_attention_heads",
    ),
    Case(
        name="ranks that do not divide the heads", base="alone", changes=(asks(tp=3),),
        code="heads.tp", severity="error", words="3 ranks, 8 query heads of the target", key="--tp",
    ),
    Case(
        name="ranks that do not divide the drafter's heads", base="external", changes=(asks(tp=4),),
        code="heads.tp", severity="error", words="4 ranks, 2 query heads of the drafter", key="num_attention_heads",
    ),
    Case(
        name="ranks that neither divide KV heads nor are a multiple of them", base="alone",
        changes=(says(TARGET, num_attention_heads=12, num_key_value_heads=6), TARGET.empty(), asks(tp=4)),
        code="heads.tp", severity="error", words="6 KV heads of the target: neither divides the other", key="--tp",
    ),
    Case(
        name="more ranks than KV heads", base="alone", changes=(asks(tp=8),),
        code="heads.tp_kv", severity="warning", words="each is kept 2 times", key="--tp",
    ),
    Case(
        name="a drafter with a KV head for each query head", base="eagle3",
        changes=(DRAFTER.says("num_key_value_heads", 8), DRAFTER.empty()),
        code="heads.drafter_kv", severity="warning", words="caches 128 numbers for a token, a target layer 64",
        key="num_key_value_heads",
    ),
    Case(
        name="a head width that only the tensors know", base="eagle3",
        changes=(DRAFTER.silent("head_dim"), DRAFTER.holds({
            f"midlayer.self_attn.{x}_proj.weight": ("BF16", shape) for x, shape in (
                ("q", (128, 2 * H)), ("k", (64, 2 * H)), ("v", (64, 2 * H)), ("o", (H, 128)))})),
        code="head_dim.headers", severity="error", words="heads of 16, head_dim is absent, and 64 / 8 is 8",
        key="head_dim",
        # Twice as wide keys are also twice the cache.
        beside=("heads.drafter_kv",),
    ),
    Case(
        name="a head width that the tensors deny", base="eagle3", changes=(DRAFTER.says("head_dim", 16),),
        code="head_dim.headers", severity="error",
        words="head_dim is 16, and midlayer.self_attn.k_proj.weight has heads of 8",
        key="midlayer.self_attn.k_proj.weight",
        beside=("heads.drafter_kv",),
    ),
    Case(
        name="a width of the target that only its tensors know", base="eagle3",
        changes=(TARGET.silent("head_dim"), TARGET.says("model_type", "llama"), TARGET.holds({
            f"model.layers.{i}.self_attn.{x}_proj.weight": ("BF16", shape) for i in range(12) for x, shape in (
                ("q", (128, H)), ("k", (64, H)), ("v", (64, H)), ("o", (H, 128)))}),
            TARGET.lacks(*(f"model.layers.{i}.self_attn.{x}_norm" for i in range(12) for x in "qk"))),
        code="head_dim.headers", severity="note", words="the target's tensors have heads of 16", key="head_dim",
    ),
    Case(
        name="a head width that nobody knows", base="eagle3",
        changes=(DRAFTER.silent("head_dim"), says(DRAFTER, hidden_size=H, num_attention_heads=12), DRAFTER.empty()),
        code="head_dim.assumed", severity="warning", words="12 heads on a hidden size of 64", key="head_dim",
    ),
    Case(
        name="an EAGLE-3 layer that reads one hidden size", base="eagle3", changes=(DRAFTER.holds(layer("midlayer")),),
        code="eagle3.attention_width", severity="error", words="reads 64 (one hidden size, as in EAGLE-1 and 2)",
        key="midlayer.self_attn.q_proj.weight",
    ),
    Case(
        name="an EAGLE-3 layer that reads three", base="eagle3_modelopt",
        changes=(DRAFTER.holds(layer("layers.0", inputs=3)),),
        code="eagle3.attention_width", severity="error", words="reads 192, and twice the hidden size is 128",
        key="layers.0.self_attn.q_proj.weight",
    ),
    Case(
        name="a target of fewer layers than its config says", base="alone", changes=(TARGET.lacks("model.layers.11."),),
        code="config.disagrees", severity="error", words="num_hidden_layers is 12", key="num_hidden_layers",
    ),
    Case(
        name="an external drafter with another embedding than its config says", base="external",
        changes=(DRAFTER.holds({"model.embed_tokens.weight": ("BF16", (496, 16))}),),
        code="config.disagrees", severity="error", words="vocab_size is 512", key="model.embed_tokens.weight",
    ),
]  # fmt: skip

POSITIONS = [
    Case(
        name="a drafter of 2048 positions", base="eagle3", changes=(DRAFTER.says("max_position_embeddings", 2048),),
        code="positions.drafter", severity="warning", words="the drafter has 2048 positions, the target 4096",
        key="max_position_embeddings",
    ),
    Case(
        name="an external drafter of 2048 positions", base="external",
        changes=(DRAFTER.says("max_position_embeddings", 2048),),
        code="positions.drafter", severity="warning", words="2048", key="max_position_embeddings",
    ),
    Case(
        name="sequences beyond the drafter", base="eagle3",
        changes=(DRAFTER.says("max_position_embeddings", 2048), asks(context=3000)),
        code="positions.workload", severity="error", words="sequences of 3000 tokens; the drafter has 2048",
        key="--context",
    ),
    Case(
        name="prompts beyond the drafter", base="eagle3_modelopt",
        changes=(DRAFTER.says("max_position_embeddings", 8), asks(text="a long prompt it is")),
        code="positions.workload", severity="error", words="1 of 1 prompts (100%) are longer", key="--prompts",
        # None of these bytes is among the drafted ids.
        beside=("draft_vocab.coverage",),
    ),
    Case(
        name="sequences beyond the target", base="alone", changes=(asks(context=5000),),
        code="positions.target", severity="error", words="sequences of 5000 tokens; the target has 4096",
        key="--context",
    ),
    Case(
        name="another RoPE base", base="eagle3", changes=(DRAFTER.says("rope_theta", 10_000.0),),
        code="rope.theta", severity="warning", words="10,000 in the drafter, 1,000,000 in the target", key="rope_theta",
    ),
    Case(
        name="another RoPE base in the part with the layers", base="dflash_speculators",
        changes=(DRAFTER.says(f"{NESTED}.rope_theta", 5e5),),
        code="rope.theta", severity="warning", words="500,000 in the drafter", key=f"{NESTED}.rope_theta",
    ),
    Case(
        name="no RoPE base", base="eagle3", changes=(DRAFTER.silent("rope_theta"),),
        code="rope.theta_absent", severity="note", words="the target's is 1,000,000", key="rope_theta",
    ),
    Case(
        name="YaRN in the target only", base="dflash", changes=(TARGET.says("rope_scaling", YARN),),
        code="rope.scaling", severity="warning", words="no scaling in the drafter, yarn x 4 from 1024",
        key="rope_scaling",
    ),
    Case(
        name="another kind of scaling", base="dflash",
        changes=(TARGET.says("rope_scaling", YARN), DRAFTER.says("rope_scaling", {**YARN, "rope_type": "llama3"})),
        code="rope.scaling", severity="warning", words="llama3 x 4 from 1024 in the drafter", key="rope_scaling",
    ),
    Case(
        name="another factor", base="dflash",
        changes=(TARGET.says("rope_scaling", YARN), DRAFTER.says("rope_scaling", {**YARN, "factor": 2.0})),
        code="rope.scaling", severity="warning", words="yarn x 2", key="rope_scaling",
    ),
    Case(
        name="the same factor from another length", base="dflash",
        changes=(TARGET.says("rope_scaling", YARN),
                 DRAFTER.says("rope_scaling", {**YARN, "original_max_position_embeddings": 2048})),
        code="rope.scaling", severity="warning", words="yarn x 4 from 2048", key="rope_scaling",
    ),
    Case(
        name="LongRoPE in the target only", base="dflash",
        changes=(TARGET.says("rope_scaling", {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}),),
        code="rope.scaling", severity="warning", words="longrope in the target", key="rope_scaling",
    ),
    Case(
        name="YaRN in the target, and not a word of rotation in the drafter", base="eagle3",
        changes=(TARGET.says("rope_scaling", YARN), DRAFTER.silent("rope_theta")),
        code="rope.scaling", severity="note", words="no scaling in the drafter", key="rope_scaling",
    ),
    Case(
        name="a part of each head is rotated", base="eagle3", changes=(TARGET.says("partial_rotary_factor", 0.25),),
        code="rope.partial", severity="warning", words="1 of the head in the drafter, 0.25 in the target",
        key="partial_rotary_factor",
    ),
    Case(
        name="a block drafter rotates whole heads", base="dflash",
        changes=(TARGET.says("partial_rotary_factor", 0.25),),
        code="rope.partial", severity="note", words="1 of the head in the drafter", key="partial_rotary_factor",
    ),
    Case(
        name="interleaved rotation", base="dflash", changes=(DRAFTER.says("rope_is_neox_style", False),),
        code="rope.style", severity="warning", words="rope_is_neox_style is false", key="rope_is_neox_style",
    ),
    Case(
        name="the RoPE base in the new form only", base="dflash",
        changes=(DRAFTER.silent("rope_theta"),
                 DRAFTER.says("rope_parameters", {"rope_theta": 1e6, "rope_type": "default"})),
        code="rope.keys", severity="warning", words="rope_parameters without rope_theta", key="rope_parameters",
    ),
    Case(
        name="sliding layers", base="dflash",
        changes=(says(DRAFTER, layer_types=["sliding_attention", "full_attention"], sliding_window=2048),),
        code="window.drafter", severity="warning", words="see 2048 tokens", key="sliding_window",
    ),
    Case(
        name="a window without a list of layers", base="eagle3", changes=(DRAFTER.says("sliding_window", 2048),),
        code="window.drafter", severity="warning", words="see 2048 tokens", key="sliding_window",
    ),
    Case(
        name="Model-Optimizer's window", base="dflash",
        changes=(DRAFTER.says("dflash_config.use_swa", True), DRAFTER.says("dflash_config.swa_window_size", 1024)),
        code="window.drafter", severity="warning", words="see 1024 tokens", key="dflash_config.swa_window_size",
    ),
    Case(
        name="a window that is not causal", base="dflash",
        changes=(DRAFTER.says("dflash_config.use_swa", True), DRAFTER.says("dflash_config.swa_window_size", 1024),
                 DRAFTER.says("dflash_config.causal", False)),
        code="window.non_causal", severity="warning", words="not causal", key="dflash_config.causal",
        beside=("window.drafter",),
    ),
    Case(
        name="a speculators window that is not causal", base="dflash_speculators",
        changes=(DRAFTER.says(f"{NESTED}.sliding_window", 2048), DRAFTER.says("sliding_window_non_causal", True)),
        code="window.non_causal", severity="warning", words="not causal", key=f"{NESTED}.sliding_window",
        beside=("window.drafter",),
    ),
]  # fmt: skip

CASES = [*HEADS, *POSITIONS]
NEAR_MISSES = [
    NearMiss(name="a group of two", base="eagle3", changes=(asks(tp=2),), code="heads.group"),
    NearMiss(name="heads over one latent", base="eagle3", changes=(latent(),), code="heads.group", beside=WIDE),
    NearMiss(name="ranks that divide all heads", base="eagle3", changes=(asks(tp=4),), code="heads.tp"),
    NearMiss(name="as many ranks as KV heads", base="alone", changes=(asks(tp=4),), code="heads.tp_kv"),
    NearMiss(name="fewer KV heads than the target", base="eagle3",
             changes=(DRAFTER.says("num_key_value_heads", 1), DRAFTER.empty()), code="heads.drafter_kv"),
    NearMiss(name="a head as narrow as the latent", base="eagle3", changes=(
        latent(), DRAFTER.empty(), DRAFTER.says("num_key_value_heads", 1)), code="heads.drafter_kv"),
    NearMiss(
        name="heads that are wider than the hidden size, as the config says", base="eagle3",
        changes=(DRAFTER.says("head_dim", 16), DRAFTER.says("num_attention_heads", 8), DRAFTER.holds({
            f"midlayer.self_attn.{x}_proj.weight": ("BF16", shape) for x, shape in (
                ("q", (128, 2 * H)), ("k", (32, 2 * H)), ("v", (32, 2 * H)), ("o", (H, 128)))}),
            DRAFTER.says("num_key_value_heads", 2)),
        code="head_dim.headers",
    ),
    NearMiss(name="hidden size over heads", base="eagle3", changes=(DRAFTER.silent("head_dim"),),
             code="head_dim.headers"),
    NearMiss(
        name="the default of Qwen3's class", base="dflash_speculators",
        changes=(DRAFTER.silent(f"{NESTED}.head_dim"), DRAFTER.says(f"{NESTED}.num_key_value_heads", 1),
                 DRAFTER.says(f"{NESTED}.num_attention_heads", 1),
                 DRAFTER.holds({f"layers.{i}.self_attn.{x}": ("BF16", shape) for i in range(2) for x, shape in (
                     ("q_proj.weight", (128, H)), ("k_proj.weight", (128, H)), ("v_proj.weight", (128, H)),
                     ("o_proj.weight", (H, 128)), ("q_norm.weight", (128,)), ("k_norm.weight", (128,)))})),
        code="head_dim.headers", beside=("heads.drafter_kv",),
    ),
    NearMiss(name="an even width", base="eagle3", changes=(DRAFTER.silent("head_dim"), DRAFTER.empty()),
             code="head_dim.assumed"),
    NearMiss(name="DFlash reads one hidden size", base="dflash", changes=(), code="eagle3.attention_width"),
    NearMiss(
        name="layers in shards that are not there", base="alone",
        changes=(TARGET.lacks("model.layers.11.", "lm_head"), TARGET.indexed(
            dict.fromkeys(("lm_head.weight", "model.layers.11.mlp.up_proj.weight"), "model-00002.safetensors"))),
        code="config.disagrees", beside=("index.absent_file",),
    ),
    NearMiss(name="more positions than the target", base="eagle3",
             changes=(DRAFTER.says("max_position_embeddings", 8192),), code="positions.drafter"),
    NearMiss(
        name="sequences that both can tell apart", base="eagle3",
        changes=(DRAFTER.says("max_position_embeddings", 2048), asks(context=2048)), code="positions.drafter",
    ),
    NearMiss(name="sequences up to the limit", base="eagle3", changes=(asks(context=4096),), code="positions.workload"),
    NearMiss(name="a limit that nobody states", base="eagle3",
             changes=(DRAFTER.silent("max_position_embeddings"), asks(context=4096)), code="positions.workload"),
    NearMiss(name="sequences up to the target's limit", base="alone", changes=(asks(context=4096),),
             code="positions.target"),
    NearMiss(name="the same base as a whole number", base="eagle3", changes=(DRAFTER.says("rope_theta", 1_000_000),),
             code="rope.theta"),
    NearMiss(
        name="no base in either", base="eagle3", changes=(DRAFTER.silent("rope_theta"), TARGET.silent("rope_theta")),
        code="rope.theta_absent",
    ),
    NearMiss(
        name="the same scaling in the old and the new form", base="dflash",
        changes=(TARGET.says("rope_scaling", {**YARN, "type": "yarn", "rope_type": None}),
                 DRAFTER.says("rope_parameters", YARN)),
        code="rope.scaling",
    ),
    NearMiss(name="a scaling of one", base="dflash",
             changes=(TARGET.says("rope_scaling", {"rope_type": "linear", "factor": 1.0}),), code="rope.scaling"),
    NearMiss(name="positions of pictures", base="dflash",
             changes=(TARGET.says("rope_scaling", {"type": "mrope", "mrope_section": [2, 1, 1]}),),
             code="rope.scaling"),
    NearMiss(name="the same share", base="dflash", changes=(
        TARGET.says("partial_rotary_factor", 0.25), DRAFTER.says("partial_rotary_factor", 0.25)), code="rope.partial"),
    NearMiss(name="of a latent a part is rotated", base="eagle3", changes=(latent(),), code="rope.partial",
             beside=WIDE),
    NearMiss(name="halves are rotated", base="dflash", changes=(DRAFTER.says("rope_is_neox_style", True),),
             code="rope.style"),
    NearMiss(
        name="the base in both forms", base="dflash",
        changes=(DRAFTER.says("rope_parameters", {"rope_theta": 1e6, "rope_type": "default"}),), code="rope.keys",
    ),
    NearMiss(name="a window that is off", base="dflash",
             changes=(says(DRAFTER, sliding_window=4096, use_sliding_window=False),), code="window.drafter"),
    NearMiss(name="a window that no layer has", base="dflash",
             changes=(says(DRAFTER, sliding_window=4096, layer_types=["full_attention"] * 2),), code="window.drafter"),
    NearMiss(name="a block that is not causal, without a window", base="dflash",
             changes=(DRAFTER.says("dflash_config.causal", False),), code="window.non_causal"),
    NearMiss(
        name="a window that is causal", base="dflash_speculators",
        changes=(DRAFTER.says(f"{NESTED}.sliding_window", 2048), DRAFTER.says("sliding_window_non_causal", False)),
        code="window.non_causal", beside=("window.drafter",),
    ),
]  # fmt: skip
