"""EAGLE-3 drafting: one decoder layer over the features of several target layers, one token a step [EAGLE-3].

The first layer's attention reads token embedding and hidden state side by side. Step 1 takes the fused features of the
target, each later step the head's own output instead. The switches in which families differ are `Eagle3Options`.
"""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor, nn

from codraft.core.schema import DrafterInfo
from codraft.core.spec import Eagle3Spec, options_of
from codraft.decode.hf.rope import frequencies
from codraft.decode.target import Ends, Tap
from codraft.drafters.beside import Beside
from codraft.drafters.layers.attention import GroupedAttention, Sight
from codraft.drafters.layers.parts import GatedFFN, RMSNorm, Rotary
from codraft.drafters.serial import SerialDrafter
from codraft.drafters.weights import HeadFile, fill, load_head, open_fitting, picker_of, weight_bytes
from codraft.formats.heads.head import Head
from codraft.formats.heads.options import (
    Eagle3Options,
    LayerOptions,
    eagle3_options,
    layer_options,
    layer_windows,
)
from codraft.formats.heads.rope import read_head_rope


class EagleLayer(nn.Module):
    """A decoder layer of Llama or Qwen3 form. A `doubled` one reads the embedding beside the hidden state."""

    def __init__(
        self,
        head: Head,
        options: Eagle3Options,
        layer: LayerOptions,
        rotary: Rotary,
        index: int,
        own: Collection[str],
    ) -> None:
        super().__init__()
        g, doubled = head.geometry, options.doubled[index]
        self.norms_residual = options.norm_before_residual
        normed = index > 0 or options.first_layer_norm
        self.input_layernorm = RMSNorm(g.hidden, layer.eps) if normed else None
        self.hidden_norm = RMSNorm(g.hidden, layer.eps) if doubled else None
        self.self_attn = GroupedAttention(
            (1 + doubled) * g.hidden,
            g.hidden,
            g.num_heads,
            g.num_kv_heads,
            g.head_dim,
            rotary,
            bias=layer.attention_bias,
            output_bias=f"layers.{index}.self_attn.o_proj.bias" in own,
            norm_eps=layer.eps if layer.qk_norm else None,
            window=layer_windows(head)[index],
        )
        self.post_attention_layernorm = RMSNorm(g.hidden, layer.eps)
        self.mlp = GatedFFN(g.hidden, g.ffn, layer.act, bias=layer.mlp_bias)

    def forward(self, embedding_NH: Tensor, hidden_NH: Tensor, positions_N: Tensor, sight: Sight) -> Tensor:
        """[N, H]."""
        residual_NH, x_NC = hidden_NH, hidden_NH
        if self.hidden_norm is not None:
            normed_NH = self.hidden_norm(hidden_NH)
            residual_NH = normed_NH if self.norms_residual else hidden_NH
            x_NC = torch.cat((self._normed(embedding_NH), normed_NH), dim=-1)
        else:
            x_NC = self._normed(hidden_NH)
        hidden_NH = residual_NH + self.self_attn(x_NC, positions_N, sight)
        out_NH: Tensor = hidden_NH + self.mlp(self.post_attention_layernorm(hidden_NH))
        return out_NH

    def _normed(self, x_NH: Tensor) -> Tensor:
        normed_NH: Tensor = x_NH if self.input_layernorm is None else self.input_layernorm(x_NH)
        return normed_NH


