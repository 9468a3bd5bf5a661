"""Do target and drafter mean the same tokens by the same ids?"""

import re
from collections.abc import Iterator

from codraft.core.inspection import Evidence, Finding, Vocabulary
from codraft.formats.draftmap import DraftMap, plain_map, read_draft_map
from codraft.formats.safetensors import read_raw, read_values
from codraft.formats.vocab import special_ids
from codraft.models.inspect.pair import (
    HeadModel,
    Model,
    Pair,
    Rule,
    absent_evidence,
    config_evidence,
    seen_at,
    tensor_evidence,
)

DIFFERENT = Rule(
    code="vocab.different",
    severity="error",
    varies="a warning for fewer than 16 ids",
    title="The same ids mean other strings",
    consequence="Drafts are other text than the target would write: they are refused, and engines that do not compare "
    "tokenizers say nothing.",
    fix="Use a drafter with the target's tokenizer, or an engine's way across vocabularies (vLLM "
    "use_heterogeneous_vocab, transformers' universal assisted generation).",
    seen="sgl-project/sglang#23838, vllm-project/vllm#13849",
)
PERMUTED = Rule(
    code="vocab.permuted",
    severity="error",
    title="The same strings under other ids",
    consequence="Sizes agree, so every size check passes, and every draft means another token.",
    fix="Use a drafter with the target's tokenizer; a map of ids would also do, and no engine has one.",
    seen="sgl-project/sglang#23838",
)
EXTENDED = Rule(
    code="vocab.extended",
    severity="warning",
    title="One vocabulary has tokens that the other lacks",
    consequence="Where the target writes such a token the draft is refused; where the drafter proposes one, the id "
    "may have no row in the target.",
    fix="Harmless if those tokens are rare in your text; add them to the drafter if they are your turn or tool "
    "markers.",
    seen="ggml-org/llama.cpp#3812, #22358",
)
PADDED = Rule(
    code="vocab.padded",
    severity="note",
    varies="an error for vLLM, which refuses unequal sizes",
    title="Equal vocabularies, embeddings padded differently",
    consequence="The pair is right; engines that compare sizes refuse it.",
    fix="Pad the smaller embedding with rows that are never drawn, or use an engine that compares tokenizers.",
    seen="vllm-project/vllm#7252, #10913",
)
UNSAFE = Rule(
    code="vocab.rows",
    severity="error",
    varies="a warning for fewer than 16 ids",
    title="Tokens without a row in one embedding",
    consequence="An id past the last row crashes the look-up, or wraps to another token.",
    fix="Resize the embedding to the tokenizer, in the checkpoint.",
)
UNKNOWN = Rule(
    code="vocab.unknown",
    severity="warning",
    varies="an error where the sizes differ",
    title="The vocabularies could not be compared",
    consequence="Sizes do not tell: an id may mean another string, and then every draft is refused.",
    fix="Put tokenizer.json beside both models.",
)
SPECIAL = Rule(
    code="vocab.special",
    severity="warning",
    varies="a note where the end of text is the same",
    title="Other special tokens",
    consequence="A drafter that ends its text with another token never proposes the target's end, or proposes an "
    "end that is none.",
    fix="Harmless where only the default differs and the chat template writes the right one; check the end-of-turn "
    "token.",
)
SIZE = Rule(
    code="vocab.size",
    severity="error",
    title="The head was made for a vocabulary of another size",
    consequence="Embedding, output head and map of ids belong to another tokenizer: loading fails, or ids mean "
    "other tokens.",
    fix="This head belongs to another target; find the one it was trained for, or train one for this target.",
)
SIZE_PADDING = Rule(
    code="vocab.size_padding",
    severity="warning",
    title="The head's vocabulary is a little larger or smaller than the target's",
    consequence="Usually padding of the embedding; loading may still fail on the shape.",
    fix="Check that the head was trained for this target, and pad or cut its embedding to the target's rows.",
    seen="vllm-project/vllm#7252",
)
MAP_ABSENT = Rule(
    code="d2t.absent",
    severity="error",
    title="A reduced draft vocabulary without its map",
    consequence="Drafted ids are taken for the target's: they mean other tokens, and nothing is accepted.",
    fix="Export d2t (target id minus draft id, for every draft id) with the checkpoint.",
    seen="alibaba/rtp-llm#521, vllm-project/vllm-ascend#16166",
)
MAP_ABSOLUTE = Rule(
    code="d2t.absolute",
    severity="error",
    title="The map holds target ids, where engines read offsets",
    consequence="vLLM and SGLang add the draft id to each entry: drafted ids mean other tokens, or are out of range.",
    fix="Subtract the draft id from each entry.",
)
MAP_BROKEN = Rule(
    code="d2t.inconsistent",
    severity="error",
    title="The map of draft ids is broken",
    consequence="Some drafted ids mean other tokens, or none.",
    fix="Build the map again from the counts it was trained with.",
    seen="sgl-project/SpecForge#76",
)
MAP_DOUBTFUL = Rule(
    code="d2t.doubtful",
    severity="warning",
    title="The map of draft ids is odd",
    consequence="It may be right; it may be a buffer that was never filled.",
    fix="Compare it with the vocabulary that the head was trained with.",
)
INVERSE_ABSENT = Rule(
    code="t2d.absent",
    severity="note",
    title="No t2d beside the map",
    consequence="Engines do not need it; some trainers and exporters do.",
    fix="Nothing to do for serving.",
)
MASK_USED = Rule(
    code="mask.used",
    severity="warning",
    title="The mask token is a token of ordinary text",
    consequence="Slots to be drafted carry that token's embedding, and text that holds the token looks like a slot."
    " Heads are trained with an id that no text uses.",
    fix="Compare mask_token_id with the training configuration; tokenizers of another revision shift added ids.",
    seen="NVIDIA/Model-Optimizer#1621",
)
KEPT = Rule(
    code="draft_vocab.kept",
    severity="warning",
    varies="a note where only ids of bytes are missing",
    title="The draft vocabulary lacks tokens that every text needs",
    consequence="The end of an answer, or bytes that spell rare words and other scripts, can never be drafted: "
    "acceptance falls where they are written.",
    fix="Pin special and byte tokens when you build the draft vocabulary.",
    seen="MiaAI-Lab/Qwen3.8-Flash-Next-Single-DGX-Spark#43",
)
COVERAGE = Rule(
    code="draft_vocab.coverage",
    severity="note",
    varies="a warning below 90 %",
    title="What the draft vocabulary covers of a text",
    consequence="A token outside it is never drafted, so acceptance at each position is at most this share.",
    fix="Build the draft vocabulary from your own text, with special and byte tokens kept.",
    seen="vllm-project/vllm#24343",
)
RULES = (
    DIFFERENT, PERMUTED, EXTENDED, PADDED, UNSAFE, UNKNOWN, SPECIAL, SIZE, SIZE_PADDING, MAP_ABSENT, MAP_ABSOLUTE,
    MAP_BROKEN, MAP_DOUBTFUL, INVERSE_ABSENT, MASK_USED, KEPT, COVERAGE,
)  # fmt: skip

