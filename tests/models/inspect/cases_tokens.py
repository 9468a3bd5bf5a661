"""Do both mean the same tokens? Tokenizers, sizes, and the map of a reduced vocabulary."""

import numpy as np

from tests.models.inspect.case import DRAFTER, TARGET, Case, Change, NearMiss, asks, together
from tests.models.inspect.layouts import DRAFT_IDS, VD
from tests.models.inspect.pairs import H, V

OFFSETS = DRAFT_IDS - np.arange(VD)
MARKS = np.isin(np.arange(V), DRAFT_IDS)
TOKENS = {f"t{i}": i for i in range(V)}


def tokens(*swaps: tuple[int, int], **renamed: str) -> Change:
    """Tokenizers by id -> string for both, the drafter's with some ids exchanged or renamed."""
    theirs = dict(TOKENS)
    for a, b in swaps:
        theirs[f"t{a}"], theirs[f"t{b}"] = b, a
    for old, new in renamed.items():
        theirs[new] = theirs.pop(old)

    return together(TARGET.has(vocab=dict(TOKENS)), DRAFTER.has(vocab=theirs))


def mapped(
    name: str,
    base: str,
    code: str,
    words: str,
    *,
    beside: tuple[str, ...] = (),
    severity: str = "error",
    **tensors: np.ndarray,
) -> Case:
    """Another map."""
    return Case(
        name=name,
        base=base,
        changes=(DRAFTER.holds(dict(tensors)),),
        code=code,
        severity=severity,
        words=words,
        key="d2t",
        beside=beside,
    )


REPEATED = OFFSETS.copy()
REPEATED[5] -= DRAFT_IDS[5] - DRAFT_IDS[4]
OUTSIDE = OFFSETS.copy()
OUTSIDE[-1] = V
OTHER_MARKS = MARKS.copy()
OTHER_MARKS[[int(DRAFT_IDS[0]), int(np.flatnonzero(~MARKS)[0])]] ^= True

