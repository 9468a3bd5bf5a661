"""Configs of DFlash and DSpark heads in each layout, and what a layout has no word for.

Sources: z-lab's dflash/model.py; SpecForge's modeling/draft/dflash.py and dspark.py with the script that makes its
exports readable for SGLang; DeepSpec's modeling/dspark; Model-Optimizer's hf_spec_export.py and modeling_dspark.py; the
speculators library's models/dflash and models/dspark; vLLM 0.32's qwen3_dflash.py, qwen3_dspark.py and reader of
speculators files.
"""

from collections.abc import Callable, Iterator, Mapping

from codraft.formats.heads.detect import architectures
from codraft.formats.heads.frame import (
    Config,
    Frame,
    Refusal,
    layer_keys,
    num_target_layers,
    speculators_frame,
    whole_keys,
    windowed,
)
from codraft.formats.heads.head import MARKOV_KINDS, Alignment, Family, Markov
from codraft.formats.heads.options import BlockOptions, block_options, unknown_switches

# Anchors for each sequence in DeepSpec's training; its class wants the key.
DEEPSPEC_ANCHORS = 512
# The slot that a mechanism's own layouts predict with; only some can say another.
USUAL: Mapping[str, Alignment] = {"dflash": "same_slot", "dspark": "next_slot"}


def refusals(frame: Frame, family: Family) -> Iterator[Refusal]:
    """What this layout cannot say of this head."""
    head = frame.head
    if family != "speculators" and frame.target_hidden is not None:
        yield f"target_hidden_size {frame.target_hidden} beside hidden_size {head.geometry.hidden}", ("vllm",)
    yield from ((key, ()) for key in unknown_switches(head))
    yield from ((words, ()) for words in block_refusals(frame, family))
    if head.mechanism == "dspark":
        yield from ((words, ()) for words in markov_refusals(head.markov, family))


def block_refusals(frame: Frame, family: Family) -> Iterator[str]:
    """Vocabulary, causality and alignment."""
    head, block = frame.head, block_options(frame.head)
    if family != "speculators" and head.reduced:
        yield f"a reduced vocabulary (draft_vocab_size {head.draft_vocab_size} of {head.vocab_size})"
    if family == "speculators" and non_causal(block) is None:
        yield f"causal {words(block.causal)} by layer (its full layers see the whole block)"
    elif family == "deepspec" and True in block.causal:
        yield f"causal {words(block.causal)} by layer (its blocks are seen whole)"
    elif family != "speculators" and uniform(block) is None and block.causal != by_kind(block):
        yield f"causal {words(block.causal)} by layer"
    if block.alignment != USUAL[head.mechanism] and (head.mechanism, family) not in EITHER:
        yield f"slots that predict {'the token after' if block.alignment == 'next_slot' else 'their own token'}"


def markov_refusals(markov: Markov | None, family: Family) -> Iterator[str]:
    """What the serial head and the confidence head may be."""
    if markov is None:
        yield "a DSpark head without a markov_rank"
        return
    if markov.rank and markov.kind not in MARKOV_KINDS:
        yield f"markov_head_type {markov.kind}"
    if not markov.rank and family == "modelopt":
        yield "markov_rank 0"
    if not markov.rank and markov.confidence and markov.confidence_with_markov:
        yield "confidence_head_with_markov at markov_rank 0"
    if family == "modelopt" and markov.confidence and not markov.confidence_with_markov:
        yield "confidence_head_with_markov false"


# Layouts with a key for the slot that predicts: shift_label, sample_from_anchor.
EITHER = {("dflash", "zlab"), ("dflash", "speculators"), ("dspark", "speculators")}


def uniform(block: BlockOptions) -> bool | None:
    """What is true of all layers, None where they differ."""
    return block.causal[0] if len(set(block.causal)) == 1 else None


def by_kind(block: BlockOptions) -> tuple[bool, ...]:
    """What loaders take where nothing is said: layers with a window are causal."""
    return tuple(window is not None for window in block.windows)


def words(causal: tuple[bool, ...]) -> str:
    """A switch for each layer."""
    return ", ".join(str(one).lower() for one in causal)


def non_causal(block: BlockOptions) -> bool | None:
    """The speculators library's `sliding_window_non_causal`, None where it cannot say what is meant.

    Without any window it says nothing there, and vLLM takes false for a block that is causal in every layer, so it is
    true then.
    """
    sliding = {one for one, window in zip(block.causal, block.windows, strict=True) if window is not None}
    full = {one for one, window in zip(block.causal, block.windows, strict=True) if window is None}
    if True in full or len(sliding) > 1:
        return None
    return not sliding or False in sliding


def causal_key(block: BlockOptions) -> Config:
    """`causal`, where it is not what loaders take by themselves."""
    return {} if block.causal == by_kind(block) else {"causal": uniform(block)}


