"""Are all tensors there, in the shape and the format that the config says, and do they hold something?"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from codraft.core.inspection import Finding, Severity
from codraft.formats.heads.check import compare
from codraft.formats.heads.head import BORROWING_MECHANISMS, EMBED, HEAD
from codraft.formats.heads.layout import Expected, Shape, expected
from codraft.formats.heads.read import proven_head_dim
from codraft.formats.mtp import TOWER, modules, mtp_tensors
from codraft.formats.quantnames import (
    FLOATS,
    QUANTIZED,
    is_packed,
    is_scale,
    is_weight,
    stem,
)
from codraft.formats.safetensors import TensorInfo
from codraft.formats.source import HubSource
from codraft.formats.untrained import fault_of, look
from codraft.models.inspect.likeness import Faults, Trunk, both, model_faults, module_faults, read_trunk
from codraft.models.inspect.pair import (
    HeadModel,
    Model,
    Pair,
    Rule,
    Side,
    absent_evidence,
    listed,
    mtp_severity,
    tensor_evidence,
)
from codraft.models.quantization import read_quantization

MISSING = Rule(
    code="weights.missing",
    severity="error",
    varies="for a target's MTP module a warning where no method is asked for, a note where another drafts",
    title="Tensors that the mechanism needs are not in the files",
    consequence="Engines warn of tensors that are too many, not of those that are too few: what is missing stays "
    "random or zero, and acceptance is near 1.",
    fix="Export the checkpoint again with these tensors, or fetch the missing file.",
    seen="sgl-project/sglang#27908, vllm-project/vllm#35548",
)
UNEXPECTED = Rule(
    code="weights.unexpected",
    severity="warning",
    title="Tensors that this mechanism has no place for",
    consequence="An engine fails on the name or drops the tensor; where it is a wanted one under another name, what it "
    "stands for stays random.",
    fix="Compare the names with the family's layout; convert the checkpoint if it is of another family.",
    seen="vllm-project/vllm#11126",
)
SHAPE = Rule(
    code="weights.shape",
    severity="error",
    varies="for a target's MTP module a warning where no method is asked for, a note where another drafts",
    title="A tensor has another shape than the config says",
    consequence="Loading fails, or a slice is loaded and the rest stays random.",
    fix="Mend the config key that gives this size, or export the checkpoint again.",
    seen="SafeAILab/EAGLE#315, deepseek-ai/DeepSpec#44",
)
PACKED = Rule(
    code="weights.packed",
    severity="error",
    varies="for a target's MTP module a warning where no method is asked for, a note where another drafts",
    title="Packed quantized weights that the config does not declare",
    consequence="A loader that goes by names reads packed bytes as numbers: no error, nothing accepted.",
    fix="Declare the format in quantization_config, or store the tensor unquantized.",
    seen="kekzl/imp#1428, sgl-project/sglang#32440",
)
CONSTANT = Rule(
    code="weights.constant",
    severity="error",
    varies="for a target's MTP module a warning where no method is asked for, a note where another drafts",
    title="A matrix that holds one value everywhere",
    consequence="It was never trained, or the export wrote a placeholder: drafts carry no information.",
    fix="Export the checkpoint again from the trained state.",
    seen="lightseekorg/TorchSpec#38",
)
UNTRAINED = Rule(
    code="weights.untrained",
    severity="warning",
    title="Most matrices of a head look as they were initialised",
    consequence="Numbers drawn independently of one distribution say nothing of the target: hardly a draft is "
    "accepted.",
    fix="Export the checkpoint again from the trained state, or train it for longer: a few steps leave no trace.",
    seen="lightseekorg/TorchSpec#38",
)
NOT_FINITE = Rule(
    code="weights.not_finite",
    severity="error",
    varies="for a target's MTP module a warning where no method is asked for, a note where another drafts",
    title="A tensor that holds NaN or infinity",
    consequence="Logits become NaN: every draft is refused, or in some engines every draft is accepted and the text is "
    "garbage.",
    fix="Export the checkpoint again; look for the step at which training diverged.",
    seen="NVIDIA/TensorRT-LLM#5146",
)
SELECTOR = Rule(
    code="dflash2.selector",
    severity="note",
    title="A DFlash2 head, which loaders for DFlash take without its candidate selector",
    consequence="They fail on the convolutions and the selector, or drop both and draft noise. The selector also wants "
    "the target's output head unquantized.",
    fix="Serve it with an engine that names DFlash2 (vLLM's second model runner).",
    seen="vllm-project/vllm#52816, sgl-project/sglang#35371",
)
RULES = (MISSING, UNEXPECTED, SHAPE, PACKED, CONSTANT, UNTRAINED, NOT_FINITE, SELECTOR)

# Matrices looked into; each costs a few small reads, which are slow where they are requests.
MOST_SAMPLED, MOST_REQUESTED = 400, 24


def check(pair: Pair) -> Iterator[Finding]:
    """Models layer by layer, and heads tensor by tensor."""
    for model in pair.models():
        if isinstance(model, Model) and model.tensors:
            yield from check_model(pair, model)
    drafter = pair.drafter
    if isinstance(drafter, HeadModel) and drafter.tensors:
        yield from check_head(pair, drafter)


def check_head(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """A drafter's head."""
    wanted = expected(drafter.head)
    if wanted is not None:
        yield from check_layout(drafter, wanted)
    if drafter.head.mechanism == "mtp":
        target = pair.target
        trunk = read_trunk(target.tensors, len(target.arch.layers))
        faults = stored_modules(drafter.tensors, list(drafter.tensors), trunk, target)
        yield from report(faults, "drafter", "the module lacks", None)
    if drafter.head.mechanism == "dflash2":
        named = next((info for name, info in drafter.tensors.items() if name.startswith("candidate_selector.")), None)
        seen = drafter.key("architectures") if named is None else tensor_evidence("drafter", named)
        yield SELECTOR.found("a backbone of DFlash with convolutions and a candidate selector", seen)
    yield from check_values(drafter, list(drafter.tensors.values()), None)
    own = {name: info for name, info in drafter.tensors.items() if name not in (EMBED, HEAD)}
    fresh = look(drafter.checkpoint.source, own).untouched
    if fresh:
        shown = [tensor_evidence("drafter", own[name]) for name in fresh[:8]]
        yield UNTRAINED.found(f"{len(fresh)} matrices: {listed(fresh)}", *shown)


