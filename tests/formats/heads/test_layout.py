"""Tensors that a head must have: exact names and shapes of each family's published layout."""

from typing import Any

import pytest

from codraft.formats.heads.detect import detect
from codraft.formats.heads.head import Kind
from codraft.formats.heads.layout import canonical, expected

from tests.checkpoints import as_layout
from tests.formats.heads.test_read import changed, read, side
from tests.models.inspect.layouts import ALL
from tests.models.inspect.pairs import RANK, VD, H, V

# A head of 64 with 8 query heads and 4 KV heads of 8, and an FFN of 128, as in the layouts.
Q, KV, F = 64, 32, 128


def layer(index: int, inputs: int = 1, *, normed: bool = False) -> dict[str, tuple[int, ...]]:
    """A decoder layer, written out."""
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (Q, inputs * H), "self_attn.k_proj.weight": (KV, inputs * H),
        "self_attn.v_proj.weight": (KV, inputs * H), "self_attn.o_proj.weight": (H, Q),
        "mlp.gate_proj.weight": (F, H), "mlp.up_proj.weight": (F, H), "mlp.down_proj.weight": (H, F),
        "input_layernorm.weight": (H,), "post_attention_layernorm.weight": (H,),
    }  # fmt: skip
    if normed:
        shapes |= {"self_attn.q_norm.weight": (8,), "self_attn.k_norm.weight": (8,)}
    return {f"layers.{index}.{name}": shape for name, shape in shapes.items()}


REDUCED = {"lm_head.weight": (VD, H), "d2t": (VD,)}
EAGLE3 = {"fc.weight": (H, 3 * H), **layer(0, 2), "layers.0.hidden_norm.weight": (H,), "norm.weight": (H,)}
BLOCK = {
    "fc.weight": (H, 3 * H), "hidden_norm.weight": (H,), "norm.weight": (H,), **layer(0, normed=True),
    **layer(1, normed=True),
}  # fmt: skip
CONVOLUTIONS = ("attention_conv", "mlp_conv")
MARKOV = {"markov_head.markov_w1.weight": (V, RANK), "markov_head.markov_w2.weight": (V, RANK)}
CONFIDENCE = {"confidence_head.proj.weight": (1, H + RANK), "confidence_head.proj.bias": (1,)}
REQUIRED: dict[str, dict[str, tuple[int, ...]]] = {
    "eagle3": {**EAGLE3, **REDUCED},
    "eagle3_modelopt": {**EAGLE3, **REDUCED},
    "eagle3_speculators": {**EAGLE3, **REDUCED},
    "eagle3_whole": EAGLE3,
    "eagle3_deepspec": {**EAGLE3, "fc.weight": (H, 5 * H), **layer(0, 2, normed=True)},
    "dflash": BLOCK,
    "dflash_speculators": {**BLOCK, **REDUCED},
    "peagle": {**EAGLE3, **layer(1), **REDUCED, "mask_hidden": (1, 1, 3 * H)},
    "eagle": {
        "fc.weight": (H, 2 * H),
        **{name: shape for name, shape in layer(0).items() if not name.endswith("input_layernorm.weight")},
    },
    "dflash2": {
        **BLOCK, "candidate_selector.predecessor_codebook": (V, RANK),
        "candidate_selector.successor_codebook": (V, RANK), "candidate_selector.hidden_projection.weight": (RANK, H),
        **{f"layers.{i}.{part}.base_kernel": (2, 2, H) for i in (0, 1) for part in CONVOLUTIONS},
        # Two taps, before and after, for each of four groups of 16 channels.
        **{f"layers.{i}.{part}.kernel_projection.weight": (16, H) for i in (0, 1) for part in CONVOLUTIONS},
    },
    "domino": {
        **BLOCK, "prefix_gru.weight_ih_l0": (72, H), "prefix_gru.weight_hh_l0": (72, 24),
        "embed_proj.0.weight": (12, H + 24), "embed_proj.2.weight": (V, 12),
    },
    "dspark": {**BLOCK, **MARKOV, **CONFIDENCE},
    "dspark_speculators": {
        **BLOCK, **REDUCED, **MARKOV, "markov_head.markov_w2.weight": (VD, RANK), **CONFIDENCE,
    },
    "dspark_modelopt": {**BLOCK, **MARKOV, "markov_head.gate_proj.weight": (RANK, H + RANK), **CONFIDENCE},
    "dspark_specforge": {**BLOCK, **MARKOV, "markov_head.joint_proj.weight": (3 * RANK, 2 * RANK + H)},
}  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_a_layout_requires_exactly_its_familys_tensors(name: str) -> None:
    items = expected(read(side(name).config, side(name).tensors))

    assert items is not None
    assert {item.name: item.shape for item in items if item.required} == REQUIRED[name]


@pytest.mark.parametrize("name", REQUIRED)
def test_a_layouts_own_files_hold_what_is_required_and_nothing_unknown(name: str) -> None:
    base = side(name)
    head = read(base.config, base.tensors)
    shapes = {canonical(head.kind, tensor): as_layout(t)[1] for tensor, t in base.tensors.items()}
    items = {item.name: item for item in expected(head) or ()}

    assert len(shapes) == len(base.tensors)
    assert shapes.keys() <= items.keys()
    assert {n for n, item in items.items() if item.required} <= shapes.keys()
    assert all(items[n].shape in (None, shape) for n, shape in shapes.items())


