"""DFlash: a block of masks filled in one pass over keys and values made of the target's features [DFlash].

Fused features c = hidden_norm(fc(features)) go through every layer's own key and value projections, and not through its
input norm. Slot j stands at position s + j behind an anchor at s, and predicts the token there (slot 0 is the anchor
and predicts nothing) or, where the config says so, the token after it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from codraft.core.errors import SpecError
from codraft.core.schema import DrafterInfo
from codraft.core.spec import DflashSpec, options_of
from codraft.decode.hf.rope import frequencies
from codraft.decode.target import Ends, Tap
from codraft.drafters.beside import Beside
from codraft.drafters.block import BlockDrafter, KeysValues
from codraft.drafters.layers.attention import Sight
from codraft.drafters.layers.decoder import DecoderLayer
from codraft.drafters.layers.parts import RMSNorm, Rotary
from codraft.drafters.weights import HeadFile, LoadedHead, fill, load_head, open_fitting, picker_of, weight_bytes
from codraft.formats.heads.head import MASK_NAMES, Head
from codraft.formats.heads.options import block_options, interleaved, layer_options
from codraft.formats.heads.rope import read_head_rope


class DFlashHead(nn.Module):
    """See `BlockHead`. Parameters are called as formats/heads/layout.py calls the tensors.

    `own` are the names of the file's tensors: biases, sinks and a mask's embedding may be there or not, and `ends`
    lends embedding and output head where the file has none of its own.
    """

    def __init__(self, head: Head, ends: Ends, own: Collection[str] = ()) -> None:
        super().__init__()
        g, block, layer = head.geometry, block_options(head), layer_options(head)
        self.taps: tuple[Tap, ...] = head.taps[0].outputs if head.taps else ()
        self.size, self.causal, self.mask_token_id = block.size, block.causal, block.mask_token_id
        self.first_slot = 1 if block.alignment == "same_slot" else 0
        rotary = Rotary(*frequencies(read_head_rope(head.text, g.head_dim, head.file)), interleaved=interleaved(head))
        self.fc = nn.Linear(len(self.taps) * head.target_hidden, g.hidden, bias=False)
        self.hidden_norm = RMSNorm(g.hidden, layer.eps)
        self._stack = [
            DecoderLayer(g, layer, rotary, window=window, own=inside(f"layers.{i}.", own))
            for i, window in enumerate(block.windows)
        ]
        self.layers = nn.ModuleList(self._stack)
        self.norm = RMSNorm(g.hidden, layer.eps)
        self.mask_embedding = nn.Parameter(torch.zeros(g.hidden)) if set(MASK_NAMES) & set(own) else None
        rows = head.draft_vocab_size or head.vocab_size or 0
        self.embed_tokens = nn.Embedding(head.vocab_size or 0, g.hidden) if "embed_tokens.weight" in own else None
        self.lm_head = nn.Linear(g.hidden, rows, bias=False) if "lm_head.weight" in own else None
        # No submodules: the one has the target's weights, the other stays in float32.
        self._ends, self._rotary = [ends], [rotary]
        self._kv_floats = 2 * g.num_layers * g.num_kv_heads * g.head_dim

    @property
    def rotary(self) -> Rotary:
        """What turns queries and keys of all layers."""
        return self._rotary[0]

    def fuse(self, features: Mapping[Tap, Tensor]) -> Tensor:
        """[N, H] of the features, in the order of the taps."""
        fused_NH: Tensor = self.hidden_norm(self.fc(torch.cat([features[tap] for tap in self.taps], dim=-1)))
        return fused_NH

    def context(self, fused_NH: Tensor, positions_N: Tensor) -> list[KeysValues]:
        """See `BlockHead.context`."""
        return [layer.self_attn.keys_values(fused_NH, positions_N) for layer in self._stack]

    def fill(self, anchors_C: Tensor, starts_C: Tensor, num_slots: int, sight: Sight) -> Tensor:
        """See `BlockHead.fill`."""
        slots_n = torch.arange(num_slots, device=starts_C.device)
        positions_N = (starts_C[:, None] + slots_n).flatten()
        hidden_NH = self._slots(anchors_C, num_slots).flatten(0, 1)
        for layer in self._stack:
            hidden_NH = layer(hidden_NH, positions_N, sight)
        hidden_CnH: Tensor = self.norm(hidden_NH).unflatten(0, (len(anchors_C), num_slots))
        return hidden_CnH

    def _slots(self, anchors_C: Tensor, num_slots: int) -> Tensor:
        """[C, num_slots, H] embeddings: the anchor's, then masks."""
        anchors_C1H = self._embed(anchors_C)[:, None]
        if self.mask_embedding is None:
            mask_H = self._embed(anchors_C.new_tensor([self.mask_token_id]))[0]
        else:
            mask_H = self.mask_embedding.to(anchors_C1H.dtype)
        return torch.cat((anchors_C1H, mask_H.expand(len(anchors_C), num_slots - 1, -1)), dim=1)

    def _embed(self, tokens_N: Tensor) -> Tensor:
        embeddings_NH: Tensor = (
            self._ends[0].embed(tokens_N) if self.embed_tokens is None else self.embed_tokens(tokens_N)
        )
        return embeddings_NH.to(self.fc.weight.dtype)

    def logits(self, hidden_NH: Tensor) -> Tensor:
        """[N, V'] over the draft vocabulary."""
        logits_NV: Tensor = self._ends[0].read_out(hidden_NH) if self.lm_head is None else self.lm_head(hidden_NH)
        return logits_NV

    def begin(self, hidden_NH: Tensor) -> Tensor:
        """Slots are drafted independently: nothing to remember."""
        return hidden_NH.new_zeros((len(hidden_NH), 0))

    def correct(
        self, logits_NV: Tensor, hidden_NH: Tensor, previous_N: Tensor, memory_Ns: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The logits as they are."""
        return logits_NV, memory_Ns

    def confidence(self, hidden_NH: Tensor, previous_N: Tensor) -> Tensor:
        """It has no notion of that."""
        raise ValueError("a DFlash head has no confidence head")

    def device_bytes(self, rows: int) -> int:
        """See `BlockHead.device_bytes`."""
        return weight_bytes(self) + rows * self._kv_floats * self.fc.weight.element_size()


def inside(prefix: str, names: Collection[str]) -> frozenset[str]:
    """Names below a prefix, without it."""
    return frozenset(name.removeprefix(prefix) for name in names if name.startswith(prefix))


def prepared(loaded: LoadedHead) -> LoadedHead:
    """A mask's embedding as one row under one name, whatever shape and name the file has it in."""
    tensors = dict(loaded.tensors)
    for name in MASK_NAMES:
        if name in tensors:
            row = tensors.pop(name).flatten()
            if len(row) != loaded.head.geometry.hidden:
                raise SpecError(
                    f"drafter {loaded.id}: {name} has {len(row)} values, expected {loaded.head.geometry.hidden}, one "
                    "embedding; fetch the file again"
                )
            tensors[MASK_NAMES[0]] = row
    return replace(loaded, tensors=tensors)


def check(spec: DflashSpec, beside: Beside) -> HeadFile:
    """Refuse what config and headers show to be impossible."""
    return open_fitting(spec.path, "dflash", beside)


def build(spec: DflashSpec, beside: Beside) -> BlockDrafter:
    """The drafter of a checkpoint, beside its target."""
    loaded = prepared(load_head(check(spec, beside)))
    target = beside.load()
    with torch.device("meta"):
        module = DFlashHead(loaded.head, target, loaded.tensors)
    fill(module, loaded, beside)
    module.rotary.to(target.device)
    info = DrafterInfo(name=spec.name, mechanism=spec.mechanism, id=spec.path, options=options_of(spec))
    return BlockDrafter(module, picker_of(spec.draft, loaded, beside), info, block=spec.block)
