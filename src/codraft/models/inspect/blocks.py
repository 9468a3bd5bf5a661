"""Block drafters (DFlash, DSpark): size of the block, mask token, which token a slot predicts, serial heads."""

from collections.abc import Iterator

from codraft.core.inspection import Evidence, Finding, Severity
from codraft.formats.fields import Fields
from codraft.formats.heads.detect import architectures
from codraft.formats.heads.head import Block
from codraft.models.inspect.features import RANGE
from codraft.models.inspect.pair import HeadModel, Pair, Rule, absent_evidence, asked, elsewhere
from codraft.models.inspect.positions import window_of

CONFLICT = Rule(
    code="block.conflict",
    severity="error",
    title="A setting of the block stands in two places and differs",
    consequence="Each engine reads its own place: with a block of another length, another mask token or another "
    "mask every position is drafted badly.",
    fix="Write what the training had into both.",
    seen="sgl-project/SpecForge#772",
)
ABSENT = Rule(
    code="block.absent",
    severity="warning",
    title="No block size in the config",
    consequence="Engines take a default: SGLang 16 for DFlash and 7 for DSpark.",
    fix="Write block_size.",
)
DEPTH = Rule(
    code="block.depth",
    severity="error",
    title="More tokens are asked than the block drafts",
    consequence="Every position collapses, not only the last ones: acceptance length 1.3 instead of 2.7 in one report.",
    fix="Ask for at most the block's own number of drafts.",
    seen="vllm-project/vllm#41834",
)
SHORT = Rule(
    code="block.short",
    severity="note",
    title="Fewer tokens are asked than the block drafts",
    consequence="vLLM runs DFlash at D with a block of 1 + D slots, which is not the block it was trained with; "
    "others run the whole block and cut. Whether DSpark may run short is disputed between two public "
    "reports.",
    fix="Measure both D on the engine.",
    seen="vllm-project/vllm#47419, #50012",
)
MASK_ABSENT = Rule(
    code="mask.absent",
    severity="error",
    varies="a warning without tensors, since some heads have a mask embedding",
    title="No mask token",
    consequence="The slots to be drafted have no input; engines fail, or feed token 0.",
    fix="Write mask_token_id, or export the mask embedding.",
)
MASK_RANGE = Rule(
    code="mask.range",
    severity="error",
    varies="a warning where the head's own embedding has the row",
    title="The mask token is no row of the target's embedding",
    consequence="The drafter borrows the target's embedding, so the look-up goes out of bounds.",
    fix="Use an id below the rows of the target's embedding that no text uses.",
    seen="NVIDIA/Model-Optimizer#1621",
)
ALIGNMENT = Rule(
    code="block.alignment",
    severity="warning",
    varies="an error for SGLang where the early convention is stated",
    title="The class name does not tell which token a slot predicts",
    consequence="The same name stands for two graphs: slots that predict their own position, and slots that predict"
    " the next one. Read as the other, every draft is one position off.",
    fix="Serve it with an engine that reads the switch of this family (`shift_label`, `sample_from_anchor`, "
    "`projector_type`), and check the acceptance of the first position.",
)
MARKOV_ZERO = Rule(
    code="markov.absent",
    severity="warning",
    varies="an error for SGLang, which refuses it",
    title="A DSpark checkpoint without a Markov head",
    consequence="SGLang requires markov_rank above 0; others run it as a block drafter whose slots predict the next "
    "position.",
    fix="Serve it with an engine that runs it so, or train the head.",
)
CAUSAL = Rule(
    code="block.causal_absent",
    severity="warning",
    title="A speculators file that does not say whether sliding layers are causal",
    consequence="vLLM takes a missing sliding_window_non_causal as not causal, while the library's default is causal.",
    fix="Write sliding_window_non_causal.",
)
REDUCED = Rule(
    code="block.reduced",
    severity="warning",
    title="A reduced vocabulary in a layout that has none",
    consequence="Only the speculators library's layout has a block drafter's own output head and map; loaders of "
    "the others borrow the target's head and ignore yours.",
    fix="Export it in the speculators layout, or draft from the whole vocabulary.",
)
CONFIDENCE = Rule(
    code="confidence.unused",
    severity="note",
    title="The confidence head is used by few engines",
    consequence="SGLang builds it only in its non-static verify modes; without a cost table all drafts are verified.",
    fix="Switch on the scheduling of your engine if you rely on it at high load.",
)
RULES = (CONFLICT, ABSENT, DEPTH, SHORT, MASK_ABSENT, MASK_RANGE, ALIGNMENT, MARKOV_ZERO, CAUSAL, REDUCED, CONFIDENCE)