@pytest.mark.parametrize("name", ["mtp_file"])
def test_a_layout_that_differs_by_target_is_not_checked(name: str) -> None:
    assert expected(read(side(name).config, side(name).tensors)) is None


def names(name: str, **more: Any) -> dict[str, tuple[tuple[int, ...] | None, bool]]:
    """(shape, required) of every tensor that a changed layout knows."""
    return {item.name: (item.shape, item.required) for item in expected(changed(name, **more)) or ()}


def test_switches_add_and_take_away_norms() -> None:
    assert names("eagle3", fc_norm=True)["fc_norm.2.weight"] == ((H,), True)
    assert names("eagle3", norm_before_fc=True)["input_norm.weight"] == ((3 * H,), True)
    off = {"use_input_layernorm_in_first_layer": False, "use_last_layernorm": False}
    found = names("eagle3_modelopt", eagle_config=off)
    assert found["layers.0.input_layernorm.weight"] == ((H,), False)
    assert found["norm.weight"] == ((H,), False)


def test_later_layers_of_eagle3_read_one_hidden_size_but_deepspecs_read_two() -> None:
    assert names("eagle3_modelopt", num_hidden_layers=2)["layers.1.self_attn.q_proj.weight"] == ((Q, H), True)
    deepspec = names("eagle3_deepspec", num_hidden_layers=2)
    assert deepspec["layers.1.self_attn.q_proj.weight"] == ((Q, 2 * H), True)
    assert deepspec["layers.1.hidden_norm.weight"] == ((H,), True)


def test_biases_are_required_where_the_config_declares_them() -> None:
    assert names("dflash")["layers.0.self_attn.q_proj.bias"] == ((Q,), False)
    assert names("dflash", attention_bias=True)["layers.0.self_attn.q_proj.bias"] == ((Q,), True)
    assert names("dflash", mlp_bias=True)["layers.0.mlp.down_proj.bias"] == ((H,), True)


def test_attention_over_a_latent_is_taken_as_it_is() -> None:
    found = names("eagle3_modelopt", architectures=["Eagle3DeepseekV2ForCausalLM"])

    assert found["layers.0.self_attn.kv_b_proj.weight"] == (None, True)
    assert found["layers.0.self_attn.q_a_proj.weight"] == (None, False)
    assert "layers.0.self_attn.k_proj.weight" not in found


def test_class_names_of_another_kind_do_no_harm() -> None:
    head = read({**side("eagle3").config, "architectures": 5}, side("eagle3").tensors)

    assert expected(head)


def test_sizes_that_a_config_leaves_out_or_misspells_are_not_compared() -> None:
    bad = {"mask_token_id": 5, "target_layer_ids": [1, 5, 9], "conv_kernel_size": True, "conv_group_size": 0,
           "selector_rank": "16"}  # fmt: skip
    found = names("dflash2", dflash_config=bad)

    assert found["layers.0.mlp_conv.base_kernel"] == (None, True)
    assert found["layers.0.mlp_conv.kernel_projection.weight"] == (None, True)
    assert found["candidate_selector.predecessor_codebook"] == (None, True)
    assert names("domino", dflash_config={"projector_type": "domino"})["embed_proj.2.weight"] == (None, True)


def test_sizes_of_a_projector_may_stand_at_the_top_of_the_config() -> None:
    found = names("domino", dflash_config={"projector_type": "domino", "gru_hidden_dim": 24}, emb_dim=12)

    assert found["embed_proj.0.weight"] == ((12, H + 24), True)


DSPARK = Kind(mechanism="dspark", family="modelopt", seen=("architectures", []))


@pytest.mark.parametrize(
    ("written", "name"),
    [("midlayer.mlp.up_proj.weight", "layers.0.mlp.up_proj.weight"),
     ("model.midlayer.hidden_norm.weight", "layers.0.hidden_norm.weight"),
     ("model.layers.3.mlp.up_proj.weight", "layers.3.mlp.up_proj.weight"),
     ("logit_head.markov_w1.weight", "markov_head.markov_w1.weight"),
     ("markov_w2.weight", "markov_head.markov_w2.weight"), ("gate_proj.bias", "markov_head.gate_proj.bias"),
     ("joint_proj.weight", "markov_head.joint_proj.weight"), ("confidence_proj.bias", "confidence_head.proj.bias"),
     ("layers.0.mlp.gate_proj.weight", "layers.0.mlp.gate_proj.weight"), ("d2t", "d2t")],
)  # fmt: skip
def test_every_familys_name_becomes_one(written: str, name: str) -> None:
    assert canonical(DSPARK, written) == name


def test_a_gate_at_the_root_is_a_markov_gate_in_dspark_alone() -> None:
    kind = detect(side("dflash").config, ())

    assert kind is not None
    assert canonical(kind, "gate_proj.weight") == "gate_proj.weight"


def test_all_layouts_are_here() -> None:
    heads = {name for name in ALL if ALL[name]().drafter is not None}

    assert heads - REQUIRED.keys() == {"external", "mtp_file", "eagle3_on_quantized"}