def flat(frame: Frame, architecture: str) -> Config:
    """A flat config up to the block."""
    layers = windowed(layer_keys(frame), frame.head)
    wide = {} if frame.target_hidden is None else {"target_hidden_size": frame.target_hidden}
    return {"architectures": [architecture], **layers, **wide, **num_target_layers(frame)}


def ids(frame: Frame) -> list[int]:
    """Outputs of layers."""
    return list(frame.outputs or ())


def zlab(frame: Frame) -> Config:
    """z-lab's config, which SpecForge and Model-Optimizer write too."""
    block = block_options(frame.head)
    nested: Config = {"mask_token_id": block.mask_token_id, "target_layer_ids": ids(frame), **causal_key(block)}
    if block.alignment == "next_slot":
        nested["shift_label"] = True
    return {
        **flat(frame, "DFlashDraftModel"),
        "block_size": block.size,
        "dflash_config": nested,
        **whole_keys(frame),
    }


def deepspec(frame: Frame) -> Config:
    """DeepSpec's config: everything at the top."""
    block = block_options(frame.head)
    gemma = any(name.startswith("Gemma4") for name in architectures(frame.head.config))
    causal = causal_key(block)
    return {
        **flat(frame, "Gemma4DSparkModel" if gemma else "Qwen3DSparkModel"),
        "block_size": block.size,
        "mask_token_id": block.mask_token_id,
        "target_layer_ids": ids(frame),
        "num_anchors": DEEPSPEC_ANCHORS,
        **({"is_causal": causal["causal"]} if causal else {}),
        **markov_keys(frame),
        **whole_keys(frame),
    }


def specforge(frame: Frame) -> Config:
    """SpecForge's config: nested. vLLM and SGLang want the class of DeepSpec and the serial head's keys at the top."""
    block, g = block_options(frame.head), frame.head.geometry
    serial = markov_keys(frame)
    promoted = frame.engine in ("vllm", "sglang")
    nested = {
        "mask_token_id": block.mask_token_id,
        "target_layer_ids": ids(frame),
        "projector_type": "dspark",
        # Its class refuses equal head counts unless this says that they are meant.
        "attention_mode": "mha" if g.num_kv_heads == g.num_heads else "gqa",
        "confidence_head_alpha": float(serial["enable_confidence_head"]),
        **serial,
        **causal_key(block),
    }
    return {
        **flat(frame, "Qwen3DSparkModel" if promoted else "DSparkDraftModel"),
        "block_size": block.size,
        **(serial if promoted else {}),
        "dflash_config": nested,
        **whole_keys(frame),
    }


def modelopt(frame: Frame) -> Config:
    """Model-Optimizer's config: DFlash's class, and a projector that says DSpark."""
    block, markov = block_options(frame.head), frame.head.markov
    nested: Config = {
        "mask_token_id": block.mask_token_id,
        "target_layer_ids": ids(frame),
        **causal_key(block),
        "projector_type": "dspark",
        "shift_label": True,
        "markov_rank": markov.rank if markov else 0,
        "markov_head_type": markov.kind if markov else MARKOV_KINDS[0],
        "use_confidence_head": bool(markov and markov.confidence),
    }
    return {
        **flat(frame, "DFlashDraftModel"),
        "block_size": block.size,
        "dflash_config": nested,
        **whole_keys(frame),
    }


def markov_keys(frame: Frame) -> Config:
    """The serial head and the confidence head, as DeepSpec, SpecForge and the speculators library spell them."""
    markov = frame.head.markov
    if markov is None:
        return {}
    return {
        "markov_rank": markov.rank,
        "markov_head_type": markov.kind if markov.rank else MARKOV_KINDS[0],
        "enable_confidence_head": markov.confidence,
        "confidence_head_with_markov": bool(markov.rank) and markov.confidence_with_markov,
    }


def speculators(frame: Frame) -> Config:
    """The speculators library's config. What vLLM takes for something else where it is absent is always there."""
    head, block = frame.head, block_options(frame.head)
    dspark = head.mechanism == "dspark"
    drafts = block.size if block.alignment == "next_slot" else block.size - 1
    return {
        **speculators_frame(frame, "DSparkSpeculator" if dspark else "DFlashSpeculator", drafts),
        "transformer_layer_config": windowed(layer_keys(frame), head),
        "draft_vocab_size": frame.draft_vocab_size,
        "block_size": block.size,
        "target_hidden_size": frame.target_hidden,
        "aux_hidden_state_layer_ids": frame.inputs,
        "mask_token_id": block.mask_token_id,
        "sliding_window_non_causal": non_causal(block),
        "sample_from_anchor": block.alignment == "next_slot",
        **(markov_keys(frame) if dspark else {}),
        **num_target_layers(frame),
        **whole_keys(frame),
    }


WRITERS: Mapping[str, Callable[[Frame], Config]] = {
    "zlab": zlab, "deepspec": deepspec, "specforge": specforge, "modelopt": modelopt, "speculators": speculators,
}  # fmt: skip
