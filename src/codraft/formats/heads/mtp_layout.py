"""Which tensors of a checkpoint hold its MTP modules, under one set of names, and what is wrong with them.

A module's parts are `embed_norm`, `hidden_norm`, `proj`, `final_norm` and, where the file has a copy, `head`; the
decoder layer's tensors keep the names that all families give them. Qwen's modules share everything but the layer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from codraft.core.errors import NotRunError, SpecError
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.fields import Fields, shown
from codraft.formats.heads.head import EMBED, HEAD, MOST_NAMED, layer_part
from codraft.formats.heads.mtp_options import ExpertsShape, Feedback, LatentShape, MtpOptions, read_mtp
from codraft.formats.mtp import JOINS, Module, around, modules, mtp_tensors
from codraft.formats.quantnames import FLOATS, is_packed

Shape = tuple[int, ...]
# What DeepSeek's FP8 files put beside a matrix, a number for each block of it.
BLOCK_SCALE = "_scale_inv"
BLOCK_DTYPE = "F8_E4M3"
DERIVED = "rotary_emb.inv_freq"
# What stands before the number of an expert.
EXPERTS = "mlp.experts."


@dataclass(frozen=True, slots=True, kw_only=True)
class MtpLayout:
    """The modules of a checkpoint, in the order in which they are run.

    `modules[i]` maps each part to the tensor that holds it. `sparse[i]`: whether its layer has experts, `fused[i]`
    whether they are stored in one tensor for all. `embed` is the file's own copy of the embedding. `block` is the
    size of FP8 blocks, None where nothing is stored so.
    """

    options: MtpOptions
    modules: tuple[Mapping[str, str], ...]
    sparse: tuple[bool, ...]
    fused: tuple[bool, ...]
    embed: str | None
    block: tuple[int, int] | None

    def with_feedback(self, feedback: Feedback) -> "MtpLayout":
        """The same modules, handing on something else than their family does."""
        dialect = replace(self.options.dialect, feedback=feedback)
        return replace(self, options=replace(self.options, dialect=dialect))

    def trained(self) -> list[str]:
        """Tensors of the modules that are no copies of the target's ends and no scales."""
        parts = ((part, name) for module in self.modules for part, name in module.items() if part != "head")
        return list(dict.fromkeys(name for part, name in parts if not part.endswith((BLOCK_SCALE, DERIVED))))

    def stored(self) -> list[str]:
        """All tensors to be read, each once."""
        names = {name: None for module in self.modules for name in module.values()}
        return [*names, *([self.embed] if self.embed else [])]


def read_layout(checkpoint: Checkpoint, where: str, *, to_run: bool = True) -> MtpLayout:
    """The MTP modules of a checkpoint. SpecError where there are none, of a family that codraft does not run, or with
    a tensor missing, unexpected or misshapen, or, where they are `to_run`, in a format that codraft cannot; `where`
    begins the sentence."""
    file = f"{where}: config.json"
    held = held_names(checkpoint, where)
    refuse_others(checkpoint, held, where)
    found = modules(held)
    if not found:
        raise SpecError(
            f"{where}: of its MTP modules the projection that joins hidden state and embedding is missing (tensors "
            f"{listed(held)}); fetch the original checkpoint"
        )
    options = read_mtp(checkpoint.config, found[0].join, file)
    ordered = expand(found, where)
    wanted = options.declared or max(1, len(ordered))
    if len(ordered) < wanted:
        raise SpecError(
            f"{where}: the config counts {wanted} MTP modules and the files hold {len(ordered)}; fetch the original "
            "checkpoint"
        )
    # Engines load those that the config counts.
    parts = [parts_of(module, layer) for module, layer in ordered[:wanted]]
    own = own_ends(checkpoint, held)
    # A copy of the target's embedding; where every module has one, they are the same [DeepSeekV3].
    copies = [module.pop("embed", None) for module in parts]
    layout = MtpLayout(
        options=options,
        modules=tuple({"head": own[HEAD]} | module if HEAD in own else module for module in parts),
        sparse=tuple("mlp.gate.weight" in module for module in parts),
        fused=tuple("mlp.experts.gate_up_proj" in module for module in parts),
        embed=own.get(EMBED) or copies[0],
        block=block_size(checkpoint.config),
    )
    dedicated = Fields(*layer_part(checkpoint.config), file).switch("mtp_use_dedicated_embeddings")
    if dedicated and layout.embed is None:
        raise SpecError(
            f"{file}: mtp_use_dedicated_embeddings is true, and no file holds them; fetch the original checkpoint"
        )
    places = [(around(module.at, module.join)[0], place_of(layer)) for module, layer in ordered]
    wrong = list(faults(layout, checkpoint, places))
    packed = list(storage_faults(layout, checkpoint)) if to_run else []
    if packed:
        told = some([*packed, *wrong])
        raise NotRunError(f"{where}: {told}; measure them with an engine, or choose another mechanism")
    if wrong:
        raise SpecError(f"{where}: {some(wrong)}; fetch or export it again")
    return layout


