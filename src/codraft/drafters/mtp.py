"""Multi-token prediction: modules that a target was trained with, one token each [DeepSeekV3].

A module joins the embedding of a token with the hidden state of the token before it, and runs one decoder layer of the
target's own kind. Step k is module k mod n, so a single one is used again on its own output. What families do
differently is a row of `Dialect`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from codraft.core.schema import DrafterInfo
from codraft.core.spec import MtpSpec, options_of
from codraft.decode.hf.load import resolve_folder
from codraft.decode.hf.rope import frequencies
from codraft.decode.target import Ends, Tap
from codraft.drafters.beside import Beside
from codraft.drafters.layers.attention import GroupedAttention, Sight
from codraft.drafters.layers.experts import Routing, SparseFFN
from codraft.drafters.layers.latent import LatentAttention
from codraft.drafters.layers.parts import GatedFFN, RMSNorm, Rotary
from codraft.drafters.pick import Picker
from codraft.drafters.serial import SerialDrafter
from codraft.drafters.weights import read_tensors, refuse_broken, refuse_not_finite, untrained, weight_bytes
from codraft.formats.checkpoint import Checkpoint, open_checkpoint
from codraft.formats.heads.gate import refuse_modules
from codraft.formats.heads.mtp_layout import BLOCK_SCALE, DERIVED, EXPERTS, MtpLayout, read_layout
from codraft.formats.heads.mtp_options import LATENT_EPS, GroupedShape, LatentShape, MtpOptions
from codraft.formats.heads.rope import read_rope
from codraft.formats.safetensors import TensorInfo

# Kept in float32 at least, as engines keep it: it decides between experts that score nearly the same.
PRECISE = "e_score_correction_bias"
JOINT = ("embed_norm", "hidden_norm", "proj", "final_norm")
# Which matrices of an expert `Experts` has in one.
STACKED = {"gate_up_proj": ("gate_proj", "up_proj"), "down_proj": ("down_proj",)}


class Block(nn.Module):
    """One decoder layer: attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, options: MtpOptions, rotary: Rotary, *, sparse: bool) -> None:
        super().__init__()
        H, eps, offset = options.hidden, options.eps, options.dialect.unit_offset
        self.input_layernorm = RMSNorm(H, eps, unit_offset=offset)
        self.self_attn = attention(options, rotary)
        self.post_attention_layernorm = RMSNorm(H, eps, unit_offset=offset)
        self.mlp = feed_forward(options, sparse=sparse)

    def forward(self, x_NH: Tensor, positions_N: Tensor, sight: Sight) -> Tensor:
        """[N, H] to the same."""
        x_NH = x_NH + self.self_attn(self.input_layernorm(x_NH), positions_N, sight)
        out_NH: Tensor = x_NH + self.mlp(self.post_attention_layernorm(x_NH))
        return out_NH


def attention(options: MtpOptions, rotary: Rotary) -> nn.Module:
    """The attention of a family's layer."""
    shape, H = options.attention, options.hidden
    if isinstance(shape, LatentShape):
        return LatentAttention(
            H,
            shape.heads,
            rotary,
            q_rank=shape.q_rank,
            kv_rank=shape.kv_rank,
            plain=shape.plain,
            rotated=shape.rotated,
            value=shape.value,
            eps=LATENT_EPS,
            scale=shape.scale,
            bias=shape.bias,
        )
    return GroupedAttention(
        H,
        H,
        shape.heads,
        shape.kv_heads,
        shape.head_dim,
        rotary,
        bias=shape.bias,
        output_bias=shape.output_bias,
        norm_eps=options.eps if shape.qk_norm else None,
        unit_offset=options.dialect.unit_offset,
        gated=shape.gated,
    )


