"""Layers of one kind hold the same tensors: what one lacks beside its like, and beside what the config says of it."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from codraft.formats.mtp import TOWER, Module, in_namespace
from codraft.formats.quantnames import EIGHT_BIT_FLOATS, FLOATS, PACKED_ENDS, WEIGHT_NAMES, is_rebuilt, is_scale
from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import Architecture, Attention, Layer

Shape = tuple[int, ...]
# The parts of a layer by what they are called in it, with the shape of those that have one element for each weight.
Parts = Mapping[str, Shape | None]

PLACED = re.compile(r"^((?:.*?\.)?(?:layers|h|blocks|layer|block))\.([0-9]{1,6})\.(.+)$")
FEEDFORWARD = re.compile(
    r"(^|\.)(\w*mlp\w*|\w*ffn\w*|feed_?forward\w*|\w*moe\w*|\w*expert\w*|fc\d|w\d|router|gate)(\.|$)"
)
NORM = re.compile(r"(^|\.)\w*(norm|ln)\w*(\.|$)")
# Families that prune single layers, each to a size of its own, and say so in no list of layers.
PRUNED = ("decilm", "deci", "nemotron-nas", "nemotron_nas")
# A layer is the odd one where this share of its kind agrees, and there are this many.
AGREEING, FEWEST = 0.75, 4
NORMS = ("input_layernorm", "post_attention_layernorm")
PROJECTIONS = {"q_proj", "k_proj", "v_proj", "o_proj"}


@dataclass(slots=True)
class Faults:
    """Tensors that should be there, and those of another shape than they should have."""

    missing: list[str] = field(default_factory=list)
    misshapen: list[tuple[TensorInfo, Shape]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Trunk:
    """The decoder's layers: parts of each by its number, the tensors behind them, and the prefix of all."""

    prefix: str
    layers: Mapping[int, Mapping[str, TensorInfo]]
    parts: Mapping[int, Parts]


def read_trunk(tensors: Mapping[str, TensorInfo], num_layers: int) -> Trunk:
    """The layers below `num_layers` under the prefix that most of them have. Numbered experts are left out: they are
    nearly all of a large model's tensors, and their number is compared elsewhere."""
    by_prefix: dict[str, dict[int, dict[str, TensorInfo]]] = {}
    for name, info in tensors.items():
        if name.partition(".experts.")[2][:1].isdecimal():
            continue
        match = PLACED.match(name)
        if match is not None and int(match[2]) < num_layers:
            by_prefix.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = info
    own = {key: found for key, found in by_prefix.items() if not in_namespace(f"{key}.") and not TOWER.search(key)}
    prefix = max(own, key=lambda key: (len(own[key]), -len(key)), default="")
    layers = own.get(prefix, {})
    return Trunk(prefix, layers, {i: parts_of(found) for i, found in layers.items()})


def parts_of(tensors: Mapping[str, TensorInfo]) -> dict[str, Shape | None]:
    """A layer's parts: weights by their module, quantized or not, biases and single tensors by name."""
    found: dict[str, Shape | None] = {}
    for name, info in tensors.items():
        if is_scale(name) or is_rebuilt(f".{name}"):
            continue
        before, _, last = name.rpartition(".")
        shape = info.shape if plain(info) else None
        if last in WEIGHT_NAMES:
            found[before] = shape if last == "weight" else None
        else:
            found[next((name.removesuffix(end) for end in PACKED_ENDS if name.endswith(end)), name)] = shape
    return found


def tensor_of(tensors: Mapping[str, TensorInfo], part: str) -> TensorInfo | None:
    """The tensor behind a part that has a shape."""
    return tensors.get(f"{part}.weight") or tensors.get(part)


def absent(part: str, here: Parts) -> bool:
    """Whether a layer has no such module. Formats of quantized weights give it several tensors under any names, and
    layers that are left out have one: of these names none is missing."""
    if part in here or any(other.startswith(f"{part}.") for other in here):
        return False
    ends = [i for i, c in enumerate(part) if c == "."]
    return not any(part[:end] in here for end in ends)


