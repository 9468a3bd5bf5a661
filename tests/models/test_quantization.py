"""What configs say of quantised weights."""

from typing import Any

import pytest

from codraft.models.reader import read_architecture

from tests.models.small import LLAMA


@pytest.mark.parametrize(
    ("quantization", "method", "bits", "ignored"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8", 8, []),
        ({"quant_method": "awq", "bits": 4, "modules_to_not_convert": ["lm_head"]}, "awq", 4, ["lm_head"]),
        ({"quant_method": "gptq", "bits": 8}, "gptq", 8, []),
        ({"quant_method": "mxfp4", "modules_to_not_convert": None}, "mxfp4", 4, []),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["x"]},
         "bitsandbytes", 4, ["x"]),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head", "re:.*gate"],
          "config_groups": {"group_0": {"weights": {"num_bits": 4}}}},
         "compressed-tensors", 4, ["lm_head", "re:.*gate"]),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}},
         "NVFP4", 4, ["lm_head"]),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["a"]}, "modelopt", 8, ["a"]),
        ({}, "unknown", None, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["quantization_config", "compression_config", "hf_quant_config"])
def test_quantisation_is_read_in_every_form(
    quantization: dict[str, Any], method: str, bits: int | None, ignored: list[str], key: str
) -> None:
    for config in ({**LLAMA, key: quantization}, {"text_config": {**LLAMA, key: quantization}}):
        found = read_architecture(config).quantization
        assert found is not None
        assert (found.method, found.bits, found.ignored, found.rotated) == (method, bits, ignored, False)


@pytest.mark.parametrize(
    ("quantization", "rotated"),
    [
        ({"transform_config": {"config_groups": {"R1": {"type": "hadamard", "apply": []}}}}, True),
        ({"quant_method": "quark", "algo": ["SpinQuant"]}, True),
        ({"quant_method": "quarot"}, True),
        ({"online_rotation": True}, True),
        ({"online_rotation": False, "rotation_size": None}, False),
        ({"ignore": ["model.rotary_emb"]}, False),
    ],
)
def test_a_rotated_basis_is_seen(quantization: dict[str, Any], rotated: bool) -> None:
    found = read_architecture({**LLAMA, "quantization_config": quantization}).quantization
    assert found is not None
    assert found.rotated is rotated


def test_a_very_long_list_is_cut_and_foreign_words_are_printable() -> None:
    quantization = {"quant_method": "\x1b[31m" + "x" * 500, "ignore": [f"m.{i}" for i in range(100_000)]}
    arch = read_architecture({**LLAMA, "quantization_config": quantization})
    found = arch.quantization
    assert found is not None
    assert (len(found.ignored), found.left_out) == (4096, 95_904)
    assert "of 100,000 modules that are not quantised the first 4,096 are kept" in arch.assumed
    assert (len(found.method), found.method[:6]) == (80, "?[31mx")


def test_a_model_without_a_word_of_quantisation_has_none() -> None:
    assert read_architecture({**LLAMA, "partial_rotary_factor": 0.5}).quantization is None
