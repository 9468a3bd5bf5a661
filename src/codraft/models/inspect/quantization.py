"""Quantized targets, and drafters beside them."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatch

from codraft.core.inspection import Evidence, Finding
from codraft.formats.checkpoint import HF_QUANT
from codraft.formats.mtp import mtp_tensors
from codraft.formats.quantnames import (
    FLOATS,
    FOUR_BITS,
    OTHER_SCALES,
    QUANTIZED,
    WEIGHT_NAMES,
    is_packed,
    is_scale,
    last_part,
    stem,
)
from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import Quantization
from codraft.models.inspect.pair import (
    HeadModel,
    Model,
    Pair,
    Rule,
    absent_evidence,
    listed,
    mtp_severity,
    seen_at,
    tensor_evidence,
    value_at,
)
from codraft.models.quantization import read_quantization

ROTATED = Rule(
    code="quant.rotated",
    severity="error",
    title="The target works in a rotated basis",
    consequence="Hidden states are rotated (QuaRot, SpinQuant), and the head was trained on unrotated ones: acceptance "
    "drops to 0.",
    fix="Fold the inverse rotation into the head's fc, or use a target quantized without rotation.",
    seen="vllm-project/vllm-ascend#5974, #11978",
)
MTP_PLAIN = Rule(
    code="quant.mtp_plain",
    severity="warning",
    varies="a note where another drafts",
    title="MTP weights in full precision inside a quantized model, and not on its ignore list",
    consequence="Engines that apply the global setting build quantized layers for them: a load error, or silent zeros.",
    fix="Add the MTP modules to the ignore list of quantization_config.",
    seen="vllm-project/vllm#48814, ROCm/ATOM#755, jundot/omlx#2326",
)
MTP_SCALES = Rule(
    code="quant.mtp_scales",
    severity="error",
    varies="a warning where no method is asked for, a note where another drafts",
    title="Packed MTP weights without scales, or with scales of another name than the trunk's",
    consequence="The loader does not find the scales: 1.8 % acceptance instead of 80 % in one report.",
    fix="Write the scales under the names that the trunk uses, or leave the MTP module unquantized.",
    seen="vllm-project/vllm#43455, kekzl/imp#1428",
)
MTP_BITS = Rule(
    code="quant.mtp_bits",
    severity="note",
    title="MTP weights of four bits",
    consequence="A draft is one choice of the largest logit, so a small module feels rounding more than the target "
    "does: 0 to 4 % acceptance with 4 bits against 39 to 59 % with 8 in one report, 91 % with 4 bits in another.",
    fix="Measure acceptance with the module in 8 bits or in full precision, and keep what pays.",
    seen="anthony-chaudhary/fak#4353, vllm-project/vllm#43455",
)
UNDECLARED = Rule(
    code="quant.undeclared",
    severity="error",
    title="Scales beside the drafter's weights, and no quantization_config",
    consequence="Projections are built unquantized and the scales are ignored: acceptance 0.",
    fix="Write the quantization_config that the exporter used into the drafter's config.json.",
    seen="sgl-project/sglang#32440",
)
NOT_QUANTIZED = Rule(
    code="quant.not_quantized",
    severity="error",
    title="The drafter declares a quantization that its tensors do not have",
    consequence="Engines build quantized layers and find no packed weights or scales.",
    fix="Remove quantization_config from the drafter's config.json.",
    seen="vllm-project/vllm#48814",
)
TARGET_HEAD = Rule(
    code="quant.target_head",
    severity="warning",
    title="The target's output head is quantized, and the drafter borrows it",
    consequence="Some drafters need it in full precision; others draft from a slightly different head than they were "
    "trained with.",
    fix="Leave lm_head out of the quantization.",
)
NOISY_TARGET = Rule(
    code="quant.target",
    severity="note",
    title="A quantized target",
    consequence="Heads are trained on full-precision hidden states as a rule; on a quantized target acceptance is "
    "somewhat lower (4.55 against 5.22 accepted tokens with 4 and 8 bits in one report). An acceptance "
    "of zero has another cause.",
    fix="Measure acceptance on the target that you serve.",
    seen="Avarok-Cybersecurity/atlas#218, vllm-project/vllm#41789",
)
RULES = (ROTATED, MTP_PLAIN, MTP_SCALES, MTP_BITS, UNDECLARED, NOT_QUANTIZED, TARGET_HEAD, NOISY_TARGET)

# Expressions that cannot take long: short, few wild cards, none of them around a group.
LONGEST, MOST_WILD = 200, 3
READS_STATES = ("eagle3", "peagle", "eagle", "dflash", "dflash2", "dspark", "domino", "mtp")


def check(pair: Pair) -> Iterator[Finding]:
    """The target's quantization against its MTP layers and its drafter."""
    target, drafter = pair.target, pair.drafter
    quantization = target.arch.quantization
    if quantization is not None:
        yield from check_mtp(pair, left_out(quantization))
        if isinstance(drafter, HeadModel) and drafter.head.mechanism in READS_STATES:
            yield from check_states(target, drafter)
    if drafter is not None and drafter.tensors:
        yield from check_drafter(drafter)


