"""Any causal language model that transformers loads, behind the target seam."""

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from codraft.core.errors import CapabilityError
from codraft.core.schema import Ragged
from codraft.decode.hf.cache import SlotCache, Snapshot, SnapshotCache, windows_of
from codraft.decode.hf.load import WINDOW_KEY, eos_ids_of
from codraft.decode.target import Cache, PassOutput, Tap

# Longer ragged passes run row by row: padding would cost more than the calls, and a lone row needs no mask.
LONGEST_PADDED_PASS = 64
# Logits of one pass of k tokens and of k passes of one differ by rounding alone, relative to the largest; more means a
# wrong state or a mask that the model does not honour.
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.15}


FFN_NAMES = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "moe")
# GPT-2 and its kin call a linear layer Conv1D.
LINEAR_NAMES = ("Linear", "Conv1D")
ATTENTION_NAMES = ("self_attn", "self_attention", "attn", "attention", "linear_attn", "mixer", "mamba")


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """Heads of one attention layer."""

    heads: int
    kv_heads: int
    head_dim: int

    @property
    def G(self) -> int:
        """Query heads per KV head."""
        return self.heads // self.kv_heads


class HFModel:
    """A transformers model as a `Target`. Evaluation mode, no gradients."""

    def __init__(self, model: PreTrainedModel, model_id: str) -> None:
        self.model = model.eval()
        self.id = model_id
        config = model.config.get_text_config(decoder=True)
        self.vocab_size = int(config.vocab_size)
        self.window: int | None = getattr(config, WINDOW_KEY, None)
        self.eos_ids = eos_ids_of(getattr(model, "generation_config", None), config)
        self.device = str(model.device)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self._windows = windows_of(DynamicCache(config=model.config))
        self._eager = config._attn_implementation == "eager"
        self._parameters = inspect.signature(model.forward).parameters
        self._continuation_checked = False
        self._slots_checked = False
        if "past_key_values" not in self._parameters:
            raise CapabilityError(
                f"{model_id}: {type(model).__name__} keeps its state outside transformers' common cache, which codraft "
                "cannot roll back; choose a model whose forward takes past_key_values"
            )

    @property
    def num_layers(self) -> int:
        """Decoder layers."""
        return int(self.model.config.get_text_config(decoder=True).num_hidden_layers)

    @property
    def hidden_size(self) -> int:
        """Width of its hidden states."""
        return int(self.model.config.get_text_config(decoder=True).hidden_size)

    def new_cache(self, num_sequences: int, capacity: int) -> Cache:
        """Slots where the model has only full and sliding attention, snapshots otherwise."""
        if not self._slots_checked:
            self._slots_checked = True
            if self._windows is not None and not self._slots_hold():
                self._windows = None
        if self._windows is not None:
            return SlotCache(len(self._windows), num_sequences, capacity)
        return SnapshotCache(num_sequences, lambda: DynamicCache(config=self.model.config), self._feed)

    @torch.inference_mode()
    def forward(
        self,
        tokens: Sequence[Sequence[int]],
        cache: Cache,
        *,
        num_logits: int | None = None,
        taps: Sequence[Tap] = (),
    ) -> PassOutput:
        """See `Target.forward`."""
        if isinstance(cache, SnapshotCache):
            parts = [
                self._pass_snapshot(row, sequence, num_logits, taps)
                for row, sequence in zip(tokens, cache.sequences, strict=True)
            ]
            return merge(parts)
        assert isinstance(cache, SlotCache)
        widths = [len(row) for row in tokens]
        if len(tokens) > 1 and max(widths) > LONGEST_PADDED_PASS:
            return merge(
                [self._pass_slots([row], cache, slice(b, b + 1), num_logits, taps) for b, row in enumerate(tokens)]
            )
        return self._pass_slots(tokens, cache, slice(0, len(tokens)), num_logits, taps)

    def _pass_slots(
        self,
        tokens: Sequence[Sequence[int]],
        cache: SlotCache,
        rows: slice,
        num_logits: int | None,
        taps: Sequence[Tap],
    ) -> PassOutput:
        counts = [len(row) for row in tokens]
        width = max(counts)
        cache.begin(rows, width)
        ids_BQ = self._ids(tokens)
        starts_B1 = torch.tensor(cache.plan.starts, device=self.device)[:, None]
        positions_BQ = starts_B1 + torch.arange(width, device=self.device)
        # Right-padded rows need every column's logits; equal rows need the last ones alone.
        kept = width if min(counts) < width or num_logits is None else min(num_logits, width)
        with self._tapped(taps) as tapped:
            logits_BQV = self._call(ids_BQ, positions_BQ, self._mask(positions_BQ, cache), cache.hf, kept)
        cache.advance(rows, counts)
        wanted = [c if num_logits is None else min(num_logits, c) for c in counts]
        first = width - kept
        logits = [logits_BQV[b, c - w - first : c - first] for b, (c, w) in enumerate(zip(counts, wanted, strict=True))]
        features = {tap: [states_BQC[b, :c] for b, c in enumerate(counts)] for tap, states_BQC in tapped.items()}
        return PassOutput(logits, features)

    def _mask(self, positions_BQ: Tensor, cache: SlotCache) -> Any:
        """None where plain causal attention says it all; else who sees which slot, by layer kind where they differ."""
        assert self._windows is not None
        batch, width = positions_BQ.shape
        end = cache.plan.end
        alone = batch == 1 and (width == 1 or cache.plan.starts == [0])
        sliding = [window for window in self._windows if window is not None]
        if alone and all(end <= window for window in sliding):
            return None
        slots_S = torch.arange(end, device=positions_BQ.device)
        full_BQS = slots_S <= positions_BQ[..., None]
        masks = {"full_attention": self._as_mask(full_BQS)}
        if sliding:
            seen_BQS = full_BQS & (slots_S > positions_BQ[..., None] - sliding[0])
            masks["sliding_attention"] = self._as_mask(seen_BQS)
        if sliding and len(sliding) < len(self._windows):
            return masks
        return masks["sliding_attention" if sliding else "full_attention"]

    def _as_mask(self, seen_BQS: Tensor) -> Tensor:
        """[B, 1, Q, S]: boolean for SDPA, additive for eager attention."""
        if not self._eager:
            return seen_BQS[:, None]
        blocked = torch.zeros(seen_BQS.shape, dtype=self.model.dtype, device=seen_BQS.device)
        return blocked.masked_fill(~seen_BQS, torch.finfo(self.model.dtype).min)[:, None]

    def _pass_snapshot(
        self, tokens: Sequence[int], sequence: Snapshot, num_logits: int | None, taps: Sequence[Tap]
    ) -> PassOutput:
        if len(tokens) > 1 and sequence.length > 0 and not self._continuation_checked:
            self._check_continuation(sequence, tokens)
        sequence.begin(tokens)
        kept = len(tokens) if num_logits is None else min(num_logits, len(tokens))
        with self._tapped(taps) as tapped:
            logits_QV = self._continue(sequence.cache, sequence.length, tokens, kept)
        sequence.length += len(tokens)
        return PassOutput([logits_QV], {tap: [states_1QC[0]] for tap, states_1QC in tapped.items()})

    def _continue(self, cache: Any, start: int, tokens: Sequence[int], kept: int) -> Tensor:
        """[kept, V] logits of a lone sequence continued in the model's own cache."""
        ids_1Q = self._ids([tokens])
        positions_1Q = torch.arange(start, start + len(tokens), device=self.device)[None]
        return self._call(ids_1Q, positions_1Q, None, cache, kept)[0]

    def _feed(self, cache: Any, start: int, tokens: list[int]) -> None:
        """Run tokens into a native cache, for their state alone."""
        with torch.inference_mode():
            self._continue(cache, start, tokens, 1)

    def _check_continuation(self, sequence: Snapshot, tokens: Sequence[int]) -> None:
        """Once per model: k tokens in one pass must equal k passes of one, or speculation would not be lossless."""
        together = self._continue(copy.deepcopy(sequence.cache), sequence.length, tokens, len(tokens)).float()
        cache = copy.deepcopy(sequence.cache)
        apart = torch.cat([self._continue(cache, sequence.length + i, [t], 1) for i, t in enumerate(tokens)]).float()
        if not self._agree(together, apart):
            raise CapabilityError(
                f"{self.id}: its recurrent layers do not take several tokens after a state in this version of "
                "transformers, so drafts cannot be verified in one pass; only D = 0 works"
            )
        self._continuation_checked = True

    def _slots_hold(self) -> bool:
        """Once per model: do ragged rows in slots, under our mask, give the logits that each row gives by itself?

        A model that builds its own mask (ALiBi, chunks) does not, and is served by snapshots instead.
        """
        assert self._windows is not None
        ids = [token % self.vocab_size for token in range(3, 16)]
        try:
            cache = SlotCache(len(self._windows), 2, 16)
            self.forward([ids[:5], ids[:2]], cache, num_logits=1)
            ragged = self.forward([ids[5:8], ids[2:6]], cache, num_logits=1).logits
            with torch.inference_mode():
                alone = [
                    self.model(input_ids=self._ids([row]), use_cache=False).logits[0, -1:] for row in (ids[:8], ids[:6])
                ]
        except (RuntimeError, ValueError, KeyError, TypeError, IndexError):
            return False
        return all(self._agree(found, expected) for found, expected in zip(ragged, alone, strict=True))

    def _agree(self, found: Tensor, expected: Tensor) -> bool:
        """Equal within the rounding of the model's dtype."""
        scale = expected.float().abs().max().clamp(min=1e-6)
        return float((found.float() - expected.float()).abs().max() / scale) <= TOLERANCE.get(self.model.dtype, 0.15)

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """[B, Q] token ids, right-padded with 0."""
        width = max(len(row) for row in rows)
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], device=self.device)

    def _call(self, ids_BQ: Tensor, positions_BQ: Tensor, mask: Any, cache: Any, kept: int) -> Tensor:
        """[B, kept, V] logits of the last `kept` columns."""
        kwargs: dict[str, Any] = {}
        if "position_ids" in self._parameters:
            kwargs["position_ids"] = positions_BQ
        if "logits_to_keep" in self._parameters:
            kwargs["logits_to_keep"] = kept
        out = self.model(input_ids=ids_BQ, attention_mask=mask, past_key_values=cache, use_cache=True, **kwargs)
        return out.logits[:, -kept:]

    @contextmanager
    def _tapped(self, taps: Sequence[Tap]) -> Iterator[dict[Tap, Tensor]]:
        """Collect the outputs of the tapped modules while a pass runs."""
        caught: dict[Tap, Tensor] = {}
        handles = []
        for tap in taps:

            def catch(_module: Any, _inputs: Any, output: Any, tap: Tap = tap) -> None:
                states = output[0] if isinstance(output, tuple) else output
                caught[tap] = self._rescaled(states) if tap == -1 else states

            handles.append(self._module_of(tap).register_forward_hook(catch))
        try:
            yield caught
        finally:
            for handle in handles:
                handle.remove()

    def _module_of(self, tap: Tap) -> Any:
        """The module whose output a tap names."""
        decoder = self.model.get_decoder()
        if tap == "final":
            norm = next(
                (
                    getattr(decoder, n)
                    for n in ("norm", "final_layernorm", "ln_f", "final_layer_norm")
                    if hasattr(decoder, n)
                ),
                None,
            )
            if norm is None:
                raise CapabilityError(
                    f"{self.id}: no last norm found in {type(decoder).__name__}, so 'final' cannot be tapped"
                )
            return norm
        if tap == -1:
            return self.model.get_input_embeddings()
        if not 0 <= int(tap) < self.num_layers:
            raise ValueError(f"tap {tap} is outside -1..{self.num_layers - 1} of {self.id}")
        layers = self._layers()
        if layers is None:
            raise CapabilityError(
                f"{self.id}: no decoder layers found in {type(decoder).__name__}, so they cannot be tapped"
            )
        return layers[int(tap)]

    def _layers(self) -> Any:
        """The decoder's layers, None where they go by no name we know."""
        decoder = self.model.get_decoder()
        return next((getattr(decoder, n) for n in ("layers", "h", "blocks") if hasattr(decoder, n)), None)

    def modules_by_kind(self) -> dict[str, list[Any]] | None:
        """The modules that are `ffn`, `attention` (whole), `projections` (its linear layers), and the `head`.

        None where a layer's parts go by names we do not know: an unmatched part would pass for no work at all.
        """
        layers = list(self._layers() or ())
        ffn = [child for layer in layers for name, child in layer.named_children() if name in FFN_NAMES]
        attention = [child for layer in layers for name, child in layer.named_children() if name in ATTENTION_NAMES]
        linear = [m for child in attention for m in child.modules() if type(m).__name__ in LINEAR_NAMES]
        head = self.model.get_output_embeddings()
        if not layers or len(ffn) != len(layers) or len(attention) != len(layers) or not linear or head is None:
            return None
        return {"ffn": ffn, "attention": attention, "projections": linear, "head": [head]}

    def linear_shapes(self) -> list[tuple[str, int, int]]:
        """(name, out, in) of every distinct linear layer, in the order of a pass."""
        shapes: dict[tuple[int, int], str] = {}
        for path, module in self.model.named_modules():
            if type(module).__name__ not in LINEAR_NAMES:
                continue
            # A Conv1D keeps its weight the other way round.
            n, k = module.weight.shape if isinstance(module, torch.nn.Linear) else reversed(module.weight.shape)
            name = path.rpartition(".")[2]
            taken = name in shapes.values() and (n, k) not in shapes
            shapes.setdefault((n, k), f"{name} {n}x{k}" if taken else name)
        return [(name, n, k) for (n, k), name in shapes.items()]

    def embed(self, tokens_N: Tensor) -> Tensor:
        """[N, H] embeddings of token ids, scaled as its own first layer gets them."""
        return self._rescaled(self.model.get_input_embeddings()(tokens_N))

    def _rescaled(self, embeddings: Tensor) -> Tensor:
        """What a model makes of embeddings behind their module: Granite and Falcon H1 multiply them."""
        factor = getattr(self.model.config.get_text_config(decoder=True), "embedding_multiplier", None)
        return embeddings if factor is None else embeddings * factor

    def read_out(self, hidden_NH: Tensor) -> Tensor:
        """[N, V] logits of hidden states after the last norm, scaled and capped as the model does it."""
        # A drafter that learns is in float32 beside a target in bfloat16.
        return self.scaled(self.model.get_output_embeddings()(hidden_NH.to(self.model.dtype)))

    def head_rows(self, ids_C: Tensor) -> tuple[Tensor, Tensor | None]:
        """Rows [C, H] of the output head, and their biases [C] where it has some; copies."""
        head = self.model.get_output_embeddings()
        bias = getattr(head, "bias", None)
        return head.weight.detach()[ids_C], None if bias is None else bias.detach()[ids_C]

    def scaled(self, logits_NV: Tensor) -> Tensor:
        """What the model makes of its output head's numbers."""
        config = self.model.config.get_text_config(decoder=True)
        logits_NV = logits_NV * (getattr(config, "logit_scale", None) or 1.0)
        logits_NV = logits_NV / (getattr(config, "logits_scaling", None) or 1.0)
        logits_NV = logits_NV * (getattr(config, "lm_head_multiplier", None) or 1.0)
        cap = getattr(config, "final_logit_softcapping", None)
        return logits_NV if cap is None else cap * torch.tanh(logits_NV / cap)

    def last_norm(self, hidden_NH: Tensor) -> Tensor:
        """[N, H] of the last layer's output, as the output head reads it."""
        normed_NH: Tensor = self._module_of("final")(hidden_NH)
        return normed_NH

    def norm_weight(self) -> Tensor | None:
        """[H] of the last norm, where it has such a weight."""
        weight: Tensor | None = getattr(self._module_of("final"), "weight", None)
        return None if weight is None else weight.detach()

    def layer_tensors(self, index: int) -> dict[str, Tensor]:
        """Tensors of one decoder layer, by their names within it."""
        return {name: value.detach() for name, value in self._module_of(index).state_dict().items()}

    def whole_rows(self, rows: Sequence[Sequence[int]], taps: Sequence[Tap]) -> dict[Tap, list[Tensor]]:
        """The tapped features [T_b, H] of whole sequences, without cache and logits. Gradients as the caller says.

        Rows stand left-aligned, so causal attention never reaches the padding behind them.
        """
        with self._tapped(taps) as tapped:
            self.model.get_decoder()(input_ids=self._ids(rows), use_cache=False)
        return {tap: [states_BTH[b, : len(row)] for b, row in enumerate(rows)] for tap, states_BTH in tapped.items()}

    @property
    def ragged(self) -> Ragged:
        """What a pass over rows of unequal length costs: slots pad them to the longest, snapshots run one by one."""
        return "packed" if self._windows is None else "padded"

    def attention_shape(self) -> AttentionShape | None:
        """Heads of one layer, None where the config does not name them."""
        config = self.model.config.get_text_config(decoder=True)
        heads = getattr(config, "num_attention_heads", None)
        if not isinstance(heads, int):
            return None
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return AttentionShape(heads, kv_heads, head_dim)

    def device_bytes(self, B: int, S: int) -> int:
        """Bytes of the weights and of the slots of B sequences of S tokens."""
        weights = sum(p.numel() * p.element_size() for p in self.model.parameters())
        shape = self.attention_shape()
        slot = 0 if shape is None else 2 * shape.kv_heads * shape.head_dim * self.model.dtype.itemsize
        return weights + B * S * self.num_layers * slot


def merge(parts: Sequence[PassOutput]) -> PassOutput:
    """One output from passes over one sequence each."""
    taps = parts[0].features.keys()
    return PassOutput(
        [logits for part in parts for logits in part.logits],
        {tap: [states for part in parts for states in part.features[tap]] for tap in taps},
    )
