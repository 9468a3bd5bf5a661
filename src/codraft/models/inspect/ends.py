"""A head's two ends: the embedding it reads and the output head it draws from, its own or the target's."""

from collections.abc import Iterator

from codraft.core.inspection import Finding
from codraft.formats.ends import EMBEDDINGS, HEADS, first_of
from codraft.formats.heads.head import BORROWING_MECHANISMS
from codraft.formats.quantnames import FLOATS, PACKED_NAMES
from codraft.formats.safetensors import TensorInfo
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, absent_evidence, tensor_evidence
from codraft.models.inspect.values import same_rows

HEAD_ABSENT = Rule(
    code="head.absent",
    severity="error",
    title="A reduced draft vocabulary without an output head",
    consequence="The target's head has other rows, so it cannot be borrowed; engines leave the head random and accept "
    "nothing.",
    fix="Export lm_head.weight with the checkpoint.",
    seen="sgl-project/sglang#27908",
)
HEAD_BORROWED = Rule(
    code="head.borrowed",
    severity="note",
    title="The output head is the target's",
    consequence="Drafts are drawn from the whole vocabulary: the head of the target is read once more for each "
    "serial draft.",
    fix="Nothing to do; a large vocabulary makes drafting slower.",
)
HEAD_DIFFERS = Rule(
    code="head.differs",
    severity="warning",
    title="The output head in the file is not the target's",
    consequence="Some engines take the target's and never look at this one, others take this one: the same "
    "checkpoint is good in one and bad in the other.",
    fix="If the head was frozen in training, export it from the target again; if it was trained, serve it with an "
    "engine that loads it.",
    seen="lightseekorg/TorchSpec#38",
)
EMBEDDING_DIFFERS = Rule(
    code="embedding.differs",
    severity="warning",
    title="The embedding in the file is not the target's",
    consequence="One engine overwrites it with the target's, another trusts it. A random placeholder drafts noise "
    "there.",
    fix="Leave the embedding out of the export, or copy the target's into it.",
    seen="lightseekorg/TorchSpec#38",
)
EMBEDDING_WIDTH = Rule(
    code="embedding.width",
    severity="error",
    title="No embedding of its own, and the target's has another width",
    consequence="The target's embedding cannot be borrowed: loading fails, or the embedding stays random.",
    fix="Export embed_tokens.weight with the checkpoint.",
)
TIED_REDUCED = Rule(
    code="tie.reduced",
    severity="error",
    varies="a warning where only the nested part of the config says so",
    title="Tied embeddings with a reduced draft vocabulary",
    consequence="Head and embedding have different rows and cannot be one tensor: loaders give the head the wrong "
    "shape, or crash when they share the target's.",
    fix='Write "tie_word_embeddings": false into the drafter\'s config.',
    seen="sgl-project/sglang#33964, sgl-project/SpecForge#140",
)
TIED_OWN = Rule(
    code="tie.own_head",
    severity="warning",
    title="Tied embeddings, and an output head of its own in the file",
    consequence="A loader that believes the flag drops the head and uses the embedding.",
    fix='Write "tie_word_embeddings": false.',
    seen="sgl-project/sglang#33964",
)
WIDTH = Rule(
    code="head.rows",
    severity="error",
    title="The output head's rows and the draft vocabulary differ",
    consequence="Loading fails, or drafted ids mean other tokens.",
    fix="Make draft_vocab_size, the rows of lm_head and the length of d2t agree.",
    seen="sgl-project/SpecForge#76",
)
RULES = (
    HEAD_ABSENT, HEAD_BORROWED, HEAD_DIFFERS, EMBEDDING_DIFFERS, EMBEDDING_WIDTH, TIED_REDUCED, TIED_OWN, WIDTH,
)  # fmt: skip


def check(pair: Pair) -> Iterator[Finding]:
    """Output head, embedding, the flag that ties them."""
    drafter = pair.drafter
    if not isinstance(drafter, HeadModel):
        return
    yield from check_tie(drafter)
    if drafter.tensors and drafter.head.mechanism in BORROWING_MECHANISMS:
        yield from check_head(pair.target, drafter)
        yield from check_embedding(pair.target, drafter)


