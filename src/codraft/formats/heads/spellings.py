"""The public layouts that codraft writes, by mechanism, and how each calls the tensors of a head."""

from collections.abc import Mapping

from codraft.core.errors import SpecError
from codraft.formats.fields import shown
from codraft.formats.heads.head import Family

# By mechanism, the layouts that can be written; the names are those of `Kind.family`.
LAYOUTS: Mapping[str, tuple[Family, ...]] = {
    "eagle3": ("safeailab", "modelopt", "speculators"),
    "dflash": ("zlab", "speculators"),
    "dspark": ("deepspec", "specforge", "modelopt", "speculators"),
    "mtp": ("native", "speculators"),
}
# Other projects that write the same layout.
ALIASES: Mapping[tuple[str, str], Family] = {
    ("eagle3", "specforge"): "safeailab",
    ("dflash", "specforge"): "zlab",
    ("dflash", "modelopt"): "zlab",
}
NAMES = {
    "safeailab": "SafeAILab", "modelopt": "Model-Optimizer", "speculators": "speculators", "deepspec": "DeepSpec",
    "zlab": "z-lab", "specforge": "SpecForge", "native": "native",
}  # fmt: skip
ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}

# The inverse of layout.py's RENAMED: canonical beginnings, and what a layout writes for them. Later layers of
# SafeAILab's do not exist, and other layouts write the canonical names.
WRITTEN: Mapping[tuple[str, Family], Mapping[str, str]] = {
    ("eagle3", "safeailab"): {"layers.0.": "midlayer."},
    ("dspark", "modelopt"): {"markov_head.": "", "confidence_head.proj.": "confidence_proj."},
}


def layout_of(mechanism: str, name: str) -> Family:
    """The layout that a user calls `name`. SpecError where this mechanism has none of that name."""
    known = LAYOUTS[mechanism]
    for family in known:
        if name == family:
            return family
    alias = ALIASES.get((mechanism, name))
    if alias is None:
        raise SpecError(
            f"--to {shown(name)}: {mechanism} heads are written as {', '.join(known)}; name one of these layouts"
        )
    return alias


def written(mechanism: str, family: Family, name: str) -> str:
    """What a layout calls the tensor of this canonical name."""
    for begin, other in WRITTEN.get((mechanism, family), {}).items():
        if name.startswith(begin):
            return other + name[len(begin) :]
    return name