def feed_forward(options: MtpOptions, *, sparse: bool) -> nn.Module:
    """Dense, or a mixture of experts."""
    shape = options.experts
    if not sparse or shape is None:
        return GatedFFN(options.hidden, options.ffn, options.act)
    routing = Routing(
        scores=shape.scores,
        top_k=shape.top_k,
        groups=shape.groups,
        top_groups=shape.top_groups,
        scale=shape.scale,
        normed=shape.normed,
    )
    return SparseFFN(options.hidden, shape.count, shape.width, shape.shared_width, options.act, routing)


class Joint(nn.Module):
    """What a module has beside its layer: norms of both inputs, the projection that joins them, the norm at the end."""

    def __init__(self, options: MtpOptions) -> None:
        super().__init__()
        H, eps, offset = options.hidden, options.eps, options.dialect.unit_offset
        self.embed_norm = RMSNorm(H, eps, unit_offset=offset)
        self.hidden_norm = RMSNorm(H, eps, unit_offset=offset)
        self.proj = nn.Linear(2 * H, H, bias=False)
        self.final_norm = RMSNorm(H, eps, unit_offset=offset)
        self.hidden_first = options.dialect.hidden_first

    def forward(self, embedding_NH: Tensor, hidden_NH: Tensor) -> Tensor:
        """[N, H]."""
        pair = (self.embed_norm(embedding_NH), self.hidden_norm(hidden_NH))
        joined_NH: Tensor = self.proj(torch.cat(pair[::-1] if self.hidden_first else pair, dim=-1))
        return joined_NH


class MtpHead(nn.Module):
    """All modules of a checkpoint as a serial head. `ends` lends embedding and output head where the file has no copy.

    Modules whose projection is one and the same (Qwen) share the joint.
    """

    layers_per_module = 1

    def __init__(self, layout: MtpLayout, rotary: Rotary, tap: Tap, ends: Ends, rows: Mapping[str, int]) -> None:
        """`rows` are those of the copies of embedding and output head, by the tensor that holds them."""
        super().__init__()
        options = layout.options
        self.options, self.tap = options, tap
        self.num_modules = len(layout.modules)
        joints: dict[str, Joint] = {}
        for module in layout.modules:
            joints.setdefault(module["proj.weight"], Joint(options))
        self.joints = nn.ModuleList(joints[module["proj.weight"]] for module in layout.modules)
        self.blocks = nn.ModuleList(Block(options, rotary, sparse=sparse) for sparse in layout.sparse)
        self.embed_tokens = None if layout.embed is None else nn.Embedding(rows[layout.embed], options.hidden)
        # By module the tensor that holds its output head, None where it is the target's; by that the head, [V, H].
        self._own = [module.get("head") for module in layout.modules]
        self.heads = nn.ParameterDict(
            {key_of(name): nn.Parameter(torch.empty(rows[name], options.hidden)) for name in set(self._own) if name}
        )
        # Not a submodule: its weights are the target's.
        self._ends = [ends]

    def device_bytes(self, rows: int) -> int:
        """See `SerialHead.device_bytes`."""
        floats = kv_floats(self.options.attention) * self.num_modules
        return weight_bytes(self) + rows * floats * next(self.joints.parameters()).element_size()

    def fuse(self, features: Mapping[Tap, Tensor]) -> Tensor:
        """[N, H]: the target's last hidden states as they are."""
        return features[self.tap]

    def run(
        self, module: int, hidden_NH: Tensor, tokens_N: Tensor, positions_N: Tensor, sight: Sight
    ) -> tuple[Tensor, Tensor]:
        """See `SerialHead.run`. Row t stands at position t + module the first time that a module is run."""
        embedding_NH = self._ends[0].embed(tokens_N) if self.embed_tokens is None else self.embed_tokens(tokens_N)
        embedding_NH = embedding_NH.to(hidden_NH.dtype)
        if self.options.dialect.blank_first:
            embedding_NH = embedding_NH.masked_fill((positions_N == module)[:, None], 0)
        joint, block = self.joints[module], self.blocks[module]
        assert isinstance(joint, Joint)
        out_NH = block(joint(embedding_NH, hidden_NH), positions_N, sight)
        normed_NH = joint.final_norm(out_NH)
        return (normed_NH if self.options.dialect.feedback == "post_norm" else out_NH), normed_NH

    def logits(self, module: int, readable_NH: Tensor) -> Tensor:
        """[N, V] over the target's vocabulary."""
        own = self._own[module]
        if own is None:
            return self._ends[0].read_out(readable_NH)
        return nn.functional.linear(readable_NH, self.heads[key_of(own)])

    def own_head(self, module: int) -> Tensor | None:
        """[V, H] a module's own copy of an output head, None where it reads out by the target's."""
        own = self._own[module]
        return None if own is None else self.heads[key_of(own)]