def held_names(checkpoint: Checkpoint, where: str) -> list[str]:
    """Tensors of MTP modules. SpecError where there are none, with the reason that shows."""
    part, path = layer_part(checkpoint.config)
    num_layers = Fields(part, path, f"{where}: config.json").needed("num_hidden_layers", highest=10_000)
    held = mtp_tensors(checkpoint.tensors, num_layers)
    index = checkpoint.index
    lost = mtp_tensors(index.weight_map, num_layers) if index is not None else []
    lost = [name for name in lost if name not in checkpoint.tensors]
    if lost and index is not None:
        raise SpecError(f"{where}: {index.weight_map[lost[0]]}, which holds {lost[0]}, is not there; fetch it")
    if held:
        return held
    aside = mtp_tensors(checkpoint.unlisted, num_layers)
    if aside:
        raise SpecError(
            f"{where}: its MTP tensors lie in {checkpoint.unlisted[aside[0]].file}, which the index does not name, so "
            "no engine loads them; add them to the weight_map of the index"
        )
    raise SpecError(
        f"{where} holds no MTP module; name a folder that does, as mtp:PATH_OR_ID, or choose another mechanism"
    )


def refuse_others(checkpoint: Checkpoint, held: list[str], where: str) -> None:
    """What shares a namespace with MTP modules and is something else."""
    part, _ = layer_part(checkpoint.config)
    stages = next((key for key in (*part, *checkpoint.config) if key.startswith("dspark_")), None)
    if stages is not None:
        raise NotRunError(
            f"{where}: its mtp namespace holds DSpark stages ({stages} in config.json), not MTP modules; measure them "
            "with an engine, or choose another mechanism"
        )
    mixer = next((name for name in held if ".mixer." in name), None)
    if mixer is not None:
        raise NotRunError(
            f"{where}: its MTP module is a hybrid of Nemotron-H ({mixer}), which codraft does not run; measure it "
            "with an engine, or choose another mechanism"
        )


def expand(found: list[Module], where: str) -> list[tuple[Module, Mapping[str, str]]]:
    """(module, its decoder layer) in their order: Qwen's one joint serves each of its layers."""
    for module in found:
        if len(module.layers) != 1 and module.join != "fc":
            raise SpecError(f"{where}: the MTP module of {module.at} has {len(module.layers)} decoder layers and not 1")
    ordered = sorted(found, key=lambda module: number(around(module.at, module.join)[0]))
    return [(module, module.layers[name]) for module in ordered for name in sorted(module.layers, key=number)]


def number(name: str) -> int:
    """The last number in a dotted name, 0 without one."""
    digits = [part for part in name.split(".") if part.isdecimal()]
    return int(digits[-1]) if digits else 0


def spellings(word: str) -> dict[str, str]:
    """What the families with this projection call the parts around the layer, and what these are called here."""
    join = JOINS[word]
    canonical = {f"{join.norms[0]}.weight": "embed_norm.weight", f"{join.norms[1]}.weight": "hidden_norm.weight"}
    canonical[f"{word}.weight"] = "proj.weight"
    canonical |= {f"{final}.weight": "final_norm.weight" for final in join.final}
    return canonical | {"shared_head.head.weight": "head", EMBED: "embed"}


