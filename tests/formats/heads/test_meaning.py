"""Two heads mean the same only if every size and switch agrees: each one that differs is named."""

from typing import Any

import pytest

from codraft.formats.heads.meaning import differences, meaning_of

from tests.formats.heads.test_read import changed, read, side
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import VD, V

SLIDING, FULL = "sliding_attention", "full_attention"


def nested(name: str, part: str, **more: Any) -> dict[str, Any]:
    """A family's own part with other keys."""
    return {part: {**side(name).config[part], **more}}


# (layout, keys, what they change)
CHANGES: list[tuple[str, dict[str, Any], str]] = [
    ("eagle3", {"num_attention_heads": 4}, "num_attention_heads"),
    ("eagle3", {"num_key_value_heads": 8}, "num_key_value_heads"),
    ("eagle3", {"head_dim": 16}, "head_dim"),
    ("eagle3", {"intermediate_size": 256}, "intermediate_size"),
    ("eagle3", {"target_hidden_size": 96}, "target_hidden_size"),
    ("eagle3", {"draft_vocab_size": VD - 1}, "draft_vocab_size"),
    ("eagle3", {"draft_vocab_size": V}, "draft_vocab_size"),
    ("eagle3", {"eagle_aux_hidden_state_layer_ids": [2, 6, 8]}, "layer ids"),
    ("eagle3", {"rms_norm_eps": 1e-5}, "rms_norm_eps"),
    ("eagle3", {"hidden_act": "gelu"}, "hidden_act"),
    ("eagle3", {"attention_bias": True}, "attention_bias"),
    ("eagle3", {"mlp_bias": True}, "mlp_bias"),
    ("eagle3", {"rope_theta": 1e4}, "rope_theta"),
    ("eagle3", {"rope_scaling": {"factor": 2.0}}, "rope_scaling"),
    ("eagle3", {"max_position_embeddings": 64}, "max_position_embeddings"),
    ("eagle3", {"norm_before_residual": True}, "norm_before_residual"),
    ("eagle3", {"norm_before_fc": True}, "norm_before_fc"),
    ("eagle3", {"fc_norm": True}, "fc_norm"),
    ("eagle3", {"norm_output": False}, "final norm before the output head"),
    ("eagle3_speculators", {"norm_output": True}, "feedback of the normed state"),
    ("eagle3_modelopt", nested("eagle3_modelopt", "eagle_config", use_aux_hidden_state=False), "use_aux_hidden_state"),
    ("eagle3_modelopt", nested("eagle3_modelopt", "eagle_config", use_input_layernorm_in_first_layer=False),
     "input_layernorm in the first layer"),
    ("eagle3", {"layer_types": [SLIDING], "sliding_window": 8}, "sliding windows"),
    ("dflash", {"block_size": 7}, "block_size"),
    ("dflash", nested("dflash", "dflash_config", mask_token_id=3), "mask_token_id"),
    ("dflash", {"is_causal": True}, "causal"),
    ("dflash", {"layer_types": [SLIDING, FULL], "sliding_window": 8, "is_causal": False}, "sliding windows"),
    ("dflash", {"shift_label": True}, "alignment"),
    ("dspark", {"markov_head_type": "rnn"}, "markov_head_type"),
    ("dspark", {"enable_confidence_head": False}, "confidence head"),
    ("dspark", {"confidence_head_with_markov": False}, "confidence_head_with_markov"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "what"), CHANGES)
def test_what_differs_is_named_with_both_values(name: str, keys: dict[str, Any], what: str) -> None:
    one, other = meaning_of(changed(name)), meaning_of(changed(name, **keys))

    said = differences(one, other)
    assert any(words.startswith(f"{what} (") for words in said), said


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name]().drafter is not None and name != "external"])
def test_a_head_means_the_same_as_itself(name: str) -> None:
    base = side(name)
    assert differences(meaning_of(read(base.config, base.tensors)), meaning_of(read(base.config, base.tensors))) == []


def test_how_ids_and_vocabulary_are_written_does_not_matter() -> None:
    inner = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}, "eagle_aux_hidden_state_layer_ids": None}
    assert differences(meaning_of(changed("eagle3")), meaning_of(changed("eagle3", **inner))) == []
    whole, unsaid = changed("eagle3_whole"), changed("eagle3_whole", draft_vocab_size=None)
    assert differences(meaning_of(whole), meaning_of(unsaid)) == []
