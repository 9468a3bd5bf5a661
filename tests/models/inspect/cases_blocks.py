"""Blocks, and sizes: of the drafter beside the target, and what the target's kind costs."""

from tests.checkpoints import llama_tensors
from tests.models.inspect.case import DRAFTER, TARGET, Case, Change, NearMiss, asks, together
from tests.models.inspect.cases_attention import latent, says
from tests.models.inspect.pairs import H, L, Two, V, target_config

BLOCKS = [
    Case(
        name="two block sizes", base="dflash", changes=(DRAFTER.says("dflash_config.block_size", 16),),
        code="block.conflict", severity="error", words="block_size is 8 and dflash_config.block_size is 16",
        key="dflash_config.block_size",
    ),
    Case(
        name="no block size", base="dflash", changes=(DRAFTER.silent("block_size"),),
        code="block.absent", severity="warning", words="block_size is absent", key="block_size",
    ),
    Case(
        name="as many drafts as slots where the first holds the anchor", base="dflash", changes=(asks(depth=8),),
        code="block.depth", severity="error", words="a block of 8 slots, the first of which holds the anchor, drafts 7",
        key="--depth",
    ),
    Case(
        name="more drafts than slots", base="dspark", changes=(asks(depth=8),),
        code="block.depth", severity="error", words="a block of 7 slots, all of which draft, drafts 7",
        key="block_size",
    ),
    Case(
        name="DSpark's class under a flag that says otherwise", base="dspark_speculators",
        changes=(DRAFTER.says("sample_from_anchor", False),),
        code="block.depth", severity="error", words="drafts 7", key="--depth",
        beside=("block.alignment",),
    ),
    Case(
        name="the early convention, for SGLang", base="dspark_speculators",
        changes=(DRAFTER.says("sample_from_anchor", False), asks(engine="sglang", depth=None)),
        code="block.alignment", severity="error", words="sample_from_anchor is false", key="sample_from_anchor",
    ),
    Case(
        name="two mask tokens", base="dflash", changes=(DRAFTER.says("mask_token_id", 510),),
        code="block.conflict", severity="error", words="mask_token_id is 510 and dflash_config.mask_token_id is 511",
        key="mask_token_id",
    ),
    Case(
        name="causal and not", base="dflash",
        changes=(DRAFTER.says("dflash_config.causal", True), DRAFTER.says("is_causal", False)),
        code="block.conflict", severity="error", words="is_causal is False", key="is_causal",
    ),
    Case(
        name="a reduced vocabulary in a layout that has none", base="dflash",
        changes=(DRAFTER.says("draft_vocab_size", 128), DRAFTER.empty()),
        code="block.reduced", severity="warning", words="128 of 512 tokens, in the zlab layout", key="draft_vocab_size",
    ),
    Case(
        name="fewer drafts than the block has", base="dflash", changes=(asks(depth=3),),
        code="block.short", severity="note", words="D = 3, and a block of 8 slots drafts 7", key="--depth",
    ),
    Case(
        name="no mask token", base="dflash", changes=(DRAFTER.silent("dflash_config.mask_token_id"),),
        code="mask.absent", severity="error", words="mask_token_id is absent", key="mask_token_id",
    ),
    Case(
        name="no mask token, and no tensors to look for one in", base="dspark",
        changes=(DRAFTER.silent("mask_token_id"), DRAFTER.empty()),
        code="mask.absent", severity="warning", words="absent", key="mask_token_id",
    ),
    Case(
        name="a mask token past the target's embedding", base="dflash",
        changes=(DRAFTER.says("dflash_config.mask_token_id", V),),
        code="mask.range", severity="error", words="mask_token_id is 512, and the target's embedding has 512 rows",
        key="dflash_config.mask_token_id",
    ),
    Case(
        name="a mask token that only the drafter's own embedding has", base="dspark",
        changes=(DRAFTER.says("mask_token_id", V), DRAFTER.says("vocab_size", V + 8),
                 DRAFTER.holds({"embed_tokens.weight": ("BF16", (V + 8, H)),
                                "markov_head.markov_w1.weight": ("BF16", (V + 8, 16)),
                                "markov_head.markov_w2.weight": ("BF16", (V + 8, 16))})),
        code="mask.range", severity="warning", words="mask_token_id is 512", key="mask_token_id",
        beside=("vocab.size_padding",),
    ),
    Case(
        name="DFlash's class with DSpark's alignment", base="dflash",
        changes=(DRAFTER.says("dflash_config.shift_label", True), asks(depth=8)),
        code="block.alignment", severity="warning", words="slots predict the next position", key="architectures",
    ),
    Case(
        name="DSpark's class without its heads", base="dspark",
        changes=(DRAFTER.says("markov_rank", 0), DRAFTER.says("enable_confidence_head", False),
                 DRAFTER.lacks("markov_head", "confidence_head")),
        code="block.alignment", severity="warning", words="markov_rank is 0", key="markov_rank",
        # SGLang refuses it besides.
        beside=("markov.absent",),
    ),
    Case(
        name="DSpark without a rank", base="dspark",
        changes=(DRAFTER.silent("markov_rank"), DRAFTER.lacks("markov_head", "confidence_head")),
        code="markov.absent", severity="warning", words="markov_rank is absent", key="markov_rank",
    ),
    Case(
        name="DSpark without a rank, for SGLang", base="dspark",
        changes=(DRAFTER.silent("markov_rank"), DRAFTER.lacks("markov_head", "confidence_head"),
                 asks(engine="sglang")),
        code="markov.absent", severity="error", words="markov_rank is absent", key="markov_rank",
    ),
    Case(
        name="a speculators file that may be of the early convention", base="dspark_speculators",
        changes=(DRAFTER.silent("sample_from_anchor"),),
        code="block.alignment", severity="warning", words="sample_from_anchor is absent",
        key="transformer_layer_config.sample_from_anchor",
    ),
    Case(
        name="a nested rank of zero", base="dspark_specforge",
        changes=(DRAFTER.says("dflash_config.markov_rank", 0), DRAFTER.lacks("logit_head")),
        code="markov.absent", severity="warning", words="markov_rank is 0", key="dflash_config.markov_rank",
        beside=("block.alignment",),
    ),
    Case(
        name="a speculators window that does not say whether it is causal", base="dflash_speculators",
        changes=(DRAFTER.says("transformer_layer_config.sliding_window", 2048),),
        code="block.causal_absent", severity="warning", words="absent", key="sliding_window_non_causal",
        beside=("window.drafter",),
    ),
    Case(
        name="a confidence head", base="dspark_specforge",
        changes=(DRAFTER.says("dflash_config.enable_confidence_head", True), DRAFTER.holds(
            {"confidence_head.proj.weight": ("BF16", (1, H + 16)), "confidence_head.proj.bias": ("BF16", (1,))})),
        code="confidence.unused", severity="note", words="has a confidence head", key="architectures",
    ),
]  # fmt: skip


