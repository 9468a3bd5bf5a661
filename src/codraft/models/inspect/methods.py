"""Is this drafter what the method takes it for?"""

from collections.abc import Iterator, Mapping

from codraft.core.inspection import Finding
from codraft.formats.heads.detect import architectures
from codraft.formats.heads.head import OTHER_MECHANISMS
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, absent_evidence, asked

MISMATCH = Rule(
    code="method.mismatch",
    severity="error",
    title="The drafter is of another mechanism than the method asked for",
    consequence="The engine builds another graph than the weights were trained for: it fails at load, or it serves "
    "with acceptance near 1 and no warning.",
    fix="Name the method that the checkpoint is made for.",
    seen="sgl-project/sglang#21272, vllm-project/vllm#54526",
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
    title="The engine does not run this mechanism, or only some versions do",
    consequence="The server refuses to start, or runs another graph.",
    fix="Check the engine's version, or use a mechanism that it runs.",
)
MULTIMODAL = Rule(
    code="external.multimodal",
    severity="warning",
    title="A multimodal model as an external drafter",
    consequence="vLLM refuses drafters with towers for images or sound, or with M-RoPE; others draft without what the "
    "target has seen.",
    fix="Use a text-only model with the target's tokenizer.",
)
RULES = (MISMATCH, HEAD_AS_MODEL, MODEL_AS_HEAD, NOT_RUN, NO_CLASS, PLAIN_CLASS, LAYER_CLASS, MULTIMODAL, UNSUPPORTED)

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
HEADS = ("eagle3", "mtp", "dflash", "dspark", *OTHER_MECHANISMS)
NO_DRAFTER = ("ngram", "suffix")
# What each engine calls a mechanism; None: it has none. Sources: each engine's documentation of speculative decoding.
ENGINE_METHODS: dict[str, dict[str, str | None]] = {
    "vllm": {"external": "draft_model", "eagle3": "eagle3", "mtp": "mtp", "dflash": "dflash", "dspark": "dspark",
             "eagle": "eagle", "peagle": "eagle3 with parallel_drafting", "dflash2": "dflash (V2 runner)",
             "medusa": "medusa", "mlp_speculator": "mlp_speculator", "gemma4_assistant": "mtp", "domino": None},
    "sglang": {"external": "STANDALONE", "eagle3": "EAGLE3", "mtp": "EAGLE or NEXTN", "dflash": "DFLASH",
               "dspark": "DSPARK", "eagle": "EAGLE", "gemma4_assistant": "frozen-KV MTP", "domino": "DFLASH",
               "peagle": None, "medusa": None, "mlp_speculator": None},
    "trtllm": {"external": "DraftTarget", "eagle3": "Eagle3", "mtp": "MTP", "dflash": "DFlash", "dspark": "DSpark",
               "eagle": None, "peagle": None, "medusa": None, "mlp_speculator": None, "dflash2": None, "domino": None},
}  # fmt: skip


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
TOWERS = ("vision_config", "audio_config")
PLAIN_ENDINGS = ("ForCausalLM", "ForConditionalGeneration")
# The mechanisms whose graph codraft knows.
KNOWN = ("eagle3", "mtp", "dflash", "dspark")


def canonical_method(text: str) -> str:
    """A mechanism's name, whatever the engine calls it."""
    return METHODS.get(text.lower(), text.lower())


def check(pair: Pair) -> Iterator[Finding]:
    """Method against architecture, class names, and what the engine runs."""
    method, drafter = pair.question.method, pair.drafter
    if drafter is None:
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
    elif method in NO_DRAFTER:
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


def check_multimodal(drafter: Model) -> Iterator[Finding]:
    """Towers beside the language model."""
    towers = [key for key in TOWERS if isinstance(drafter.config.get(key), Mapping)]
    if towers:
        yield MULTIMODAL.found(f"its config has {' and '.join(towers)}", *(drafter.key(key) for key in towers))


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
    if found not in KNOWN:
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
    if isinstance(drafter, Model) and pair.question.method in NO_DRAFTER:
        return
    if ENGINE_METHODS[engine].get(mechanism, "") is None:
        yield UNSUPPORTED.found(f"{engine} has no method for {mechanism} in the versions read", asked("engine", engine))
    if engine == "vllm" and mechanism == "dspark":
        yield UNSUPPORTED.found(
            "vLLM runs dspark in its GPU runner only, and not before 0.33",
            asked("engine", engine),
            severity="note",
        )
