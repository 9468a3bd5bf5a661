"""What a head's config decides about its graph, beyond sizes: one meaning for each switch, whatever family wrote it.

Sources: SafeAILab's cnets.py, SpecForge's llama3_eagle.py and dflash.py, Model-Optimizer's exporter, the config classes
of the speculators library, DeepSpec's modeling, and the loaders of vLLM 0.32 and TensorRT-LLM (docs/references.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from codraft.core.errors import SpecError
from codraft.formats.fields import Fields, shown
from codraft.formats.heads.detect import architectures
from codraft.formats.heads.head import BLOCK_MECHANISMS, EPS, MOST_NAMED, Alignment, Head

# Model-Optimizer writes its switches here; NVIDIA's files and TensorRT-LLM have more of them.
EAGLE = "eagle_config."
SLIDING, FULL = "sliding_attention", "full_attention"
# By these a block drafter says which token a slot predicts, and what true stands for.
ALIGNMENTS = ("sample_from_anchor", "dflash_config.shift_label", "shift_label")
# The part of a config that is a family's own, and its keys that are read, whose tensors say the same, or that speak of
# training alone.
OWN_PARTS = {"eagle3": "eagle_config", "dflash": "dflash_config", "dspark": "dflash_config"}
KNOWN_SWITCHES = {
    "eagle_config": (
        "eagle_aux_hidden_state_layer_ids", "use_aux_hidden_state", "use_input_layernorm_in_first_layer",
        "use_last_layernorm", "next_layer_regular", "norm_before_fc", "return_hidden_post_norm", "parallel_draft_step",
        "parallel_draft_heads_num_layers",
    ),
    "dflash_config": (
        "mask_token_id", "target_layer_ids", "block_size", "causal", "use_swa", "swa_window_size", "shift_label",
        "projector_type", "attention_mode", "attention_sink_bias", "confidence_head_alpha", "markov_rank",
        "markov_head_type", "enable_confidence_head", "use_confidence_head", "confidence_head_with_markov",
    ),
}  # fmt: skip
# Activations of the gated feed-forward that codraft runs (drafters/layers/parts.py).
ACTS = ("silu", "swish", "gelu", "gelu_pytorch_tanh", "relu")
# Slots of a block that a pass over all anchors still has room for; those that are published have 16 at most.
MOST_SLOTS = 1024
# What a block's projector may be called without being another graph.
PROJECTORS = ("dflash", "dspark")
# Values of other keys that change nothing: factors of 1, and fc over features of several layers, which all heads have.
NEUTRAL: Mapping[str, Any] = {
    "attention_value_scale": 1, "input_embedding_scale": 1, "output_multiplier": 1, "use_aux_hidden_state": True,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOptions:
    """A decoder layer: epsilon of its norms, activation of its MLP, norms of queries and keys for each head, biases
    (`attention_bias`: of queries, keys and values)."""

    eps: float
    act: str
    qk_norm: bool
    attention_bias: bool
    mlp_bias: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Options:
    """EAGLE-3's switches.

    `norm_before_residual`: the first layer's residual is the normed hidden state. `norm_before_fc`: one norm over all
    features together, `fc_norm`: one for each. `feedback`: what a draft step hands to the next, the layers' output
    before or after the final norm. `norms_output`: the final norm stands before the output head. `first_layer_norm`:
    the token embedding is normed before it is joined. `doubled`, by layer: its attention reads embedding and hidden
    state, joined in this order. `fuses`: fc takes features of several layers.
    """

    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    feedback: Literal["pre_norm", "post_norm"]
    norms_output: bool
    first_layer_norm: bool
    doubled: tuple[bool, ...]
    fuses: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockOptions:
    """A block drafter's block: its slots, the id that fills those after the anchor, None only where masks have an
    embedding of their own; by layer the window in tokens, None for none, and whether slots see only those before them;
    which token a slot predicts."""

    size: int
    mask_token_id: int | None
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    alignment: Alignment


def fields_of(head: Head) -> tuple[Fields, Fields]:
    """The whole config, and its part with the layers."""
    return Fields(head.config, file=head.file), Fields(head.text, head.text_path, head.file)


def layer_options(head: Head) -> LayerOptions:
    """Options of every layer, MTP modules included. Llama's and Qwen3's biases are those that the config declares."""
    _, text = fields_of(head)
    # Qwen2 has biases on queries, keys and values, and no key for them.
    biased = text.switch("attention_bias", "qkv_bias")
    return LayerOptions(
        eps=text.ratio("rms_norm_eps", "layer_norm_epsilon") or EPS,
        act=activation_of(text, "hidden_act", "hidden_activation"),
        qk_norm=qk_normed(head),
        attention_bias=head.text.get("model_type") == "qwen2" if biased is None else biased,
        mlp_bias=text.flag("mlp_bias"),
    )


def activation_of(text: Fields, *names: str) -> str:
    """The activation that a config names, silu where it names none."""
    act = text.text(*names) or "silu"
    if act not in ACTS:
        raise text.wrong(text.key(*names) or names[0], f"one of {', '.join(ACTS)}, which codraft runs")
    return act


def qk_normed(head: Head) -> bool:
    """Whether queries and keys are normed: in Qwen3-type layers, in those of every block drafter, and where the config
    says so (GLM)."""
    kinds = [str(head.text.get("model_type", "")), *architectures(head.config)]
    named = any(kind.lower().startswith(("qwen3", "gemma4")) for kind in kinds) and not any("Llama" in k for k in kinds)
    return named or head.mechanism in BLOCK_MECHANISMS or head.text.get("use_qk_norm") is True


def eagle3_options(head: Head) -> Eagle3Options:
    """The switches of an EAGLE-3 head. SpecError where two keys say different things."""
    whole, _ = fields_of(head)
    before_fc = agreed(whole, f"{EAGLE}norm_before_fc", "norm_before_fc")
    fc_norm = whole.flag("fc_norm")
    if before_fc and fc_norm:
        raise SpecError(
            f"{head.file}: norm_before_fc and fc_norm are both true, and features are normed together or one by one; "
            "keep the one that the head was trained with"
        )
    fuses = switched(whole, f"{EAGLE}use_aux_hidden_state", default=True)
    return Eagle3Options(
        # The speculators library's class says false where the key is absent; vLLM's reader of its files says true.
        norm_before_residual=whole.flag("norm_before_residual"),
        norm_before_fc=bool(before_fc),
        fc_norm=fc_norm,
        feedback=feedback_of(head, whole),
        norms_output=norms_output(head, whole),
        first_layer_norm=switched(whole, f"{EAGLE}use_input_layernorm_in_first_layer", default=True),
        doubled=doubled_layers(head),
        fuses=fuses,
    )


def feedback_of(head: Head, whole: Fields) -> Literal["pre_norm", "post_norm"]:
    """What is fed back. TensorRT-LLM's key has one meaning. `norm_output` has two: SpecForge norms before the output
    head by it (which leaves the feedback as it is), the speculators library feeds the normed state back."""
    stated = whole.switch(f"{EAGLE}return_hidden_post_norm")
    other = None if head.kind.family == "safeailab" else whole.switch("norm_output")
    if None not in (stated, other) and stated != other:
        raise SpecError(
            f"{head.file}: norm_output is {str(other).lower()} and eagle_config.return_hidden_post_norm "
            f"{str(stated).lower()}, which say different things of what a draft step feeds back; remove one"
        )
    return "post_norm" if stated or other else "pre_norm"


def norms_output(head: Head, whole: Fields) -> bool:
    """Whether the final norm stands before the output head: SpecForge's `norm_output`, Model-Optimizer's
    `use_last_layernorm`."""
    key = "norm_output" if head.kind.family == "safeailab" else f"{EAGLE}use_last_layernorm"
    return switched(whole, key, default=True)


def doubled_layers(head: Head) -> tuple[bool, ...]:
    """Layers whose attention reads the embedding beside the hidden state: the first; all of DeepSpec's, and of
    Model-Optimizer's where `next_layer_regular` is false."""
    whole, _ = fields_of(head)
    every = head.kind.family == "deepspec" or whole.switch(f"{EAGLE}next_layer_regular") is False
    return tuple(i == 0 or every for i in range(head.geometry.num_layers))


