"""Keys of a drafter's config that mean two things, that a reader ignores, or that name another target."""

from collections.abc import Iterator

from codraft.core.inspection import Finding
from codraft.models.inspect.pair import ENGINES, HeadModel, Pair, Rule, absent_evidence, tensor_evidence

RESIDUAL = Rule(
    code="norm.before_residual",
    severity="warning",
    title="A speculators file that does not say norm_before_residual",
    consequence="The library takes false, vLLM's converter true: another graph than was trained.",
    fix="Write norm_before_residual as it was trained.",
)
OUTPUT = Rule(
    code="norm.output",
    severity="warning",
    title="norm_output means two things",
    consequence="In speculators it feeds the normed hidden state back between drafts; in SpecForge it puts the norm"
    " in front of the head only. Read the other way, acceptance falls from the second position on.",
    fix="Serve the file with a reader of its own family, and compare the conditional acceptance of positions 1 and 2.",
)
EXCLUSIVE = Rule(
    code="norm.exclusive",
    severity="error",
    title="Two norms in front of fc that exclude each other",
    consequence="fc_norm norms each feature, norm_before_fc all of them together; a file can have one of them.",
    fix="Keep the one that has tensors (fc_norm.0.weight, or input_norm.weight).",
)
NO_AUX = Rule(
    code="taps.off",
    severity="warning",
    title="The head reads the last hidden state alone",
    consequence="An engine that captures three layers for every EAGLE-3 head feeds it other features than it was "
    "trained on.",
    fix="Check that the engine's version reads use_aux_hidden_state; the acceptance of the first position tells.",
    seen="sgl-project/sglang#14920",
)
LAYERS = Rule(
    code="layers.declared",
    severity="warning",
    title="The config gives more layers than the file holds",
    consequence="Engines that build as many layers as num_hidden_layers says refuse the file, or leave the others "
    "random.",
    fix='Write "num_hidden_layers": 1; some early heads give the target\'s number there.',
    seen="NickL77/BaldEagle#6",
)
VERIFIER = Rule(
    code="verifier.other",
    severity="warning",
    title="The drafter names another target",
    consequence="A head fits the model it was trained for; on a fine-tune of it acceptance is lower, on another "
    "model it is noise.",
    fix="Use it with the target it names, or measure AL on this one before serving.",
    seen="SafeAILab/EAGLE#98, #184",
)
VERIFIER_NAME = Rule(
    code="verifier.name",
    severity="note",
    title="The drafter names a target of another name",
    consequence="It may be the same model under another path, a quantization or a fine-tune of it.",
    fix="Measure AL if it is a fine-tune.",
    seen="SafeAILab/EAGLE#98",
)
IGNORED = Rule(
    code="keys.ignored",
    severity="note",
    title="Keys and tensors that an engine ignores",
    consequence="What they ask for does not happen, and nothing is said.",
    fix="Set it on the engine's command line where there is a flag, or do not rely on it.",
    seen="vllm-project/vllm#52258",
)
DRAFT_VOCAB_KEY = Rule(
    code="draft_vocab.key",
    severity="warning",
    title="A reduced draft vocabulary that the config does not declare",
    consequence="Without draft_vocab_size SGLang uses the target's output head: drafted ids mean other tokens.",
    fix="Write draft_vocab_size (the rows of lm_head) into config.json.",
)
RULES = (RESIDUAL, OUTPUT, EXCLUSIVE, NO_AUX, LAYERS, VERIFIER, VERIFIER_NAME, IGNORED, DRAFT_VOCAB_KEY)

# (mechanisms, dotted config key or tensor, engine, what it makes of it). Read in vLLM 0.32, SGLang and TensorRT-LLM
# sources; see docs/references.md.
UNREAD: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (("dspark",), "embed_tokens.weight", "sglang", "skips it and uses the target's"),
    (("dspark",), "lm_head.weight", "sglang", "skips it and uses the target's"),
    (("dspark",), "confidence_head.proj.weight", "sglang", "is not built in static verify mode"),
    (("dflash",), "dflash_config.use_swa", "sglang", "is not read; set --speculative-draft-window-size"),
    (("eagle3",), "eagle_config.parallel_draft_step", "vllm", "is not read; set parallel_drafting when serving"),
)  # fmt: skip


