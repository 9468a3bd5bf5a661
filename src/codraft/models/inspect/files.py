"""Are the weight files there, and does their index name all of them?"""

from collections.abc import Iterator

from codraft.core.inspection import Finding
from codraft.models.inspect.likeness import harmless
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