def block_options(head: Head) -> BlockOptions:
    """The block of a DFlash or DSpark head. SpecError where a size or the mask token is missing or given twice."""
    whole, _ = fields_of(head)
    if head.mechanism not in BLOCK_MECHANISMS or head.block is None:
        raise ValueError(f"{head.mechanism} drafts no block")
    size, sizes = head.block.size, head.block.sizes
    if size is None:
        raise SpecError(f"{head.file}: block_size is missing; write the size that the drafter was trained with")
    # The anchor's slot drafts nothing where slots predict their own tokens.
    fewest = 2 if head.alignment == "same_slot" else 1
    if not fewest <= size <= MOST_SLOTS:
        raise whole.wrong(next(iter(sizes)), f"a whole number from {fewest} to {MOST_SLOTS}, the slots of a block")
    if len(set(sizes.values())) > 1:
        given = " and ".join(f"{key} {value}" for key, value in sizes.items())
        raise SpecError(f"{head.file}: {given} contradict each other; keep the size that the drafter was trained with")
    mask = head.block.mask_token_id
    if not head.own_mask:
        if mask is None:
            raise SpecError(f"{head.file}: mask_token_id is missing; write the id that filled the block in training")
        if head.vocab_size is not None and mask >= head.vocab_size:
            raise SpecError(f"{head.file}: mask_token_id is {mask}, expected one of 0..{head.vocab_size - 1}; mend it")
    agreed(whole, *ALIGNMENTS)
    windows = layer_windows(head)
    return BlockOptions(
        size=size, mask_token_id=mask, windows=windows, causal=layer_causal(head), alignment=head.alignment
    )