# Keys that say the same thing.
ALIASES = (
    ("block_size", "dflash_config.block_size", "dspark_block_size", "dspark_config.block_size"),
    ("mask_token_id", "dflash_config.mask_token_id", "dspark_noise_token_id"),
    ("dflash_config.causal", "is_causal"),
    ("markov_rank", "dflash_config.markov_rank", "dspark_markov_rank"),
    ("markov_head_type", "dflash_config.markov_head_type", "dspark_markov_head_type"),
)


def check(pair: Pair) -> Iterator[Finding]:
    """Everything of a block drafter."""
    drafter = pair.drafter
    if drafter is None:
        yield from check_inside(pair)
    if not isinstance(drafter, HeadModel) or drafter.head.block is None:
        return
    block = drafter.head.block
    yield from check_size(pair, drafter, block)
    yield from check_mask(pair, drafter, block)
    yield from check_alignment(drafter, pair.question.engine)
    if drafter.head.reduced and drafter.head.kind.family != "speculators":
        tokens = f"{drafter.head.draft_vocab_size} of {drafter.head.vocab_size} tokens"
        yield REDUCED.found(f"{tokens}, in the {drafter.head.kind.family} layout", drafter.key("draft_vocab_size"))
    if drafter.head.mechanism == "dspark":
        yield from check_heads(drafter, pair.question.engine)
    windowed = drafter.head.kind.family == "speculators" and window_of(drafter) is not None
    if windowed and drafter.key("sliding_window_non_causal").value is None:
        yield CAUSAL.found(
            "sliding_window_non_causal is absent",
            absent_evidence("drafter", "config.json", "sliding_window_non_causal"),
        )


def check_inside(pair: Pair) -> Iterator[Finding]:
    """DSpark stages that a target brings (DeepSeek-V4): their block, mask token and layer ids."""
    target, arch = pair.target, pair.target.arch
    fields = Fields(arch.text, arch.path)
    size, token = fields.size("dspark_block_size"), fields.size("dspark_noise_token_id", lowest=0)
    ids, L = fields.ids("dspark_target_layer_ids") or (), len(arch.layers)
    D, method = pair.question.depth, pair.question.method
    if D is not None and size is not None and size < D and method in (None, "dspark"):
        yield DEPTH.found(
            f"D = {D}, and the target's own block drafts {size}",
            asked("depth", D),
            target.key("dspark_block_size"),
            fix=f"Ask for D of at most {size}.",
        )
    if token is not None and token >= arch.vocab_size:
        yield MASK_RANGE.found(
            f"dspark_noise_token_id is {token}, and the embedding has {arch.vocab_size} rows",
            target.key("dspark_noise_token_id"),
            target.key("vocab_size"),
        )
    if outside := [i for i in ids if not -1 <= i < L]:
        yield RANGE.found(
            f"dspark_target_layer_ids has {outside}; allowed for {L} layers are -1..{L - 1}",
            target.key("dspark_target_layer_ids"),
            target.key("num_hidden_layers"),
        )


