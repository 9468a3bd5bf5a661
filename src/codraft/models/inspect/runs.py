"""Would codraft itself draft with this head? It says what `accept`, `profile` and `tune` would say before any work."""

from collections.abc import Iterator

from codraft.core.errors import NotRunError, SpecError
from codraft.core.inspection import Evidence, Finding
from codraft.formats.heads.gate import Sizes, refuse_head, refuse_misfit, refuse_modules
from codraft.formats.heads.head import KNOWN_MECHANISMS
from codraft.formats.heads.mtp_layout import read_layout
from codraft.formats.heads.opened import by_canonical_name
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, asked

REFUSED = Rule(
    code="codraft.refused",
    severity="warning",
    varies="a note where the head may be as it should be, in a form that codraft does not run",
    title="codraft does not draft with this head",
    consequence="`codraft accept`, `generate`, `profile` and `tune` refuse it before any work. An engine may run it, "
    "or run something else without a word. Not looked for where there are errors, which say more.",
    fix="Mend what the sentence names; where the head is as it was trained, measure acceptance on an engine.",
)
RULES = (REFUSED,)


def check(pair: Pair) -> Iterator[Finding]:
    """What the builders of drafters refuse by config and headers."""
    drafter = pair.drafter
    try:
        if isinstance(drafter, HeadModel):
            try_head(pair, drafter)
        elif drafter is None and pair.question.method == "mtp" and pair.target.tensors:
            refuse_modules(read_layout(pair.target.checkpoint, "the target"), "the target")
    except SpecError as error:
        # Engines run more than codraft does, and a target is served as it is.
        harmless = isinstance(error, NotRunError) or drafter is None
        yield REFUSED.found(str(error), evidence_of(pair), severity="note" if harmless else None)


def try_head(pair: Pair, drafter: HeadModel) -> None:
    """SpecError where codraft would not draft with it beside this target."""
    head, tensors, sizes = drafter.head, drafter.tensors, sizes_of(pair.target)
    if head.mechanism not in KNOWN_MECHANISMS:
        return
    if head.mechanism == "mtp":
        if tensors:
            refuse_modules(read_layout(drafter.checkpoint, "the drafter"), "the drafter", sizes)
        return
    by_canonical_name("the drafter", head.kind, drafter.checkpoint.tensors)
    refuse_head(head, tensors, "the drafter")
    if tensors:
        refuse_misfit(head, tensors.keys(), sizes, "the drafter")


def sizes_of(target: Model) -> Sizes:
    """What drafters must fit."""
    arch = target.arch
    return Sizes(vocab_size=arch.vocab_size, hidden=arch.hidden, num_layers=len(arch.layers))


def evidence_of(pair: Pair) -> Evidence:
    """The file that is refused; the sentence names the key."""
    if isinstance(pair.drafter, HeadModel):
        return pair.drafter.key("architectures")
    return asked("method", "mtp")
