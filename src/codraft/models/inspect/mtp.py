"""Multi-token-prediction modules that a target declares, holds, or lost on the way."""

from collections.abc import Iterator, Mapping

from codraft.core.inspection import Evidence, Finding, Severity
from codraft.formats.mtp import count_modules, has_join, modules, mtp_tensors
from codraft.formats.safetensors import TensorInfo
from codraft.models.inspect.pair import (
    Model,
    Pair,
    Rule,
    absent_evidence,
    asked,
    listed,
    mtp_severity,
    tensor_evidence,
)
from codraft.models.reader import MTP

NONE = Rule(
    code="mtp.none",
    severity="error",
    title="MTP is asked for, and the target has none",
    consequence="The engine refuses to start.",
    fix="Use another mechanism: an EAGLE-3 or block head for this target, or ngram and suffix, which need no weights.",
)
ABSENT = Rule(
    code="mtp.absent",
    severity="error",
    varies="a warning where no method is asked for, a note where another drafts",
    title="MTP is declared, and its tensors are not in the files",
    consequence="Quantizers and converters drop these layers. The engine builds them from uninitialised memory: no "
    "error, acceptance 0.",
    fix="Copy the MTP tensors from the original checkpoint, and add them to the index.",
    seen="vllm-project/vllm#35548, casper-hansen/AutoAWQ#736",
)
UNLISTED = Rule(
    code="mtp.unlisted",
    severity="error",
    varies="a warning where no method is asked for, a note where another drafts",
    title="The MTP tensors lie in a file that the index does not name",
    consequence="Engines that go by the index never load them, and draft from uninitialised memory.",
    fix="Add the tensors of that file to the weight_map of model.safetensors.index.json.",
    seen="sgl-project/sglang#17166, NVIDIA/Model-Optimizer#792",
)
UNDECLARED = Rule(
    code="mtp.undeclared",
    severity="warning",
    varies="a note for modules beyond those that are declared",
    title="MTP tensors without a declaration",
    consequence="Engines do not look for them where the config has no count.",
    fix="Write the count (num_nextn_predict_layers, or mtp_num_hidden_layers in Qwen3.5) into config.json.",
)
INCOMPLETE = Rule(
    code="mtp.incomplete",
    severity="error",
    varies="a warning where no method is asked for, a note where another drafts",
    title="MTP tensors without the projection that joins hidden state and embedding",
    consequence="The module cannot run: loading fails, or the projection stays random and nothing is accepted.",
    fix="Copy the missing tensor (eh_proj, or fc) from the original checkpoint.",
)
AVAILABLE = Rule(
    code="mtp.available",
    severity="note",
    title="The target brings its own MTP module",
    consequence="It costs no training and usually accepts well; an added head must beat it.",
    fix="Measure both on the engine before you train or serve another head.",
    seen="noonghunna/club-3090#171",
)
RECURRENT = Rule(
    code="mtp.depth",
    severity="note",
    varies="a warning where D is no multiple of the modules, an error then for vLLM",
    title="More drafts than MTP modules",
    consequence="The modules are used again on their own output, which they have not seen in training unless they were "
    "trained for it: acceptance falls with each position. vLLM wants D to be a multiple of the number of modules.",
    fix="Measure AL by D, and stop where it no longer pays.",
    seen="vllm-project/vllm#12755, #41905",
)
DSPARK_INSIDE = Rule(
    code="mtp.dspark",
    severity="warning",
    varies="an error where MTP is asked for, a note where DSpark is",
    title="The mtp namespace holds DSpark stages",
    consequence="Read as a one-layer MTP module they draft noise.",
    fix="Serve this target with the engine's method for DSpark.",
)
CENTRED_NORM = Rule(
    code="mtp.norm",
    severity="note",
    title="MTP norms that multiply by 1 + weight",
    consequence="A plain RMSNorm loads the same tensors without an error and drafts garbage.",
    fix="Only matters if you convert or reimplement this module.",
)
RULES = (NONE, ABSENT, UNLISTED, UNDECLARED, INCOMPLETE, AVAILABLE, RECURRENT, DSPARK_INSIDE, CENTRED_NORM)


