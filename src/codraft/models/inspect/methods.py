"""Is this drafter what the method takes it for?"""

from collections.abc import Iterator, Mapping

from codraft.core.errors import SpecError
from codraft.core.inspection import Finding
from codraft.formats.heads.detect import architectures
from codraft.formats.heads.head import KNOWN_MECHANISMS, OTHER_MECHANISMS
from codraft.models.inspect.pair import ENGINE_NAMES, HeadModel, Model, Pair, Rule, absent_evidence, asked

MISMATCH = Rule(
    code="method.mismatch",
    severity="error",
    title="The drafter is of another mechanism than the method asked for",
    consequence="The engine builds another graph than the weights were trained for: it fails at load, or it serves "
    "with acceptance near 1 and no warning.",
    fix="Name the method that the checkpoint is made for.",
    seen="sgl-project/sglang#21272",
)
HEAD_AS_MODEL = Rule(
    code="method.head_as_model",
    severity="error",
    title="A head that needs hidden states, given as an external model",
    consequence="It cannot run on token ids alone: loading fails on missing or misshapen tensors, or drafts are noise.",
    fix="Give it under its own mechanism.",
    seen="ml-explore/mlx-lm#1462",
)
MODEL_AS_HEAD = Rule(
    code="method.model_as_head",
    severity="error",
    varies="a warning for a pickle with a layer or two, which may be an early head",
    title="A language model of its own, given as a head",
    consequence="Engines copy the target's hidden states into it and fail on the width, or draft noise.",
    fix="Use it as an external drafter (vLLM: draft_model, SGLang: STANDALONE), if the vocabularies agree.",
    seen="vllm-project/vllm-ascend#7365",
)
NOT_RUN = Rule(
    code="method.other",
    severity="note",
    title="A mechanism that codraft knows by name only",
    consequence="Its tensors and its fit are not checked beyond sizes and vocabulary.",
    fix="Check acceptance on twenty prompts before you rely on it.",
)
NO_CLASS = Rule(
    code="architecture.absent",
    severity="warning",
    title="The config names no class",
    consequence="Engines choose their graph by `architectures`; without it they refuse the file, or take it for a "
    "plain model.",
    fix="Write the class name of its family into config.json.",
    seen="vllm-project/vllm#24967",
)
PLAIN_CLASS = Rule(
    code="architecture.plain",
    severity="warning",
    title="A head under the class name of a plain model",
    consequence="An engine that goes by `architectures` loads it as a plain model: tensors are missing, or drafts are "
    "noise.",
    fix="Name the method explicitly when serving, or write the head's class name (LlamaForCausalLMEagle3).",
    seen="vllm-project/vllm#30987",
)
LAYER_CLASS = Rule(
    code="architecture.layers",
    severity="warning",
    title="The class name and the tensors disagree about norms of queries and keys",
    consequence="A loader of Llama layers fails on q_norm and k_norm, or drops them and drafts badly; a loader of "
    "Qwen3 layers leaves them random where they are absent.",
    fix="Name the class after the layers: Qwen3-type layers have q_norm and k_norm, Llama-type layers have not.",
    seen="vllm-project/vllm#43132",
)
UNSUPPORTED = Rule(
    code="engine.mechanism",
    severity="warning",
    varies="a note where only some versions run it",
    title="The engine does not run this mechanism, or only some versions do",
    consequence="The server refuses to start, or runs another graph.",
    fix="Check the engine's version, or use a mechanism that it runs.",
)
NO_DRAFTER = Rule(
    code="method.no_drafter",
    severity="error",
    title="The method needs a drafter, and none is given",
    consequence="The engine refuses to start.",
    fix="Name the drafter after the target, or ask for mtp, ngram or suffix, which need none.",
)
NUMBERS = Rule(
    code="depth.numbers",
    severity="note",
    title="What each engine is told for one D",
    consequence="SGLang counts the anchor's slot among the draft tokens and wants three numbers; with two draft "
    "tokens it drafts one.",
    fix="Give each engine its own number.",
    seen="sgl-project/sglang#3883, gpustack/gpustack#3396",
)
DEEP = Rule(
    code="depth.large",
    severity="warning",
    title="More drafts than some kernels take",
    consequence="Older versions of vLLM verify at most 32 drafts of a request and fail beyond.",
    fix="Ask for 32 or fewer, or check the version.",
)
MULTIMODAL = Rule(
    code="external.multimodal",
    severity="warning",
    title="A multimodal model as an external drafter",
    consequence="vLLM refuses drafters with towers for images or sound, or with M-RoPE; others draft without what the "
    "target has seen.",
    fix="Use a text-only model with the target's tokenizer.",
)
RULES = (
    MISMATCH,
    HEAD_AS_MODEL,
    MODEL_AS_HEAD,
    NOT_RUN,
    NO_CLASS,
    PLAIN_CLASS,
    LAYER_CLASS,
    NO_DRAFTER,
    NUMBERS,
    DEEP,
    MULTIMODAL,
    UNSUPPORTED,
)

