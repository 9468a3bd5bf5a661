"""What codraft drafts with, as far as configs and headers tell. One gate for the builders of drafters, which come here
before any work, and for inspect, which says what they would say. Each refusal is one sentence.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from codraft.core.errors import NotRunError, SpecError
from codraft.formats.fields import Fields
from codraft.formats.heads.check import tensor_faults
from codraft.formats.heads.detect import architectures
from codraft.formats.heads.head import EMBED, HEAD, MAPS, MARKOV_KINDS, Head
from codraft.formats.heads.mtp_layout import MtpLayout
from codraft.formats.heads.mtp_options import LatentShape
from codraft.formats.heads.options import (
    block_options,
    eagle3_options,
    interleaved,
    layer_options,
    layer_windows,
    own_part,
    refuse_unknown,
)
from codraft.formats.heads.read import EAGLE3_TAPS, MASK_IDS, prefixed
from codraft.formats.heads.rope import read_head_rope, read_rope
from codraft.formats.quantnames import FLOATS
from codraft.formats.safetensors import TensorInfo

# Tensors with a row for every token.
OF_VOCABULARY = (EMBED, HEAD, "markov_head.markov_w1.weight")
MOST_FAULTS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Of a target: rows of its output head, width of its hidden states, layers."""

    vocab_size: int
    hidden: int
    num_layers: int


def refuse_head(head: Head, tensors: Mapping[str, TensorInfo], where: str) -> None:
    """Refuse a head by itself: options that codraft does not know or that are out of range, and tensors that are
    missing, unexpected, misshapen or quantized. `tensors` are under their canonical names, none where nothing but the
    config is there; `where` begins the sentence."""
    own_part(head)
    refuse_unknown(head)
    if any(kind.startswith("Gemma4") for kind in architectures(head.config)):
        raise NotRunError(
            f"{where}: its layers are Gemma 4's, with norms behind parts; codraft runs Llama's and Qwen3's"
        )
    layer_options(head)
    read_head_rope(head.text, head.geometry.head_dim, head.file)
    if head.geometry.num_heads % head.geometry.num_kv_heads:
        raise Fields(head.text, head.text_path, head.file).wrong(
            "num_key_value_heads", f"a divisor of {head.geometry.num_heads} heads"
        )
    refuse_conflicting_taps(head, where)
    refuse_contradictions(head)
    if head.mechanism == "eagle3":
        refuse_eagle3(head, where)
    else:
        refuse_block(head, tensors, where)
    if tensors:
        refuse_faults(where, tensor_faults(head, tensors))
        refuse_switched_off(head, tensors, where)
        if "t2d" in tensors and "d2t" not in tensors:
            raise SpecError(
                f"{where} has a t2d and no d2t, so nobody knows what its draft ids mean; fetch or export it again"
            )
        refuse_packed(tensors, where)


def refuse_faults(where: str, faults: Sequence[str]) -> None:
    """All faults of a head's tensors in one sentence."""
    if faults:
        more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        raise SpecError(f"{where}: {'; '.join(faults[:MOST_FAULTS])}{more}; fetch or export the head again")


def refuse_packed(tensors: Mapping[str, TensorInfo], where: str) -> None:
    """Weights in a format that codraft does not run."""
    packed = next((name for name, info in tensors.items() if name not in MAPS and info.dtype not in FLOATS), None)
    if packed is not None:
        raise NotRunError(
            f"{where}: {packed} is stored as {tensors[packed].dtype}; codraft runs heads in bfloat16, float16, float32 "
            "or float64 only"
        )


def refuse_contradictions(head: Head) -> None:
    """Two keys that say different things of one number or word, and windows that nobody places."""
    whole, text = Fields(head.config, file=head.file), Fields(head.text, head.text_path, head.file)
    groups = [MASK_IDS, *(prefixed(key) for key in ("markov_rank", "markov_head_type"))]
    groups.append((*prefixed("enable_confidence_head"), *prefixed("use_confidence_head")))
    for keys in groups if head.block is not None else []:
        found = {key: whole.get(key) for key in keys if whole.get(key) is not None}
        if len(set(map(repr, found.values()))) > 1:
            said = " and ".join(f"{key} {value!r}" for key, value in found.items())
            raise SpecError(f"{head.file}: {said} contradict each other; keep the one of the training")
    windowed = text.switch("use_sliding_window") is True and text.get("sliding_window") is not None
    if windowed and text.get("layer_types") is None and not whole.flag("dflash_config.use_swa"):
        raise SpecError(
            f"{head.file}: use_sliding_window is true, and no layer_types say which layers have the window; write "
            "them, or false"
        )


def refuse_conflicting_taps(head: Head, where: str) -> None:
    """Lists of layer ids that do not mean the same layers."""
    first = head.taps[0] if head.taps else None
    other = next((taps for taps in head.taps if first is not None and taps.outputs != first.outputs), None)
    if first is not None and other is not None:
        raise SpecError(
            f"{where}: {first.key} means the outputs of layers {list(first.outputs)} and {other.key} those of "
            f"{list(other.outputs)}; keep the list that it was trained on"
        )


