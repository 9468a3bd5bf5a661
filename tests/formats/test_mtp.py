"""Tensors of multi-token-prediction modules, by their names."""

import pytest

from codraft.formats.mtp import has_join, mtp_tensors


def test_modules_are_found_in_a_namespace_of_theirs_and_in_layers_behind_the_last() -> None:
    names = ["model.layers.1.w", "model.layers.2.w", "mtp.fc.weight", "model.mtp_layers.0.w", "model.nextn.w"]
    assert mtp_tensors(names, 2) == names[1:]
    assert has_join(names)
    assert not has_join(names[:2])


@pytest.mark.parametrize("digits", [7, 5000])
def test_a_number_that_no_layer_has_is_no_layer(digits: int) -> None:
    """Python turns no more than 4300 digits into a number."""
    assert mtp_tensors([f"model.layers.{'9' * digits}.w", "model.layers.999999.w"], 2) == ["model.layers.999999.w"]


def test_layers_of_a_tower_are_counted_on_their_own() -> None:
    assert mtp_tensors(["visual.layers.30.w", "audio_encoder.layers.30.w"], 2) == []