def experts(two: Two) -> None:
    """A mixture of experts, by its config alone."""
    together(
        TARGET.empty(),
        says(TARGET, model_type="qwen3_moe", num_experts=16, num_experts_per_tok=2, moe_intermediate_size=32),
    )(two)


def large(two: Two) -> None:
    """A target of 8B parameters, by its config alone."""
    together(
        TARGET.empty(),
        says(
            TARGET,
            hidden_size=4096,
            intermediate_size=12288,
            num_hidden_layers=36,
            num_attention_heads=32,
            num_key_value_heads=8,
            head_dim=128,
            vocab_size=151936,
        ),
    )(two)


def bigger(layers: int) -> Change:
    """An external drafter of the target's width."""
    config = target_config(num_hidden_layers=layers)
    return together(DRAFTER.has(config=config), DRAFTER.has(tensors=dict(llama_tensors(config))))


SIZES = [
    Case(
        name="a drafter as large as the target", base="external", changes=(bigger(12),),
        code="size.drafter", severity="error", words="for a target of", key="parameters read for a token",
    ),
    Case(
        name="a drafter of half the layers", base="external", changes=(bigger(6),),
        code="size.active", severity="warning", words="break-even at D = 3", key="parameters read for a token",
    ),
    Case(
        name="a small target with a method", base="alone", changes=(asks(method="mtp"),),
        code="size.target", severity="note", words="0.5M parameters are read", key="hidden_size",
        beside=("mtp.none",),
    ),
    Case(
        name="a mixture of experts", base="alone", changes=(experts,),
        code="moe.experts", severity="note", words="2 of 16 experts for a token; independent choice reads 1.9 times",
        key="num_experts_per_tok",
    ),
    Case(
        name="recurrent layers", base="alone",
        changes=(TARGET.empty(), says(TARGET, model_type="qwen3_next", num_experts=0, layer_types=[
            "full_attention" if i % 4 == 3 else "linear_attention" for i in range(L)])),
        code="hybrid.rollback", severity="note", words="9 of 12 layers are recurrent (linear)", key="layer_types",
    ),
    Case(
        name="sliding layers in the target", base="alone",
        changes=(says(TARGET, layer_types=["sliding_attention", "full_attention"] * 6, sliding_window=1024,
                      use_sliding_window=True),),
        code="window.target", severity="note", words="6 of 12 layers see 1024 tokens", key="sliding_window",
    ),
    Case(
        name="latent attention", base="alone", changes=(latent(),),
        code="mla.width", severity="note", words="16 query heads read one latent", key="kv_lora_rank",
    ),
]  # fmt: skip