def check_states(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """What quantization does to the hidden states and the head that a drafter shares."""
    quantization = target.arch.quantization
    assert quantization is not None
    if quantization.rotated:
        yield ROTATED.found(f"{quantization.method} with a rotation", declared_at(target))
    bits = "" if quantization.bits is None else f", {quantization.bits} bits"
    yield NOISY_TARGET.found(f"{quantization.method}{bits}", declared_at(target))
    own = "lm_head.weight" in drafter.tensors
    packed = [info for name, info in target.tensors.items() if "lm_head" in name and info.dtype in QUANTIZED]
    if packed and not own and not drafter.head.reduced:
        yield TARGET_HEAD.found(f"{packed[0].name} is {packed[0].dtype}", tensor_evidence("target", packed[0]))


def left_out(quantization: Quantization) -> list[str]:
    """Names and patterns of what is not quantized; GPTQModel writes them as keys of `dynamic`, after `-:`."""
    dynamic = quantization.raw.get("dynamic")
    keys = dynamic if isinstance(dynamic, dict) else {}
    return [*quantization.ignored, *(f"re:{key[2:]}" for key in keys if str(key).startswith("-:"))]


def check_mtp(pair: Pair, ignored: Sequence[str]) -> Iterator[Finding]:
    """MTP layers of a quantized target: plain and undeclared, or packed without usable scales."""
    target, milder = pair.target, mtp_severity(pair)
    names = mtp_tensors(target.tensors, len(target.arch.layers))
    weights = [target.tensors[name] for name in names if name.endswith(".weight") and is_matrix(target.tensors[name])]
    plain = [info for info in weights if info.dtype in FLOATS and is_projection(info.name)]
    if not names:
        return
    packed = [name for name in names if target.tensors[name].dtype in QUANTIZED and not is_scale(name)]
    if plain and len(plain) == len([info for info in weights if is_projection(info.name)]) and not packed:
        uncovered = [info for info in plain if not covered(info.name, ignored)]
        if uncovered:
            yield MTP_PLAIN.found(
                f"{len(uncovered)} of {len(plain)} matrices: {listed([i.name for i in uncovered])}",
                tensor_evidence("target", uncovered[0]),
                severity=milder,
            )
    if not packed:
        return
    trunk = weight_scales(target.tensors.keys() - set(names))
    here = weight_scales(names)
    if trunk and not here & trunk:
        shown = ", ".join(sorted(here)) or "none"
        yield MTP_SCALES.found(
            f"{len(packed)} packed tensors; their scales: {shown}; the trunk's: {', '.join(sorted(trunk))}",
            tensor_evidence("target", target.tensors[packed[0]]),
            severity=milder,
        )
    assert target.arch.quantization is not None
    small = [name for name in packed if target.tensors[name].dtype in FOUR_BITS]
    if small and target.arch.quantization.bits == 4:
        yield MTP_BITS.found(
            f"{len(small)} packed tensors of the module", tensor_evidence("target", target.tensors[small[0]])
        )


def check_drafter(drafter: Model | HeadModel) -> Iterator[Finding]:
    """A drafter's own quantization: declared and stored must be the same thing."""
    text = drafter.head.text if isinstance(drafter, HeadModel) else drafter.arch.text
    declared = read_quantization(drafter.config, text)
    names = drafter.tensors
    scales = [name for name in names if is_packed(name) or (is_scale(name) and beside_weight(name, names))]
    packed = [info for info in drafter.tensors.values() if info.dtype in QUANTIZED and len(info.shape) == 2]
    plain = [name for name, info in drafter.tensors.items() if is_matrix(info) and is_projection(name)]
    if declared is None and scales:
        yield UNDECLARED.found(
            f"{len(scales)} scales: {listed(scales)}",
            tensor_evidence("drafter", drafter.tensors[scales[0]]),
            absent_evidence("drafter", "config.json", "quantization_config"),
        )
    # Model-Optimizer's file may speak of the cache alone.
    if declared is None or (HF_QUANT in drafter.config and declared.method == "unknown"):
        return
    if not scales and not packed and not all(covered(n, left_out(declared)) for n in plain):
        yield NOT_QUANTIZED.found(f"{declared.method} is declared, and every tensor is plain", declared_at(drafter))


def declared_at(model: Model | HeadModel) -> Evidence:
    """Where a quantization is declared: in the config, or in Model-Optimizer's file beside it."""
    if isinstance(model.config.get(HF_QUANT), Mapping) and "quantization_config" not in model.config:
        key = "quantization.quant_algo"
        return seen_at(model.side, f"{HF_QUANT}.json", key, value_at(model.config[HF_QUANT], key))
    return model.key("compression_config" if "compression_config" in model.config else "quantization_config")


def covered(name: str, ignored: Sequence[str]) -> bool:
    """Whether an ignore list leaves this tensor out: by name, part of a name, glob or regular expression."""
    module = name.removesuffix(".weight")
    return any(matches(module, pattern) for pattern in ignored)


def matches(module: str, pattern: str) -> bool:
    """One entry of an ignore list; `re:` begins a regular expression. Of one that might take long its plain words are
    compared."""
    if pattern.startswith("re:"):
        try:
            if quick(pattern[3:]) and len(module) <= LONGEST:
                return re.match(pattern[3:], module) is not None
        except re.error:
            pass
        return all(word in module for word in re.findall(r"[A-Za-z0-9_]{2,}", re.sub(r"\\\w", " ", pattern[3:])))
    return module == pattern or module.startswith(pattern + ".") or pattern in module or fnmatch(module, pattern)


def quick(pattern: str) -> bool:
    """Whether an expression of somebody else's can be tried on a name without care."""
    wild = len(re.findall(r"(?<!\\)[*+?{]", pattern))
    return len(pattern) <= LONGEST and wild <= MOST_WILD and re.search(r"\)[*+?{]", pattern) is None


def is_projection(name: str) -> bool:
    """Whether a quantizer would have taken this matrix."""
    return not any(word in name for word in ("norm", "embed", "lm_head", "shared_head", "gate.weight", "router"))


def is_matrix(info: TensorInfo) -> bool:
    """Two dimensions or more, both above 1."""
    return len(info.shape) >= 2 and min(info.shape) > 1


def weight_scales(names: Collection[str]) -> set[str]:
    """What the scales of weights are called here."""
    found = {last_part(name) for name in names if is_scale(name) and "scale" in last_part(name)}
    return found - set(OTHER_SCALES)


def beside_weight(name: str, names: Collection[str]) -> bool:
    """Whether a scale belongs to a weight: norms and towers have scales of their own, and caches too."""
    cached = last_part(name) in ("k_scale", "v_scale")
    return not cached and any(f"{stem(name)}.{part}" in names for part in WEIGHT_NAMES)
