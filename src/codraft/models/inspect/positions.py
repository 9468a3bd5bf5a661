"""Positions: how many a drafter can tell apart, and whether both rotate alike."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from codraft.core.inspection import Evidence, Finding
from codraft.formats.fields import Fields
from codraft.models.architecture import Rope
from codraft.models.inspect.pair import HeadModel, Model, Pair, Rule, absent_evidence, asked
from codraft.models.rope import read_rope

LIMIT = Rule(
    code="positions.drafter",
    severity="warning",
    title="The drafter's positions end before the target's",
    consequence="Past the limit an engine crashes on a table look-up, drafts rubbish, or stretches the table to "
    "lengths the drafter never saw: acceptance falls with context.",
    fix="Measure acceptance by context length on the engine, and serve long prompts without this drafter or with one "
    "trained longer.",
    seen="sgl-project/sglang#6783, vllm-project/vllm#48894, deepseek-ai/DeepSpec#59",
)
WORKLOAD = Rule(
    code="positions.workload",
    severity="error",
    title="Your sequences are longer than the drafter's positions",
    consequence="Those requests are drafted without a trained position, or crash the server with a device assert.",
    fix="Use a drafter trained at your lengths, or leave speculation off beyond the limit.",
    seen="vllm-project/vllm#48894, vllm-project/vllm#52258",
)
TARGET_WORKLOAD = Rule(
    code="positions.target",
    severity="error",
    title="Your sequences are longer than the target's positions",
    consequence="The engine refuses the request or cuts the prompt.",
    fix="Shorten the prompts, or extend the target's positions as its authors say.",
)
THETA = Rule(
    code="rope.theta",
    severity="warning",
    title="Another RoPE base than the target's",
    consequence="It is right if the drafter was trained with it, and wrong if it was not; the file cannot say which.",
    fix="Do not 'fix' it blindly: measure acceptance with both values, and keep the better. A head has been seen at"
    " 2.50 with 1e4 and 2.39 with the target's 1e6.",
    seen="wejoncy/sfllm#32",
)
THETA_ABSENT = Rule(
    code="rope.theta_absent",
    severity="note",
    title="No RoPE base in the drafter's config",
    consequence="Engines take 10000. The reference EAGLE-3 code trains with 10000 whatever the target has, so this is "
    "usually what it was trained with.",
    fix="Leave it, unless the training code set another base; then write it.",
    seen="wejoncy/sfllm#32",
)
SCALING = Rule(
    code="rope.scaling",
    severity="warning",
    varies="a note where the drafter has no RoPE key at all",
    title="Another RoPE scaling than the target's",
    consequence="The drafter works at the target's positions: with another scaling it converges on short prompts "
    "and decays on long ones.",
    fix="If it was trained with the target's scaling, write that; if not, measure both. Some trainers know no YaRN "
    "at all.",
    seen="NVIDIA-NeMo/Automodel#2399, sgl-project/SpecForge#219, NVIDIA/Model-Optimizer#917",
)
PARTIAL = Rule(
    code="rope.partial",
    severity="warning",
    varies="a note for block drafters, which rotate whole heads",
    title="Another share of the head is rotated than in the target",
    consequence="Trainers that ignore partial_rotary_factor give good validation and very low acceptance when served.",
    fix="Check what the training code rotated; the config must say that.",
    seen="vllm-project/speculators#613, #738",
)
STYLE = Rule(
    code="rope.style",
    severity="warning",
    title="Interleaved rotary positions",
    consequence="Engines that rotate halves (the usual, NeoX, style) load it without error and draft badly.",
    fix="Check that the engine reads this key.",
)
KEYS = Rule(
    code="rope.keys",
    severity="warning",
    title="The RoPE base stands only in the new form of the config",
    consequence="rope_parameters is what transformers 5 writes; readers of the older rope_theta take their default of "
    "10000.",
    fix="Write rope_theta (and rope_scaling) beside rope_parameters.",
    seen="NVIDIA/Model-Optimizer#917",
)
WINDOW = Rule(
    code="window.drafter",
    severity="warning",
    title="A drafter with a sliding window",
    consequence="Acceptance is flat over long contexts and lower on short ones; engines have ignored the drafter's "
    "window and taken the target's, or served it causal where it was trained bidirectional.",
    fix="Compare acceptance at short and long contexts on your engine, and check what its version reads.",
    seen="vllm-project/speculators#684",
)
WINDOW_NON_CAUSAL = Rule(
    code="window.non_causal",
    severity="warning",
    title="A sliding window that is not causal inside the block",
    consequence="Engines take sliding layers of a block drafter as causal unless the config says otherwise, and "
    "vLLM does not serve the other form in the versions read.",
    fix="Write dflash_config.causal explicitly, and check acceptance on the engine.",
)
RULES = (
    LIMIT, WORKLOAD, TARGET_WORKLOAD, THETA, THETA_ABSENT, SCALING, PARTIAL, STYLE, KEYS, WINDOW, WINDOW_NON_CAUSAL,
)  # fmt: skip

# vLLM lengthens the table of learned heads to the served length; a longer table is not a trained one.
POSITION_REMARKS = {
    "vllm": "raises a learned head's positions to the served length (older versions: device assert)",
    "sglang": "keeps the drafter's positions",
}
WINDOW_REMARKS = {
    "vllm": "sliding layers of a block drafter are causal unless the config says otherwise; older versions took the "
    "target's window",
    "sglang": "takes --speculative-draft-window-size",
}
OLD_BASE = 10_000.0
SCALING_KEYS = ("rope_parameters", "rope_scaling")
PLAIN: tuple[str, float | None] = ("default", None)


def check(pair: Pair) -> Iterator[Finding]:
    """Limits, RoPE, windows."""
    drafter, target = pair.drafter, pair.target
    most = target.arch.max_positions
    if most is not None and (beyond := too_long(pair, most)) is not None:
        words, flag = beyond
        yield TARGET_WORKLOAD.found(
            f"{words}; the target has {most} positions", flag, target.key("max_position_embeddings")
        )
    if drafter is None:
        return
    yield from check_limit(pair, drafter)
    if isinstance(drafter, Model) and all(layer.window for layer in drafter.arch.layers):
        words = f"every layer of the drafter sees {drafter.arch.window} tokens"
        yield WINDOW.found(words, drafter.key("sliding_window"))
    if isinstance(drafter, HeadModel) and drafter.head.mechanism != "mtp" and drafter.head.geometry.num_layers:
        yield from check_rope(target, drafter)
        yield from check_window(drafter)


def drafter_positions(drafter: Model | HeadModel) -> int | None:
    """Positions that a drafter's config gives."""
    if isinstance(drafter, Model):
        return drafter.arch.max_positions
    for part in (drafter.head.text, drafter.config):
        value = part.get("max_position_embeddings")
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf:
            return int(value)
    return None


