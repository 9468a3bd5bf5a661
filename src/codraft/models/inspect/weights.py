"""Are all tensors there, in the shape and the format that the config says, and do they hold something?"""

from collections.abc import Iterator, Mapping, Sequence

from codraft.core.inspection import Finding
from codraft.formats.heads.layout import Expected, Shape, expected, is_scale
from codraft.formats.safetensors import TensorInfo
from codraft.models.inspect.attention import proven_head_dim
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, absent_evidence, listed, tensor_evidence
from codraft.models.inspect.values import constant_value
from codraft.models.quantization import read_quantization

NONE = Rule(
    code="weights.none",
    severity="note",
    title="No weight file is there",
    consequence="Nothing that only tensors can show was checked: sizes, missing and misshapen tensors, maps, values.",
    fix="Point to the folder or hub id with the safetensors files; headers are enough.",
)
PICKLED = Rule(
    code="weights.pickled",
    severity="warning",
    title="Weights in pickle format only",
    consequence="A pickle runs code when it is opened, so codraft does not read it, and some engines refuse it.",
    fix="Save the weights as safetensors.",
)
MISSING = Rule(
    code="weights.missing",
    severity="error",
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
    title="A tensor has another shape than the config says",
    consequence="Loading fails, or a slice is loaded and the rest stays random.",
    fix="Mend the config key that gives this size, or export the checkpoint again.",
    seen="SafeAILab/EAGLE#315, deepseek-ai/DeepSpec#44",
)
PACKED = Rule(
    code="weights.packed",
    severity="error",
    title="Packed quantized weights that the config does not declare",
    consequence="A loader that goes by names reads packed bytes as numbers: no error, nothing accepted.",
    fix="Declare the format in quantization_config, or store the tensor unquantized.",
    seen="kekzl/imp#1428, sgl-project/sglang#32440",
)
CONSTANT = Rule(
    code="weights.constant",
    severity="error",
    title="A matrix that holds one value everywhere",
    consequence="It was never trained, or the export wrote a placeholder: drafts carry no information.",
    fix="Export the checkpoint again from the trained state.",
    seen="lightseekorg/TorchSpec#38",
)
NOT_FINITE = Rule(
    code="weights.not_finite",
    severity="error",
    title="A matrix that holds NaN or infinity",
    consequence="Logits become NaN: every draft is refused, or in some engines every draft is accepted and the text is "
    "garbage.",
    fix="Export the checkpoint again; look for the step at which training diverged.",
    seen="NVIDIA/TensorRT-LLM#5146",
)
ABSENT_FILE = Rule(
    code="index.absent_file",
    severity="error",
    title="The index names weight files that are not there",
    consequence="Loading fails, or leaves the tensors of that file random.",
    fix="Fetch the missing files.",
)
ABSENT_TENSOR = Rule(
    code="index.absent_tensor",
    severity="error",
    title="The index names tensors that their file does not hold",
    consequence="Loading fails, or leaves them random.",
    fix="Write the index again from the headers, or fetch the file again.",
)
UNLISTED = Rule(
    code="index.unlisted",
    severity="warning",
    title="Weights that the index does not name",
    consequence="Engines that go by the index never see them, and start all the same.",
    fix="Add them to the weight_map of model.safetensors.index.json.",
    seen="sgl-project/sglang#17166, NVIDIA/Model-Optimizer#792",
)
DUPLICATED = Rule(
    code="weights.duplicated",
    severity="warning",
    title="Tensors that stand in two files",
    consequence="Which one is loaded depends on the order of the files.",
    fix="Keep one of them.",
)
RULES = (
    NONE, PICKLED, MISSING, UNEXPECTED, SHAPE, PACKED, CONSTANT, NOT_FINITE, ABSENT_FILE, ABSENT_TENSOR, UNLISTED,
    DUPLICATED,
)  # fmt: skip

FLOATS = ("F64", "F32", "F16", "BF16")
# What a weight is called, quantized or not; scales beside a weight do not stand for it.
WEIGHTS = ("weight", "qweight", "weight_packed", "base_kernel")
HARMLESS = (".inv_freq", "attention.bias", "attn.masked_bias", ".k_scale", ".v_scale", ".q_scale", ".prob_scale")
# Matrices looked into; each costs a few small reads.
MOST_SAMPLED = 24


def check(pair: Pair) -> Iterator[Finding]:
    """Files, then the drafter's tensors one by one."""
    for model in pair.models():
        yield from check_files(model)
    drafter = pair.drafter
    if isinstance(drafter, HeadModel) and drafter.tensors:
        wanted = expected(drafter.head)
        if wanted is not None:
            yield from check_layout(drafter, wanted)
        yield from check_values(drafter)


