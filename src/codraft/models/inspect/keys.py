"""Keys of a drafter's config that mean two things, that a reader ignores, or that name another target."""

from collections.abc import Iterator, Mapping

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
PROPOSAL = Rule(
    code="block.proposal",
    severity="warning",
    title="The file proposes more drafts than its block has",
    consequence="Engines that take the file's own number ask for a draft that was never trained; a block of 8 that "
    "holds the anchor drafts 7.",
    fix="Write what the block drafts into speculative_tokens, and ask for it by flag.",
    seen="vllm-project/speculators#456",
)
DTYPE = Rule(
    code="dtype.differs",
    severity="note",
    title="Drafter and target name different dtypes",
    consequence="Engines cast one of them, as a rule the drafter. It costs a little acceptance, never all of it.",
    fix="Nothing to do; look elsewhere if acceptance is near 1.",
    seen="vllm-project/vllm#41789",
)
REMOTE = Rule(
    code="code.remote",
    severity="note",
    title="The config names code to be run",
    consequence="Some loaders run it when they are told to trust remote code. codraft never does, and engines with "
    "a class of their own need none.",
    fix="Leave trust_remote_code off unless the engine lacks the class.",
)
DRAFT_VOCAB_KEY = Rule(
    code="draft_vocab.key",
    severity="warning",
    varies="an error where the map is a reduced one, else a note",
    title="A reduced draft vocabulary that the config does not declare",
    consequence="Without draft_vocab_size SGLang uses the target's output head: drafted ids mean other tokens.",
    fix="Write draft_vocab_size (the rows of lm_head) into config.json.",
)
RULES = (
    RESIDUAL, OUTPUT, EXCLUSIVE, NO_AUX, LAYERS, VERIFIER, VERIFIER_NAME, IGNORED, PROPOSAL, DTYPE, REMOTE,
    DRAFT_VOCAB_KEY,
)  # fmt: skip

# (mechanisms, dotted config key or tensor, engine, what it makes of it). Read in vLLM 0.32, SGLang and TensorRT-LLM
# sources; see docs/references.md.
NORM_BEFORE = ("norm_before_fc", "eagle_config.norm_before_fc")
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
    yield from check_proposals(drafter)
    yield from check_dtype(pair, drafter)
    if drafter.key("auto_map").value is not None:
        yield REMOTE.found("auto_map is there", drafter.key("auto_map"))
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
    before = next((key for key in NORM_BEFORE if drafter.key(key).value is True), None)
    if config.get("fc_norm") is True and before is not None:
        yield EXCLUSIVE.found(f"fc_norm and {before} are both true", drafter.key("fc_norm"), drafter.key(before))
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


def check_proposals(drafter: HeadModel) -> Iterator[Finding]:
    """The D that a speculators file proposes, against its own block."""
    methods, most = drafter.key("speculators_config.proposal_methods").value, drafter.head.max_D
    asked = [part.get("speculative_tokens") for part in methods or [] if isinstance(part, Mapping)]
    too_many = [D for D in asked if isinstance(D, int) and most is not None and most < D]
    if too_many:
        yield PROPOSAL.found(
            f"speculative_tokens is {too_many[0]}, and the block drafts {most}",
            drafter.key("speculators_config.proposal_methods"),
            drafter.key("block_size"),
        )


def check_dtype(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """The dtype that each config names."""
    keys = [next((key for key in ("dtype", "torch_dtype") if side.key(key).value is not None), "dtype")
            for side in (pair.target, drafter)]  # fmt: skip
    theirs, ours = pair.target.key(keys[0]), drafter.key(keys[1])
    if isinstance(theirs.value, str) and isinstance(ours.value, str) and theirs.value != ours.value:
        yield DTYPE.found(f"{ours.value} in the drafter, {theirs.value} in the target", ours, theirs)


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
