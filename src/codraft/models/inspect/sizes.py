"""Sizes: is the drafter small enough, and what will verification cost on this kind of target?"""

from collections.abc import Iterator

from codraft.core.inspection import Finding, Parameters
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, seen_at

TOO_LARGE = Rule(
    code="size.drafter",
    severity="error",
    title="The drafter is not smaller than the target",
    consequence="Each of the D serial passes costs as much as a plain step, so the break-even acceptance length is "
    "above 1 + D: it can never gain where weights decide the time.",
    fix="Use a smaller drafter, a head, or ngram and suffix.",
)
AS_ACTIVE = Rule(
    code="size.active",
    severity="warning",
    title="The drafter is near the size of what the target reads for one token",
    consequence="A mixture of experts decodes at the cost of its active parameters, and so does its drafter: -25 to"
    " -45 % was measured with a dense 9B for a target of 17B active.",
    fix="Take a drafter of at most a tenth of the target's active parameters, or a head.",
    seen="ml-explore/mlx-lm#1132",
)
SMALL_TARGET = Rule(
    code="size.target",
    severity="note",
    title="A small target",
    consequence="A plain step is short, so launches and the host weigh more: large D and learned drafters often lose.",
    fix="Time a step at D = 0 and at D first (codraft profile).",
    seen="vllm-project/vllm#6494, huggingface/transformers#36337, ggml-org/llama.cpp#25173",
)
EXPERTS = Rule(
    code="moe.experts",
    severity="note",
    title="Verification reads more experts",
    consequence="Every token of a pass chooses its own experts, so a pass over 1 + D tokens reads up to 1 + D times"
    " the experts of one: acceptance length is not speed here.",
    fix="Time the pass by width (codraft profile); routing of neighbouring tokens overlaps more than independent "
    "choice.",
    seen="jundot/omlx#2077, aws-neuron/nkipy#63",
)
RECURRENT = Rule(
    code="hybrid.rollback",
    severity="note",
    title="Recurrent layers must be rolled back after every rejection",
    consequence="Engines without a rollback refuse, or corrupt the state; the blocks of the prefix cache grow to "
    "hundreds of tokens, so that speculation may lower its hit rate.",
    fix="Check that your engine's version supports speculation for this model, and watch the prefix-cache hit rate.",
    seen="vllm-project/vllm#51769, ml-explore/mlx-lm#1446, ml-explore/mlx-lm#1111",
)
WINDOWED = Rule(
    code="window.target",
    severity="note",
    title="Sliding-window layers in the target",
    consequence="A rotating cache must take several tokens at once and give some back; some engines have grown past"
    " the window or trimmed wrongly.",
    fix="Compare greedy text with and without speculation beyond the window.",
    seen="ml-explore/mlx-lm#1914",
)
LATENT = Rule(
    code="mla.width",
    severity="note",
    title="Latent attention",
    consequence="One latent serves all heads, so verification's attention is wide at once: its time grows with 1 + "
    "D much sooner than with grouped heads.",
    fix="Measure T_verif by D at your context before choosing a large D.",
)
RULES = (TOO_LARGE, AS_ACTIVE, SMALL_TARGET, EXPERTS, RECURRENT, WINDOWED, LATENT)

# Drafter to active parameters from which the cost is worth a word: break-even AL at D = 3 is then about 1.75.
NEAR = 0.25
SMALL = 2_000_000_000
WIDTHS = (2, 4, 8)


def check(pair: Pair) -> Iterator[Finding]:
    """Drafter against target, then the target's kind."""
    drafter, target = pair.drafter, pair.target
    if isinstance(drafter, Model) and drafter.parameters is not None and target.parameters is not None:
        yield from check_ratio(drafter, target, drafter.parameters, target.parameters)
    learned = isinstance(drafter, Model | HeadModel) or pair.question.method not in (None, "ngram", "suffix")
    if learned and target.parameters is not None and target.parameters.active < SMALL:
        yield SMALL_TARGET.found(
            f"{billions(target.parameters.active)} parameters are read for a token", target.key("hidden_size")
        )
    yield from check_kind(target)


def check_ratio(drafter: Model, target: Model, ours: Parameters, theirs: Parameters) -> Iterator[Finding]:
    """Parameters read for one token, of both."""
    ratio = ours.active / theirs.active
    evidence = tuple(
        seen_at(model.side, "config.json", "parameters read for a token", count.active)
        for model, count in ((drafter, ours), (target, theirs))
    )
    # All that the target can read, whatever its tokens choose; of a table of its own it reads rows.
    most = theirs.total - (theirs.embedding if theirs.head else 0)
    if ours.active >= most:
        yield TOO_LARGE.found(
            f"{billions(ours.active)} for a target of {billions(most)}, embeddings left out", *evidence
        )
    elif ratio >= NEAR:
        yield AS_ACTIVE.found(
            f"{billions(ours.active)} against {billions(theirs.active)} active: {ratio:.2f} of a plain step for each "
            f"drafted token, so break-even at D = 3 is an AL of {1 + 3 * ratio:.2f}",
            *evidence,
        )


def check_kind(target: Model) -> Iterator[Finding]:
    """Experts, recurrent states, windows, latent attention."""
    layers = target.arch.layers
    moe = next((layer.moe for layer in layers if layer.moe is not None), None)
    if moe is not None and moe.num_experts > moe.top_k:
        distinct = {n: moe.num_experts * (1 - (1 - moe.top_k / moe.num_experts) ** n) for n in WIDTHS}
        yield EXPERTS.found(
            f"{moe.top_k} of {moe.num_experts} experts for a token; independent choice reads "
            + ", ".join(f"{count / moe.top_k:.1f} times as many for {n}" for n, count in distinct.items())
            + " tokens",
            target.key("num_experts_per_tok"),
        )
    recurrent = [layer.mixer for layer in layers if layer.mixer in ("linear", "mamba", "conv")]
    if recurrent:
        yield RECURRENT.found(
            f"{len(recurrent)} of {len(layers)} layers are recurrent ({', '.join(sorted(set(recurrent)))})",
            target.key("layer_types"),
        )
    windowed = [layer for layer in layers if layer.window]
    if windowed:
        yield WINDOWED.found(
            f"{len(windowed)} of {len(layers)} layers see {target.arch.window} tokens", target.key("sliding_window")
        )
    if target.arch.latent:
        yield LATENT.found(f"{target.arch.G} query heads read one latent", target.key("kv_lora_rank"))


def billions(count: int) -> str:
    """Parameters for people."""
    return f"{count / 1e9:.2f}B" if count >= 1e8 else f"{count / 1e6:.1f}M"