def check_limit(pair: Pair, drafter: Model | HeadModel) -> Iterator[Finding]:
    """The drafter's limit against the workload, or else against the target's."""
    limit, theirs = drafter_positions(drafter), pair.target.arch.max_positions
    if limit is None:
        return
    evidence = (drafter.key("max_position_embeddings"), pair.target.key("max_position_embeddings"))
    if (beyond := too_long(pair, limit)) is not None:
        words, flag = beyond
        yield WORKLOAD.found(f"{words}; the drafter has {limit} positions", flag, *evidence, engines=POSITION_REMARKS)
    elif theirs is not None and limit < theirs and pair.question.context is None:
        yield LIMIT.found(
            f"the drafter has {limit} positions, the target {theirs}",
            *evidence,
            engines=POSITION_REMARKS,
            fix=f"{LIMIT.fix} --context or --prompts judges your own lengths.",
        )


def too_long(pair: Pair, limit: int) -> tuple[str, Evidence] | None:
    """What of the workload goes beyond a limit, in words, and the flag that says so; None where nothing does."""
    context, workload = pair.question.context, pair.workload
    if workload is not None and (count := workload.longer_than(limit)):
        share = count / len(workload.ids)
        words = f"{count} of {len(workload.ids)} prompts ({share:.0%}) are longer, up to {workload.longest} tokens"
        return words, asked("prompts", workload.name)
    if context is not None and context > limit:
        return f"sequences of {context} tokens", asked("context", context)
    return None


