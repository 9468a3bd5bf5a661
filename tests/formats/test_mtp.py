"""MTP modules in every family's names: which tensors are theirs, how many there are, what each lacks."""

import pytest

from codraft.formats.mtp import count_modules, has_join, join_of, modules, mtp_tensors

LAYER = ("input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.o_proj.weight", "mlp.up_proj.weight")
DEEPSEEK = ("eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight", "shared_head.head.weight",
            "embed_tokens.weight", *LAYER)  # fmt: skip
FAMILIES: dict[str, list[str]] = {
    "deepseek": [f"model.layers.4.{part}" for part in DEEPSEEK],
    "bailing": [f"model.layers.4.{part}" for part in ("eh_proj.weight", "enorm.weight", "hnorm.weight",
                                                      "final_layernorm.weight", *LAYER)],
    "qwen": ["mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight",
             *(f"mtp.layers.0.{part}" for part in LAYER)],
    "nemotron": [
        *(f"mtp.layers.0.{part}" for part in ("enorm.weight", "hnorm.weight", "eh_proj.weight", "norm.weight",
                                              "mixer.q_proj.weight")),
        "mtp.layers.1.norm.weight", "mtp.layers.1.mixer.gate.weight", "mtp.layers.1.final_layernorm.weight",
    ],
    "speculators": [f"mtp_layers.0.{part}" for part in (
        "input_proj.weight", "token_layernorm.weight", "hidden_layernorm.weight", "final_layernorm.weight", *LAYER)],
    "ernie": ["model.mtp_linear_proj.0.weight", "model.mtp_emb_norm.0.weight", "model.mtp_hidden_norm.0.weight",
              *(f"model.mtp_block.0.{part}" for part in LAYER)],
    "longcat": ["model.mtp.norm.weight", *(f"model.mtp.layers.0.{part}" for part in (
        "eh_proj.weight", "enorm.m.weight", "hnorm.m.weight", *LAYER))],
}  # fmt: skip
FAMILIES["nextn"] = [name.replace("layers.4", "nextn") for name in FAMILIES["deepseek"]]
TRUNK = [f"model.layers.{i}.{part}" for i in range(4) for part in LAYER]
OTHER = ["model.embed_tokens.weight", "lm_head.weight", "vision_tower.encoder.layers.20.self_attn.q_proj.weight",
         "visual.blocks.7.attn.qkv.weight"]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_familys_module_is_told_from_trunk_and_towers_and_is_whole(family: str) -> None:
    names = FAMILIES[family]
    held = mtp_tensors([*OTHER, *TRUNK, *names], 4)
    (found,) = modules(held)

    assert held == names
    assert has_join(held)
    assert found.missing() == []
    assert count_modules([found]) == 1
    inside = [name for layer in found.layers.values() for name in layer.values()]
    assert sorted([*found.parts, *inside]) == sorted(names)


@pytest.mark.parametrize(
    ("family", "gone", "missing"),
    [("deepseek", "model.layers.4.enorm.weight", "model.layers.4.enorm.weight"),
     ("deepseek", "model.layers.4.shared_head.norm.weight", "model.layers.4.shared_head.norm.weight"),
     ("qwen", "mtp.norm.weight", "mtp.norm.weight"),
     ("qwen", "mtp.pre_fc_norm_hidden.weight", "mtp.pre_fc_norm_hidden.weight"),
     ("nemotron", "mtp.layers.1.final_layernorm.weight", "mtp.layers.0.shared_head.norm.weight"),
     ("speculators", "mtp_layers.0.token_layernorm.weight", "mtp_layers.0.token_layernorm.weight"),
     ("ernie", "model.mtp_hidden_norm.0.weight", "model.mtp_hidden_norm.0.weight")],
)  # fmt: skip
def test_a_norm_that_is_not_there_is_named_as_the_family_names_it(family: str, gone: str, missing: str) -> None:
    (found,) = modules(name for name in FAMILIES[family] if name != gone)

    assert found.missing() == [missing]


def test_decoder_layers_of_a_module_come_apart_from_what_joins_and_ends_it() -> None:
    (deepseek,) = modules(FAMILIES["deepseek"])
    (nemotron,) = modules(FAMILIES["nemotron"])

    assert {path: tuple(layer) for path, layer in deepseek.layers.items()} == {"model.layers.4": LAYER}
    assert {path: tuple(layer) for path, layer in nemotron.layers.items()} == {
        "mtp.layers.0": ("norm.weight", "mixer.q_proj.weight"), "mtp.layers.1": ("norm.weight", "mixer.gate.weight"),
    }  # fmt: skip


def test_modules_are_counted_by_their_projections_and_layers_where_one_serves_all() -> None:
    two = [*FAMILIES["deepseek"], *(name.replace(".4.", ".5.") for name in FAMILIES["deepseek"])]
    found = modules(two)
    layers = [*FAMILIES["qwen"], *(f"mtp.layers.1.{part}" for part in LAYER)]

    assert [one.at for one in found] == ["model.layers.4.eh_proj.weight", "model.layers.5.eh_proj.weight"]
    assert all(list(one.layers) == [f"model.layers.{i}"] for i, one in zip((4, 5), found, strict=True))
    assert count_modules(found) == 2
    assert count_modules(modules(layers)) == 2
    assert modules(TRUNK) == []


def test_what_quantizers_put_beside_a_projection_makes_no_second_module() -> None:
    packed = ("eh_proj.weight", "eh_proj.weight.absmax", "eh_proj.weight_scale", "eh_proj.weight.quant_state.bnb")

    assert count_modules(modules(f"model.layers.4.{part}" for part in packed)) == 1


@pytest.mark.parametrize(
    ("name", "word"),
    [("model.layers.4.eh_proj.qweight", "eh_proj"), ("mtp.fc.weight_scale", "fc"),
     ("model.mtp_linear_proj.0.weight", "mtp_linear_proj"), ("mtp.layers.0.mlp.fc1.weight", None)],
)  # fmt: skip
def test_a_projection_is_known_quantized_or_not(name: str, word: str | None) -> None:
    assert join_of(name) == word


@pytest.mark.parametrize("name", [f"model.layers.{'9' * 5000}.x", "layers." * 2000 + "x", f"mtp{'_a' * 3000}.x"])
def test_a_name_without_end_belongs_to_no_module(name: str) -> None:
    modules(mtp_tensors([name] * 10, 4))
