"""Configs of EAGLE-3 heads in each layout, and what a layout has no word for.

Sources: SafeAILab's cnets.py and SpecForge's llama3_eagle.py and exporter; Model-Optimizer's hf_spec_configs.py and
hf_spec_export.py; the speculators library's models/eagle3; and of the engines vLLM 0.32's llama_eagle3.py,
qwen3_eagle3.py and gpu_model_runner.py, SGLang's llama_eagle3.py, TensorRT-LLM's modeling_speculative.py.
"""

from collections.abc import Callable, Iterator, Mapping

from codraft.formats.heads.detect import architectures
from codraft.formats.heads.frame import (
    Config,
    Frame,
    Refusal,
    layer_keys,
    num_target_layers,
    speculators_frame,
    whole_keys,
)
from codraft.formats.heads.frame import windowed as with_windows
from codraft.formats.heads.head import IDS, Family
from codraft.formats.heads.options import (
    Eagle3Options,
    eagle3_options,
    layer_options,
    layer_windows,
    unknown_switches,
)
from codraft.formats.heads.read import EAGLE3_TAPS

# Tokens that the speculators library's converter proposes.
USUAL_TOKENS = 3
# Words for what no key of a layout says, by the engines whose loader reads a key for it in this layout all the same.
READ_BY: Mapping[str, tuple[str, ...]] = {
    "norm_before_residual": ("vllm",),
    "norm_before_fc": ("vllm", "trtllm"),
    "fc_norm": ("vllm", "sglang"),
    "norm_output": ("vllm", "sglang", "trtllm"),
    "qk_norm": ("vllm",),
    "features": ("vllm",),
}


def refusals(frame: Frame, family: Family) -> Iterator[Refusal]:
    """What this layout cannot say of this head."""
    options = eagle3_options(frame.head)
    yield from ((key, ()) for key in unknown_switches(frame.head))
    if any("MLA" in name or "DeepseekV" in name for name in architectures(frame.head.config)):
        yield "attention over a latent (MLA)", ()
    if family == "speculators":
        yield from ((words, ()) for words in speculators_refusals(options))
    else:
        yield from engine_words(frame, family, options)
        yield from ((words, ()) for words in flat_refusals(frame, family, options))


def speculators_refusals(options: Eagle3Options) -> Iterator[str]:
    """The library's classes: every switch but those of Model-Optimizer and SpecForge."""
    if not options.norms_output:
        yield "an output head without a norm before it"
    if not options.fuses:
        yield "use_aux_hidden_state false"
    if not options.first_layer_norm:
        yield "use_input_layernorm_in_first_layer false"
    if any(options.doubled[1:]):
        yield "later layers that read the embedding too"


def engine_words(frame: Frame, family: Family, options: Eagle3Options) -> Iterator[Refusal]:
    """What neither project's own code knows, but some engines read in its files."""
    safeailab, num_taps = family == "safeailab", frame.head.num_taps
    said = {
        "norm_before_residual": options.norm_before_residual,
        "norm_before_fc": safeailab and options.norm_before_fc,
        "fc_norm": not safeailab and options.fc_norm,
        "norm_output": options.feedback == "post_norm",
        "qk_norm": layer_options(frame.head).qk_norm,
        "features": safeailab and options.fuses and num_taps != EAGLE3_TAPS,
    }
    words = {
        "norm_output": "norm_output (the normed state is fed back; SpecForge's key of this name says something else)",
        "qk_norm": "norms of queries and keys (q_norm, k_norm)",
        "features": f"{num_taps} of {EAGLE3_TAPS} features",
    }
    yield from ((words.get(name, name), READ_BY[name]) for name, stated in said.items() if stated)


def flat_refusals(frame: Frame, family: Family, options: Eagle3Options) -> Iterator[str]:
    """What is beyond SafeAILab's single Llama layer, and Model-Optimizer's switches."""
    if any(layer_windows(frame.head)):
        yield "sliding windows"
    if family != "safeailab":
        return
    if frame.head.geometry.num_layers > 1:
        yield f"{frame.head.geometry.num_layers} layers (its one layer is called midlayer)"
    if not (options.fuses and options.first_layer_norm):
        yield "use_aux_hidden_state or use_input_layernorm_in_first_layer false"
    if any(options.doubled[1:]):
        yield "later layers that read the embedding too"