class Eagle3Head(nn.Module):
    """A serial head of one module. Parameters are called as formats/heads/layout.py calls the tensors.

    `own` names the tensors of the file; `ends` lends embedding and output head where it has none of its own.
    """

    num_modules = 1

    def __init__(self, head: Head, taps: tuple[Tap, ...], ends: Ends, own: Collection[str]) -> None:
        super().__init__()
        g, options, layer = head.geometry, eagle3_options(head), layer_options(head)
        self.taps, self.options, self.layers_per_module = taps, options, g.num_layers
        rotary = Rotary(*frequencies(read_head_rope(head.text, g.head_dim, head.file)))
        fused = len(taps) * head.target_hidden
        self.fc_norm = nn.ModuleList(RMSNorm(head.target_hidden, layer.eps) for _ in taps) if options.fc_norm else None
        self.input_norm = RMSNorm(fused, layer.eps) if options.norm_before_fc else None
        self.fc = nn.Linear(fused, g.hidden, bias="fc.bias" in own)
        self.layers = nn.ModuleList(EagleLayer(head, options, layer, rotary, i, own) for i in range(g.num_layers))
        used = options.norms_output or options.feedback == "post_norm"
        self.norm = RMSNorm(g.hidden, layer.eps) if used or "norm.weight" in own else None
        rows = head.draft_vocab_size or head.vocab_size
        self.embed_tokens = nn.Embedding(head.vocab_size or 0, g.hidden) if "embed_tokens.weight" in own else None
        self.lm_head = nn.Linear(g.hidden, rows or 0, bias=False) if "lm_head.weight" in own else None
        # No submodules: the one has the target's weights, the other stays in float32.
        self._ends, self._rotary = [ends], [rotary]
        self._kv_floats = 2 * g.num_layers * g.num_kv_heads * g.head_dim

    @property
    def rotary(self) -> Rotary:
        """What turns queries and keys of all layers."""
        return self._rotary[0]

    def device_bytes(self, rows: int) -> int:
        """Of its own tensors, and of keys and values of `rows` rows."""
        return weight_bytes(self) + rows * self._kv_floats * self.fc.weight.element_size()

    def fuse(self, features: Mapping[Tap, Tensor]) -> Tensor:
        """[N, H] of the features, in the order of the taps."""
        parts = [features[tap] for tap in self.taps]
        if self.fc_norm is not None:
            parts = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
        joined = torch.cat(parts, dim=-1)
        fused_NH: Tensor = self.fc(joined if self.input_norm is None else self.input_norm(joined))
        return fused_NH

    def run(
        self, module: int, hidden_NH: Tensor, tokens_N: Tensor, positions_N: Tensor, sight: Sight
    ) -> tuple[Tensor, Tensor]:
        """See `SerialHead.run`."""
        embedding_NH = self._ends[0].embed(tokens_N) if self.embed_tokens is None else self.embed_tokens(tokens_N)
        embedding_NH = embedding_NH.to(hidden_NH.dtype)
        for layer in self.layers:
            hidden_NH = layer(embedding_NH, hidden_NH, positions_N, sight)
        normed_NH = hidden_NH if self.norm is None else self.norm(hidden_NH)
        fed_NH = normed_NH if self.options.feedback == "post_norm" else hidden_NH
        return fed_NH, normed_NH if self.options.norms_output else hidden_NH

    def logits(self, module: int, readable_NH: Tensor) -> Tensor:
        """[N, V'] over the draft vocabulary."""
        logits_NV: Tensor = self._ends[0].read_out(readable_NH) if self.lm_head is None else self.lm_head(readable_NH)
        return logits_NV


def usual_taps(num_layers: int) -> tuple[int, ...]:
    """Outputs of layers that heads read whose config names none: SafeAILab's choice, and the default of engines."""
    return tuple(max(-1, i) for i in (1, num_layers // 2 - 1, num_layers - 4))


def check(spec: Eagle3Spec, beside: Beside) -> HeadFile:
    """Refuse what config and headers show to be impossible."""
    return open_fitting(spec.path, "eagle3", beside)


def build(spec: Eagle3Spec, beside: Beside) -> SerialDrafter:
    """The drafter of a checkpoint, beside its target."""
    loaded = load_head(check(spec, beside))
    target = beside.load()
    taps = loaded.head.taps[0].outputs if loaded.head.taps else usual_taps(target.num_layers)
    with torch.device("meta"):
        module = Eagle3Head(loaded.head, taps, target, loaded.tensors.keys())
    fill(module, loaded, beside)
    module.rotary.to(target.device)
    picker = picker_of(spec.draft, loaded, beside)
    info = DrafterInfo(name=spec.name, mechanism=spec.mechanism, id=spec.path, options=options_of(spec))
    # A layer may be read twice; it is asked for once.
    return SerialDrafter(module, picker, tuple(dict.fromkeys(taps)), info)
