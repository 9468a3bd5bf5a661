"""Layers beside their like: silent on every family that transformers builds, and quick on the largest."""

from dataclasses import replace

import pytest

from codraft.models.inspect.likeness import model_faults, read_trunk
from codraft.models.reader import read_architecture

from tests.models.test_parameters import FAMILIES, INEXACT, built, headers


@pytest.mark.parametrize("name", [*FAMILIES, *INEXACT, "laguna"])
def test_a_model_as_transformers_builds_it_lacks_nothing(name: str) -> None:
    config, _, shapes = built(name)
    tensors = headers(shapes)
    arch = read_architecture(config, tensors)
    trunk = read_trunk(tensors, len(arch.layers))
    faults = model_faults(tensors, trunk, arch)

    assert len(trunk.layers) == len(arch.layers)
    assert faults.missing == []
    assert faults.misshapen == []


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral", "gemma2", "smollm3", "olmo2"])
def test_any_projection_that_a_layer_loses_is_named(name: str) -> None:
    config, _, shapes = built(name)
    tensors = headers(shapes)
    arch = read_architecture(config, tensors)
    gone = [key for key in tensors if ".layers.1." in key and "proj" in key and key.endswith(".weight")]
    for key in gone:
        held = {other: info for other, info in tensors.items() if other != key}
        trunk = read_trunk(held, len(arch.layers))
        assert model_faults(held, trunk, arch).missing == [key]
    assert len(gone) == 7


def test_numbered_experts_are_not_looked_at_one_by_one() -> None:
    config, _, shapes = built("deepseek_v3")
    arch = read_architecture(config, headers(shapes))
    layer = next(layer for layer in arch.layers if layer.moe)
    arch = replace(arch, layers=(layer,) * 60)
    parts = {name.partition(".layers.1.")[2]: shape for name, shape in shapes.items() if ".layers.1." in name}
    names = {f"model.layers.{i}.{part}": shape for i in range(60) for part, shape in parts.items()}
    names |= {f"model.layers.{i}.mlp.experts.{e}.{part}_proj.weight": (8, 8)
              for i in range(60) for e in range(500) for part in ("gate", "up", "down")}  # fmt: skip
    tensors = headers(names)
    trunk = read_trunk(tensors, 60)

    assert len(tensors) > 90_000
    assert not any(".experts.7." in part for layer in trunk.layers.values() for part in layer)