def check_size(pair: Pair, drafter: HeadModel, block: Block) -> Iterator[Finding]:
    """Block sizes against each other and against D."""
    for keys in ALIASES:
        stated = {key: drafter.key(key).value for key in keys if drafter.key(key).value is not None}
        if len({str(value) for value in stated.values()}) > 1:
            yield CONFLICT.found(
                " and ".join(f"{key} is {value}" for key, value in stated.items()), *map(drafter.key, stated)
            )
    if block.size is None:
        yield ABSENT.found(
            f"block_size is absent{elsewhere(drafter.config, 'block_size')}",
            absent_evidence("drafter", "config.json", "block_size"),
        )
        return
    D, most, key = pair.question.depth, drafter.head.max_D, next(iter(block.sizes))
    if D is None or most is None:
        return
    how = "all of which draft" if drafter.head.alignment == "next_slot" else "the first of which holds the anchor"
    if most < D:
        yield DEPTH.found(
            f"D = {D}, and a block of {block.size} slots, {how}, drafts {most}",
            asked("depth", D),
            drafter.key(key),
            fix=f"Ask for D of at most {most}." if most else "A block of one slot drafts nothing: mend block_size.",
        )
    elif most > D:
        yield SHORT.found(
            f"D = {D}, and a block of {block.size} slots drafts {most}", asked("depth", D), drafter.key(key)
        )


def check_mask(pair: Pair, drafter: HeadModel, block: Block) -> Iterator[Finding]:
    """The token that fills the slots to be drafted."""
    own = any(name.startswith("mask_embedding") for name in drafter.tensors)
    rows, table = pair.target.arch.vocab_size, drafter.tensors.get("embed_tokens.weight")
    if block.mask_token_id is None and not own:
        yield MASK_ABSENT.found(
            f"mask_token_id is absent{elsewhere(drafter.config, 'mask_token_id')}",
            absent_evidence("drafter", "config.json", "mask_token_id"),
            # Some heads have a tensor instead.
            severity=None if drafter.tensors else "warning",
        )
    elif block.mask_token_id is not None and block.mask_key is not None and block.mask_token_id >= rows and not own:
        yield MASK_RANGE.found(
            f"{block.mask_key} is {block.mask_token_id}, and the target's embedding has {rows} rows",
            drafter.key(block.mask_key),
            pair.target.key("vocab_size"),
            severity="warning"
            if table is not None and len(table.shape) == 2 and table.shape[0] > block.mask_token_id
            else None,
        )


def check_alignment(drafter: HeadModel, engine: str | None) -> Iterator[Finding]:
    """DFlashDraftModel is used by three graphs."""
    names = architectures(drafter.config)
    next_slot = drafter.head.alignment == "next_slot"
    if next_slot and "DFlashDraftModel" in names:
        yield ALIGNMENT.found(
            "the class is DFlashDraftModel, and slots predict the next position", drafter.key("architectures")
        )
    anchor = drafter.key("sample_from_anchor")
    early = drafter.head.kind.family == "speculators" and anchor.value is not True
    if drafter.head.mechanism == "dspark" and early:
        said = "absent" if anchor.value is None else "false"
        yield ALIGNMENT.found(
            f"sample_from_anchor is {said}, and early files of the library predict their own position",
            anchor,
            engines={"sglang": "refuses files of the early convention"},
            severity="error" if engine == "sglang" and anchor.value is False else None,
        )
    markov = drafter.head.markov
    if drafter.head.mechanism == "dspark" and markov is not None and not markov.rank:
        yield ALIGNMENT.found(
            "markov_rank is 0: a DFlash backbone whose slots predict the next position", rank_key(drafter)
        )


def rank_key(drafter: HeadModel) -> Evidence:
    """Where the rank stands, or would."""
    nested = drafter.key("dflash_config.markov_rank")
    return drafter.key("markov_rank") if nested.value is None else nested


def check_heads(drafter: HeadModel, engine: str | None) -> Iterator[Finding]:
    """Markov and confidence heads."""
    markov = drafter.head.markov
    if markov is None or not markov.rank:
        what = "markov_rank is absent" if markov is None else "markov_rank is 0"
        refused: Severity | None = "error" if engine == "sglang" else None
        yield MARKOV_ZERO.found(what, rank_key(drafter), engines={"sglang": "refuses it"}, severity=refused)
    elif markov.confidence:
        yield CONFIDENCE.found("the checkpoint has a confidence head", drafter.key("architectures"))
