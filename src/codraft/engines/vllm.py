"""vLLM 0.32: `vllm serve TARGET --speculative-config JSON`."""

import json
from collections.abc import Mapping
from shlex import quote

from codraft.engines.plan import Drafting, Model, Note, Plan, Rule, Rules
from codraft.engines.shell import command, flag

FILE = "vllm.sh"
SEEN = "vLLM 0.32, seen running there on a CPU"
STATED = "stated in vLLM's documentation, unverified"
DRAFT: Mapping[str, str] = {"draft": "draft_sample_method"}

RULES: Rules = {
    "ngram": Rule(
        spelling="ngram",
        source=SEEN,
        by_load="ranges",
        options={"n_min": "prompt_lookup_min", "n_max": "prompt_lookup_max"},
        explained=("occurrence",),
        notes=(
            Note(
                text="the V1 model runner (CPU, or VLLM_USE_V2_MODEL_RUNNER=0) takes the earliest occurrence, measured "
                "was the latest; with occurrence=earliest codraft measures that rule",
                when={"occurrence": "latest"},
            ),
            Note(
                text="the V2 model runner (the default where Triton runs) takes the latest occurrence, measured was "
                "the earliest; VLLM_USE_V2_MODEL_RUNNER=0 brings the measured rule",
                when={"occurrence": "earliest"},
            ),
            Note(
                text="the V2 model runner fills every draft up to D with tokens to be refused, so that each step "
                "verifies 1 + D tokens; measured were drafts of their real length"
            ),
        ),
    ),
    "suffix": Rule(
        spelling="suffix",
        source=SEEN,
        options={
            "max_tree_depth": "suffix_decoding_max_tree_depth",
            "max_cached_requests": "suffix_decoding_max_cached_requests",
            "max_spec_factor": "suffix_decoding_max_spec_factor",
            "min_token_prob": "suffix_decoding_min_token_prob",
        },
        notes=(
            Note(text="needs: pip install arctic-inference==0.1.1"),
            Note(
                text="vLLM 0.32 stops with an assertion where D changes by load, so D is fixed here; it is the most "
                "that one step may draft"
            ),
            Note(
                text="the tree over all requests starts empty and then knows the whole traffic: acceptance depends on "
                "what was served before"
            ),
            Note(
                text="later versions draft on the GPU, always D tokens, and use neither max_spec_factor nor "
                "min_token_prob; measured was the rule of 0.32"
            ),
        ),
    ),
    "external": Rule(
        spelling="draft_model",
        source=SEEN,
        by_load="ranges",
        model="needed",
        options=DRAFT,
        notes=(Note(text="vLLM refuses a drafter whose vocab_size is not the target's, padding included"),),
    ),
    "eagle3": Rule(spelling="eagle3", source=SEEN, by_load="ranges", model="needed", options=DRAFT),
    "mtp": Rule(
        spelling="mtp",
        source=SEEN,
        model="optional",
        options=DRAFT,
        notes=(
            Note(
                text="vLLM 0.32 drafts every token with the first MTP module (its V2 runner, but for Qwen3.5, takes "
                "them in turn): of a checkpoint with several, AL there is another than measured"
            ),
            Note(text="D above the checkpoint's number of MTP modules must be a multiple of it"),
            Note(text="a change of D by load is not tested by vLLM with mtp, so D is fixed here"),
        ),
    ),
    "dflash": Rule(
        spelling="dflash",
        source=SEEN,
        by_load="ranges",
        model="needed",
        options=DRAFT,
        explained=("block",),
        notes=(
            Note(
                text="vLLM drafts D tokens with a block of 1 + D slots; measured was the checkpoint's block, cut to D",
                when={"block": "truncate"},
            ),
        ),
    ),
    "dspark": Rule(
        spelling="dspark",
        source=STATED + "; 0.32 refuses it on a CPU",
        model="optional",
        options=DRAFT,
        explained=("block", "timed"),
        notes=(
            Note(
                text="vLLM's block is D slots; measured was the block of the checkpoint, cut to D",
                when={"block": "truncate"},
            ),
            Note(text="D should be the checkpoint's block size; other lengths are disputed in vLLM's issues"),
        ),
    ),
}

CHANGING = (
    "vLLM 0.32 takes D from the number of scheduled requests, prefills included; above the last range its D holds on",
    "vLLM's documentation names EAGLE, EAGLE-3 and DFlash as tested with a changing D; with data parallelism it is "
    "switched off",
)
VALUES: Mapping[object, object] = {"sample": "probabilistic"}


def config_of(drafting: Drafting) -> dict[str, object]:
    """The JSON behind --speculative-config."""
    config: dict[str, object] = {"method": drafting.rule.spelling}
    if drafting.model is not None:
        config["model"] = drafting.model.path
        if drafting.model.revision is not None:
            config["revision"] = drafting.model.revision
    config["num_speculative_tokens"] = drafting.D
    if len(drafting.ranges) > 1:
        config["num_speculative_tokens_per_batch_size"] = [list(entry) for entry in drafting.ranges]
    for option, key in drafting.rule.options.items():
        if option in drafting.options:
            value = drafting.options[option]
            config[key] = VALUES.get(value, value)
    return config


def extra_notes(plan: Plan, target: Model) -> tuple[str, ...]:
    """What the command itself brings along."""
    return CHANGING if plan.drafting is not None and len(plan.drafting.ranges) > 1 else ()


def files(plan: Plan, target: Model) -> dict[str, str]:
    """One script."""
    parts = [f"vllm serve {quote(target.path)}"]
    if target.revision is not None:
        parts.append(flag("--revision", target.revision))
    if plan.drafting is not None:
        parts.append(flag("--speculative-config", json.dumps(config_of(plan.drafting))))
    return {FILE: command(parts)}
