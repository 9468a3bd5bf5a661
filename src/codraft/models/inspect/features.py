"""Hidden states that a head reads: how wide, of which layers, and what each engine makes of the layer ids."""

from collections.abc import Iterator

from codraft.core.inspection import Finding
from codraft.formats.heads.head import BLOCK_MECHANISMS, Head, Taps
from codraft.models.inspect.engines import both_keys, default_outputs, engine_readings, remarks, wrong
from codraft.models.inspect.pair import (
    ENGINE_NAMES,
    ENGINES,
    HeadModel,
    Model,
    Pair,
    Rule,
    absent_evidence,
    asked,
    elsewhere,
    tensor_evidence,
)

HIDDEN = Rule(
    code="hidden.mismatch",
    severity="error",
    title="The head was made for hidden states of another width",
    consequence="It cannot take this target's hidden states: the engine fails on the shape of fc, at load or at the"
    " first step.",
    fix="This head belongs to another target; find the one it was trained for, or train one for this target.",
)
HIDDEN_KEY = Rule(
    code="hidden.key",
    severity="error",
    title="The config does not say that target and head differ in width",
    consequence="Engines take the head's own hidden size for the target's and build fc too small.",
    fix="Write target_hidden_size into the head's config.json.",
)
FC_WIDTH = Rule(
    code="fc.width",
    severity="error",
    title="fc does not take the features that the config lists",
    consequence="Loading fails, or features of other layers are fed than those it was trained on.",
    fix="Make the number of layer ids times the target's hidden size equal the input width of fc.",
)
ABSENT = Rule(
    code="taps.absent",
    severity="warning",
    varies="a note for files of SafeAILab and speculators, whose default the guess is",
    title="The config does not say which layers to read",
    consequence="Engines guess the outputs of layers 1, L/2 - 1 and L - 4 (as inputs: 2, L/2 and L - 3). A head that "
    "was trained on others is accepted at about 1 % instead of 59 %, with no warning.",
    fix="Write the layer ids it was trained on into the config, in the key that your engine reads.",
    seen="vllm-project/vllm#50170",
)
ABSENT_BLOCK = Rule(
    code="taps.absent_block",
    severity="error",
    title="A block drafter without layer ids",
    consequence="SGLang refuses it; other engines have no default that could be right.",
    fix="Write target_layer_ids (what each layer puts out, from 0) into dflash_config.",
)
RANGE = Rule(
    code="taps.range",
    severity="error",
    title="Layer ids that the target does not have",
    consequence="The engine fails, or captures nothing for that id and feeds zeros.",
    fix="Use ids of this target; see which convention the key has.",
    seen="vllm-project/vllm#46788",
)
LAST = Rule(
    code="taps.last",
    severity="warning",
    varies="an error for vLLM where the id counts what enters a layer",
    title="The last layer's output is tapped",
    consequence="Engines disagree: before or after the final norm, or nothing at all, since some capture only what "
    "enters a layer.",
    fix="Tap an earlier layer when you train; with this head, check acceptance on each engine.",
    seen="vllm-project/vllm#46788",
)
CONVENTION = Rule(
    code="taps.convention",
    severity="warning",
    title="Layer ids that look like the other convention",
    consequence="One layer off: acceptance at the first position falls, from about 45 % to 10 % in one report.",
    fix="Compare with the training configuration: some count what a layer puts out, some what enters it.",
    seen="vllm-project/vllm#43671, sgl-project/sglang#25454",
)
ENGINE = Rule(
    code="taps.engine",
    severity="warning",
    title="An engine will read other layers than the head was trained on",
    consequence="The head gets features of other layers: acceptance falls, and nothing is reported.",
    fix="Write the ids under every key that an engine reads, each in its convention.",
    seen="vllm-project/vllm#50170, sgl-project/sglang#25454",
)
CONFLICT = Rule(
    code="taps.conflict",
    severity="error",
    title="Two lists of layer ids that do not mean the same layers",
    consequence="Which one counts depends on the engine.",
    fix="Make them agree, or keep one.",
)
ORDER = Rule(
    code="taps.order",
    severity="warning",
    title="Layer ids are not ascending, or one stands twice",
    consequence="Features are concatenated in the order of the list by some engines, and in the order of the layers by "
    "others.",
    fix="List them ascending, once each, as the head was trained.",
)
OTHER_DEPTH = Rule(
    code="taps.num_target_layers",
    severity="error",
    title="The head was made for a target of another depth",
    consequence="Its layer ids mean other layers here.",
    fix="This head belongs to another target; find the one it was trained for.",
)
HYBRID = Rule(
    code="taps.hybrid",
    severity="note",
    title="Features of recurrent layers",
    consequence="Some training code captures hidden states at attention layers only, so its ids skip the others.",
    fix="Compare with the training code: an id must count all layers.",
    seen="sgl-project/SpecForge#494",
)
RULES = (
    HIDDEN, HIDDEN_KEY, FC_WIDTH, ABSENT, ABSENT_BLOCK, RANGE, LAST, CONVENTION, ENGINE, CONFLICT, ORDER, OTHER_DEPTH,
    HYBRID,
)  # fmt: skip