CASES = [
    Case(
        name="another tokenizer", base="external", changes=(tokens(**{f"t{i}": f"x{i}" for i in range(100, 200)}),),
        code="vocab.different", severity="error", words="100 ids differ (id 100 is 't100' for the target, 'x100'",
        key="id 100",
    ),
    Case(
        name="a handful of other strings", base="external", changes=(tokens(t100="x", t101="y"),),
        code="vocab.different", severity="warning", words="2 ids differ", key="id 100",
    ),
    Case(
        name="the same strings under other ids", base="external", changes=(tokens((100, 101), (7, 9)),),
        code="vocab.permuted", severity="error", words="4 ids differ", key="id 7",
    ),
    Case(
        name="tokens that the drafter lacks", base="external",
        changes=(DRAFTER.has(vocab={t: i for t, i in TOKENS.items() if i < 500}), TARGET.has(vocab=dict(TOKENS))),
        code="vocab.extended", severity="warning", words="12 ids differ", key="id 500",
    ),
    Case(
        name="an embedding padded further", base="external",
        changes=(DRAFTER.says("vocab_size", V + 64),
                 DRAFTER.holds(dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (V + 64, 16))))),
        code="vocab.padded", severity="note", words="512 rows against 576", key="vocab_size",
    ),
    Case(
        name="tokens without a row in the drafter", base="external",
        changes=(DRAFTER.says("vocab_size", V - 64),
                 DRAFTER.holds(dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (V - 64, 16))))),
        code="vocab.rows", severity="error", words="56 ids lie past the smaller embedding", key="vocab_size",
    ),
    Case(
        name="no tokenizer beside the drafter", base="external", changes=(DRAFTER.has(tokenizer=False),),
        code="vocab.unknown", severity="warning", words="no tokenizer file of the drafter", key="vocab_size",
    ),
    Case(
        name="no tokenizer, and other sizes", base="external",
        changes=(DRAFTER.has(tokenizer=False), DRAFTER.says("vocab_size", V + 64),
                 DRAFTER.holds(dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (V + 64, 16))))),
        code="vocab.unknown", severity="error", words="sizes are 512 and 576", key="vocab_size",
    ),
    Case(
        name="another end of text", base="external",
        changes=(TARGET.says("eos_token_id", 5), DRAFTER.says("eos_token_id", 6)),
        code="vocab.special", severity="warning", words="eos 5 and 6", key="eos_token_id",
    ),
    Case(
        name="another begin of text", base="external",
        changes=(TARGET.says("bos_token_id", 5), DRAFTER.says("bos_token_id", 6)),
        code="vocab.special", severity="note", words="bos 5 and 6", key="bos_token_id",
    ),
    Case(
        name="a head for another vocabulary", base="eagle3_modelopt", changes=(DRAFTER.says("vocab_size", 4096),),
        code="vocab.size", severity="error", words="4096 in the head's config, 512 in the target's", key="vocab_size",
    ),
    Case(
        name="a head for a padded vocabulary", base="eagle3_modelopt", changes=(DRAFTER.says("vocab_size", V + 64),),
        code="vocab.size_padding", severity="warning", words="576 in the head's config", key="vocab_size",
    ),
    Case(
        name="a reduced vocabulary without a map", base="eagle3", changes=(DRAFTER.lacks("d2t"),),
        code="d2t.absent", severity="error", words="128 of 512 tokens are drafted", key="d2t",
    ),
    Case(
        name="a reduced block drafter without a map", base="dflash_speculators", changes=(DRAFTER.lacks("d2t", "t2d"),),
        code="d2t.absent", severity="error", words="d2t is not there", key="draft_vocab_size",
    ),
    mapped("absolute ids", "eagle3", "d2t.absolute", f"the last of 128 entries is {DRAFT_IDS[-1]}", d2t=DRAFT_IDS),
    mapped("absolute ids without t2d", "eagle3_modelopt", "d2t.absolute", "128 entries", d2t=DRAFT_IDS),
    mapped("a short map", "eagle3", "d2t.inconsistent", "d2t has 100 entries, draft_vocab_size is 128",
           d2t=OFFSETS[:100]),
    mapped("an id outside the vocabulary", "eagle3", "d2t.inconsistent", "outside 0..511", d2t=OUTSIDE),
    mapped("an id twice", "eagle3_modelopt", "d2t.inconsistent", "map to a target id that another one has",
           d2t=REPEATED),
    mapped("floats", "eagle3", "d2t.inconsistent", "stored as float32", d2t=OFFSETS.astype(np.float32)),
    mapped("a map of two dimensions", "eagle3", "d2t.inconsistent", "no list of ids", d2t=OFFSETS.reshape(2, 64)),
    mapped("t2d marks other ids", "eagle3", "d2t.inconsistent", "ids are in only one of them", t2d=OTHER_MARKS),
    mapped("t2d of another length", "eagle3", "d2t.inconsistent", "t2d has 256 entries", t2d=MARKS[:256]),
    mapped("a map that was never filled", "eagle3_modelopt", "d2t.doubtful", "all zeros", severity="warning",
           d2t=np.zeros(VD, np.int64)),
    mapped("one number everywhere", "eagle3_modelopt", "d2t.doubtful", "every entry of d2t is 7", severity="warning",
           d2t=np.full(VD, 7, np.int64)),
    Case(
        name="a mask that is a word", base="dflash", changes=(DRAFTER.says("dflash_config.mask_token_id", 300),),
        code="mask.used", severity="warning", words="id 300 is 't300' for the target",
        key="dflash_config.mask_token_id",
    ),
    Case(
        name="no t2d", base="eagle3", changes=(DRAFTER.lacks("t2d"),),
        code="t2d.absent", severity="note", words="t2d is not there", key="t2d",
    ),
    Case(
        name="an end of text that cannot be drafted", base="eagle3",
        changes=(TARGET.says("eos_token_id", int(np.flatnonzero(~MARKS)[-1])),),
        code="draft_vocab.kept", severity="warning", words="cannot be drafted", key="eos_token_id",
    ),
    Case(
        name="bytes that cannot be drafted", base="eagle3",
        changes=(DRAFTER.holds({"d2t": np.full(VD, V - VD, np.int64), "t2d": np.arange(V) >= V - VD}),),
        code="draft_vocab.kept", severity="note", words="256 of the first 256 ids cannot be drafted", key="d2t",
    ),
    Case(
        name="a text that the draft vocabulary hardly covers", base="eagle3",
        changes=(asks(text="Das ist ein Satz. " * 20),),
        code="draft_vocab.coverage", severity="warning", words="of the sample's tokens", key="d2t",
    ),
    Case(
        name="a text that it covers", base="eagle3",
        changes=(asks(text="!"), DRAFTER.holds({"d2t": np.zeros(VD, np.int64),
                                                                       "t2d": np.arange(V) < VD})),
        code="draft_vocab.coverage", severity="note", words="100.0% of the sample's tokens", key="d2t",
    ),
]  # fmt: skip