def check_rope(target: Model, drafter: HeadModel) -> Iterator[Finding]:
    """Base, scaling, share and style of rotation."""
    text, theirs = drafter.head.text, target.arch.rope
    if theirs is None:
        return
    ours, _ = read_rope(Fields(text, drafter.head.text_path), drafter.head.geometry.head_dim)
    if ours.theta_key is None and theirs.theta != OLD_BASE:
        yield THETA_ABSENT.found(
            f"no rope_theta; the target's is {theirs.theta:,.0f}" if theirs.theta else "no rope_theta",
            absent_evidence("drafter", "config.json", "rope_theta"),
        )
    elif ours.theta_key is not None and ours.theta and theirs.theta and ours.theta != theirs.theta:
        yield THETA.found(
            f"{ours.theta:,.0f} in the drafter, {theirs.theta:,.0f} in the target",
            drafter.key(ours.theta_key),
            *target_theta(target, theirs),
        )
    stretched = {ours.original_max_positions, theirs.original_max_positions} - {None}
    if scaling(ours) != scaling(theirs) or (scaling(ours) != PLAIN and len(stretched) > 1):
        yield SCALING.found(
            f"{words(ours)} in the drafter, {words(theirs)} in the target",
            rope_key(drafter, text),
            rope_key(target, target.arch.text),
            # Without any key, the training code's own rotation is what counts, as with the base.
            severity=None if ours.theta_key or any(key in text for key in SCALING_KEYS) else "note",
        )
    # Of a latent only a part of its own is rotated, which is no share of a head.
    if ours.partial != theirs.partial and not target.arch.latent:
        yield PARTIAL.found(
            f"{ours.partial:g} of the head in the drafter, {theirs.partial:g} in the target",
            partial_key(drafter, text),
            partial_key(target, target.arch.text),
            # Published block drafters rotate whole heads beside targets that do not, and are accepted well.
            severity="note" if drafter.head.block is not None else None,
        )
    for key in ("is_neox_style", "rope_is_neox_style", "dflash_config.is_neox_style"):
        if drafter.key(key).value is False:
            yield STYLE.found(f"{key} is false", drafter.key(key))
    if isinstance(text.get("rope_parameters"), Mapping) and "rope_theta" not in text and ours.theta != OLD_BASE:
        yield KEYS.found("rope_parameters without rope_theta", drafter.key("rope_parameters"))


def target_theta(target: Model, rope: Rope) -> list[Evidence]:
    """Where the target's base stands."""
    return [] if rope.theta_key is None else [target.key(rope.theta_key)]


def rope_key(model: Model | HeadModel, text: Mapping[str, Any]) -> Evidence:
    """Where scaling stands, or would."""
    return model.key("rope_parameters" if "rope_parameters" in text else "rope_scaling")


def partial_key(model: Model | HeadModel, text: Mapping[str, Any]) -> Evidence:
    """Where the rotated share stands, or would."""
    nested = text.get("rope_parameters")
    inside = isinstance(nested, Mapping) and "partial_rotary_factor" in nested
    return model.key("rope_parameters.partial_rotary_factor" if inside else "partial_rotary_factor")


def scaling(rope: Rope) -> tuple[str, float | None]:
    """What must agree of two scalings; without a factor all kinds are plain."""
    # Its factors are lists, one number for each frequency.
    if rope.kind == "longrope":
        return rope.kind, None
    plain = rope.kind in ("default", "mrope") or rope.factor in (None, 1.0)
    return PLAIN if plain else (rope.kind, rope.factor)


def words(rope: Rope) -> str:
    """A scaling in words."""
    kind, factor = scaling(rope)
    if (kind, factor) == PLAIN:
        return "no scaling"
    original = f" from {rope.original_max_positions}" if rope.original_max_positions else ""
    return f"{kind}{'' if factor is None else f' x {factor:g}'}{original}"


def window_of(drafter: HeadModel) -> tuple[str, Any] | None:
    """(key, width) of a head's sliding window, None where no layer of it has one."""
    text, nested = drafter.head.text, drafter.config.get("dflash_config")
    nested = nested if isinstance(nested, Mapping) else {}
    kinds = text.get("layer_types")
    sliding = isinstance(kinds, list) and "sliding_attention" in kinds
    swa = nested.get("use_swa") is True
    window = nested.get("swa_window_size") if swa else text.get("sliding_window")
    if not (swa or sliding or (kinds is None and window and text.get("use_sliding_window") is not False)):
        return None
    return "dflash_config.swa_window_size" if swa else "sliding_window", window


def check_window(drafter: HeadModel) -> Iterator[Finding]:
    """Sliding windows of a head."""
    found = window_of(drafter)
    if found is None:
        return
    key, window = found
    tokens = "an unsaid number of" if window is None else window
    yield WINDOW.found(f"layers of the drafter see {tokens} tokens", drafter.key(key), engines=WINDOW_REMARKS)
    # DFlash2 is made so, and served so.
    usual = drafter.head.mechanism == "dflash2"
    if drafter.head.block is not None and drafter.head.block.causal is False and not usual:
        yield WINDOW_NON_CAUSAL.found(
            "the config asks for a window that is not causal", drafter.key(key), drafter.key("dflash_config.causal")
        )
