"""A checkpoint in the numbers that speculation depends on."""

from collections import Counter
from collections.abc import Mapping

from codraft.core.inspection import ModelSummary, Parameters
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.safetensors import TensorInfo
from codraft.models.architecture import Architecture
from codraft.models.memory import DTYPE_BYTES, kv_bytes, state_bytes_per_sequence
from codraft.models.parameters import count_parameters
from codraft.models.reader import read_architecture


def summarize(checkpoint: Checkpoint) -> ModelSummary:
    """The summary of a checkpoint."""
    arch = read_architecture(checkpoint.config, checkpoint.tensors)
    return summary_of(checkpoint, arch, count_parameters(arch, all_tensors(checkpoint)))


def all_tensors(checkpoint: Checkpoint) -> Mapping[str, TensorInfo] | None:
    """Those of files that the index does not name too; None where there are none."""
    if not checkpoint.unlisted:
        return checkpoint.tensors or None
    return {**checkpoint.tensors, **checkpoint.unlisted}


def summary_of(checkpoint: Checkpoint, arch: Architecture, parameters: Parameters | None) -> ModelSummary:
    """The summary of a checkpoint that was read and counted.

    `kv_bytes_per_token` is by dtype, of layers whose cache grows with the context: one more token beyond every window,
    0 where every layer has one. `window_bytes_per_sequence` is what layers with a window take at most, once it is full.
    `state_bytes_per_sequence` is by dtype of the recurrent state (engines keep f32), convolutions at two bytes.
    `weight_bytes` is by dtype of the headers, of everything an engine would find.
    """
    quantization = arch.quantization
    states = {dtype: state_bytes_per_sequence(arch, DTYPE_BYTES[dtype]) for dtype in ("bf16", "f32")}
    caches = {dtype: kv_bytes(arch, size) for dtype, size in DTYPE_BYTES.items()}
    mla = next((layer.mla for layer in arch.layers if layer.mla), None)
    return ModelSummary(
        id=checkpoint.label,
        model_type=arch.model_type,
        architectures=arch.architectures,
        num_layers=len(arch.layers),
        mixers=dict(Counter(layer.mixer for layer in arch.layers)),
        ffns=dict(Counter(layer.ffn for layer in arch.layers)),
        hidden_size=arch.hidden,
        vocab_size=arch.vocab_size,
        num_heads=arch.num_heads,
        num_kv_heads=arch.num_kv_heads,
        G=arch.G,
        head_dim=arch.head_dim,
        head_dim_basis=arch.head_dim_basis,
        latent=None if mla is None else (mla.kv_rank, mla.rope_dim),
        window=arch.window,
        max_positions=arch.max_positions,
        parameters=parameters,
        kv_bytes_per_token={dtype: cache.per_token for dtype, cache in caches.items()},
        window_bytes_per_sequence={dtype: cache.bound for dtype, cache in caches.items()} if arch.window else {},
        state_bytes_per_sequence=states if states["f32"] else {},
        weight_bytes=weight_bytes(checkpoint.tensors),
        tied=arch.tied,
        mtp_layers=arch.mtp_layers,
        quantization=quantization_words(arch) if quantization else None,
        assumed=arch.assumed,
    )


def weight_bytes(tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    """Bytes by dtype, as the headers name it."""
    sizes: Counter[str] = Counter()
    for info in tensors.values():
        sizes[info.dtype] += info.num_bytes
    return dict(sizes)


def quantization_words(arch: Architecture) -> str:
    """Method and bits in a few words."""
    found = arch.quantization
    assert found is not None
    words = (
        found.method if found.bits is None or str(found.bits) in found.method else f"{found.method}, {found.bits} bits"
    )
    return f"{words}, rotated" if found.rotated else words