def place_of(layer: Mapping[str, str]) -> str:
    """What stands before the parts of a decoder layer."""
    part, name = next(iter(layer.items()))
    return name.removesuffix(part)


def parts_of(module: Module, layer: Mapping[str, str]) -> dict[str, str]:
    """Each part of a module and the tensor that holds it; parts that no family has stand under their own names."""
    canonical, before = spellings(module.join), around(module.at, module.join)[0]
    named: dict[str, str] = dict(layer)
    for name in module.parts:
        inner = name.removeprefix(before)
        part = next((canonical[old] + inner[len(old) :] for old in canonical if inner.startswith(old)), inner)
        named[part] = name
    return named


def own_ends(checkpoint: Checkpoint, held: list[str]) -> dict[str, str]:
    """Embedding and output head at the root of a file that holds nothing but MTP modules: they are the modules' own.
    Beside a trunk they are the target's."""
    known = set(held)
    others = [name for name in checkpoint.tensors if name not in known]
    ends = {end: name for end in (EMBED, HEAD) for name in others if name.endswith(end)}
    return ends if len(ends) == len(others) else {}


def faults(layout: MtpLayout, checkpoint: Checkpoint, places: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Every tensor that is missing, unexpected or misshapen; `places` are what stands before the parts of each module,
    and before those of its layer."""
    tensors, H = checkpoint.tensors, layout.options.hidden
    family = {part: name for name, part in reversed(spellings(layout.options.dialect.join).items())}
    for i, (module, (before, inside)) in enumerate(zip(layout.modules, places, strict=False)):
        expected = dict(module_tensors(layout, i))
        for part, shape in expected.items():
            if part not in module:
                yield f"{before + family[part] if part in family else inside + part} is missing"
            elif tensors[module[part]].shape != shape:
                yield f"{module[part]} is {list(tensors[module[part]].shape)}, and it should be {list(shape)}"
        known = {*expected, *(f"{part}{BLOCK_SCALE}" for part in expected), "head"}
        yield from (f"{module[part]} is unexpected" for part in module if part not in known and not derived(part))
    for name in {layout.embed, *(module.get("head") for module in layout.modules)} - {None}:
        shape = tensors[str(name)].shape
        if len(shape) != 2 or shape[1] != H or shape[0] < layout.options.vocab_size:
            yield f"{name} is {list(shape)}, and it should be {[layout.options.vocab_size, H]}"


def derived(part: str) -> bool:
    """What older exports hold beside the weights: computed from the config, never read."""
    return part.endswith(DERIVED)


def module_tensors(layout: MtpLayout, index: int) -> Iterator[tuple[str, Shape]]:
    """What a module of this family must have: (part, shape)."""
    options, H = layout.options, layout.options.hidden
    for norm in ("embed_norm", "hidden_norm", "final_norm", "input_layernorm", "post_attention_layernorm"):
        yield f"{norm}.weight", (H,)
    yield "proj.weight", (H, 2 * H)
    yield from attention_tensors(options)
    if layout.sparse[index]:
        if options.experts is None:
            raise SpecError(f"{options.file} says nothing of experts, and an MTP module has them; fetch both again")
        yield from expert_tensors(options.experts, H, fused=layout.fused[index])
    else:
        yield from ffn_tensors("mlp", options.ffn, H)


def attention_tensors(options: MtpOptions) -> Iterator[tuple[str, Shape]]:
    """Matrices, biases and norms of the attention."""
    shape, H, name = options.attention, options.hidden, "self_attn"
    if isinstance(shape, LatentShape):
        yield from latent_tensors(shape, H, name)
        return
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    for part, width in (("q_proj", q * (1 + shape.gated)), ("k_proj", kv), ("v_proj", kv)):
        yield f"{name}.{part}.weight", (width, H)
        if shape.bias:
            yield f"{name}.{part}.bias", (width,)
    yield f"{name}.o_proj.weight", (H, q)
    if shape.output_bias:
        yield f"{name}.o_proj.bias", (H,)
    if shape.qk_norm:
        yield f"{name}.q_norm.weight", (shape.head_dim,)
        yield f"{name}.k_norm.weight", (shape.head_dim,)


def latent_tensors(shape: LatentShape, H: int, name: str) -> Iterator[tuple[str, Shape]]:
    """Those of latent attention."""
    q, wide = shape.heads * (shape.plain + shape.rotated), shape.kv_rank + shape.rotated
    if shape.q_rank is None:
        yield f"{name}.q_proj.weight", (q, H)
    else:
        yield f"{name}.q_a_proj.weight", (shape.q_rank, H)
        yield f"{name}.q_a_layernorm.weight", (shape.q_rank,)
        yield f"{name}.q_b_proj.weight", (q, shape.q_rank)
    yield f"{name}.kv_a_proj_with_mqa.weight", (wide, H)
    yield f"{name}.kv_a_layernorm.weight", (shape.kv_rank,)
    yield f"{name}.kv_b_proj.weight", (shape.heads * (shape.plain + shape.value), shape.kv_rank)
    yield f"{name}.o_proj.weight", (H, shape.heads * shape.value)
    if shape.bias:
        if shape.q_rank is not None:
            yield f"{name}.q_a_proj.bias", (shape.q_rank,)
        yield f"{name}.kv_a_proj_with_mqa.bias", (wide,)
        yield f"{name}.o_proj.bias", (H,)


def expert_tensors(shape: ExpertsShape, H: int, *, fused: bool) -> Iterator[tuple[str, Shape]]:
    """Router, experts and shared expert."""
    sigmoid = shape.scores == "sigmoid"
    yield "mlp.gate.weight", (shape.count, H)
    if sigmoid:
        yield "mlp.gate.e_score_correction_bias", (shape.count,)
    if fused:
        yield "mlp.experts.gate_up_proj", (shape.count, 2 * shape.width, H)
        yield "mlp.experts.down_proj", (shape.count, H, shape.width)
    else:
        for e in range(shape.count):
            yield from ffn_tensors(f"mlp.experts.{e}", shape.width, H)
    if shape.shared_width:
        yield from ffn_tensors("mlp.shared_experts" if sigmoid else "mlp.shared_expert", shape.shared_width, H)
        if not sigmoid:
            yield "mlp.shared_expert_gate.weight", (1, H)


def ffn_tensors(name: str, width: int, H: int) -> Iterator[tuple[str, Shape]]:
    """A gated feed-forward."""
    yield f"{name}.gate_proj.weight", (width, H)
    yield f"{name}.up_proj.weight", (width, H)
    yield f"{name}.down_proj.weight", (H, width)


def block_size(config: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns of an FP8 block, None where the config gives none."""
    sizes = Fields(config).sizes("quantization_config.weight_block_size") or []
    return (sizes[0], sizes[1]) if len(sizes) == 2 and min(sizes) > 0 else None


def storage_faults(layout: MtpLayout, checkpoint: Checkpoint) -> Iterator[str]:
    """Tensors stored in a way that codraft cannot read: anything but plain floats and FP8 in blocks with scales."""
    tensors = checkpoint.tensors
    for name in layout.stored():
        info = tensors[name]
        if name.endswith(BLOCK_SCALE) or (info.dtype in FLOATS and not is_packed(name)):
            continue
        scale = tensors.get(f"{name}{BLOCK_SCALE}")
        if info.dtype != BLOCK_DTYPE or scale is None or layout.block is None or len(info.shape) < 2:
            yield f"{name} is stored as {info.dtype}, and codraft reads modules in BF16, F16, F32 or FP8 blocks only"
            continue
        rows, columns = layout.block
        wanted = (*info.shape[:-2], ceil(info.shape[-2] / rows), ceil(info.shape[-1] / columns))
        if scale.shape != wanted:
            yield f"{scale.name} is {list(scale.shape)}, and blocks of {list(layout.block)} need {list(wanted)}"


def some(found: list[str]) -> str:
    """The first of these, and how many more there are."""
    more = f"; and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return "; ".join(shown(fault, 240) for fault in found[:MOST_NAMED]) + more


def listed(names: list[str]) -> str:
    """The first of these names."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