def check(pair: Pair) -> Iterator[Finding]:
    """All of a head's doubtful keys."""
    drafter = pair.drafter
    if not isinstance(drafter, HeadModel):
        return
    if drafter.head.mechanism == "eagle3":
        yield from check_eagle(drafter)
    yield from check_verifier(pair, drafter)
    yield from check_unread(pair, drafter)


def check_eagle(drafter: HeadModel) -> Iterator[Finding]:
    """EAGLE-3's switches."""
    config, family = drafter.config, drafter.head.kind.family
    if family == "speculators" and config.get("norm_before_residual") is None:
        yield RESIDUAL.found(
            "norm_before_residual is absent", absent_evidence("drafter", "config.json", "norm_before_residual")
        )
    # Each family's own default is the graph that everybody means.
    if config.get("norm_output") is (family == "speculators"):
        yield OUTPUT.found(f"norm_output is {config['norm_output']} in a {family} file", drafter.key("norm_output"))
    if config.get("fc_norm") is True and config.get("norm_before_fc") is True:
        yield EXCLUSIVE.found(
            "fc_norm and norm_before_fc are both true", drafter.key("fc_norm"), drafter.key("norm_before_fc")
        )
    if drafter.key("eagle_config.use_aux_hidden_state").value is False:
        yield NO_AUX.found("use_aux_hidden_state is false", drafter.key("eagle_config.use_aux_hidden_state"))
    declared = drafter.head.text.get("num_hidden_layers")
    if isinstance(declared, int) and declared > drafter.head.geometry.num_layers:
        yield LAYERS.found(
            f"num_hidden_layers is {declared}, and the file holds {drafter.head.geometry.num_layers}",
            drafter.key("num_hidden_layers"),
        )
    if config.get("draft_vocab_size") is None and "d2t" in drafter.tensors:
        yield DRAFT_VOCAB_KEY.found(
            f"d2t maps {drafter.head.draft_vocab_size} tokens, and draft_vocab_size is absent",
            absent_evidence("drafter", "config.json", "draft_vocab_size"),
            severity="error" if drafter.head.reduced else "note",
        )


def check_verifier(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """The target that a speculators file names."""
    prefix = "speculators_config.verifier"
    names, name = drafter.key(f"{prefix}.architectures").value, drafter.key(f"{prefix}.name_or_path").value
    ours = pair.target.arch.architectures
    if isinstance(names, list) and names and ours and not set(map(str, names)) & set(ours):
        yield VERIFIER.found(
            f"it was made for {names[0]}, and the target is {ours[0]}",
            drafter.key(f"{prefix}.architectures"),
            pair.target.key("architectures"),
        )
        return
    if isinstance(name, str) and name and last(name) != last(pair.target.checkpoint.label):
        yield VERIFIER_NAME.found(
            f"it names {name}, and the target is {pair.target.checkpoint.label}", drafter.key(f"{prefix}.name_or_path")
        )


def last(path: str) -> str:
    """Last part of a path or id, in lower case."""
    return path.rstrip("/").rpartition("/")[2].partition("@")[0].lower()


def check_unread(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """What the engines ignore, of what is there."""
    found = [
        (key, engine, words)
        for mechanisms, key, engine, words in UNREAD
        if drafter.head.mechanism in mechanisms
        and (key in drafter.tensors or drafter.key(key).value not in (None, False))
        and pair.question.engine in (None, engine)
    ]
    if found:
        keys = sorted({key for key, _, _ in found})
        remarks = {
            engine: "; ".join(f"{key}: {words}" for key, name, words in found if name == engine)
            for engine in ENGINES
            if any(name == engine for _, name, _ in found)
        }
        tensors = drafter.tensors
        evidence = (tensor_evidence("drafter", tensors[key]) if key in tensors else drafter.key(key) for key in keys)
        yield IGNORED.found(", ".join(keys), *evidence, engines=remarks)