def check_model(pair: Pair, model: Model) -> Iterator[Finding]:
    """A language model: its layers beside each other and beside the config, and the MTP modules inside a target."""
    lost = model.checkpoint.lacks_files
    L = len(model.arch.layers)
    trunk = read_trunk(model.tensors, L)
    if not lost:
        yield from report(model_faults(model.tensors, trunk, model.arch), model.side, "the layers lack", None)
    held = mtp_tensors(model.tensors, L) if model.side == "target" else []
    yield from check_undeclared(pair, model, set(held))
    if model.side == "drafter":
        yield from check_values(model, spread(model), None)
    elif held and not (pair.head is not None and pair.head.mechanism == "mtp"):
        severity = mtp_severity(pair)
        if not lost and modules(held):
            yield from report(
                stored_modules(model.tensors, held, trunk, model), "target", "the MTP module lacks", severity
            )
        # Nothing is read of a module that does not draft.
        if severity != "note":
            yield from check_values(model, [model.tensors[name] for name in held if ".experts." not in name], severity)


def stored_modules(tensors: Mapping[str, TensorInfo], names: Sequence[str], trunk: Trunk, target: Model) -> Faults:
    """What the MTP modules among these tensors lack, which are built like the target's layers."""
    found = modules(names)
    if not found:
        return Faults(["mtp_layers.0.input_proj.weight"])
    faults = Faults()
    for module in found:
        faults = both(faults, module_faults(module, tensors, trunk, target.arch))
    return faults


