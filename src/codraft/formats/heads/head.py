"""What a drafter's config says, with one name for each thing."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

# Who wrote the files; one family may hold several mechanisms.
Family = Literal["safeailab", "modelopt", "speculators", "deepspec", "zlab", "specforge", "native", "other"]
# Mechanisms of ours, and those that are told apart in order to be named.
OTHER_MECHANISMS = ("eagle", "peagle", "dflash2", "domino", "medusa", "mlp_speculator", "gemma4_assistant")
# Those whose layout and options are known; those that draft a block at once; those that may take embedding and output
# head from the target.
KNOWN_MECHANISMS = ("eagle3", "mtp", "dflash", "dspark")
BLOCK_MECHANISMS = ("dflash", "dspark", "dflash2", "domino")
BORROWING_MECHANISMS = ("eagle3", "dflash", "dspark")
# Parts of a config that describe the layers, where it is nested.
LAYER_PARTS = ("transformer_layer_config", "text_config")
# Epsilon of norms that transformers takes where a config of these model types is silent.
EPS = 1e-6
# Maps of a reduced vocabulary: no parameters of a head.
MAPS = ("d2t", "t2d")
# EAGLE-3's layer ids, at the top of a config (inputs of layers) or in eagle_config (outputs).
IDS = "eagle_aux_hidden_state_layer_ids"
# By these a config counts MTP modules.
COUNTS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers")
# DSpark's serial heads.
MARKOV_KINDS = ("vanilla", "gated", "rnn")
# The embedding of a block's masks, which some files have under the first name and some under the second.
MASK_NAMES = ("mask_embedding", "mask_embedding.weight")
# A head's two ends, by the names that all families share.
EMBED, HEAD = "embed_tokens.weight", "lm_head.weight"
# Names that a sentence lists.
MOST_NAMED = 6
# Slot of a feature or mask, and the token it predicts: `shifted` pairs feature t with token t + 1, `same_slot` predicts
# its own position, `next_slot` the position after.
Alignment = Literal["shifted", "same_slot", "next_slot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a checkpoint is: mechanism, family, and where that is seen (config key or tensor, value)."""

    mechanism: str
    family: Family
    seen: tuple[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Layers whose hidden states the drafter reads, as its file writes them under `key`.

    `output`: id i is what layer i puts out. `input`: id i is what enters layer i, so it is the output of layer i - 1.
    """

    written: tuple[int, ...]
    key: str
    convention: Literal["output", "input"]

    @property
    def outputs(self) -> tuple[int, ...]:
        """Ids as outputs of layers; -1 is the embedding."""
        return tuple(i - (self.convention == "input") for i in self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Widths of a drafter's decoder layers.

    `head_dim` is the config's, or else what the tensors imply, or else hidden / heads, as `head_dim_basis` says.
    """

    num_layers: int
    hidden: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    head_dim_basis: Literal["given", "headers", "assumed"]
    ffn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block drafter's block: `sizes` by the config key that gives it, the first one counts."""

    sizes: Mapping[str, int]
    mask_token_id: int | None
    mask_key: str | None
    causal: bool | None

    @property
    def size(self) -> int | None:
        """Slots of a block, None where no key says it."""
        return next(iter(self.sizes.values()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Markov:
    """DSpark's serial head and its confidence head."""

    rank: int
    kind: str
    confidence: bool
    confidence_with_markov: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A drafter that reads the target's hidden states.

    `file` names the config in errors. `text` is the part of it with the layers (`text_path` its key, "" for the
    whole). `taps` are all lists of layer ids that were found, the one that counts first. `draft_vocab_size` is None
    where no key gives it. `own_mask`: its file has the embedding of a block's masks. options.py reads the switches.
    """

    kind: Kind
    file: str
    config: Mapping[str, Any]
    text: Mapping[str, Any]
    text_path: str
    geometry: Geometry
    target_hidden: int
    target_hidden_given: bool
    vocab_size: int | None
    draft_vocab_size: int | None
    taps: tuple[Taps, ...]
    num_taps: int
    alignment: Alignment
    block: Block | None
    markov: Markov | None
    num_modules: int
    own_mask: bool = False

    @property
    def mechanism(self) -> str:
        """Its mechanism."""
        return self.kind.mechanism

    @property
    def reduced(self) -> bool:
        """Whether it drafts from a part of the vocabulary only."""
        return self.draft_vocab_size is not None and self.draft_vocab_size != self.vocab_size

    @property
    def max_D(self) -> int | None:
        """Most tokens that a block of its own size drafts; None for serial heads, which have no limit."""
        if self.block is None or self.block.size is None:
            return None
        return self.block.size if self.alignment == "next_slot" else self.block.size - 1


def layer_part(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """The part of a config with the decoder layers, and its key, "" for the whole."""
    path = next((key for key in LAYER_PARTS if isinstance(config.get(key), Mapping)), "")
    return (config[path] if path else config), path