NEAR_MISSES = [
    NearMiss(
        name="an end of text that can be drafted", base="eagle3",
        changes=(TARGET.says("eos_token_id", int(DRAFT_IDS[-1])),), code="draft_vocab.kept",
    ),
    NearMiss(name="the same tokenizer", base="external", changes=(tokens(),), code="vocab.different"),
    NearMiss(name="the same tokenizer in another file", base="external", changes=(
        TARGET.has(vocab=dict(TOKENS)), DRAFTER.has(vocab=dict(reversed(TOKENS.items())))), code="vocab.permuted"),
    NearMiss(
        name="padding is no lack of rows", base="external",
        changes=(DRAFTER.says("vocab_size", V + 64),
                 DRAFTER.holds(dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("BF16", (V + 64, 16))))),
        code="vocab.rows",
    ),
    NearMiss(name="one of them names no end", base="external", changes=(TARGET.says("eos_token_id", 5),),
             code="vocab.special"),
    NearMiss(name="the same end", base="external", changes=(TARGET.says("eos_token_id", 5),
                                                           DRAFTER.says("eos_token_id", [5])), code="vocab.special"),
    NearMiss(name="the head gives no size", base="eagle3_modelopt", changes=(DRAFTER.silent("vocab_size"),),
             code="vocab.size"),
    NearMiss(
        name="the head gives its draft vocabulary for the whole", base="eagle3_modelopt",
        changes=(DRAFTER.says("vocab_size", VD),), code="vocab.size",
    ),
    NearMiss(name="offsets that t2d confirms", base="eagle3", changes=(), code="d2t.absolute"),
    NearMiss(name="offsets of 32 bits", base="eagle3", changes=(DRAFTER.holds({"d2t": OFFSETS.astype(np.int32)}),),
             code="d2t.inconsistent"),
    NearMiss(name="t2d as bytes", base="eagle3", changes=(DRAFTER.holds({"t2d": MARKS.astype(np.uint8)}),),
             code="d2t.inconsistent"),
    NearMiss(name="neighbouring ids", base="eagle3_modelopt", changes=(DRAFTER.holds(
        {"d2t": np.where(np.arange(VD) < 60, 3, 200).astype(np.int64)}),), code="d2t.doubtful"),
    NearMiss(
        name="the first ids, confirmed by t2d", base="eagle3",
        changes=(DRAFTER.holds({"d2t": np.zeros(VD, np.int64), "t2d": np.arange(V) < VD}),), code="d2t.doubtful",
    ),
    NearMiss(
        name="maps of a whole vocabulary", base="eagle3",
        changes=(DRAFTER.says("draft_vocab_size", V),
                 DRAFTER.holds({"d2t": np.zeros(V, np.int64), "t2d": np.ones(V, bool),
                                "lm_head.weight": ("BF16", (V, H))})),
        code="d2t.doubtful",
    ),
    NearMiss(
        name="a mask that is a marker", base="dspark",
        changes=(TARGET.has(added=[{"id": V - 1, "content": "<|MASK|>"}]),), code="mask.used",
    ),
    NearMiss(name="a mask that no tokenizer knows of", base="dspark", changes=(TARGET.has(tokenizer=False),),
             code="mask.used"),
    NearMiss(name="a whole vocabulary needs no map", base="eagle3_whole", changes=(), code="d2t.absent"),
    NearMiss(
        name="a reduced vocabulary by its config alone", base="eagle3", changes=(DRAFTER.empty(),), code="d2t.absent",
    ),
]  # fmt: skip