def refuse_switched_off(head: Head, tensors: Mapping[str, TensorInfo], where: str) -> None:
    """Tensors that the config switches off, which the graph has no place for, and biases that it asks for and that are
    not there."""
    options, markov = layer_options(head), head.markov
    layers = [name for name in tensors if name.startswith("layers.")]
    biased = ("q_proj.bias", "k_proj.bias", "v_proj.bias")
    switches: list[tuple[str, bool, list[str]]] = [
        ("norms of queries and keys", options.qk_norm, ending(layers, ("q_norm.weight", "k_norm.weight"))),
        ("attention_bias", options.attention_bias, ending(layers, biased)),
        ("mlp_bias", options.mlp_bias, ending(layers, ("gate_proj.bias", "up_proj.bias", "down_proj.bias"))),
        (
            "the confidence head",
            markov is not None and markov.confidence,
            [name for name in tensors if name.startswith("confidence_head.")],
        ),
    ]
    if head.mechanism == "eagle3":
        first = eagle3_options(head).first_layer_norm
        switches.append(
            ("use_input_layernorm_in_first_layer", first, ending(layers, ("layers.0.input_layernorm.weight",)))
        )
    off = next(((what, names[0]) for what, on, names in switches if names and not on), None)
    if off is not None:
        raise SpecError(
            f"{where}: {off[1]} is there, and the config has {off[0]} switched off; make it agree with the training"
        )
    lacking = options.attention_bias and len(ending(layers, biased)) < 3 * head.geometry.num_layers
    if lacking:
        raise SpecError(
            f"{where}: its layers have biases on queries, keys and values by the config, and some are missing; "
            "fetch or export the head again"
        )


def ending(names: Sequence[str], ends: tuple[str, ...]) -> list[str]:
    """Those of the names that end so."""
    return [name for name in names if name.endswith(ends)]


def refuse_eagle3(head: Head, where: str) -> None:
    """Heads of an EAGLE-3 layout with another graph."""
    layer_windows(head)
    if not eagle3_options(head).fuses:
        raise NotRunError(
            f"{where}: use_aux_hidden_state is false, so it is an EAGLE-1 head in EAGLE-3's layout; codraft runs heads "
            "that read features of several layers"
        )
    if any("MLA" in name or "DeepseekV2" in name for name in architectures(head.config)):
        raise NotRunError(f"{where}: its layer has latent attention (MLA), which codraft runs in MTP modules only")
    if head.vocab_size is None:
        raise SpecError(f"{where}: its config has no vocab_size; write that of its target")
    if not head.taps and head.num_taps != EAGLE3_TAPS:
        raise SpecError(
            f"{where}: fc takes {head.num_taps} features, and no layer ids say which; write those of the training as "
            "eagle_aux_hidden_state_layer_ids"
        )


def refuse_block(head: Head, own: Collection[str], where: str) -> None:
    """Blocks without layer ids or rows, and serial heads of unknown kinds."""
    block_options(head)
    interleaved(head)
    if not head.taps:
        raise SpecError(f"{where}: no layer ids are given; write target_layer_ids, those of the training")
    markov = head.markov
    if markov is not None and markov.rank and markov.kind not in MARKOV_KINDS:
        raise SpecError(
            f"{head.file}: markov_head_type is '{markov.kind[:40]}'; codraft runs {', '.join(MARKOV_KINDS)}"
        )
    if head.vocab_size is None and any(name in own for name in OF_VOCABULARY):
        raise SpecError(f"{where} has tensors with a row for each token and no vocab_size; write that of its target")


def refuse_misfit(head: Head, own: Collection[str], target: Sizes, where: str) -> None:
    """Refuse a head that was trained for another target, as far as sizes tell; `own` are its canonical names."""
    taps = head.taps[0].outputs if head.taps else ()
    if any(not -1 <= tap < target.num_layers for tap in taps):
        raise SpecError(
            f"{where} reads the outputs of layers {list(taps)}, and the target's are 0..{target.num_layers - 1} (-1: "
            "embeddings); it was trained for another target, see codraft inspect"
        )
    if head.target_hidden != target.hidden:
        raise SpecError(
            f"{where} reads features of width {head.target_hidden}, and the target's hidden size is {target.hidden}; "
            "it was trained for another target"
        )
    missing = [name.removesuffix(".weight") for name in (EMBED, HEAD) if name not in own]
    if missing and head.geometry.hidden != target.hidden:
        raise SpecError(
            f"{where} has hidden size {head.geometry.hidden} and no {' and '.join(missing)} of its own, and the "
            f"target's hidden size is {target.hidden}; fetch the file that holds them"
        )
    if head.vocab_size not in (None, target.vocab_size):
        raise SpecError(
            f"{where}: vocab_size is {head.vocab_size}, the target's {target.vocab_size}; it was trained for another "
            "target"
        )
    mask = None if head.block is None else head.block.mask_token_id
    if mask is not None and mask >= target.vocab_size and not head.own_mask:
        raise SpecError(
            f"{where}: mask_token_id is {mask}, expected one of the target's 0..{target.vocab_size - 1}; write the id "
            "that filled the block in training"
        )


def refuse_modules(layout: MtpLayout, where: str, target: Sizes | None = None) -> None:
    """Refuse MTP modules whose positions codraft does not turn, or that are of another target."""
    options = layout.options
    shape = options.attention
    read_rope(options.text, shape.rotated, options.file)
    if isinstance(shape, LatentShape) and shape.rotated % 2:
        raise Fields(options.text, file=options.file).wrong("qk_rope_head_dim", "an even number")
    if target is None:
        return
    found = (("hidden_size", options.hidden, target.hidden), ("vocab_size", options.vocab_size, target.vocab_size))
    for key, ours, theirs in found:
        if ours != theirs:
            raise SpecError(
                f"{where}: {key} is {ours} beside its MTP modules, and the target's is {theirs}; they are of another "
                "target"
            )
