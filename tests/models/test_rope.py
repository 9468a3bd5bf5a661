"""Rotary positions in their old and their new form."""

from typing import Any

import pytest

from codraft.models.architecture import Rope
from codraft.models.reader import read_architecture

from tests.models.small import LLAMA

YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}


def rope(theta: float, key: str | None, kind: str = "default", **other: Any) -> Rope:
    """A rope of these numbers and no scaling."""
    usual: dict[str, Any] = {"factor": None, "original_max_positions": None, "partial": 1.0}
    return Rope(theta=theta, kind=kind, theta_key=key, **{**usual, **other})


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, rope(1e4, None)),
        ({"model_type": "mixtral"}, rope(1e6, None)),
        ({"rope_theta": 5e5}, rope(5e5, "rope_theta")),
        ({"rotary_emb_base": 777}, rope(777, "rotary_emb_base")),
        ({"rope_theta": 5e5, "rope_scaling": YARN},
         rope(5e5, "rope_theta", "yarn", factor=4.0, original_max_positions=4096)),
        ({"rope_scaling": {"rope_type": "longrope"}, "original_max_position_embeddings": 512},
         rope(1e4, None, "longrope", original_max_positions=512)),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2, "rope_theta": 9.0}},
         rope(9.0, "rope_parameters.rope_theta", "linear", factor=2.0)),
        ({"partial_rotary_factor": 0.5}, rope(1e4, None, partial=0.5)),
        ({"rotary_pct": 0.25}, rope(1e4, None, partial=0.25)),
        ({"rotary_dim": 2}, rope(1e4, None, partial=0.25)),
        ({"rope_parameters": {"rope_theta": 8.0, "partial_rotary_factor": 0.5}},
         rope(8.0, "rope_parameters.rope_theta", partial=0.5)),
    ],
    ids=str,
)  # fmt: skip
def test_rope_is_read_in_its_old_and_its_new_form(keys: dict[str, Any], expected: Rope) -> None:
    arch = read_architecture({**LLAMA, "head_dim": 8, **keys})
    assert (arch.rope, arch.local_rope) == (expected, None)


@pytest.mark.parametrize(
    ("keys", "theta_key"),
    [
        ({"rope_theta": 1e6, "rope_local_base_freq": 1e4}, "rope_theta"),
        ({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6},
                              "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
         "rope_parameters.full_attention.rope_theta"),
    ],
)  # fmt: skip
def test_windowed_layers_may_rotate_at_another_pace(keys: dict[str, Any], theta_key: str) -> None:
    arch = read_architecture({**LLAMA, "head_dim": 8, **keys})
    assert arch.rope == rope(1e6, theta_key)
    assert arch.local_rope is not None
    assert arch.local_rope.theta == 1e4


def test_one_pace_for_all_layers_is_told_once() -> None:
    both = {kind: {"rope_type": "default", "rope_theta": 5e5} for kind in ("full_attention", "sliding_attention")}
    assert read_architecture({**LLAMA, "rope_parameters": both}).local_rope is None


@pytest.mark.parametrize(
    "keys",
    [{"model_type": "gpt2"}, {"model_type": "nemotron_h", "rope_theta": 1e4}, {"alibi": True}, {"mla_use_nope": True},
     {"position_embedding_type": "nope"}],
)  # fmt: skip
def test_some_models_do_not_rotate(keys: dict[str, Any]) -> None:
    assert read_architecture({**LLAMA, "num_key_value_heads": 8, **keys}).rope is None