SERIAL = ("eagle3", "peagle")


def check(pair: Pair) -> Iterator[Finding]:
    """Width of the features, then the layers they come from."""
    drafter = pair.drafter
    if not isinstance(drafter, HeadModel) or drafter.head.mechanism not in (*SERIAL, *BLOCK_MECHANISMS, "mtp", "eagle"):
        return
    yield from check_width(pair.target, drafter)
    if drafter.head.mechanism in (*SERIAL, *BLOCK_MECHANISMS):
        yield from check_taps(pair, drafter)


def check_width(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """Hidden size of the target against what the head takes."""
    head, hidden = drafter.head, target.arch.hidden
    fc = drafter.tensors.get("fc.weight")
    width = fc.shape[1] if fc is not None and len(fc.shape) == 2 else None
    evidence = (
        drafter.key("target_hidden_size" if head.target_hidden_given else "hidden_size"),
        target.key("hidden_size"),
    )
    shown = () if fc is None else (tensor_evidence("drafter", fc),)
    if head.target_hidden != hidden:
        fits = width is not None and head.taps and width == head.num_taps * hidden
        if fits and not head.target_hidden_given:
            yield HIDDEN_KEY.found(
                f"fc takes {head.num_taps} x {hidden}, and the config gives only the head's own {head.geometry.hidden}",
                *evidence,
                *shown,
            )
        else:
            yield HIDDEN.found(
                f"the head takes hidden states of {head.target_hidden}, and the target's are {hidden} wide",
                *evidence,
                *shown,
            )
        return
    wanted = head.num_taps * hidden
    if head.mechanism not in ("mtp", "eagle") and width is not None and width != wanted:
        count = f"{width / hidden:g} features" if width % hidden == 0 else "no whole number of features"
        yield FC_WIDTH.found(
            f"fc takes {width} ({count} of {hidden}), and {head.num_taps} layer ids give {wanted}",
            *shown,
            *([drafter.key(head.taps[0].key)] if head.taps else []),
        )


def check_taps(pair: Pair, drafter: HeadModel) -> Iterator[Finding]:
    """The layer ids themselves."""
    head, L = drafter.head, len(pair.target.arch.layers)
    declared = drafter.config.get("num_target_layers")
    if isinstance(declared, int) and declared != L:
        yield OTHER_DEPTH.found(
            f"num_target_layers is {declared}, and the target has {L} layers",
            drafter.key("num_target_layers"),
            pair.target.key("num_hidden_layers"),
        )
    if not head.taps:
        yield from check_absent(drafter, L)
        return
    first, *others = head.taps
    for other in others:
        if other.outputs != first.outputs:
            yield CONFLICT.found(
                f"{first.key} means the outputs of layers {list(first.outputs)}, {other.key} those of "
                f"{list(other.outputs)}",
                drafter.key(first.key),
                drafter.key(other.key),
            )
    yield from check_range(pair, drafter, first, L)
    if list(first.written) != sorted(set(first.written)):
        yield ORDER.found(f"{first.key} is {list(first.written)}", drafter.key(first.key))
    kinds = {pair.target.arch.layers[i].mixer for i in first.outputs if 0 <= i < L}
    if kinds & {"linear", "mamba", "conv"}:
        yield HYBRID.found(f"{first.key} names layers of kind {', '.join(sorted(kinds))}", drafter.key(first.key))
    if looks_other(head, first, L):
        yield from check_convention(drafter, first, L)
    else:
        yield from check_engines(pair, drafter, L)


def check_convention(drafter: HeadModel, first: Taps, L: int) -> Iterator[Finding]:
    """Ids that are the usual choice if read in the other convention."""
    shift = -1 if first.convention == "output" else 1
    meant = tuple(i + shift for i in first.outputs)
    yield CONVENTION.found(
        f"{first.key} counts what {'a layer puts out' if first.convention == 'output' else 'enters a layer'}, and "
        f"{list(first.written)} is the usual choice of the other convention for {L} layers: either the outputs of "
        f"{list(first.outputs)}, or those of {list(meant)}",
        drafter.key(first.key),
        engines=remarks({engine: engine_readings(drafter.head, L, engine) for engine in ENGINES}),
        fix=f"Look the layers up in the training configuration. If they are the outputs of {list(meant)}: "
        + (both_keys(meant) if drafter.head.mechanism in SERIAL else f"write {list(meant)} as target_layer_ids."),
    )


def check_absent(drafter: HeadModel, L: int) -> Iterator[Finding]:
    """No ids: a guess for EAGLE-3, an error for block drafters."""
    head = drafter.head
    if head.mechanism in BLOCK_MECHANISMS:
        yield ABSENT_BLOCK.found(
            f"target_layer_ids is absent{elsewhere(drafter.config, 'target_layer_ids')}",
            absent_evidence("drafter", "config.json", "target_layer_ids"),
        )
        return
    # A head that reads the last hidden state alone has nothing to say here.
    if drafter.key("eagle_config.use_aux_hidden_state").value is False:
        return
    # The reference code has its layers built in, and speculators leaves its default unsaid: the guess is right there.
    usual = head.kind.family in ("safeailab", "speculators") and head.num_taps == len(default_outputs(L))
    yield ABSENT.found(
        f"no layer ids; engines will read the outputs of layers {list(default_outputs(L))} of {L}"
        + (f", and fc takes {head.num_taps} features" if head.num_taps != 3 and "fc.weight" in drafter.tensors else ""),
        absent_evidence("drafter", "config.json", "eagle_aux_hidden_state_layer_ids"),
        severity="note" if usual else None,
        engines={engine: f"outputs of layers {list(default_outputs(L))}" for engine in ENGINES},
    )


def check_range(pair: Pair, drafter: HeadModel, taps: Taps, L: int) -> Iterator[Finding]:
    """Ids outside the target, and the last layer."""
    # An id L among outputs can only be an input: the stream behind the last layer.
    shifted = drafter.head.mechanism in SERIAL and taps.convention == "output" and max(taps.written) == L
    outputs = tuple(i - 1 for i in taps.outputs) if shifted else taps.outputs
    outside = [i for i, out in zip(taps.written, outputs, strict=True) if not -1 <= out < L]
    evidence = (drafter.key(taps.key), pair.target.key("num_hidden_layers"))
    if outside:
        low, high = (0, L) if taps.convention == "input" else (-1, L - 1)
        yield RANGE.found(f"{taps.key} has {outside}; allowed for {L} layers are {low}..{high}", *evidence)
    if L - 1 in outputs:
        written = taps.written[outputs.index(L - 1)]
        # vLLM reads the ids at the top as inputs, and some versions capture in front of a layer only.
        nothing = taps.convention == "input"
        yield LAST.found(
            f"{taps.key} has {written}, the output of the last of {L} layers",
            *evidence,
            severity="error" if nothing and pair.question.engine == "vllm" else None,
            engines={
                **({"vllm": "captures nothing for this id in some versions"} if nothing else {}),
                "sglang": "hands out the stream before the final norm",
            },
        )


def spread_outputs(L: int, m: int) -> tuple[int, ...]:
    """The usual m layers of a DFlash head: round(1 + i (L - 4)/(m - 1)) [DFlash]."""
    return (L // 2,) if m == 1 else tuple(round(1 + i * (L - 4) / (m - 1)) for i in range(m))


def looks_other(head: Head, taps: Taps, L: int) -> bool:
    """Whether the ids are possible, or the usual choice, only in the convention that the key does not have."""
    m = len(taps.written)
    if head.mechanism in SERIAL and taps.convention == "output" and max(taps.written) == L:
        return True
    usual = default_outputs(L) if head.mechanism in SERIAL and m == 3 else spread_outputs(L, m)
    shift = 1 if taps.convention == "output" else 0
    return taps.outputs != usual and taps.written == tuple(i + shift for i in usual)


def check_engines(pair: Pair, drafter: HeadModel, L: int) -> Iterator[Finding]:
    """What every engine makes of the ids; a finding where one of them may read other layers."""
    head, wanted = drafter.head, pair.question.engine
    first = head.taps[0]
    read = {engine: engine_readings(head, L, engine) for engine in ENGINES}
    off = [
        engine
        for engine, readings in read.items()
        if any(reading.outputs not in (None, first.outputs) for reading in readings) and wanted in (None, engine)
    ]
    if not off:
        return
    yield ENGINE.found(
        f"{first.key} means the outputs of layers {list(first.outputs)}; "
        + "; ".join(f"{ENGINE_NAMES[engine]} would read {' or '.join(wrong(read[engine], first))}" for engine in off),
        drafter.key(first.key),
        *([asked("engine", wanted)] if wanted else []),
        engines=remarks(read),
        fix=both_keys(first.outputs),
    )