def uneven(trunk: Trunk, arch: Architecture) -> Faults:
    """What single layers lack or have in another shape than nearly all layers of their kind."""
    faults = Faults()
    if arch.model_type in PRUNED or "block_configs" in arch.text:
        return faults
    kinds: dict[Layer, list[int]] = {}
    last = max(trunk.parts, default=-1)
    for i, layer in enumerate(arch.layers[: last + 1]):
        kinds.setdefault(layer, []).append(i)
    for numbers in kinds.values():
        if len(numbers) < FEWEST:
            continue
        usual = Counter(part for i in numbers for part in trunk.parts.get(i, {}))
        common = [part for part, count in usual.items() if AGREEING * len(numbers) <= count]
        for i in numbers:
            here = trunk.parts.get(i, {})
            gone = [part for part in common if part not in here]
            if arch.quantization is not None:
                gone = [part for part in gone if absent(part, here)]
            faults.missing += [written(trunk, i, part) for part in gone]
        for part in common:
            faults.misshapen += odd_shapes(trunk, numbers, part)
    return faults


def odd_shapes(trunk: Trunk, numbers: Sequence[int], part: str) -> Iterator[tuple[TensorInfo, Shape]]:
    """Tensors of a part whose shape is not the one that nearly all layers have."""
    shapes = {i: shape for i in numbers if (shape := trunk.parts.get(i, {}).get(part)) is not None}
    if len(set(shapes.values())) < 2:
        return
    shape, count = Counter(shapes.values()).most_common(1)[0]
    if count < AGREEING * len(numbers):
        return
    for i, found in shapes.items():
        info = tensor_of(trunk.layers[i], part)
        if found != shape and info is not None:
            yield info, shape


def written(trunk: Trunk, i: int, part: str) -> str:
    """A part's tensor as it would be called, with the ending that another layer's has."""
    names = {name for layer in trunk.layers.values() for name in (part, *(f"{part}.{w}" for w in WEIGHT_NAMES))
             if name in layer}  # fmt: skip
    name = part if part in names else next((n for n in sorted(names, reverse=True)), f"{part}.weight")
    return f"{trunk.prefix}.{i}.{name}"


def unlike_config(trunk: Trunk, arch: Architecture) -> Faults:
    """What layers with Llama's names lack, or have in another shape than the config says."""
    faults = Faults()
    if not arch.countable or arch.model_type in PRUNED or "block_configs" in arch.text:
        return faults
    for i, layer in enumerate(arch.layers):
        if i not in trunk.parts:
            continue
        here = trunk.parts[i]
        faults.missing += [f"{trunk.prefix}.{i}.{part}.weight" for part in lacking(here, layer, arch)]
        for part, shape in stated(layer, arch).items():
            info = tensor_of(trunk.layers[i], part)
            found = here.get(part)
            if found is not None and info is not None and len(found) == 2 and found not in shape:
                faults.misshapen.append((info, shape[0]))
    return faults


def ends(tensors: Mapping[str, TensorInfo], trunk: Trunk, arch: Architecture) -> Faults:
    """Embedding, last norm and output head of a model with Llama's names."""
    faults = Faults()
    base = trunk.prefix.removesuffix("layers")
    llama = any(part.startswith("self_attn.") for parts in trunk.parts.values() for part in parts)
    if base == trunk.prefix or not llama or not arch.countable:
        return faults
    outer = [name for name in tensors if name.startswith(base) and not name.startswith(trunk.prefix)]
    if not any("embed" in name for name in outer):
        faults.missing.append(f"{base}embed_tokens.weight")
    if arch.style.final_norm and arch.style.norm_vectors and not any(NORM.search(name) for name in outer):
        faults.missing.append(f"{base}norm.weight")
    table, head = tensors.get(f"{base}embed_tokens.weight"), tensors.get("lm_head.weight")
    if table is None or head is None or table.shape != (arch.vocab_size, arch.hidden) or not plain(table):
        return faults
    if plain(head) and len(head.shape) == 2 and head.shape[1] != arch.hidden:
        faults.misshapen.append((head, table.shape))
    return faults