def check_tie(drafter: HeadModel) -> Iterator[Finding]:
    """tie_word_embeddings against the vocabulary and the tensors."""
    key, path = "tie_word_embeddings", drafter.head.text_path
    stated = drafter.config.get(key)
    if stated is not True and (not path or drafter.head.text.get(key) is not True):
        return
    # What the whole file says counts for most readers; some take the part with the layers.
    inner = stated is False
    name = f"{path}.{key}" if stated is not True else key
    own, embedding = drafter.tensors.get("lm_head.weight"), drafter.tensors.get("embed_tokens.weight")
    if drafter.head.reduced:
        yield TIED_REDUCED.found(
            f"{name} is true, and {drafter.head.draft_vocab_size} of {drafter.head.vocab_size} tokens are drafted",
            drafter.key(name),
            drafter.key("draft_vocab_size"),
            severity="warning" if inner else None,
        )
    elif own is not None and not inner and not equal(drafter, own, embedding):
        yield TIED_OWN.found(
            f"{name} is true, and the file has {own.name}", drafter.key(name), tensor_evidence("drafter", own)
        )


def equal(drafter: HeadModel, own: TensorInfo, embedding: TensorInfo | None) -> bool:
    """Whether a head of its own is the embedding in the file once more."""
    if embedding is None or own.shape != embedding.shape or len(own.shape) != 2 or own.dtype not in FLOATS:
        return False
    source = drafter.checkpoint.source
    return embedding.dtype in FLOATS and same_rows((source, own), (source, embedding))


def check_head(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """lm_head: absent, of other rows, or another than the target's."""
    head, own = drafter.head, drafter.tensors.get("lm_head.weight")
    if own is None:
        if head.reduced and not any(f"lm_head.{name}" in drafter.tensors for name in PACKED_NAMES):
            yield HEAD_ABSENT.found(
                f"{head.draft_vocab_size} of {head.vocab_size} tokens are drafted, and lm_head.weight is not there",
                absent_evidence("drafter", "*.safetensors", "lm_head.weight"),
                drafter.key("draft_vocab_size"),
            )
        elif head.mechanism == "eagle3" and not head.reduced:
            yield HEAD_BORROWED.found(
                "lm_head.weight is not in the files, and the vocabulary is whole",
                absent_evidence("drafter", "*.safetensors", "lm_head.weight"),
            )
        return
    rows = head.draft_vocab_size or head.vocab_size
    if rows is not None and own.shape and own.shape[0] != rows:
        yield WIDTH.found(
            f"{own.name} has {own.shape[0]} rows, and the draft vocabulary is {rows}",
            tensor_evidence("drafter", own),
            drafter.key("draft_vocab_size"),
        )
    # An EAGLE-3 head is trained; those of block drafters are frozen copies.
    elif head.mechanism != "eagle3" and differs(target, drafter, own, first_of(target.tensors, HEADS + EMBEDDINGS)):
        yield HEAD_DIFFERS.found(f"rows of {own.name} are other than the target's", tensor_evidence("drafter", own))


def check_embedding(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """embed_tokens: absent where it cannot be borrowed, or another than the target's."""
    own, theirs = drafter.tensors.get("embed_tokens.weight"), first_of(target.tensors, EMBEDDINGS)
    hidden = drafter.head.geometry.hidden
    if own is None:
        # A head for hidden states of another width is another target's, which is said elsewhere.
        if hidden != target.arch.hidden == drafter.head.target_hidden:
            yield EMBEDDING_WIDTH.found(
                f"embed_tokens.weight is not there, the head is {hidden} wide and the target {target.arch.hidden}",
                absent_evidence("drafter", "*.safetensors", "embed_tokens.weight"),
                drafter.key("hidden_size"),
            )
    elif differs(target, drafter, own, theirs):
        yield EMBEDDING_DIFFERS.found(
            f"rows of {own.name} are other than the target's",
            tensor_evidence("drafter", own),
            *([] if theirs is None else [tensor_evidence("target", theirs)]),
        )


def differs(target: Model, drafter: HeadModel, ours: TensorInfo, theirs: TensorInfo | None) -> bool:
    """Whether two matrices of one shape hold other numbers; False where they cannot be compared."""
    if theirs is None or len(ours.shape) != 2 or ours.shape != theirs.shape or not all(ours.shape):
        return False
    if ours.dtype not in FLOATS or theirs.dtype not in FLOATS:
        return False
    return not same_rows((target.checkpoint.source, theirs), (drafter.checkpoint.source, ours))