def layer_windows(head: Head) -> tuple[int | None, ...]:
    """By layer the tokens that it sees, None for all.

    `layer_types` says which layers have a window; `dflash_config.use_swa` gives one to all where no layer has (Model-
    Optimizer, MiMo) [vLLM qwen3_dflash.py].
    """
    whole, text = fields_of(head)
    kinds = layer_kinds(head)
    if SLIDING not in kinds:
        if not whole.flag("dflash_config.use_swa"):
            return (None,) * len(kinds)
        kinds = (SLIDING,) * len(kinds)
    window = whole.size("dflash_config.swa_window_size") or text.size("sliding_window")
    if window is None:
        raise SpecError(
            f"{head.file}: layers have a sliding window and none is given; write its tokens as sliding_window"
        )
    if whole.get("dflash_config.swa_window_size") is None and text.switch("use_sliding_window") is False:
        raise SpecError(
            f"{head.file}: layer_types names sliding layers and use_sliding_window is false; make them agree with the "
            "training"
        )
    return tuple(window if kind == SLIDING else None for kind in kinds)


def layer_kinds(head: Head) -> tuple[str, ...]:
    """`layer_types`, one for each layer; all full where the config has none."""
    _, text = fields_of(head)
    count = head.geometry.num_layers
    kinds = text.words("layer_types")
    if kinds is None:
        return (FULL,) * count
    text.fit("layer_types", len(kinds), count)
    unknown = next((kind for kind in kinds[:count] if kind not in (SLIDING, FULL)), None)
    if unknown is not None:
        raise SpecError(f"{head.file}: layer_types names '{unknown[:40]}', expected {FULL} or {SLIDING}; mend it")
    return tuple(kinds[:count])


def layer_causal(head: Head) -> tuple[bool, ...]:
    """By layer whether a slot sees only those before it.

    `is_causal` and `dflash_config.causal` say it for all layers [vLLM]. Else layers of kind sliding are causal and full
    ones are not [z-lab, SGLang]; `sliding_window_non_causal` frees the former [speculators].
    """
    whole, _ = fields_of(head)
    every = agreed(whole, "is_causal", "dflash_config.causal")
    free = whole.flag("sliding_window_non_causal")
    return tuple((kind == SLIDING and not free) if every is None else every for kind in layer_kinds(head))


def interleaved(head: Head) -> bool:
    """Whether rotary pairs are neighbours, as few heads have it [vLLM, SGLang]."""
    return agreed(Fields(head.config, file=head.file), "is_neox_style", "rope_is_neox_style") is False


def switched(fields: Fields, key: str, *, default: bool) -> bool:
    """A switch that is `default` where the config is silent."""
    value = fields.switch(key)
    return default if value is None else value


def agreed(fields: Fields, *keys: str) -> bool | None:
    """What those of these switches that are there say together, None where none is. SpecError where they differ."""
    found: dict[str, Any] = {key: value for key in keys if (value := fields.switch(key)) is not None}
    if len(set(found.values())) > 1:
        raise SpecError(
            f"{fields.file}: {contradiction(list(found.items()))} contradict each other; keep the one that the drafter "
            "was trained with"
        )
    return next(iter(found.values()), None)


def contradiction(found: Sequence[tuple[str, bool]]) -> str:
    """Switches and what they are set to."""
    return " and ".join(f"{key} {str(value).lower()}" for key, value in found)


def own_part(head: Head) -> Fields | None:
    """The part of the config that is the family's own, None where it has none. SpecError where it is no object."""
    whole, _ = fields_of(head)
    key = OWN_PARTS.get(head.mechanism)
    return None if key is None else whole.inner(key)


def unknown_switches(head: Head) -> dict[str, Any]:
    """Keys of a family's own part, by their whole name, that nothing here knows and that may change what a head
    computes."""
    part = OWN_PARTS.get(head.mechanism, "")
    inner = head.config.get(part)
    if not isinstance(inner, Mapping):
        return {}
    projector = inner.get("projector_type")
    others = {f"{part}.projector_type": projector} if projector not in (None, *PROJECTORS) else {}
    return others | {
        f"{part}.{key}": value
        for key, value in inner.items()
        if key not in KNOWN_SWITCHES[part] and value is not None and value is not False and value != NEUTRAL.get(key)
    }


def refuse_unknown(head: Head) -> None:
    """SpecError where a head's own part of the config has a switch that codraft would draft without."""
    unknown = unknown_switches(head)
    if unknown:
        named = list(unknown.items())[:MOST_NAMED]
        said = ", ".join(f"{shown(key)} ({shown(repr(value), 40)})" for key, value in named)
        raise SpecError(
            f"{head.file}: codraft does not know what {said} changes in a head, and would draft without it; remove "
            "keys that speak of training alone, and multiply factors into the weights"
        )
