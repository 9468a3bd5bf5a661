"""A checkpoint in the numbers that speculation depends on."""

from dataclasses import dataclass, field

import pytest

from codraft.formats.checkpoint import Checkpoint
from codraft.formats.safetensors import TensorInfo
from codraft.models.reader import read_architecture
from codraft.models.summary import quantization_words, summarize

from tests.models.small import GDN, LLAMA, RHYTHM, WINDOW, llama_tensors


@dataclass(frozen=True)
class Nowhere:
    """A source that is never read."""

    label: str = "small"
    bytes_read: int = 0
    files: dict[str, int] = field(default_factory=dict)

    def sizes(self) -> dict[str, int]:
        """No file."""
        return self.files

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes:
        """Nothing."""
        raise AssertionError(name)


def test_a_summary_counts_layers_weights_and_bytes() -> None:
    tensors = {
        name: TensorInfo(name, "F8_E4M3" if "proj" in name else "BF16", info.shape, "a", 0, info.num_elements)
        for name, info in llama_tensors().items()
    }
    found = summarize(Checkpoint(source=Nowhere(), config={**LLAMA, "architectures": ["X"]}, tensors=tensors))
    assert (found.id, found.model_type, found.architectures) == ("small", "llama", ["X"])
    assert (found.num_layers, found.mixers, found.ffns) == (6, {"full": 6}, {"dense": 6})
    assert (found.num_heads, found.num_kv_heads, found.G, found.head_dim) == (8, 2, 4, 8)
    assert found.head_dim_basis == "headers"
    assert found.kv_bytes_per_token == {"f32": 6 * 128, "bf16": 6 * 64, "fp8": 6 * 32}
    assert found.state_bytes_per_sequence == {}
    assert found.weight_bytes == {"BF16": 2 * 6400, "F8_E4M3": 6 * (2 * 4096 + 2 * 1024 + 6144)}
    assert found.parameters is not None
    assert (found.parameters.total, found.parameters.basis) == (sum(found.weight_bytes.values()), "headers")
    assert (found.tied, found.mtp_layers, found.quantization, found.window) == (False, 0, None, None)


def test_a_windowed_layer_takes_nothing_per_token_and_a_recurrent_one_a_state() -> None:
    windowed = Checkpoint(source=Nowhere(), config={**LLAMA, **WINDOW, "layer_types": RHYTHM}, tensors={})
    found = summarize(windowed)
    assert (found.kv_bytes_per_token["bf16"], found.window) == (3 * 64, 16)
    hybrid = Checkpoint(source=Nowhere(), config={**LLAMA, **GDN, "full_attention_interval": 2}, tensors={})
    found = summarize(hybrid)
    state, conv = 3 * 4 * 8 * 8, 3 * (2 * 2 + 4) * 8 * 3
    assert found.state_bytes_per_sequence == {"bf16": 2 * (state + conv), "f32": 4 * state + 2 * conv}


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
        ({"quant_method": "quarot", "bits": 8}, "quarot, 8 bits, rotated"),
        ({}, "unknown"),
    ],
)
def test_quantisation_is_told_in_a_few_words(quantization: dict[str, object], words: str) -> None:
    assert quantization_words(read_architecture({**LLAMA, "quantization_config": quantization})) == words