CASES = [*BLOCKS, *SIZES]
NEAR_MISSES = [
    NearMiss(name="one block size in two places", base="dflash", changes=(DRAFTER.says("dflash_config.block_size", 8),),
             code="block.conflict"),
    NearMiss(name="a nested block size", base="dflash",
             changes=(DRAFTER.silent("block_size"), DRAFTER.says("dflash_config.block_size", 8)), code="block.absent"),
    NearMiss(name="DFlash drafts a slot less than its block has", base="dflash", changes=(asks(depth=7),),
             code="block.depth"),
    NearMiss(name="DSpark drafts with every slot", base="dspark_speculators",
             changes=(asks(depth=8),), code="block.depth"),
    NearMiss(name="all that the block drafts", base="dspark", changes=(asks(depth=7),), code="block.short"),
    NearMiss(name="nobody says D", base="dflash", changes=(asks(depth=None),), code="block.short"),
    NearMiss(
        name="a mask embedding of its own", base="dflash",
        changes=(DRAFTER.silent("dflash_config.mask_token_id"), DRAFTER.holds({"mask_embedding": ("BF16", (H,))})),
        code="mask.absent",
    ),
    NearMiss(name="the last row is the mask", base="dflash", changes=(), code="mask.range"),
    NearMiss(name="DFlash's class with its own alignment", base="dflash",
             changes=(DRAFTER.says("dflash_config.shift_label", False),), code="block.alignment"),
    NearMiss(name="a speculators file without a window", base="dflash_speculators",
             changes=(), code="block.causal_absent"),
    NearMiss(
        name="a speculators window that is off", base="dflash_speculators",
        changes=(DRAFTER.says("transformer_layer_config.sliding_window", 2048),
                 DRAFTER.says("transformer_layer_config.use_sliding_window", False)),
        code="block.causal_absent",
    ),
    NearMiss(name="a drafter of a few layers", base="external", changes=(), code="size.active"),
    NearMiss(name="a small target alone", base="alone", changes=(), code="size.target"),
    NearMiss(name="a small target with n-grams", base="alone", changes=(asks(method="ngram"),), code="size.target"),
    NearMiss(name="a target of 8B", base="alone", changes=(large, asks(method="mtp")), code="size.target",
             beside=("mtp.none",)),
    NearMiss(name="dense layers", base="alone", changes=(), code="moe.experts"),
    NearMiss(name="a window that no layer of the target has", base="alone",
             changes=(says(TARGET, sliding_window=1024, use_sliding_window=False),), code="window.target"),
]  # fmt: skip