def check_files(model: Model | HeadModel) -> Iterator[Finding]:
    """What the folder holds against its index."""
    point, side = model.checkpoint, model.side
    if not point.tensors:
        rule = PICKLED if point.pickled else NONE
        what = f"only {listed(point.pickled)}" if point.pickled else "only the config was found"
        yield rule.found(f"the {side}'s weights: {what}", absent_evidence(side, "*.safetensors", "weights"))
    if point.duplicated:
        yield DUPLICATED.found(
            f"{listed(point.duplicated)}", absent_evidence(side, "*.safetensors", point.duplicated[0])
        )
    index = point.index
    if index is None:
        return
    # With nothing but the index somebody may have fetched the small files only.
    if index.absent_files and (point.tensors or index.unlisted_files):
        yield ABSENT_FILE.found(
            f"{listed(index.absent_files)} of the {side}",
            *(absent_evidence(side, index.file, name) for name in index.absent_files[:4]),
        )
    if index.absent_tensors:
        yield ABSENT_TENSOR.found(
            f"{listed(index.absent_tensors)} of the {side}",
            *(absent_evidence(side, index.file, name) for name in index.absent_tensors[:4]),
        )
    # Mistral's own format, the same weights once more.
    files = [name for name in index.unlisted_files if not name.startswith("consolidated")]
    names = [*files, *(name for name in index.unlisted_tensors if not harmless(name))]
    if names:
        yield UNLISTED.found(
            f"{listed(names)} of the {side}", *(absent_evidence(side, index.file, name) for name in names[:4])
        )


def check_layout(drafter: HeadModel, wanted: Sequence[Expected]) -> Iterator[Finding]:
    """Missing, unexpected and misshapen tensors of a head."""
    by_name = {item.name: item for item in wanted}
    held = {stem(name) for name in drafter.tensors if name.rpartition(".")[2] in WEIGHTS}
    missing = [
        item.name
        for item in wanted
        if item.required
        and item.name not in drafter.tensors
        and not (item.name.endswith(".weight") and stem(item.name) in held)
    ]
    # These have findings of their own, with the reason.
    explained = ("lm_head.weight", "d2t", "t2d", "embed_tokens.weight")
    missing = [as_written(name, drafter) for name in missing if name not in explained]
    if missing:
        yield MISSING.found(
            f"{len(missing)} missing: {listed(missing)}",
            *(absent_evidence("drafter", "*.safetensors", name) for name in missing[:8]),
        )
    surplus = [
        info
        for name, info in drafter.tensors.items()
        if name not in by_name and not (is_scale(name) and stem(name) + ".weight" in by_name) and not harmless(name)
    ]
    if surplus:
        yield UNEXPECTED.found(
            f"{len(surplus)} unexpected: {listed([info.name for info in surplus])}",
            *(tensor_evidence("drafter", info) for info in surplus[:8]),
        )
    yield from check_shapes(drafter, by_name)


def check_shapes(drafter: HeadModel, by_name: Mapping[str, Expected]) -> Iterator[Finding]:
    """Shapes and element types; what other checks explain with a reason is left to them."""
    quantized = read_quantization(drafter.config, drafter.head.text) is not None
    scaled = {stem(name) for name in drafter.tensors if is_scale(name)}
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
        words = [
            f"{info.name} is {list(info.shape)}, and the config gives {list(shape)}"
            + (" (it is the transpose)" if info.shape == shape[::-1] else "")
            for info, shape in misshapen
        ]
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
    width = q.shape[1] if q is not None and len(q.shape) == 2 and drafter.head.mechanism == "eagle3" else None
    inputs = name.startswith("layers.0.") and len(found) == 2 and found[1] == width != wanted[1]
    return inputs or proven_head_dim(drafter) not in (None, drafter.head.geometry.head_dim)


def as_written(name: str, drafter: HeadModel) -> str:
    """A tensor's name in the way of this file."""
    midlayer = any("midlayer." in info.name for info in drafter.tensors.values())
    return name.replace("layers.0.", "midlayer.", 1) if midlayer and name.startswith("layers.0.") else name


def stem(name: str) -> str:
    """The module of a tensor."""
    return name.rpartition(".")[0]


def harmless(name: str) -> bool:
    """Buffers that are rebuilt anyway, and scales of a quantized cache."""
    return "rotary_emb" in name or name.endswith(HARMLESS)


def check_values(drafter: HeadModel) -> Iterator[Finding]:
    """A few bytes of every matrix: constant, or not finite."""
    source = drafter.checkpoint.source
    matrices = [info for info in drafter.tensors.values() if len(info.shape) == 2 and info.dtype in FLOATS]
    constant: list[TensorInfo] = []
    broken: list[TensorInfo] = []
    for info in sorted(matrices, key=lambda info: -info.num_elements)[:MOST_SAMPLED]:
        value = constant_value(source, info)
        if value == "not finite":
            broken.append(info)
        # A row alone, as in a confidence head, decides no draft.
        elif value is not None and min(info.shape) > 1:
            constant.append(info)
    if broken:
        yield NOT_FINITE.found(
            f"{len(broken)} of {len(matrices)} matrices hold NaN or infinity: {listed([i.name for i in broken])}",
            *(tensor_evidence("drafter", info) for info in broken[:8]),
        )
    if constant:
        yield CONSTANT.found(
            f"{len(constant)} of {len(matrices)} matrices: {listed([i.name for i in constant])}",
            *(tensor_evidence("drafter", info) for info in constant[:8]),
        )