def safeailab(frame: Frame) -> Config:
    """SafeAILab's and SpecForge's config. Without an output head of its own it names no draft vocabulary, by which
    SGLang knows that the target's is meant."""
    options, layers = eagle3_options(frame.head), llama(layer_keys(frame), frame)
    config: Config = {"architectures": [class_name(frame)], **layers}
    if frame.owns_head and frame.draft_vocab_size is not None:
        config["draft_vocab_size"] = frame.draft_vocab_size
    config |= top(frame, options)
    if not options.norms_output:
        config["norm_output"] = False
    nested: Config = {}
    if frame.outputs is not None:
        nested = {IDS: list(frame.outputs), "use_aux_hidden_state": True}
    nested |= engine_switches(options)
    return {**config, **({"eagle_config": nested} if nested else {}), **whole_keys(frame)}


def modelopt(frame: Frame) -> Config:
    """Model-Optimizer's config."""
    options, layers = eagle3_options(frame.head), llama(layer_keys(frame), frame)
    nested: Config = {} if frame.outputs is None else {IDS: list(frame.outputs)}
    nested |= {
        "use_aux_hidden_state": options.fuses,
        "use_input_layernorm_in_first_layer": options.first_layer_norm,
        "use_last_layernorm": options.norms_output,
        "use_mtp_layernorm": False,
        "next_layer_regular": len(options.doubled) == 1 or not all(options.doubled),
    }
    nested |= engine_switches(options)
    return {
        "architectures": [class_name(frame)],
        **layers,
        "draft_vocab_size": frame.draft_vocab_size,
        **top(frame, options),
        "eagle_config": nested,
        **whole_keys(frame),
    }


def speculators(frame: Frame) -> Config:
    """The speculators library's config. `norm_before_residual` always stands there: vLLM takes true where it is absent,
    the library false."""
    options, layers = eagle3_options(frame.head), with_windows(layer_keys(frame), frame.head)
    layers["model_type"] = "qwen3" if layer_options(frame.head).qk_norm else "llama"
    if frame.engine == "vllm" and frame.head.num_taps != EAGLE3_TAPS:
        layers["num_aux_hidden_states"] = frame.head.num_taps
    return {
        **speculators_frame(frame, "Eagle3Speculator", USUAL_TOKENS),
        "transformer_layer_config": layers,
        "draft_vocab_size": frame.draft_vocab_size,
        "norm_before_residual": options.norm_before_residual,
        "target_hidden_size": frame.target_hidden,
        IDS: frame.inputs,
        "norm_before_fc": options.norm_before_fc,
        "fc_norm": options.fc_norm,
        "norm_output": options.feedback == "post_norm",
        "embed_requires_grad": frame.head.config.get("embed_requires_grad") is True,
        **num_target_layers(frame),
        **whole_keys(frame),
    }


def llama(layers: Config, frame: Frame) -> Config:
    """Layers of the model type that the class name goes with."""
    layers["model_type"] = "qwen3" if layer_options(frame.head).qk_norm else "llama"
    return layers


def class_name(frame: Frame) -> str:
    """The class that engines look for; vLLM has one for layers of Qwen3."""
    return "Eagle3Qwen3ForCausalLM" if layer_options(frame.head).qk_norm else "LlamaForCausalLMEagle3"


def top(frame: Frame, options: Eagle3Options) -> Config:
    """Keys at the top of a flat config."""
    found: Config = {}
    if frame.target_hidden is not None:
        found["target_hidden_size"] = frame.target_hidden
    if options.norm_before_residual:
        found["norm_before_residual"] = True
    if options.fc_norm:
        found["fc_norm"] = True
    if frame.head.num_taps != EAGLE3_TAPS and options.fuses and frame.engine == "vllm":
        found["num_aux_hidden_states"] = frame.head.num_taps
    if options.feedback == "post_norm":
        found["norm_output"] = True
    return {**found, **num_target_layers(frame)}


def engine_switches(options: Eagle3Options) -> Config:
    """Switches of `eagle_config` that NVIDIA's files and engines have beyond Model-Optimizer's. The one for feedback
    goes with `norm_output`, which by itself could be SpecForge's."""
    found: Config = {}
    if options.norm_before_fc:
        found["norm_before_fc"] = True
    if options.feedback == "post_norm":
        found["return_hidden_post_norm"] = True
    return found


WRITERS: Mapping[str, Callable[[Frame], Config]] = {
    "safeailab": safeailab, "modelopt": modelopt, "speculators": speculators,
}  # fmt: skip
