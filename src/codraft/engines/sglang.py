"""SGLang: `python3 -m sglang.launch_server`, with a chain of D drafts. Its token counts include the root slot."""

from collections.abc import Mapping

from codraft.engines.plan import Drafting, Model, Note, Plan, Rule, Rules
from codraft.engines.shell import command, flag

FILE = "sglang.sh"
STATED = "SGLang's documentation (speculative decoding), unverified"
SAMPLED = Note(
    text="measured were drafts drawn from p_draft; SGLang drafts greedily here, so expect another AL",
    when={"draft": "sample"},
)
LIMITED = Note(text="SGLang sets --max-running-requests to 48 with it unless you set it: compare at equal limits")

RULES: Rules = {
    "ngram": Rule(
        spelling="NGRAM",
        source=STATED,
        explained=("n_min", "n_max", "occurrence"),
        notes=(
            Note(
                text="NGRAM is not the measured rule: one trie over all requests, its own match lengths (n_min and "
                "n_max have no flag that all versions know), the most recent continuation first, padded to D; "
                "breadth 1 makes it a chain"
            ),
            Note(text="it needs CUDA, and switches the overlap scheduler and mixed chunked prefill off"),
        ),
    ),
    "suffix": "SGLang has no suffix decoding (its NGRAM is another rule and was not measured)",
    "external": Rule(spelling="STANDALONE", source=STATED, model="needed", explained=("draft",), notes=(SAMPLED,)),
    "eagle3": Rule(spelling="EAGLE3", source=STATED, model="needed", explained=("draft",), notes=(SAMPLED, LIMITED)),
    "mtp": Rule(spelling="NEXTN", source=STATED, model="optional", explained=("draft",), notes=(SAMPLED, LIMITED)),
    "dflash": Rule(
        spelling="DFLASH",
        source=STATED,
        model="needed",
        explained=("draft", "block"),
        notes=(
            SAMPLED,
            Note(
                text="SGLang's block is 1 + D slots; measured was the block of the checkpoint, cut to D",
                when={"block": "truncate"},
            ),
            LIMITED,
        ),
    ),
    "dspark": "SGLang's versions disagree whether the block is D or 1 + D tokens, so nothing is written for it",
}

# Flag and value by D and the number of slots, 1 + D.
SERIAL = {
    "--speculative-num-steps": "{D}",
    "--speculative-eagle-topk": "1",
    "--speculative-num-draft-tokens": "{slots}",
}
DEPTH_FLAGS: Mapping[str, Mapping[str, str]] = {
    "NGRAM": {
        "--speculative-num-draft-tokens": "{slots}",
        "--speculative-ngram-min-bfs-breadth": "1",
        "--speculative-ngram-max-bfs-breadth": "1",
    },
    "STANDALONE": SERIAL,
    "EAGLE3": SERIAL,
    "NEXTN": SERIAL,
    "DFLASH": {"--speculative-num-draft-tokens": "{slots}"},
}


def flags_of(drafting: Drafting) -> list[str]:
    """The speculative flags."""
    parts = [flag("--speculative-algorithm", drafting.rule.spelling)]
    if drafting.model is not None:
        parts.append(flag("--speculative-draft-model-path", drafting.model.path))
        if drafting.model.revision is not None:
            parts.append(flag("--speculative-draft-model-revision", drafting.model.revision))
    for name, value in DEPTH_FLAGS[drafting.rule.spelling].items():
        parts.append(flag(name, value.format(D=drafting.D, slots=1 + drafting.D)))
    return parts


def extra_notes(plan: Plan, target: Model) -> tuple[str, ...]:
    """What the command itself brings along."""
    if plan.drafting is None:
        return ()
    return ("SGLang counts the root slot among its draft tokens: 1 + D of them are D drafts",)


def files(plan: Plan, target: Model) -> dict[str, str]:
    """One script."""
    parts = ["python3 -m sglang.launch_server", flag("--model-path", target.path)]
    if target.revision is not None:
        parts.append(flag("--revision", target.revision))
    if plan.drafting is not None:
        parts += flags_of(plan.drafting)
    return {FILE: command(parts)}