# What users and engines call the mechanisms.
METHODS = {
    "draft_model": "external",
    "drafttarget": "external",
    "draft_target": "external",
    "standalone": "external",
    "nextn": "mtp",
    "deepseek_mtp": "mtp",
    "qwen3_next_mtp": "mtp",
    "eagle-3": "eagle3",
    "eagle1": "eagle",
    "eagle2": "eagle",
    "p-eagle": "peagle",
}
HEADS = (*KNOWN_MECHANISMS, *OTHER_MECHANISMS)
# They need no weights.
FREE = ("ngram", "suffix")
# Mechanisms that an engine has no method for, by the engines' documentation of speculative decoding (references.md).
LACKS = {
    "vllm": ("domino",),
    "sglang": ("peagle", "medusa", "mlp_speculator"),
    "trtllm": ("eagle", "peagle", "medusa", "mlp_speculator", "dflash2", "domino"),
}
# Mechanisms that engines serve under another one's method; an engine where only that one does.
SERVED_AS: dict[str, tuple[str, str | None]] = {
    "peagle": ("eagle3", None),
    "gemma4_assistant": ("mtp", None),
    "dflash2": ("dflash", None),
    "domino": ("dflash", None),
    "mtp": ("eagle", "sglang"),
}
# A head has a layer or two; some have the target's number in their config, but then tensors that tell.
FEW_LAYERS = 2
OLD_MOST = 32
TOWERS = ("vision_config", "audio_config")
PLAIN_ENDINGS = ("ForCausalLM", "ForConditionalGeneration")


def asked_method(text: str | None, engine: str | None, *, alone: bool) -> str | None:
    """A mechanism's name, whatever the engine calls it; `alone`: no drafter is given. SpecError for an unknown word."""
    if text is None:
        return None
    name = METHODS.get(text.lower(), text.lower())
    if name not in ("external", *HEADS, *FREE):
        known = ", ".join(("external", *HEADS, *FREE))
        raise SpecError(f"--method '{text}' is not known; choose one of {known}, or an engine's own word")
    # SGLang's word for a target's own module.
    return "mtp" if name == "eagle" and engine == "sglang" and alone else name


def check(pair: Pair) -> Iterator[Finding]:
    """Method against architecture, class names, and what the engine runs."""
    method, drafter = pair.question.method, pair.drafter
    yield from check_depth(pair)
    if drafter is None:
        yield from check_alone(pair)
        return
    if isinstance(drafter, HeadModel):
        yield from check_head(pair, drafter)
    elif method in HEADS and method != "gemma4_assistant" and not (method == "mtp" and drafter.arch.mtp_layers):
        module = ", and it has no MTP module" if method == "mtp" else ""
        yield MODEL_AS_HEAD.found(
            f"{drafter.checkpoint.label} is a language model of {len(drafter.arch.layers)} layers, and the method is "
            f"{method}{module}",
            asked("method", method),
            drafter.key("architectures") if drafter.arch.architectures else drafter.key("model_type"),
            # Early heads look like plain models but for their tensors, and a pickle is not opened.
            severity="warning" if drafter.checkpoint.pickled and len(drafter.arch.layers) <= FEW_LAYERS else None,
        )
    elif method in FREE:
        yield MISMATCH.found(
            f"the method is {method}, which takes no drafter",
            asked("method", method),
            drafter.key("model_type"),
            fix="Leave the drafter out, or name the method it is for.",
        )
    else:
        yield from check_multimodal(drafter)
    if not architectures(drafter.config):
        yield NO_CLASS.found(
            "architectures is absent or empty", absent_evidence("drafter", "config.json", "architectures")
        )
    yield from check_engine(pair)


def check_alone(pair: Pair) -> Iterator[Finding]:
    """A method that needs a drafter, and none is given; some targets have theirs inside."""
    method = pair.question.method
    inside = method == "mtp" or (method == "dspark" and any(key.startswith("dspark_") for key in pair.target.arch.text))
    if method in ("external", *HEADS) and not inside:
        yield NO_DRAFTER.found(f"the method is {method}, and only a target is given", asked("method", method))


