"""Which mechanism and which family a checkpoint is of. Markers are tried from the surest to the vaguest."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from codraft.formats.heads.head import Family, Kind

# speculators_model_type -> mechanism.
SPECULATORS = {
    "eagle3": "eagle3",
    "eagle": "eagle",
    "peagle": "peagle",
    "p-eagle": "peagle",
    "dflash": "dflash",
    "dspark": "dspark",
    "mtp": "mtp",
    "mlp": "mlp_speculator",
}


# LlamaForCausalLMEagle, EagleLlamaForCausalLM, EagleModel.
EAGLE_CLASS = re.compile(r"(CausalLM|Model)Eagle|^Eagle", re.IGNORECASE)


def detect(config: Mapping[str, Any], tensors: Collection[str]) -> Kind | None:
    """The kind of drafter head, None for what is no head: a causal language model, or something unknown."""
    return by_speculators(config) or by_block(config, tensors) or by_eagle(config, tensors) or by_other(config, tensors)


def by_speculators(config: Mapping[str, Any]) -> Kind | None:
    """Files of the speculators library name their kind."""
    name = config.get("speculators_model_type")
    if not isinstance(name, str):
        return None
    # The name of a kind that came later stands in messages.
    mechanism = SPECULATORS.get(name.lower()) or (name if re.fullmatch(r"[\w.-]{1,40}", name) else "unknown")
    return Kind(mechanism=mechanism, family="speculators", seen=("speculators_model_type", name))


def by_block(config: Mapping[str, Any], tensors: Collection[str]) -> Kind | None:
    """DFlash and what grew out of it: three graphs share the class name DFlashDraftModel."""
    nested = mapping(config, "dflash_config")
    projector = nested.get("projector_type")
    names = architectures(config)
    if projector == "domino":
        return Kind(mechanism="domino", family="specforge", seen=("dflash_config.projector_type", projector))
    key = next((key for key, part in (("dflash_config.selector_rank", nested), ("selector_rank", config))
                if part.get("selector_rank")), None)  # fmt: skip
    if "DFlash2DraftModel" in names or key is not None:
        return Kind(mechanism="dflash2", family="zlab", seen=(key, "present") if key else ("architectures", names))
    if projector == "dspark":
        rooted = "markov_w1.weight" in tensors or "DFlashDraftModel" in names
        family: Family = "modelopt" if rooted else "specforge"
        return Kind(mechanism="dspark", family=family, seen=("dflash_config.projector_type", projector))
    if "DSparkDraftModel" in names:
        return Kind(mechanism="dspark", family="specforge", seen=("architectures", names))
    if any("DSpark" in name for name in names):
        return Kind(mechanism="dspark", family="deepspec", seen=("architectures", names))
    if config.get("markov_rank") is not None:
        return Kind(mechanism="dspark", family="deepspec", seen=("markov_rank", config["markov_rank"]))
    if any("DFlash" in name for name in names):
        return Kind(mechanism="dflash", family="zlab", seen=("architectures", names))
    if nested:
        return Kind(mechanism="dflash", family="zlab", seen=("dflash_config", "present"))
    return None


def by_eagle(config: Mapping[str, Any], tensors: Collection[str]) -> Kind | None:
    """EAGLE heads; files of early ones carry the class name of a plain Llama, so tensors decide."""
    names = architectures(config)
    nested = mapping(config, "eagle_config")
    midlayer = next((name for name in tensors if "midlayer." in name), None)
    three = next((name for name in names if "eagle3" in name.lower()), None)
    if "mask_hidden" in tensors:
        return Kind(mechanism="peagle", family="other", seen=("mask_hidden", "present"))
    if config.get("parallel_drafting") is True:
        return Kind(mechanism="peagle", family="other", seen=("parallel_drafting", True))
    if any("peagle" in name.lower() for name in names):
        return Kind(mechanism="peagle", family="other", seen=("architectures", names))
    if three is not None or midlayer is not None or nested or "d2t" in tensors:
        seen = ("architectures", names) if three else (midlayer or ("eagle_config" if nested else "d2t"), "present")
        return Kind(mechanism="eagle3", family=eagle_family(names, nested, midlayer), seen=seen)
    # NVIDIA's Eagle models see, and others carry the word in their names; a head has an fc.
    named = any(EAGLE_CLASS.search(name) for name in names) and not isinstance(config.get("vision_config"), Mapping)
    fused = not tensors or any(name.startswith(("fc.", "model.fc.")) for name in tensors)
    if (named and fused) or config.get("model_type") == "eagle":
        return Kind(mechanism="eagle", family="safeailab", seen=("architectures", names))
    if "fc.weight" in tensors and "layers.0.hidden_norm.weight" in tensors:
        return Kind(mechanism="eagle3", family="modelopt", seen=("layers.0.hidden_norm.weight", "present"))
    if "fc.weight" in tensors and "layers.0.self_attn.q_proj.weight" in tensors:
        return Kind(mechanism="eagle", family="safeailab", seen=("fc.weight", "present"))
    if config.get("draft_vocab_size") is not None and not any(name.startswith("model.") for name in tensors):
        return Kind(mechanism="eagle3", family="safeailab", seen=("draft_vocab_size", config["draft_vocab_size"]))
    return None


def eagle_family(names: Collection[str], nested: Mapping[str, Any], midlayer: str | None) -> Family:
    """Who wrote an EAGLE-3 head."""
    if any(name.startswith(("Qwen3Eagle3", "Gemma4Eagle3")) for name in names):
        return "deepspec"
    if midlayer is not None:
        return "safeailab"
    return "modelopt" if nested else "safeailab"


def by_other(config: Mapping[str, Any], tensors: Collection[str]) -> Kind | None:
    """MTP modules in a file of their own, and heads that codraft names only."""
    names = architectures(config)
    kind = str(config.get("model_type", ""))
    lower = [*(name.lower() for name in names), kind.lower()]
    if any("gemma4" in name and "assistant" in name for name in lower):
        return Kind(mechanism="gemma4_assistant", family="native", seen=("architectures", names))
    if any("medusa" in name for name in lower) or config.get("medusa_num_heads") is not None:
        return Kind(mechanism="medusa", family="other", seen=("architectures", names))
    if any("mlpspeculator" in name or name == "mlp_speculator" for name in lower):
        return Kind(mechanism="mlp_speculator", family="other", seen=("architectures", names))
    prefixes = ("mtp.", "mtp_layers.", "model.mtp.", "model.mtp_layers.")
    own = bool(tensors) and all(name.startswith(prefixes) for name in tensors)
    if own or any(name.endswith(("mtp", "mtpmodel", "mtpdraftmodel")) for name in lower):
        return Kind(mechanism="mtp", family="native", seen=("tensors", "mtp") if own else ("architectures", names))
    return None


def architectures(config: Mapping[str, Any]) -> list[str]:
    """The class names that a config gives."""
    names = config.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def mapping(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """A nested part of a config, empty where there is none."""
    part = config.get(key)
    return part if isinstance(part, Mapping) else {}