def check(pair: Pair) -> Iterator[Finding]:
    """Declaration against tensors, then method and D against both."""
    target = pair.target
    L, declared = len(target.arch.layers), target.arch.mtp_layers
    held = mtp_tensors(target.tensors, L)
    aside = mtp_tensors(target.checkpoint.unlisted, L)
    wanted = pair.question.method == "mtp"
    own_file = pair.head is not None and pair.head.mechanism == "mtp"
    if any(key.startswith("dspark_") for key in target.arch.text):
        yield DSPARK_INSIDE.found(
            "the config has dspark_ keys",
            target.key("dspark_block_size"),
            severity="error" if wanted else "note" if pair.question.method == "dspark" else None,
        )
        return
    if wanted and not declared and not held and not aside and pair.drafter is None:
        yield NONE.found(
            f"{target.checkpoint.label} declares no MTP module and holds none",
            asked("method", "mtp"),
            absent_evidence("target", "config.json", MTP[0]),
        )
    yield from check_tensors(target, held, aside, own_file, mtp_severity(pair))
    if (held or (declared and not target.tensors)) and pair.head is not None and not own_file:
        seen = f"{len(held)} tensors" if held else "its tensors were not seen"
        yield AVAILABLE.found(f"{counted(declared or 1)}, {seen}", count_key(target))
    D, modules = pair.question.depth, pair.head.num_modules if own_file and pair.head is not None else declared
    if D is not None and (wanted or own_file) and modules and modules < D:
        multiple = "" if D % modules == 0 else f", and {D} is no multiple of {modules}"
        yield RECURRENT.found(
            f"D = {D}, {counted(modules)}{multiple}",
            asked("depth", D),
            count_key(target),
            # vLLM refuses the number.
            severity=None if not multiple else "error" if pair.question.engine == "vllm" else "warning",
        )
    if held and any(word in target.arch.model_type for word in ("qwen3_next", "qwen3_5", "qwen3_6")):
        yield CENTRED_NORM.found(
            f"model_type is {target.arch.model_type}", tensor_evidence("target", target.tensors[held[0]])
        )


def counted(modules: int) -> str:
    """MTP modules in words."""
    return f"{modules} MTP module{'s' if modules > 1 else ''}"


def check_tensors(
    target: Model, held: list[str], aside: list[str], own_file: bool, broken: Severity | None
) -> Iterator[Finding]:
    """What is declared against what is there."""
    declared = target.arch.mtp_layers
    if aside and not held:
        yield UNLISTED.found(
            f"{len(aside)} tensors in {', '.join(files_of(target.checkpoint.unlisted, aside))}",
            *(tensor_evidence("target", target.checkpoint.unlisted[name]) for name in aside[:4]),
            severity=broken,
        )
    elif declared and not held and target.tensors and not target.checkpoint.lacks_files and not own_file:
        yield ABSENT.found(
            f"the config declares {counted(declared)}, and no file holds one",
            count_key(target),
            absent_evidence("target", "*.safetensors", "mtp.*"),
            severity=broken,
        )
    # The reader counts modules by their tensors where the config is silent.
    if held and not any(target.key(key).value for key in MTP):
        yield UNDECLARED.found(
            f"{len(held)} tensors: {listed(held)}",
            absent_evidence("target", "config.json", MTP[0]),
            tensor_evidence("target", target.tensors[held[0]]),
        )
    yield from check_count(target, held, broken)
    if held and not has_join(held) and not target.checkpoint.lacks_files:
        yield INCOMPLETE.found(
            f"{len(held)} tensors, none of them eh_proj or fc: {listed(held)}",
            tensor_evidence("target", target.tensors[held[0]]),
            severity=broken,
        )


def check_count(target: Model, held: list[str], broken: Severity | None) -> Iterator[Finding]:
    """Modules declared against modules held, where there are some of both."""
    declared, found = target.arch.mtp_layers, count_modules(modules(held))
    if not declared or not found or declared == found or target.checkpoint.lacks_files:
        return
    message = f"the config declares {counted(declared)}, and the files hold {found}"
    evidence = count_key(target), tensor_evidence("target", target.tensors[held[0]])
    if found < declared:
        yield ABSENT.found(message, *evidence, severity=broken)
    else:
        # Engines load those that are declared, and the others are never used.
        yield UNDECLARED.found(message, *evidence, severity="note")


def files_of(tensors: Mapping[str, TensorInfo], names: list[str]) -> list[str]:
    """Files of these tensors."""
    return sorted({tensors[name].file for name in names})


def count_key(target: Model) -> Evidence:
    """Where the count stands."""
    key = next((key for key in MTP if target.key(key).value is not None), MTP[0])
    return target.key(key)
