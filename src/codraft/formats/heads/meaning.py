"""What a head means, apart from how its family writes it down: two heads are the same if nothing here differs."""

from collections.abc import Mapping
from typing import Any

from codraft.formats.heads.head import BLOCK_MECHANISMS, Head
from codraft.formats.heads.options import (
    block_options,
    eagle3_options,
    layer_options,
    layer_windows,
)

# Keys of the layers that say where they turn and how far they reach; carried along as they are.
POSITIONS = (
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "max_position_embeddings",
    "rope_is_neox_style", "is_neox_style",
)  # fmt: skip


def meaning_of(head: Head) -> dict[str, Any]:
    """Every size and switch that decides what a head computes, by the name that people know it by."""
    g = head.geometry
    found: dict[str, Any] = {
        "num_hidden_layers": g.num_layers,
        "hidden_size": g.hidden,
        "num_attention_heads": g.num_heads,
        "num_key_value_heads": g.num_kv_heads,
        "head_dim": g.head_dim,
        "intermediate_size": g.ffn,
        "target_hidden_size": head.target_hidden,
        "vocab_size": head.vocab_size,
        "draft_vocab_size": head.draft_vocab_size if head.reduced else head.vocab_size,
        "layer ids": head.taps[0].outputs if head.taps else None,
        "number of features": head.num_taps,
        "alignment": head.alignment,
        "num_modules": head.num_modules,
    }
    layers = layer_options(head)
    found |= {
        "rms_norm_eps": layers.eps,
        "hidden_act": layers.act,
        "norms of queries and keys": layers.qk_norm,
        "attention_bias": layers.attention_bias,
        "mlp_bias": layers.mlp_bias,
        **{key: head.text.get(key) for key in POSITIONS},
    }
    if head.mechanism == "eagle3":
        found |= eagle3_meaning(head)
    if head.mechanism in BLOCK_MECHANISMS:
        found |= block_meaning(head)
    return found


def eagle3_meaning(head: Head) -> dict[str, Any]:
    """EAGLE-3's switches."""
    options = eagle3_options(head)
    return {
        "norm_before_residual": options.norm_before_residual,
        "norm_before_fc": options.norm_before_fc,
        "fc_norm": options.fc_norm,
        "feedback of the normed state": options.feedback == "post_norm",
        "final norm before the output head": options.norms_output,
        "input_layernorm in the first layer": options.first_layer_norm,
        "layers that read the embedding": options.doubled,
        "use_aux_hidden_state": options.fuses,
        "sliding windows": layer_windows(head),
    }


def block_meaning(head: Head) -> dict[str, Any]:
    """A block and the heads on it."""
    block, markov = block_options(head), head.markov
    found: dict[str, Any] = {
        "block_size": block.size,
        "mask_token_id": block.mask_token_id,
        "sliding windows": block.windows,
        "causal": block.causal,
        "alignment": block.alignment,
    }
    if markov is not None:
        found |= {
            "markov_rank": markov.rank,
            "markov_head_type": markov.kind if markov.rank else None,
            "confidence head": markov.confidence,
            "confidence_head_with_markov": markov.confidence and markov.confidence_with_markov,
        }
    return found


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Names of what differs, with both values."""
    keys = dict.fromkeys((*one, *other))
    return [f"{key} ({one.get(key)} and {other.get(key)})" for key in keys if one.get(key) != other.get(key)]
