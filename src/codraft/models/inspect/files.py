"""Are the weight files there, and does their index name all of them?"""

from collections.abc import Iterator

from codraft.core.inspection import Finding
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.quantnames import is_rebuilt
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, absent_evidence, listed

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
RULES = (NONE, PICKLED, ABSENT_FILE, ABSENT_TENSOR, UNLISTED, DUPLICATED)


def check(pair: Pair) -> Iterator[Finding]:
    """Both models' files."""
    for model in pair.models():
        yield from check_model(model)


def check_model(model: Model | HeadModel) -> Iterator[Finding]:
    """What the folder holds against its index."""
    point, side = model.checkpoint, model.side
    index = point.index
    absent = [] if index is None else index.absent_files
    # With nothing but small files beside the index somebody may have fetched these only.
    lost = absent and (point.tensors or point.pickled or (index is not None and index.unlisted_files))
    if not point.tensors and not lost:
        rule = PICKLED if point.pickled else NONE
        yield rule.found(f"the {side}'s weights: {held(point)}", absent_evidence(side, "*.safetensors", "weights"))
    if point.duplicated:
        yield DUPLICATED.found(
            f"{listed(point.duplicated)}", absent_evidence(side, "*.safetensors", point.duplicated[0])
        )
    if index is None:
        return
    if lost:
        yield ABSENT_FILE.found(
            f"{listed(absent)} of the {side}", *(absent_evidence(side, index.file, name) for name in absent[:4])
        )
    if index.absent_tensors:
        yield ABSENT_TENSOR.found(
            f"{listed(index.absent_tensors)} of the {side}",
            *(absent_evidence(side, index.file, name) for name in index.absent_tensors[:4]),
        )
    # Mistral's own format, the same weights once more.
    files = [name for name in index.unlisted_files if not name.startswith("consolidated")]
    names = [*files, *(name for name in index.unlisted_tensors if not is_rebuilt(name))]
    if names:
        yield UNLISTED.found(
            f"{listed(names)} of the {side}", *(absent_evidence(side, index.file, name) for name in names[:4])
        )


def held(point: Checkpoint) -> str:
    """What there is instead of tensors."""
    if point.pickled:
        return f"only {listed(point.pickled)}"
    if point.files:
        return f"{listed(point.files)} holds no tensor"
    return "only the config was found" if point.index is None else f"only the config and {point.index.file} were found"
