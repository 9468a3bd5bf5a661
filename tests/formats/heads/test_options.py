"""Switches of a head's graph: one meaning, whatever family wrote them; two that disagree are one sentence."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.core.errors import SpecError
from codraft.formats.heads.options import block_options, eagle3_options, layer_options, refuse_unknown

from tests.formats.heads.test_read import changed, read, side
from tests.models.inspect.layouts import ALL

GOLDEN = Path(__file__).parents[2] / "golden" / "drafters"
EAGLE3 = [name for name in ALL if name.startswith("eagle3")]
BLOCKS = [name for name in ALL if name.startswith(("dflash", "dspark", "domino"))]
SLIDING, FULL = "sliding_attention", "full_attention"


def speculators(name: str, **layers: Any) -> dict[str, Any]:
    """The layer part of a speculators layout with other keys."""
    return {**side(name).config["transformer_layer_config"], **layers}


@pytest.mark.parametrize("name", EAGLE3)
def test_an_eagle3_head_without_switches_is_the_papers(name: str) -> None:
    found = eagle3_options(read(side(name).config, side(name).tensors))

    assert (found.norm_before_fc, found.fc_norm, found.feedback) == (False, False, "pre_norm")
    assert (found.norms_output, found.first_layer_norm, found.fuses, found.doubled) == (True, True, True, (True,))
    # The published speculators layout has this one switched on.
    assert found.norm_before_residual is (name == "eagle3_speculators")


@pytest.mark.parametrize(
    ("name", "keys", "feedback", "norms_output"),
    [
        ("eagle3", {"norm_output": True}, "pre_norm", True),
        ("eagle3", {"norm_output": False}, "pre_norm", False),
        ("eagle3_speculators", {"norm_output": True}, "post_norm", True),
        ("eagle3_speculators", {"norm_output": False}, "pre_norm", True),
        ("eagle3_modelopt", {"norm_output": True}, "post_norm", True),
        ("eagle3_modelopt", {"eagle_config": {"return_hidden_post_norm": True}}, "post_norm", True),
        ("eagle3_modelopt", {"eagle_config": {"use_last_layernorm": False}}, "pre_norm", False),
        ("eagle3", {"norm_output": False, "eagle_config": {"return_hidden_post_norm": True}}, "post_norm", False),
    ],
)
def test_norm_output_has_two_meanings_and_two_fields(
    name: str, keys: dict[str, Any], feedback: str, norms_output: bool
) -> None:
    found = eagle3_options(changed(name, **keys))

    assert (found.feedback, found.norms_output) == (feedback, norms_output)


def test_features_are_normed_together_or_one_by_one() -> None:
    assert eagle3_options(changed("eagle3", fc_norm=True)).fc_norm
    assert eagle3_options(changed("eagle3", norm_before_fc=True)).norm_before_fc
    assert eagle3_options(changed("eagle3_modelopt", eagle_config={"norm_before_fc": True})).norm_before_fc
    with pytest.raises(SpecError, match=r"head/config\.json: norm_before_fc and fc_norm are both true"):
        eagle3_options(changed("eagle3", fc_norm=True, norm_before_fc=True))
    with pytest.raises(SpecError, match=r"eagle_config\.norm_before_fc false and norm_before_fc true contradict"):
        eagle3_options(changed("eagle3", norm_before_fc=True, eagle_config={"norm_before_fc": False}))
    with pytest.raises(SpecError, match="say different things of what a draft step feeds back"):
        eagle3_options(changed("eagle3_modelopt", norm_output=False, eagle_config={"return_hidden_post_norm": True}))


def test_later_layers_read_the_embedding_in_deepspec_and_where_model_optimizer_says_so() -> None:
    assert eagle3_options(changed("eagle3_modelopt", num_hidden_layers=3)).doubled == (True, False, False)
    assert eagle3_options(changed("eagle3_deepspec", num_hidden_layers=2)).doubled == (True, True)
    irregular = {"next_layer_regular": False}
    assert eagle3_options(changed("eagle3_modelopt", num_hidden_layers=2, eagle_config=irregular)).doubled == (
        True,
        True,
    )


def test_layers_say_their_epsilon_their_activation_and_their_biases() -> None:
    plain, qwen = layer_options(changed("eagle3")), layer_options(changed("eagle3_deepspec"))

    assert (plain.eps, plain.act, plain.qk_norm, plain.attention_bias, plain.mlp_bias) == (1e-6, "silu", *[False] * 3)
    assert qwen.qk_norm
    other = layer_options(changed("eagle3", rms_norm_eps=1e-5, hidden_act="gelu", attention_bias=True, mlp_bias=True))
    assert (other.eps, other.act, other.attention_bias, other.mlp_bias) == (1e-5, "gelu", True, True)
    # Qwen2 has biases and no key for them; a block drafter norms queries and keys whatever its config calls itself.
    assert layer_options(changed("eagle3", model_type="qwen2")).attention_bias
    assert not layer_options(changed("eagle3", model_type="qwen2", attention_bias=False)).attention_bias
    assert layer_options(changed("dflash", model_type="llama")).qk_norm


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_is_seen_whole_where_nothing_says_otherwise(name: str) -> None:
    head = read(side(name).config, side(name).tensors)
    found = block_options(head)

    assert head.block is not None
    assert (found.size, found.mask_token_id) == (head.block.size, head.block.mask_token_id)
    assert found.alignment == ("same_slot" if name.startswith("dflash") else "next_slot")
    assert found.windows == (None, None)
    assert found.causal == (False, False)


@pytest.mark.parametrize(
    ("keys", "causal"),
    [
        ({}, (True, False)),
        ({"is_causal": False}, (False, False)),
        ({"is_causal": True}, (True, True)),
        ({"dflash_config": {"causal": False}}, (False, False)),
        ({"dflash_config": {"causal": True}}, (True, True)),
        ({"sliding_window_non_causal": True}, (False, False)),
        ({"sliding_window_non_causal": False}, (True, False)),
    ],
)
def test_sliding_layers_are_causal_unless_told_otherwise(keys: dict[str, Any], causal: tuple[bool, ...]) -> None:
    keys = {**keys, "dflash_config": {**side("dflash").config["dflash_config"], **keys.get("dflash_config", {})}}
    found = block_options(changed("dflash", layer_types=[SLIDING, FULL], sliding_window=2048, **keys))

    assert found.windows == (2048, None)
    assert found.causal == causal


def test_speculators_say_it_of_sliding_layers_alone() -> None:
    layers = speculators("dflash_speculators", layer_types=[SLIDING, FULL], sliding_window=64)

    for non_causal, causal in ((None, (True, False)), (False, (True, False)), (True, (False, False))):
        head = changed("dflash_speculators", transformer_layer_config=layers, sliding_window_non_causal=non_causal)
        assert (block_options(head).windows, block_options(head).causal) == ((64, None), causal)


def test_use_swa_gives_every_layer_a_window_and_leaves_the_block_whole() -> None:
    nested = {**side("dflash").config["dflash_config"], "use_swa": True, "swa_window_size": 32}
    found = block_options(changed("dflash", dflash_config=nested, layer_types=[FULL, FULL]))

    assert (found.windows, found.causal) == ((32, 32), (False, False))


@pytest.mark.parametrize(
    ("name", "keys", "words"),
    [
        ("dflash", {"block_size": None}, "block_size is missing"),
        ("dflash", {"dflash_config": {"target_layer_ids": [1], "block_size": 16, "mask_token_id": 1}},
         "block_size 8 and dflash_config.block_size 16 contradict each other"),
        ("dflash", {"dflash_config": {"target_layer_ids": [1]}}, "mask_token_id is missing"),
        ("dflash", {"dflash_config": {"target_layer_ids": [1], "mask_token_id": 512}}, r"expected one of 0\.\.511"),
        ("dflash", {"layer_types": [SLIDING, FULL]}, "layers have a sliding window and none is given"),
        ("dflash", {"layer_types": [SLIDING, FULL], "sliding_window": 8, "use_sliding_window": False},
         "layer_types names sliding layers and use_sliding_window is false"),
        ("dflash", {"layer_types": [SLIDING]}, "layer_types has 1 entries for 2 layers"),
        ("dflash", {"layer_types": [FULL, "linear"]}, "layer_types names 'linear'"),
        ("dflash", {"is_causal": True, "dflash_config": {"mask_token_id": 1, "causal": False}},
         "is_causal true and dflash_config.causal false contradict each other"),
        ("dspark_modelopt", {"sample_from_anchor": False},
         "sample_from_anchor false and dflash_config.shift_label true contradict each other"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_is_one_sentence(name: str, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(SpecError, match=words) as raised:
        block_options(changed(name, **keys))

    assert str(raised.value).startswith("head/config.json: ")
    assert "\n" not in str(raised.value)


def test_a_head_without_a_block_has_no_block_options() -> None:
    with pytest.raises(ValueError, match="eagle3 drafts no block"):
        block_options(changed("eagle3"))
    with pytest.raises(ValueError, match="dflash drafts no block"):
        block_options(replace(changed("dflash"), block=None))


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_options_of_every_published_head_can_be_read(path: Path) -> None:
    config = json.loads(path.read_text())["config"]
    head = read(config, {})
    assert layer_options(head).eps in (1e-5, 1e-6)
    refuse_unknown(head)
    if head.mechanism == "eagle3":
        found = eagle3_options(head)
        assert (found.feedback, found.norms_output, found.fuses) == (
            "pre_norm",
            True,
            path.stem != "nvidia_gpt_oss_120b_short",
        )
        assert found.norm_before_fc is (path.stem == "nvidia_gpt_oss_120b_v3")
        assert found.norm_before_residual is (path.stem == "redhat_qwen3_8b_eagle3")
    elif head.block is not None:
        found_block = block_options(head)
        windowed = path.stem in ("redhat_qwen36_35b_dspark", "zlab_qwen38_27b_dflash2")
        assert found_block.windows == ((2048 if windowed else None),) * head.geometry.num_layers
        # The library's windowed layers are causal; DFlash2 says that its are not.
        assert found_block.causal == (path.stem == "redhat_qwen36_35b_dspark",) * head.geometry.num_layers


@pytest.mark.parametrize(
    ("name", "part", "refused", "passed"),
    [
        ("eagle3_modelopt", "eagle_config", {"eh_proj_before_attn": True}, {"use_mtp_layernorm": False}),
        ("dflash", "dflash_config", {"output_multiplier": 0.5}, {"output_multiplier": 1.0}),
        ("dspark_specforge", "dflash_config", {"final_logit_softcapping": 30.0}, {"use_aux_hidden_state": True}),
    ],
)
def test_a_switch_that_nothing_here_knows_is_named(
    name: str, part: str, refused: dict[str, Any], passed: dict[str, Any]
) -> None:
    own = side(name).config[part]
    ((key, value),) = refused.items()
    with pytest.raises(SpecError, match=rf"config\.json: .* {part}\.{key} \({value}\) changes"):
        refuse_unknown(changed(name, **{part: {**own, **refused}}))
    refuse_unknown(changed(name, **{part: {**own, **passed}}))
