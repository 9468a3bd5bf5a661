"""What each engine makes of the layer ids of a head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codraft.formats.heads.head import BLOCK_MECHANISMS, Head, Taps


def default_outputs(L: int) -> tuple[int, ...]:
    """Layers that an EAGLE-3 head reads where nobody says: outputs of 1, L/2 - 1, L - 4 [EAGLE-3]."""
    return (min(1, L - 1), max(0, L // 2 - 1), max(0, L - 4))


@dataclass(frozen=True, slots=True)
class Reading:
    """Outputs of layers that an engine will read, and how it comes to them; None where that is not known."""

    outputs: tuple[int, ...] | None
    how: str


def engine_readings(head: Head, L: int, engine: str) -> list[Reading]:
    """What an engine makes of the ids: more than one reading where versions or runners differ.

    Read in the engines' sources (versions in docs/references.md): vLLM (gpu_model_runner.py reads eagle_config,
    eagle3_utils.py of the other runner does not), SGLang (model_runner.py; set_eagle3_layers_to_capture of its models,
    in some of which pull request 25454 adds one only where the first id is 1), TensorRT-LLM (llmapi/llm_args.py).
    """
    first = head.taps[0]
    nested = next((taps for taps in head.taps if taps.key.startswith("eagle_config.")), None)
    if head.mechanism in BLOCK_MECHANISMS:
        if first.convention == "input" and engine != "vllm":
            return [Reading(None, f"does not read {first.key} in the versions read")]
        return [Reading(first.outputs, "takes target_layer_ids as outputs of layers")]
    usual = default_outputs(L)
    if engine == "vllm":
        if first.convention == "input":
            return [Reading(first.outputs, "takes the ids at the top of the config as inputs of layers")]
        if nested is not None:
            return [
                Reading(tuple(i - 1 for i in nested.written), f"one runner takes {nested.key} as inputs of layers"),
                Reading(usual, "the other runner takes its default"),
            ]
        if first.key == "target_layer_ids":
            return [Reading(first.outputs, "takes target_layer_ids as outputs of layers")]
        return [Reading(usual, f"does not read {first.key} and takes its default")]
    if nested is None:
        if engine == "trtllm":
            return [Reading(usual, "reads no ids from this file; eagle3_layers_to_capture says outputs of layers")]
        return [Reading(usual, f"reads eagle_config only, not {first.key}, and takes its default")]
    readings = [Reading(nested.outputs, "takes eagle_config as outputs of layers")]
    if engine == "sglang" and nested.written[0] != 1:
        readings.append(
            Reading(tuple(i - 1 for i in nested.written), "newer versions take them as inputs for some models (#25454)")
        )
    return readings


def wrong(readings: Sequence[Reading], first: Taps) -> list[str]:
    """The readings that are not what the head was trained on."""
    return [str(list(r.outputs)) for r in readings if r.outputs is not None and r.outputs != first.outputs]


def remarks(read: Mapping[str, Sequence[Reading]]) -> dict[str, str]:
    """All readings in words, by engine."""
    return {
        engine: "; ".join(f"{r.how}: {'unknown' if r.outputs is None else list(r.outputs)}" for r in readings)
        for engine, readings in read.items()
    }


def both_keys(outputs: tuple[int, ...]) -> str:
    """How to write layer ids so that every engine reads the same."""
    inputs = [i + 1 for i in outputs]
    return (
        f'Write both: "eagle_aux_hidden_state_layer_ids": {inputs} at the top of config.json (inputs of layers, vLLM), '
        f"and {list(outputs)} under that name in eagle_config (outputs of layers, SGLang and TensorRT-LLM)."
    )