def report(faults: Faults, side: Side, lacks: str, severity: Severity | None) -> Iterator[Finding]:
    """Missing and misshapen tensors in words."""
    if faults.missing:
        yield MISSING.found(
            f"{len(faults.missing)} missing, {lacks} {listed(faults.missing)}",
            *(absent_evidence(side, "*.safetensors", name) for name in faults.missing[:8]),
            severity=severity,
        )
    if faults.misshapen:
        words = [shape_words(info, shape, "and it should be") for info, shape in faults.misshapen]
        yield SHAPE.found(
            listed(words), *(tensor_evidence(side, info) for info, _ in faults.misshapen[:8]), severity=severity
        )


def shape_words(info: TensorInfo, shape: Shape, but: str) -> str:
    """A tensor's shape beside the one it should have."""
    turned = " (it is the transpose)" if info.shape == shape[::-1] else ""
    return f"{info.name} is {list(info.shape)}, {but} {list(shape)}{turned}"


def check_undeclared(pair: Pair, model: Model, inside: Collection[str]) -> Iterator[Finding]:
    """Quantized weights of a model that declares no quantization; `inside` are those of a target's MTP modules."""
    if model.arch.quantization is not None:
        return
    found = [
        info
        for name, info in model.tensors.items()
        if info.dtype in QUANTIZED and is_weight(name) and len(info.shape) > 1 and not TOWER.search(name)
    ]
    # A drafter's weights that have scales are judged with its quantization.
    scaled = {stem(name) for name in model.tensors if is_scale(name)} if found and model.side == "drafter" else set()
    found = [info for info in found if stem(info.name) not in scaled]
    if not found:
        return
    module = all(info.name in inside for info in found)
    own_file = pair.head is not None and pair.head.mechanism == "mtp"
    where = "of the MTP module" if module else f"of the {model.side}"
    yield PACKED.found(
        f"{len(found)} tensors {where} are not floats, and the config has no quantization_config: "
        + listed([f"{info.name} is {info.dtype} {list(info.shape)}" for info in found]),
        *(tensor_evidence(model.side, info) for info in found[:8]),
        severity=("note" if own_file else mtp_severity(pair)) if module else None,
    )


def check_layout(drafter: HeadModel, wanted: Sequence[Expected]) -> Iterator[Finding]:
    """Missing, unexpected and misshapen tensors of a head."""
    faults = compare(wanted, drafter.tensors)
    # These have findings of their own, with the reason.
    told = ("d2t", "t2d", *(("lm_head.weight",) if drafter.head.mechanism in BORROWING_MECHANISMS else ()))
    missing = [as_written(name, drafter) for name in faults.missing if name not in told]
    if missing:
        yield MISSING.found(
            f"{len(missing)} missing: {listed(missing)}",
            *(absent_evidence("drafter", "*.safetensors", name) for name in missing[:8]),
        )
    surplus = [drafter.tensors[name] for name in faults.unexpected]
    if surplus:
        yield UNEXPECTED.found(
            f"{len(surplus)} unexpected: {listed([info.name for info in surplus])}",
            *(tensor_evidence("drafter", info) for info in surplus[:8]),
        )
    yield from check_shapes(drafter, {item.name: item for item in wanted})


def check_shapes(drafter: HeadModel, by_name: Mapping[str, Expected]) -> Iterator[Finding]:
    """Shapes and element types; what other checks explain with a reason is left to them."""
    quantized = read_quantization(drafter.config, drafter.head.text) is not None
    scaled = {stem(name) for name in drafter.tensors if is_scale(name) or is_packed(name)}
    packed: list[TensorInfo] = []
    misshapen: list[tuple[TensorInfo, Shape]] = []
    for name, info in drafter.tensors.items():
        item = by_name.get(name)
        if item is None or item.shape is None or name in ("d2t", "t2d"):
            continue
        if info.dtype not in FLOATS:
            if not quantized and stem(name) not in scaled:
                packed.append(info)
        elif info.shape != item.shape and not explained(name, info.shape, item.shape, drafter):
            misshapen.append((info, item.shape))
    if packed:
        yield PACKED.found(
            f"{len(packed)} tensors are not floats and have no scales, and the config has no quantization_config: "
            + listed([f"{info.name} is {info.dtype} {list(info.shape)}" for info in packed]),
            *(tensor_evidence("drafter", info) for info in packed[:8]),
        )
    if misshapen:
        words = [shape_words(info, shape, "and the config gives") for info, shape in misshapen]
        yield SHAPE.found(listed(words), *(tensor_evidence("drafter", info) for info, _ in misshapen[:8]))