def lacking(here: Parts, layer: Layer, arch: Architecture) -> list[str]:
    """Projections that a layer with Llama's names cannot do without."""
    found: list[str] = []
    matrices = [part for part, shape in here.items() if shape is None or len(shape) > 1]
    mixing = [part for part in matrices if not FEEDFORWARD.search(part)]
    feeding = [part for part in matrices if FEEDFORWARD.search(part)]
    if layer.attention is not None and layer.compressed is None:
        own = {part.removeprefix("self_attn.") for part in mixing if part.startswith("self_attn.")}
        # A bare layer can still be told by the names of its FFN.
        llama = "mlp.down_proj" in here and not mixing
        if llama or (own and own <= PROJECTIONS):
            found += [f"self_attn.{name}" for name in needed(layer.attention) if name not in own]
    if layer.ffn == "dense" and layer.width is not None:
        own = {part.removeprefix("mlp.") for part in feeding if part.startswith("mlp.")}
        llama = any(part.startswith("self_attn.q_proj") for part in mixing) and not feeding
        names = ("gate_proj", "up_proj", "down_proj") if arch.style.gated else ("up_proj", "down_proj")
        if llama or (own and own <= set(names)):
            found += [f"mlp.{name}" for name in names if name not in own]
    norms = [part for part in here if direct_norm(part)]
    if norms and len(norms) < arch.style.norms and set(norms) <= set(NORMS) and arch.style.norm_vectors:
        found += [name for name in NORMS if name not in norms]
    return found


def needed(attention: Attention) -> Iterator[str]:
    """The projections of an attention layer; layers that read another's cache have no keys and values."""
    yield "q_proj"
    if attention.cached:
        yield "k_proj"
        if not attention.shared_projection:
            yield "v_proj"
    yield "o_proj"


def stated(layer: Layer, arch: Architecture) -> dict[str, tuple[Shape, ...]]:
    """Shapes that the config gives to a layer's matrices under Llama's names, the usual one first."""
    found: dict[str, tuple[Shape, ...]] = {}
    a, hidden = layer.attention, arch.hidden
    if a is not None and layer.compressed is None:
        q, v = a.num_heads * a.head_dim, a.num_heads * a.value_dim
        # A gate on the output may lie in the queries' matrix.
        found["self_attn.q_proj"] = (
            ((q, hidden),) if arch.style.query_gate == "none" else ((q, hidden), (2 * q, hidden))
        )
        found["self_attn.k_proj"] = ((a.num_kv_heads * a.head_dim, hidden),)
        found["self_attn.v_proj"] = ((a.num_kv_heads * a.value_dim, hidden),)
        found["self_attn.o_proj"] = ((hidden, v),)
    if layer.ffn == "dense" and layer.width is not None:
        found["mlp.gate_proj"] = found["mlp.up_proj"] = ((layer.width, hidden),)
        found["mlp.down_proj"] = ((hidden, layer.width),)
    return found


def both(*faults: Faults) -> Faults:
    """Lists of faults as one, each fault once."""
    missing = list(dict.fromkeys(name for one in faults for name in one.missing))
    misshapen = {info.name: (info, shape) for one in faults for info, shape in one.misshapen}
    return Faults(missing, list(misshapen.values()))


def model_faults(tensors: Mapping[str, TensorInfo], trunk: Trunk, arch: Architecture) -> Faults:
    """What a model lacks by the likeness of its layers, by its config, and at its ends."""
    return both(uneven(trunk, arch), unlike_config(trunk, arch), ends(tensors, trunk, arch))


