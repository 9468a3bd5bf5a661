"""The seven mechanisms side by side, with the memory each would take beside this target.

The facts are those of the co-design article's table of mechanisms [NVIDIA26] and of the checkpoint layouts in common
use; a size of a head that was not given is that of its usual shape, and its `memory` says which.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codraft.core.schema import DrafterInfo, Mechanism
from codraft.models.shape import architecture_of

WEIGHT_BYTES = 2
# Usual shapes: EAGLE-3 heads have one layer and 32,000 draft tokens, DFlash 5 layers over 5 tapped features, DSpark a
# Markov head of rank 256 on top.
EAGLE3_VOCAB, EAGLE3_TAPS = 32_000, 3
DFLASH_LAYERS, DFLASH_TAPS = 5, 5
MARKOV_RANK = 256


@dataclass(frozen=True, slots=True)
class Widths:
    """The widths of a target's layers."""

    hidden: int
    q: int
    kv: int
    ffn: int
    vocab: int

    def layer(self, inputs: int = 1) -> int:
        """Parameters of one decoder layer whose attention reads `inputs` times the hidden size."""
        attention = inputs * self.hidden * (self.q + 2 * self.kv) + self.q * self.hidden
        return attention + 3 * self.hidden * self.ffn


TABLE = (
    Mechanism(
        mechanism="external",
        inputs="token ids",
        generation="D serial passes of a small language model",
        memory="its weights and a full KV cache of its own",
        cost="one pass of the small model for each drafted token",
        training="from scratch 1T to 10T+ tokens; distilled 100B to 400B; adapted 10M to 1B",
        fits="long D, where a much smaller model of the family exists and drafting has its own device",
        measured_as=[],
    ),
    Mechanism(
        mechanism="eagle3",
        inputs="the previous embedding and hidden states of three target layers",
        generation="D serial passes of one decoder layer",
        memory="one layer, a fusion matrix, a reduced head of 32,000 tokens, and a small KV cache",
        cost="one layer and the reduced head for each drafted token",
        training="1B to 10B tokens, after the target",
        fits="general chat and code at small to middle batch, where a head is published or can be trained",
        measured_as=[],
    ),
    Mechanism(
        mechanism="mtp",
        inputs="the target's last hidden state and the previous embedding",
        generation="D serial passes of the target's own extra layer",
        memory="one layer and a projection, part of the checkpoint, and a small KV cache; the head is the target's",
        cost="one layer and the target's head for each drafted token",
        training="with the target; to be realigned after fine-tuning",
        fits="larger models on GPUs that ship it",
        measured_as=[],
    ),
    Mechanism(
        mechanism="dflash",
        inputs="fused hidden states of the target as keys and values, a block of mask tokens",
        generation="all D at once, in one pass over a block",
        memory="about five layers, a fusion matrix, and a small KV cache built from the target's features",
        cost="about five layers once, whatever D",
        training="1B to 10B tokens, after the target",
        fits="smaller models at batch 1, where serial drafting would cost too much",
        measured_as=[],
    ),
    Mechanism(
        mechanism="dspark",
        inputs="as dflash",
        generation="all D at once, then a light serial head",
        memory="as dflash, and a low-rank Markov head",
        cost="about five layers once, and a small matrix for each drafted token",
        training="1B to 10B tokens, after the target",
        fits="smaller models at batch 1; its confidence says where to stop",
        measured_as=[],
    ),
    Mechanism(
        mechanism="ngram",
        inputs="the request's own tokens",
        generation="one look-up",
        memory="none on the device; the request's tokens in host memory",
        cost="microseconds of the host, whatever D",
        training="none",
        fits="text that repeats its prompt: code edits, summaries, retrieval",
        measured_as=[],
    ),
    Mechanism(
        mechanism="suffix",
        inputs="the request's own tokens and the outputs of earlier requests",
        generation="one look-up in two suffix trees",
        memory="none on the device; two trees in host memory, bounded by evicting the oldest requests",
        cost="microseconds of the host, whatever D",
        training="none; it learns from the traffic",
        fits="repetitive traffic: agents, tool calls, edits, retries",
        measured_as=[],
    ),
)


def mechanisms(folder: Path, drafters: Sequence[DrafterInfo], bytes_by_name: Mapping[str, int]) -> list[Mechanism]:
    """The table for one target; drafters that were measured are named, with their own size where it is known."""
    widths = read_widths(folder)
    rows = []
    for row in TABLE:
        own = [d.name for d in drafters if d.mechanism == row.mechanism]
        known = [bytes_by_name[name] for name in own if name in bytes_by_name]
        size = known[0] if known else None if widths is None else usual_bytes(row.mechanism, widths)
        basis = f"weights of {own[0]} as loaded" if known else "weights of the usual shape, 2 bytes each"
        words = f"{basis}: {row.memory}" if size else row.memory
        rows.append(replace(row, memory_bytes=size, memory=words, measured_as=own))
    return rows


def usual_bytes(mechanism: str, widths: Widths) -> int | None:
    """Bytes of a head's weights in its usual shape, two bytes a weight; None for an external model."""
    block = DFLASH_LAYERS * widths.layer() + DFLASH_TAPS * widths.hidden**2
    parameters = {
        "eagle3": widths.layer(inputs=2)
        + EAGLE3_TAPS * widths.hidden**2
        + min(EAGLE3_VOCAB, widths.vocab) * widths.hidden,
        "mtp": widths.layer() + 2 * widths.hidden**2,
        "dflash": block,
        "dspark": block + 2 * MARKOV_RANK * widths.vocab,
        "ngram": 0,
        "suffix": 0,
    }.get(mechanism)
    return None if parameters is None else WEIGHT_BYTES * parameters


def read_widths(folder: Path) -> Widths | None:
    """Widths from a config.json, None where it does not say enough. Where every FFN has experts, `ffn` is what a token
    uses of them; latent attention keeps one latent and one rotated key."""
    arch = architecture_of(folder)
    if arch is None or arch.num_heads is None or arch.num_kv_heads is None or arch.head_dim is None:
        return None
    latent = next((layer.mla for layer in arch.layers if layer.mla), None)
    kv = arch.num_kv_heads * arch.head_dim if latent is None else latent.kv_rank + latent.rope_dim
    widths = [layer.width for layer in arch.layers if layer.width]
    used = [layer.moe.top_k * layer.moe.width + layer.moe.shared_width for layer in arch.layers if layer.moe]
    ffn = next(iter(widths + used), None)
    return None if ffn is None else Widths(arch.hidden, arch.num_heads * arch.head_dim, kv, ffn, arch.vocab_size)