def explained(name: str, found: Shape, wanted: Shape, drafter: HeadModel) -> bool:
    """Whether only a size differs that another check judges: the input of fc, the rows of the head, the doubled input
    of EAGLE-3's attention, the width of a head."""
    if len(found) != len(wanted):
        return False
    if name == "fc.weight":
        return found[0] == wanted[0]
    if name in ("lm_head.weight", "embed_tokens.weight") and drafter.head.vocab_size is None:
        return True
    if name == "lm_head.weight":
        return found[1] == wanted[1]
    if ".self_attn." not in name:
        return False
    q = drafter.tensors.get("layers.0.self_attn.q_proj.weight")
    width = (
        q.shape[1] if q is not None and len(q.shape) == 2 and drafter.head.mechanism in ("eagle3", "peagle") else None
    )
    inputs = name.startswith("layers.0.") and len(found) == 2 and found[1] == width != wanted[1]
    return inputs or proven_head_dim(drafter.head, drafter.tensors) not in (None, drafter.head.geometry.head_dim)


def as_written(name: str, drafter: HeadModel) -> str:
    """A tensor's name in the way of this file."""
    midlayer = any("midlayer." in info.name for info in drafter.tensors.values())
    return name.replace("layers.0.", "midlayer.", 1) if midlayer and name.startswith("layers.0.") else name


def spread(model: Model) -> list[TensorInfo]:
    """A model's matrices without its experts, as many as are looked into: both ends, then evenly over the layers."""
    found = [
        info
        for name, info in model.tensors.items()
        if info.dtype in FLOATS and len(info.shape) == 2 and ".experts." not in name and not TOWER.search(name)
    ]
    found.sort(key=lambda info: (not info.name.endswith(("embed_tokens.weight", "lm_head.weight")), info.name))
    step = -(-len(found) // most_sampled(model)) or 1
    return found[::step]


def most_sampled(model: Model | HeadModel) -> int:
    """Matrices that are looked into."""
    return MOST_REQUESTED if isinstance(model.checkpoint.source, HubSource) else MOST_SAMPLED


def check_values(
    model: Model | HeadModel, tensors: Sequence[TensorInfo], severity: Severity | None
) -> Iterator[Finding]:
    """Norms, and a few bytes of every matrix: constant, or not finite."""
    source = model.checkpoint.source
    floats = [info for info in tensors if len(info.shape) in (1, 2) and info.dtype in FLOATS]
    matrices = [info for info in floats if len(info.shape) == 2]
    constant: list[TensorInfo] = []
    broken: list[TensorInfo] = []
    for info in sorted(floats, key=lambda info: -info.num_elements)[: most_sampled(model)]:
        fault = fault_of(source, info)
        if fault == "not finite":
            broken.append(info)
        # A row alone, as in a confidence head, decides no draft.
        elif fault is not None and len(info.shape) == 2 and min(info.shape) > 1:
            constant.append(info)
    if broken:
        yield NOT_FINITE.found(
            f"{len(broken)} of {len(floats)} tensors hold NaN or infinity: {listed([i.name for i in broken])}",
            *(tensor_evidence(model.side, info) for info in broken[:8]),
            severity=severity,
        )
    if constant:
        yield CONSTANT.found(
            f"{len(constant)} of {len(matrices)} matrices: {listed([i.name for i in constant])}",
            *(tensor_evidence(model.side, info) for info in constant[:8]),
            severity=severity,
        )
