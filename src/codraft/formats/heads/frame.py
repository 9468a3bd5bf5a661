"""Config parts that every layout shares: the keys of the layers, those that frame them, what is known of the target."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from codraft.formats.heads.head import Head
from codraft.formats.heads.options import FULL, SLIDING, layer_options, layer_windows

Config = dict[str, Any]
# What a layout has no words for, and the engines whose loaders read a key for it in this layout all the same.
Refusal = tuple[str, tuple[str, ...]]
# Keys that some family writes around the layers. None of them describes a layer, and each layout writes its own.
FRAMING = frozenset({
    "architectures", "auto_map", "speculators_model_type", "speculators_config", "speculators_version",
    "transformer_layer_config", "has_no_defaults_at_init", "draft_vocab_size", "target_hidden_size",
    "num_aux_hidden_states", "num_target_layers", "quantization_config", "compression_config", "hf_quant_config",
    "eagle_config", "eagle_aux_hidden_state_layer_ids", "eagle3_layers_to_capture", "norm_before_residual",
    "norm_before_fc", "fc_norm", "norm_output", "embed_requires_grad",
    "dflash_config", "aux_hidden_state_layer_ids", "target_layer_ids", "dspark_target_layer_ids", "block_size",
    "dspark_block_size", "dspark_config", "mask_token_id", "dspark_noise_token_id", "is_causal",
    "sliding_window_non_causal", "sample_from_anchor", "shift_label",
    *(f"{before}{key}" for before in ("", "dspark_") for key in (
        "markov_rank", "markov_head_type", "enable_confidence_head", "use_confidence_head",
        "confidence_head_with_markov")),
})  # fmt: skip
# Keys of the whole file, which stand at its top in every layout.
WHOLE = ("tie_word_embeddings", "torch_dtype", "dtype", "transformers_version")
# What a layout keeps of these is taken along where it was in the file: names of modules are in the ways of the source.
QUANTIZATION = ("quantization_config", "compression_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """What of a target goes into a drafter's config."""

    label: str
    architectures: tuple[str, ...]
    num_layers: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A head about to be written. `vocab_size` is the target's; `owns_head`: its output head will be in the file.
    `engine` is the engine that the export is for."""

    head: Head
    vocab_size: int | None
    owns_head: bool
    target: TargetFacts | None
    engine: str | None

    @property
    def draft_vocab_size(self) -> int | None:
        """Tokens that it drafts from."""
        return self.head.draft_vocab_size if self.head.reduced else self.vocab_size

    @property
    def outputs(self) -> tuple[int, ...] | None:
        """Layers whose outputs it reads; None where its file does not say."""
        return self.head.taps[0].outputs if self.head.taps else None

    @property
    def inputs(self) -> list[int] | None:
        """The same layers as inputs."""
        return None if self.outputs is None else [i + 1 for i in self.outputs]

    @property
    def target_hidden(self) -> int | None:
        """The target's width where it is not the head's own."""
        return self.head.target_hidden if self.head.target_hidden != self.head.geometry.hidden else None


def layer_keys(frame: Frame) -> Config:
    """The keys of the layers in the order of the file, completed where only tensors said them."""
    head, g, options = frame.head, frame.head.geometry, layer_options(frame.head)
    layers = {key: value for key, value in head.text.items() if key not in FRAMING and key not in WHOLE}
    layers["num_hidden_layers"] = g.num_layers
    if frame.vocab_size is not None:
        layers["vocab_size"] = frame.vocab_size
    if g.head_dim_basis == "headers":
        layers["head_dim"] = g.head_dim
    if layers.get("intermediate_size") is None:
        layers["intermediate_size"] = g.ffn
    if options.attention_bias:
        layers["attention_bias"] = True
    return layers


def windowed(layers: Config, head: Head) -> Config:
    """Layers whose windows are said by their kinds, whatever key said it before."""
    windows = layer_windows(head)
    kinds = [SLIDING if window else FULL for window in windows]
    stated = layers.get("layer_types")
    if stated is None or list(stated)[: len(kinds)] != kinds or any(windows):
        layers["layer_types"] = kinds
    if any(windows):
        layers["sliding_window"] = next(window for window in windows if window)
        layers["use_sliding_window"] = True
    return layers


def whole_keys(frame: Frame) -> Config:
    """Keys of the whole file."""
    head = frame.head
    found = {key: head.config[key] for key in WHOLE if key in head.config}
    inner = {key: head.text[key] for key in WHOLE if head.text_path and key in head.text and key not in found}
    return {**inner, **found}


def num_target_layers(frame: Frame) -> Config:
    """How deep the target is, as far as anybody says."""
    stated = frame.head.config.get("num_target_layers")
    known = frame.target.num_layers if frame.target is not None and frame.target.num_layers else stated
    return {} if known is None else {"num_target_layers": known}


def speculators_frame(frame: Frame, architecture: str, tokens: int) -> Config:
    """The library's own part of a config: kind, one greedy proposal of `tokens`, and the target ("verifier")."""
    stated = frame.head.config.get("speculators_config")
    verifier = stated.get("verifier") if isinstance(stated, Mapping) else None
    name = verifier.get("name_or_path") if isinstance(verifier, Mapping) else None
    names = list(verifier.get("architectures") or ()) if isinstance(verifier, Mapping) else []
    if frame.target is not None:
        name, names = frame.target.label, list(frame.target.architectures)
    return {
        "architectures": [architecture],
        "speculators_model_type": frame.head.mechanism,
        "speculators_config": {
            "algorithm": frame.head.mechanism,
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": tokens,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "verifier": {"name_or_path": name, "architectures": names},
        },
    }