def check_depth(pair: Pair) -> Iterator[Finding]:
    """What each engine is told for one D; D beyond what older kernels take."""
    D = pair.question.depth
    if D is None:
        return
    block = pair.head is not None and pair.head.block is not None
    slots = f"--speculative-num-draft-tokens {D + 1}"
    serial = f"--speculative-num-steps {D} --speculative-eagle-topk 1 {slots}"
    yield NUMBERS.found(
        f"D = {D}",
        asked("depth", D),
        engines={
            "vllm": f"num_speculative_tokens {D}",
            "sglang": f"{slots if block else serial} (the anchor's slot counts)",
            "trtllm": f"max_draft_len {D}",
        },
    )
    if D > OLD_MOST:
        yield DEEP.found(f"D = {D}", asked("depth", D), engines={"vllm": f"older versions take at most {OLD_MOST}"})


def check_multimodal(drafter: Model) -> Iterator[Finding]:
    """Towers beside the language model, or positions in several dimensions."""
    towers = [key for key in TOWERS if isinstance(drafter.config.get(key), Mapping)]
    rope = drafter.arch.rope
    if towers:
        yield MULTIMODAL.found(f"its config has {' and '.join(towers)}", *(drafter.key(key) for key in towers))
    elif rope is not None and rope.kind == "mrope":
        yield MULTIMODAL.found("its positions have several dimensions (mrope)", drafter.key("rope_scaling"))


def check_head(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """A head against the method it was given under."""
    method, found, seen = pair.question.method, drafter.head.mechanism, drafter.head.kind.seen
    served, engine = SERVED_AS.get(found, (found, None))
    fits = method == found or (method == served and engine in (None, pair.question.engine))
    evidence = (
        asked("method", method),
        drafter.key(seen[0]) if seen[0] in drafter.config else drafter.key("architectures"),
    )
    if method == "external":
        yield HEAD_AS_MODEL.found(
            f"this is a head ({found}, seen by {seen[0]}), not a language model",
            *evidence,
            fix=f"Give it with --method {found}.",
        )
    elif method is not None and not fits:
        yield MISMATCH.found(
            f"the method is {method}, and the checkpoint is {found} (seen by {seen[0]})",
            *evidence,
            fix=f"Use the method {found}.",
        )
    if found not in KNOWN_MECHANISMS:
        yield NOT_RUN.found(f"the checkpoint is {found}, seen by {seen[0]}", drafter.key("architectures"))
    names = architectures(drafter.config)
    plain = [name for name in names if name.endswith(PLAIN_ENDINGS) and "eagle" not in name.lower()]
    if found == "eagle3" and plain and len(plain) == len(names):
        yield PLAIN_CLASS.found(
            f"the class is {plain[0]}, and {seen[0]} is that of an EAGLE-3 head", drafter.key("architectures")
        )
    if found == "eagle3" and names and drafter.tensors:
        normed = "layers.0.self_attn.q_norm.weight" in drafter.tensors
        qwen = any("qwen3" in name.lower() for name in names)
        llama = any("llama" in name.lower() for name in names)
        if (normed and llama) or (not normed and qwen and "layers.0.self_attn.q_proj.weight" in drafter.tensors):
            has = "has" if normed else "has no"
            yield LAYER_CLASS.found(
                f"the class is {names[0]}, and layer 0 {has} q_norm and k_norm", drafter.key("architectures")
            )


def check_engine(pair: Pair) -> Iterator[Finding]:
    """Whether the engine that was asked for runs the mechanism."""
    engine, drafter = pair.question.engine, pair.drafter
    if engine is None or drafter is None:
        return
    mechanism = drafter.head.mechanism if isinstance(drafter, HeadModel) else "external"
    if isinstance(drafter, Model) and pair.question.method in FREE:
        return
    name = ENGINE_NAMES[engine]
    if mechanism in LACKS[engine]:
        yield UNSUPPORTED.found(f"{name} has no method for {mechanism} in the versions read", asked("engine", engine))
    if mechanism == "mtp" and isinstance(drafter, HeadModel) and drafter.head.kind.family == "speculators":
        yield UNSUPPORTED.found(
            f"{name} reads no MTP modules in the layout of the speculators library",
            asked("engine", engine),
            drafter.key("speculators_model_type"),
            fix="Convert it with codraft convert --to native, where its target's family has modules of its own.",
        )
    if engine == "vllm" and mechanism == "dspark":
        yield UNSUPPORTED.found(
            "vLLM 0.32 runs dspark in its newer GPU runner only", asked("engine", engine), severity="note"
        )