# Embeddings are padded to multiples of at most this.
PADDING = 1024
# Problems of a map that change what drafted ids mean.
BROKEN = ("dtype", "shape", "length", "range", "duplicates", "t2d")
LOW_COVERAGE = 0.9
# Ids that a vocabulary may lack without harm to ordinary text.
FEW_IDS = 16
READABLE = ("I64", "U64", "I32", "U32", "I16", "U16", "I8", "U8", "F32")
# Ids of single bytes, in byte-level vocabularies. Bytes of other scripts are rare by themselves, so that maps made from
# counts lose many of them.
BYTES = 256
MOST_LOST = 192
# Tokens that text does not hold by itself: <mask>, <|MASK|>, <unused4>, [MASK].
MARKER = re.compile(r"[<\[].*[>\]]", re.DOTALL)
# Bytes of a map that are read: 2 MiB for 256K ids.
MOST_IDS = 1 << 20


def check(pair: Pair) -> Iterator[Finding]:
    """Tokenizers of an external model; size and map of a head."""
    drafter = pair.drafter
    if isinstance(drafter, Model) and pair.vocabulary is not None:
        yield from check_external(pair, drafter, pair.vocabulary)
    elif isinstance(drafter, HeadModel) and drafter.head.mechanism not in ("medusa", "mlp_speculator"):
        yield from check_size(pair.target, drafter)
        yield from check_map(pair, drafter)
        yield from check_mask(pair, drafter)


