"""What an engine reads of a layout where that is not what its own project writes: keys to add, and layouts that
the engine does not read.

Read in vLLM 0.32 (v1/worker/gpu_model_runner.py takes ids at the top first and those of eagle_config as inputs;
v1/worker/gpu/spec_decode/eagle/eagle3_utils.py takes those at the top only; transformers_utils/configs/speculators),
SGLang (models/llama_eagle3.py, model_runner.py), TensorRT-LLM (_torch/models/modeling_speculative.py):
docs/findings.md, taps.engine.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from codraft.formats.heads.frame import Config, Frame
from codraft.formats.heads.head import IDS, Family
from codraft.formats.heads.mtp_options import NATIVE
from codraft.formats.heads.options import block_options, eagle3_options
from codraft.formats.heads.spellings import ENGINE_NAMES, NAMES

# Layouts that an engine does not read, and one that it does.
UNREAD: Mapping[tuple[str, str], Mapping[Family, Family]] = {
    ("dflash", "sglang"): {"speculators": "zlab"},
    ("dflash", "trtllm"): {"speculators": "zlab"},
    ("dspark", "vllm"): {"modelopt": "deepspec"},
    ("dspark", "sglang"): {"modelopt": "deepspec"},
    ("dspark", "trtllm"): {"speculators": "modelopt", "deepspec": "modelopt", "specforge": "modelopt"},
    ("mtp", "vllm"): {"speculators": "native"},
    ("mtp", "sglang"): {"speculators": "native"},
    ("mtp", "trtllm"): {"speculators": "native"},
}


def engine_refusals(frame: Frame, family: Family) -> Iterator[str]:
    """Why the engine would run something else than this head, in this layout or in any."""
    engine, head = frame.engine, frame.head
    if engine is None:
        return
    name = ENGINE_NAMES[engine]
    other = UNREAD.get((head.mechanism, engine), {}).get(family)
    if other is not None:
        way = f"write --to {other}"
        if head.mechanism == "mtp" and str(head.text.get("model_type")) not in NATIVE:
            way = "and no target's own names fit this one, so codraft alone runs it"
        yield f"{name} does not read {NAMES[family]} files of {head.mechanism}; {way}"
    if head.mechanism == "eagle3" and not eagle3_options(head).norms_output:
        yield f"{name} always norms before the output head, and this one was made without"
    if engine == "vllm" and head.mechanism == "dflash":
        block = block_options(head)
        if block.alignment == "next_slot":
            yield f"{name} runs no DFlash head whose slots predict the token after"
        mixed = len({window is None for window in block.windows}) == 2
        if family == "speculators" and mixed and True in block.causal:
            yield f"{name} makes the full layers of such a speculators file causal too; write --to zlab"
    if engine == "vllm" and head.mechanism == "dspark" and family == "speculators":
        block = block_options(head)
        if any(block.windows) and True not in block.causal:
            yield f"{name} passes over sliding_window_non_causal in speculators files of DSpark; write --to deepspec"


def adapt(config: Config, frame: Frame, family: Family) -> tuple[Config, list[str]]:
    """A config with the keys that the engine reads, and what was done, one sentence each."""
    if frame.engine is None or frame.head.mechanism != "eagle3":
        return config, []
    name = ENGINE_NAMES[frame.engine]
    notes: list[str] = []
    if frame.engine == "vllm":
        if family == "safeailab" and config.get("norm_output") is not None and not feeds_back(config):
            config = {key: value for key, value in config.items() if key != "norm_output"}
            notes.append(f"norm_output left out: {name} would feed the normed state back by it, SpecForge does not")
        if frame.inputs is not None and config.get(IDS) != frame.inputs:
            config = {**config, IDS: frame.inputs}
            notes.append(f"layer ids written as {frame.inputs} at the top: {name} takes these as inputs of layers, and "
                         "before those of eagle_config")  # fmt: skip
        return config, notes
    if frame.engine == "sglang" and family == "safeailab" and config.get("norm_output") and not feeds_back(config):
        config = {key: value for key, value in config.items() if key != "norm_output"}
        notes.append(f"norm_output left out: {name} would feed the normed state back by it, SpecForge does not")
    nested: Mapping[str, Any] = config.get("eagle_config") or {}
    if frame.outputs is not None and nested.get(IDS) != list(frame.outputs):
        config = {**config, "eagle_config": {**nested, IDS: list(frame.outputs), "use_aux_hidden_state": True}}
        notes.append(f"layer ids written as {list(frame.outputs)} in eagle_config: {name} takes these as outputs")
    return config, notes


def feeds_back(config: Config) -> bool:
    """Whether a flat config says in the key with one meaning that the normed state is fed back."""
    return bool((config.get("eagle_config") or {}).get("return_hidden_post_norm"))


def hints(frame: Frame, family: Family, config: Config) -> Iterator[str]:
    """What to know of the layer ids, where no engine was named."""
    if frame.head.mechanism != "eagle3":
        return
    if frame.outputs is None:
        yield (
            "the source names no layer ids and neither does the result: engines read the outputs of layers 1, L/2 - 1 "
            "and L - 4 then"
        )
    nested = config.get("eagle_config") or {}
    if frame.engine is None and family != "speculators" and nested.get(IDS) and config.get(IDS) is None:
        yield (
            "eagle_config names outputs of layers, as this layout does; one runner of vLLM takes them for inputs, one "
            "layer off, unless --engine vllm writes the key that it reads first"
        )