def key_of(name: str) -> str:
    """A tensor's name as one part of a parameter's."""
    return name.replace(".", "_")


def kv_floats(shape: GroupedShape | LatentShape) -> int:
    """Numbers that one layer keeps for one row."""
    if isinstance(shape, LatentShape):
        return 2 * shape.kv_rank + shape.rotated
    return 2 * shape.kv_heads * shape.head_dim


def rotary_of(options: MtpOptions) -> Rotary:
    """Positions as the config scales them."""
    shape = options.attention
    interleaved = isinstance(shape, LatentShape) and shape.interleaved
    return Rotary(*frequencies(read_rope(options.text, shape.rotated, options.file)), interleaved=interleaved)


def assemble(layout: MtpLayout, stored: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Parameters of an `MtpHead` by name. Blocks of FP8 become numbers again; numbered experts become one tensor.

    Empties `stored` on the way: a module of DeepSeek-V3 is 23 GB in bfloat16, and what is in place is held no more.
    """
    state: dict[str, Tensor] = {}
    # By stored name: modules may share a tensor.
    taken: dict[str, Tensor] = {}
    for i, module in enumerate(layout.modules):
        numbered = layout.sparse[i] and not layout.fused[i]
        for part, name in module.items():
            if part.endswith((BLOCK_SCALE, DERIVED)) or (numbered and part.startswith(EXPERTS)):
                continue
            if name not in taken:
                taken[name] = take(stored, name, layout, dtype)
            state[parameter_of(i, part, name)] = taken[name]
        if numbered:
            for part, kinds in STACKED.items():
                state[f"blocks.{i}.{EXPERTS}{part}"] = stack_experts(stored, module, kinds, layout, dtype)
    if layout.embed is not None:
        state["embed_tokens.weight"] = take(stored, layout.embed, layout, dtype)
    return state


def parameter_of(index: int, part: str, name: str) -> str:
    """What `MtpHead` calls a part of a module, stored as `name`."""
    if part == "head":
        return f"heads.{key_of(name)}"
    return f"{'joints' if part.partition('.')[0] in JOINT else 'blocks'}.{index}.{part}"


def take(stored: dict[str, Tensor], name: str, layout: MtpLayout, dtype: torch.dtype) -> Tensor:
    """A tensor in `dtype`, out of `stored`."""
    tensor, scale = stored.pop(name), stored.pop(f"{name}{BLOCK_SCALE}", None)
    if scale is not None and layout.block is not None:
        return expand(tensor, scale, layout.block, dtype)
    return tensor.to(torch.promote_types(dtype, torch.float32) if name.endswith(PRECISE) else dtype)


def expand(weight: Tensor, scale: Tensor, block: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """A matrix stored in FP8 with one scale for each block of it (DeepSeek), multiplied in float32; or one for every
    expert, one after the other."""
    if weight.dim() > 2:
        whole = torch.empty(weight.shape, dtype=dtype)
        for e in range(len(weight)):
            whole[e] = expand(weight[e], scale[e], block, dtype)
        return whole
    rows, columns = weight.shape
    spread = scale.float().repeat_interleave(block[0], dim=0).repeat_interleave(block[1], dim=1)
    return (weight.float() * spread[:rows, :columns]).to(dtype)


def stack_experts(
    stored: dict[str, Tensor], module: Mapping[str, str], kinds: Sequence[str], layout: MtpLayout, dtype: torch.dtype
) -> Tensor:
    """Matrices of numbered experts as the one tensor that `Experts` has, [E, ...]; of several kinds below each other.

    Memory of the whole is asked for at once and touched expert by expert, while theirs is given back.
    """
    count = 1 + max(int(part.removeprefix(EXPERTS).partition(".")[0]) for part in module if part.startswith(EXPERTS))
    whole = torch.empty(0)
    for e in range(count):
        one = torch.cat([take(stored, module[f"{EXPERTS}{e}.{kind}.weight"], layout, dtype) for kind in kinds])
        if not e:
            whole = torch.empty((count, *one.shape), dtype=dtype)
        whole[e] = one
    return whole


def make_head(
    layout: MtpLayout, stored: dict[str, Tensor], tap: Tap, ends: Ends, dtype: torch.dtype, device: Any
) -> MtpHead:
    """The modules with their weights, ready to run. Empties `stored`."""
    rotary = rotary_of(layout.options)
    tables = [layout.embed, *(module.get("head") for module in layout.modules)]
    rows = {name: len(stored[name]) for name in tables if name is not None}
    state = assemble(layout, stored, dtype)
    with torch.device("meta"):
        head = MtpHead(layout, rotary, tap, ends, rows)
    refuse_not_finite(f"MTP modules of {layout.options.file}", state)
    head.load_state_dict(state, strict=True, assign=True)
    rotary.to(device)
    return head.to(device).eval().requires_grad_(False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulesFile:
    """MTP modules by config and headers; `folder` holds them."""

    folder: Path
    checkpoint: Checkpoint
    layout: MtpLayout

    @property
    def trained(self) -> dict[str, TensorInfo]:
        """Headers of what is the modules' own."""
        return {name: self.checkpoint.tensors[name] for name in self.layout.trained()}


def check(spec: MtpSpec, beside: Beside) -> ModulesFile:
    """Refuse what config and headers of a target's own modules, or of those in another folder, show to be
    impossible."""
    folder = beside.folder if spec.path is None else resolve_folder(spec.path)
    where = f"target {beside.target}" if spec.path is None else f"drafter {spec.path}"
    checkpoint = open_checkpoint(str(folder))
    layout = read_layout(checkpoint, where)
    refuse_modules(layout, where, beside.sizes)
    opened = ModulesFile(folder=folder, checkpoint=checkpoint, layout=layout)
    refuse_broken(where, checkpoint.source, opened.trained)
    return opened


def build(spec: MtpSpec, beside: Beside) -> SerialDrafter:
    """The drafter of a target's own modules, or of those in another folder."""
    opened = check(spec, beside)
    layout = opened.layout if spec.feedback is None else opened.layout.with_feedback(spec.feedback)
    target = beside.load()
    tap: Tap = "final" if layout.options.dialect.reads == "final" else target.num_layers - 1
    stored = read_tensors(opened.folder, opened.checkpoint, with_scales(layout, opened.checkpoint.tensors))
    head = make_head(layout, stored, tap, target, getattr(torch, target.dtype), target.device)
    picker = Picker(spec.draft, beside.sampling, beside.vocab_size)
    what = f"the MTP module of {opened.checkpoint.label}"
    beside.notes.extend(untrained(what, opened.checkpoint.source, opened.trained))
    options = options_of(spec)
    if opened.checkpoint.config.get("speculators_model_type") is not None:
        # Engines read other layouts only, and launch files have to say so.
        options["layout"] = "speculators"
    info = DrafterInfo(name=spec.name, mechanism=spec.mechanism, id=spec.path, options=options)
    return SerialDrafter(head, picker, (tap,), info)


def with_scales(layout: MtpLayout, held: Iterable[str]) -> list[str]:
    """The tensors to be read: those of the modules, with the scales beside them."""
    names, held = layout.stored(), set(held)
    return [*names, *(scale for name in names if (scale := f"{name}{BLOCK_SCALE}") in held and scale not in names)]