def module_faults(module: Module, target: Mapping[str, TensorInfo], trunk: Trunk, arch: Architecture) -> Faults:
    """What an MTP module lacks: its norms, and in each decoder layer what the trunk's layers have."""
    faults = Faults(module.missing())
    for name in module.parts:
        info, part = target[name], name.removesuffix(".weight")
        if not name.endswith(".weight") or not plain(info):
            continue
        wanted: Shape | None = None
        if f".{module.join}." in f".{name}":
            wanted = (arch.hidden, 2 * arch.hidden)
        elif NORM.search(part.rpartition(".")[2]) and len(info.shape) == 1:
            wanted = (arch.hidden,)
        if wanted is not None and info.shape != wanted:
            faults.misshapen.append((info, wanted))
    if not module.layers:
        shown = module.at.rpartition(f"{module.join}.")[0]
        faults.missing.append(f"{shown}self_attn.*")
    for i, (path, names) in enumerate(module.layers.items()):
        own = {part: target[name] for part, name in names.items()}
        compared = layer_faults(path, own, trunk, candidates(arch, i, len(module.layers)))
        faults = both(faults, compared)
    return faults


def plain(info: TensorInfo) -> bool:
    """Whether the shape is the weight's own."""
    return info.dtype in FLOATS or info.dtype in EIGHT_BIT_FLOATS


def candidates(arch: Architecture, i: int, count: int) -> list[int]:
    """Layers of the trunk that a module's layer `i` of `count` may be built like."""
    if len(arch.mtp) == count and count > 1:
        same = [
            n for n, layer in enumerate(arch.layers) if (layer.mixer, layer.ffn) == (arch.mtp[i].mixer, arch.mtp[i].ffn)
        ]
        return same or list(range(len(arch.layers)))
    attending = [n for n, layer in enumerate(arch.layers) if layer.attention is not None or layer.mla is not None]
    return attending or list(range(len(arch.layers)))


def layer_faults(path: str, own: Mapping[str, TensorInfo], trunk: Trunk, like: Iterable[int]) -> Faults:
    """A module's decoder layer beside the layer of the trunk that it is most like. Attention and norms must agree; of
    the FFN only that there is one, and that no matrix of it lacks."""
    here = parts_of(own)
    best: Faults | None = None
    seen: set[tuple[tuple[str, Shape | None], ...]] = set()
    for n in like:
        there = trunk.parts.get(n)
        if there is None or (key := tuple(sorted(there.items(), key=lambda item: item[0]))) in seen:
            continue
        seen.add(key)
        faults = beside(path, here, own, there)
        if best is None or len(faults.missing) + len(faults.misshapen) < len(best.missing) + len(best.misshapen):
            best = faults
    return best or Faults()


def beside(path: str, here: Parts, own: Mapping[str, TensorInfo], there: Parts) -> Faults:
    """One layer against another of the same kind."""
    faults = Faults()
    mixing = {part for part in there if not FEEDFORWARD.search(part) and not direct_norm(part)}
    norms = [part for part in there if direct_norm(part)]
    held = [part for part in here if direct_norm(part)]
    feeding = {part for part in there if FEEDFORWARD.search(part)}
    # An attention under names of its own is another one, and nothing can be said of it.
    ours = {part for part in here if not FEEDFORWARD.search(part) and not direct_norm(part)}
    gone = {part for part in mixing if absent(part, here)}
    if not ours or ours & mixing:
        faults.missing += [f"{path}.{part}" if "." not in part else f"{path}.{part}.weight" for part in sorted(gone)]
    if len(held) < len(norms):
        faults.missing += [f"{path}.{part}.weight" for part in norms if part not in here][: len(norms) - len(held)]
    if feeding and not any(FEEDFORWARD.search(part) for part in here):
        faults.missing += [f"{path}.{part}.weight" for part in sorted(feeding) if ".experts" not in part]
    elif feeding & here.keys():
        dense = {part for part in feeding if ".experts" not in part and "shared" not in part}
        faults.missing += [
            f"{path}.{part}.weight" for part in sorted(dense) if absent(part, here) and dense & here.keys()
        ]
    for part, shape in there.items():
        info = tensor_of(own, part)
        comparable = shape is not None and info is not None and here.get(part) is not None
        if comparable and here[part] != shape and not FEEDFORWARD.search(part):
            faults.misshapen.append((info, shape))  # type: ignore[arg-type]
    return faults


def direct_norm(part: str) -> bool:
    """Whether a part is a norm of the layer itself, not of its attention."""
    return "." not in part and NORM.search(part) is not None
