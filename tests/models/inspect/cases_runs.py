"""Heads that codraft itself refuses to draft with, by config and headers."""

from tests.models.inspect.case import DRAFTER, REFUSED, Case, NearMiss, On

TARGET = On("target")


def refused(name: str, base: str, key: str, value: object, words: str, severity: str = "warning") -> Case:
    """One key of a head's config that makes it one that codraft does not run."""
    return Case(
        name=name, base=base, changes=(DRAFTER.says(key, value),), code=REFUSED, severity=severity, words=words,
        key="architectures",
    )  # fmt: skip


CASES = [
    refused("an epsilon below zero", "eagle3", "rms_norm_eps", -1, "rms_norm_eps is -1, expected a positive number"),
    refused("an epsilon that is a text", "dflash", "rms_norm_eps", "small", "rms_norm_eps is 'small'"),
    refused("an unknown activation", "dspark", "hidden_act", "magic", "hidden_act is 'magic', expected one of silu"),
    refused("layers of an unknown kind", "dflash", "layer_types", ["magic"] * 9, "layer_types names 'magic'"),
    refused("fewer kinds of layers than layers", "dflash", "layer_types", [], "layer_types has 0 entries"),
    refused("a switch that is a text", "eagle3", "norm_output", "yes", "norm_output is 'yes', expected true or false"),
    refused("an unknown Markov head", "dspark", "markov_head_type", "magic", "markov_head_type is 'magic'"),
    refused("an unknown projector", "dflash", "dflash_config.projector_type", "magic", "projector_type ('magic')"),
    refused("a family's part that is a text", "eagle3", "eagle_config", "x", "eagle_config is 'x', expected an object"),
    refused("a block of a thousand million slots", "dflash", "block_size", 10**9, "block_size is 1000000000, expected"),
    refused("YaRN without its factor", "dflash", "rope_scaling", {"type": "yarn"}, "rope_scaling.factor is missing"),
    refused("a window of no tokens", "eagle3", "max_position_embeddings", 0, "max_position_embeddings is 0"),
    refused("more modules than the file holds", "mtp_file", "num_nextn_predict_layers", 3, "the config counts 3 MTP"),
    refused(
        "a family that codraft does not run", "mtp_file", "transformer_layer_config.model_type", "magic",
        "none that codraft runs", "note",
    ),
]  # fmt: skip
NEAR_MISSES = [
    NearMiss(
        name="another method drafts", base="eagle3", changes=(TARGET.says("hidden_act", "magic"),), code=REFUSED
    ),
]  # fmt: skip