def check_mask(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """A mask id that the tokenizer gives to text; one in angle brackets or bars is a marker, as masks are."""
    block, token = drafter.head.block, pair.mask_token
    if block is None or block.mask_key is None or token is None or MARKER.fullmatch(token):
        return
    yield MASK_USED.found(f"id {block.mask_token_id} is {token!r} for the target", drafter.key(block.mask_key))


def check_external(pair: Pair, drafter: Model, vocabulary: Vocabulary) -> Iterator[Finding]:
    """The verdict of the comparison, with the first ids that differ."""
    evidence = tokenizer_evidence(pair.target, drafter, vocabulary)
    shown = "; ".join(
        f"id {e['id']} is {string(e['target'])} for the target, {string(e['drafter'])} for the drafter"
        for e in vocabulary.examples[:3]
    )
    share = "" if vocabulary.affected_share is None else f"; {vocabulary.affected_share:.1%} of the sample's tokens"
    rules = {"different": DIFFERENT, "permuted": PERMUTED, "extended": EXTENDED, "padded": PADDED, "unknown": UNKNOWN}
    rule = rules.get(vocabulary.verdict)
    if vocabulary.verdict == "unknown":
        missing = [
            side
            for side, file in (("target", vocabulary.file_target), ("drafter", vocabulary.file_drafter))
            if file is None
        ]
        sizes = f"; sizes are {vocabulary.rows_target} and {vocabulary.rows_drafter}"
        yield UNKNOWN.found(
            f"no tokenizer file of the {' and the '.join(missing)}{sizes}",
            *evidence,
            severity="error" if vocabulary.rows_target != vocabulary.rows_drafter else None,
        )
    elif rule is not None:
        counted = f"{vocabulary.num_differing} ids differ ({shown}){share}"
        sizes = f"{vocabulary.rows_target} rows against {vocabulary.rows_drafter}"
        refused = vocabulary.verdict == "padded" and pair.question.engine == "vllm"
        rare = vocabulary.verdict == "different" and (vocabulary.num_differing or 0) < FEW_IDS
        yield rule.found(
            sizes if vocabulary.verdict == "padded" else counted,
            *evidence,
            severity="error" if refused else "warning" if rare else None,
            engines={"vllm": "draft_model refuses unequal sizes unless use_heterogeneous_vocab is set"}
            if vocabulary.rows_target != vocabulary.rows_drafter
            else None,
        )
    same = vocabulary.verdict not in ("different", "permuted")
    if same and vocabulary.safe_padding is False and vocabulary.num_without_row:
        # A family may share a tokenizer with a marker for images that its text-only members have no row for.
        few = vocabulary.num_without_row < FEW_IDS
        yield UNSAFE.found(
            f"{vocabulary.num_without_row} ids lie past the smaller embedding",
            *evidence,
            severity="warning" if few else None,
        )
    if vocabulary.special:
        words = ", ".join(f"{name} {ids['target']} and {ids['drafter']}" for name, ids in vocabulary.special.items())
        yield SPECIAL.found(
            words,
            *(config_evidence("drafter", drafter.config, f"{name}_token_id", "") for name in vocabulary.special),
            severity="warning" if "eos" in vocabulary.special else "note",
        )


def tokenizer_evidence(target: Model, drafter: Model, vocabulary: Vocabulary) -> tuple[Evidence, ...]:
    """The two tokenizer files with the first id that differs, or the two sizes."""
    first = next(iter(vocabulary.examples), None)
    if first is None or vocabulary.file_target is None or vocabulary.file_drafter is None:
        return target.key("vocab_size"), drafter.key("vocab_size")
    key = f"id {first['id']}"
    return (
        seen_at("target", vocabulary.file_target, key, first["target"]),
        seen_at("drafter", vocabulary.file_drafter, key, first["drafter"]),
    )


def string(token: str | None) -> str:
    """A token's string, or that there is none."""
    return "absent" if token is None else repr(token)


def check_size(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """Rows of the target's embedding against the vocabulary that the head names."""
    ours, theirs = drafter.head.vocab_size, target.arch.vocab_size
    if ours is None or ours == theirs:
        return
    evidence = (drafter.key("vocab_size"), target.key("vocab_size"))
    # A config that gives the draft vocabulary as the vocabulary.
    if ours == drafter.head.draft_vocab_size and ours < theirs and "d2t" in drafter.tensors:
        return
    rule = SIZE_PADDING if abs(ours - theirs) < PADDING else SIZE
    yield rule.found(f"{ours} in the head's config, {theirs} in the target's", *evidence)


def check_map(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """d2t and t2d."""
    head, d2t, t2d = drafter.head, drafter.tensors.get("d2t"), drafter.tensors.get("t2d")
    if d2t is None:
        if head.reduced and drafter.tensors:
            yield MAP_ABSENT.found(
                f"{head.draft_vocab_size} of {head.vocab_size} tokens are drafted, and d2t is not there",
                absent_evidence("drafter", "*.safetensors", "d2t"),
                drafter.key("draft_vocab_size"),
            )
        return
    found = draft_map(drafter, pair.target.arch.vocab_size)
    evidence = tensor_evidence("drafter", d2t)
    if found is None and d2t.num_elements > MOST_IDS:
        return
    if found is None:
        yield MAP_BROKEN.found(f"d2t is {d2t.dtype} {list(d2t.shape)}, no list of ids", evidence)
        return
    broken = [problem for problem in found.problems if problem.kind in BROKEN]
    if found.form == "inconsistent" or broken:
        yield MAP_BROKEN.found("; ".join(problem.message for problem in broken or found.problems), evidence)
    elif found.form == "absolute":
        yield MAP_ABSOLUTE.found(f"the last of {len(found.target_ids)} entries is {found.target_ids[-1]}", evidence)
    doubtful = [problem.message for problem in found.problems if problem.kind not in BROKEN]
    if doubtful and not broken:
        yield MAP_DOUBTFUL.found("; ".join(doubtful), evidence)
    if found.form != "inconsistent":
        yield from check_kept(pair.target, drafter, found)
    if t2d is None:
        yield INVERSE_ABSENT.found("t2d is not there", absent_evidence("drafter", "*.safetensors", "t2d"))
    if pair.coverage is not None:
        yield COVERAGE.found(
            f"the draft vocabulary has {pair.coverage:.1%} of the sample's tokens",
            evidence,
            severity="warning" if pair.coverage < LOW_COVERAGE else None,
        )


def check_kept(target: Model, drafter: HeadModel, found: DraftMap) -> Iterator[Finding]:
    """The target's ends of text, and the ids of bytes: the first ones in byte-level vocabularies."""
    eos = special_ids(target.checkpoint.source).get("eos", [])
    ends = [eos] if isinstance(eos, int) else eos
    kept = set(map(int, found.target_ids))
    lacking = [i for i in ends if i not in kept]
    low = sum(i not in kept for i in range(BYTES))
    if lacking or low > MOST_LOST:
        parts = [f"eos {', '.join(map(str, lacking))}"] if lacking else []
        parts += [f"{low} of the first {BYTES} ids"] if low > MOST_LOST else []
        yield KEPT.found(
            " and ".join(parts) + " cannot be drafted",
            tensor_evidence("drafter", drafter.tensors["d2t"]),
            config_evidence("target", target.config, "eos_token_id", ""),
            severity=None if lacking else "note",
        )


def draft_map(drafter: HeadModel, vocab_size: int) -> DraftMap | None:
    """The map of a head, None where its tensor is no list of ids that can be read."""
    d2t, t2d = drafter.tensors.get("d2t"), drafter.tensors.get("t2d")
    if d2t is None or len(d2t.shape) != 1 or d2t.num_elements > MOST_IDS or d2t.dtype not in READABLE:
        return None
    source = drafter.checkpoint.source
    if d2t.dtype == "I64" and t2d is not None and t2d.dtype == "BOOL" and t2d.shape == (vocab_size,):
        raw = read_raw(source, d2t), read_raw(source, t2d)
        if plain := plain_map(*raw, vocab_size, drafter.head.draft_vocab_size):
            return plain
    marks = None if t2d is None or len(t2d.shape) != 1 or t2d.num_elements > MOST_IDS else read_values(source, t2d)
    values = read_values(source, d2t)
    return read_draft_map(values, marks, vocab_size, drafter.head.draft_vocab_size)
