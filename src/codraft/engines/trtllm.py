"""TensorRT-LLM, PyTorch backend: `trtllm-serve TARGET --config trtllm.yaml`."""

from collections.abc import Mapping
from shlex import quote

from codraft.engines.plan import Drafting, Model, Note, Plan, Rule, Rules
from codraft.engines.shell import command, yaml_mapping

CONFIG, FILE = "trtllm.yaml", "trtllm.sh"
STATED = "TensorRT-LLM's documentation (speculative decoding), unverified"
SAMPLED = Note(
    text="measured were drafts drawn from p_draft; TensorRT-LLM accepts by exact match here, so expect another AL",
    when={"draft": "sample"},
)

RULES: Rules = {
    "ngram": Rule(
        spelling="NGram",
        source=STATED,
        by_load="cutoff",
        options={"n_max": "max_matching_ngram_size", "occurrence": "is_use_oldest"},
        explained=("n_min",),
        notes=(
            Note(text="n_min has no counterpart: TensorRT-LLM also matches shorter suffixes than were measured"),
            Note(text="the pool is kept apart for each request, as measured; TensorRT-LLM's default shares it"),
        ),
    ),
    "suffix": "TensorRT-LLM has no suffix decoding (its SA, a suffix automaton, is another rule and was not measured)",
    "external": Rule(
        spelling="Draft_Target",
        source=STATED,
        by_load="cutoff",
        model="needed",
        explained=("draft",),
        notes=(
            SAMPLED,
            Note(text="newer versions read decoding_type Draft_Target, older ones (and the documentation) DraftTarget"),
        ),
    ),
    "eagle3": Rule(
        spelling="Eagle3", source=STATED, by_load="cutoff", model="needed", explained=("draft",), notes=(SAMPLED,)
    ),
    "mtp": Rule(
        spelling="MTP", source=STATED, by_load="cutoff", model="optional", explained=("draft",), notes=(SAMPLED,)
    ),
    "dflash": Rule(
        spelling="DFlash",
        source=STATED,
        by_load="cutoff",
        model="needed",
        explained=("draft", "block"),
        notes=(
            SAMPLED,
            Note(
                text="TensorRT-LLM's block follows max_draft_len; measured was the block of the checkpoint, cut to D",
                when={"block": "truncate"},
            ),
        ),
    ),
    "dspark": "TensorRT-LLM's branches disagree on the keys of DSpark, so nothing is written for it",
}

# Keys beside the ones that follow from the decision; the documentation's examples switch the overlap scheduler off.
TOP: Mapping[str, Mapping[str, object]] = {
    "NGram": {"disable_overlap_scheduler": True},
    "Draft_Target": {"disable_overlap_scheduler": True},
}
FIXED: Mapping[str, Mapping[str, object]] = {"NGram": {"is_keep_all": True, "is_public_pool": False}}
VALUES: Mapping[object, object] = {"earliest": True, "latest": False}


def config_of(drafting: Drafting) -> dict[str, object]:
    """The YAML file's content."""
    spelling = drafting.rule.spelling
    config: dict[str, object] = {"decoding_type": spelling, "max_draft_len": drafting.D}
    if drafting.model is not None:
        config["speculative_model"] = drafting.model.path
    for option, key in drafting.rule.options.items():
        if option in drafting.options:
            value = drafting.options[option]
            config[key] = VALUES.get(value, value)
    config |= FIXED.get(spelling, {})
    if drafting.cutoff is not None:
        config["max_concurrency"] = drafting.cutoff
    return {**TOP.get(spelling, {}), "speculative_config": config}


def extra_notes(plan: Plan, target: Model) -> tuple[str, ...]:
    """What the command itself brings along, or leaves behind."""
    drafter = None if plan.drafting is None else plan.drafting.model
    return tuple(
        f"revision {model.revision} of {model.path} is not pinned here; fetch it yourself and give its folder"
        for model in (target, drafter)
        if model is not None and model.revision is not None
    )


def files(plan: Plan, target: Model) -> dict[str, str]:
    """The configuration and the script that reads it from its own folder."""
    parts = [f"trtllm-serve {quote(target.path)}"]
    if plan.drafting is not None:
        parts.append(f'--config "$(dirname -- "$0")/{CONFIG}"')
    config = {} if plan.drafting is None else config_of(plan.drafting)
    return {CONFIG: yaml_mapping(config), FILE: command(parts)}
