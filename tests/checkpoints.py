"""Fake checkpoints with real header layouts. Files are sparse: one of 400 GB costs its header alone."""

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from codraft.formats.safetensors import DTYPE_BITS

Fill = Literal["random", "zeros"]
PAGE = 4096
# Tensors up to this many bytes are filled whole; of larger ones both ends and a few pages between.
WHOLE = 1 << 20
PAGES_BETWEEN = 6
NUMPY_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32",
    "int64": "I64", "uint64": "U64", "float64": "F64", "float32": "F32", "float16": "F16",
}  # fmt: skip
CONFIG_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


@dataclass(frozen=True)
class Bits:
    """A tensor by its raw bytes, for dtypes that numpy does not have."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Layout = tuple[str, tuple[int, ...]]
Tensor = Layout | np.ndarray[Any, Any] | Bits


def bf16(array: Any) -> Bits:
    """Values as bfloat16, cut and not rounded: exact for values that bfloat16 can hold."""
    values = np.ascontiguousarray(array, dtype="<f4")
    return Bits("BF16", values.shape, (values.view("<u4") >> 16).astype("<u2").tobytes())


def as_layout(tensor: Tensor) -> Layout:
    """(dtype, shape) of any tensor."""
    if isinstance(tensor, tuple):
        return tensor[0], tuple(tensor[1])
    if isinstance(tensor, Bits):
        return tensor.dtype, tensor.shape
    return NUMPY_DTYPES[tensor.dtype.name], tensor.shape


def layout_bytes(layout: Layout) -> int:
    """Bytes of a tensor."""
    return -(-math.prod(layout[1]) * DTYPE_BITS[layout[0]] // 8)


def header_bytes(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    """The first bytes of a safetensors file, length included; tensors lie in the order given."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"} if metadata is None else dict(metadata)}
    at = 0
    for name, tensor in tensors.items():
        dtype, shape = as_layout(tensor)
        end = at + layout_bytes((dtype, shape))
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def write_safetensors(
    path: Path, tensors: Mapping[str, Tensor], *, fill: Fill = "random", metadata: Mapping[str, str] | None = None
) -> Path:
    """A safetensors file of full size, sparse. Arrays and `Bits` keep their values; of a (dtype, shape) the values are
    zeros, or random and different for each name (then tensors above 1 MB are zeros between a few random pages)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:
        at = handle.write(header_bytes(tensors, metadata))
        for name, tensor in tensors.items():
            write_values(handle, at, name, tensor, fill)
            at += layout_bytes(as_layout(tensor))
        handle.truncate(at)
    return path


def write_values(handle: IO[bytes], at: int, name: str, tensor: Tensor, fill: Fill) -> None:
    """One tensor's bytes, as far as they are written at all."""
    if isinstance(tensor, Bits):
        handle.seek(at)
        handle.write(tensor.data)
    elif not isinstance(tensor, tuple):
        handle.seek(at)
        handle.write(np.ascontiguousarray(tensor).astype(tensor.dtype.newbyteorder("<")).tobytes())
    elif fill == "random":
        for offset, data in random_pieces(name, tensor[0], layout_bytes(tensor)):
            handle.seek(at + offset)
            handle.write(data)


def random_pieces(name: str, dtype: str, size: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of what is written of a random tensor; offsets are whole elements."""
    generator = np.random.default_rng(zlib.crc32(name.encode()))
    if size <= WHOLE:
        yield 0, random_bytes(generator, dtype, size)
        return
    last = (size - PAGE) // 8 * 8
    for k in range(PAGES_BETWEEN + 2):
        offset = last * k // (PAGES_BETWEEN + 1) // 8 * 8
        yield offset, random_bytes(generator, dtype, size - offset if k > PAGES_BETWEEN else PAGE)


def as_initialised(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The matrices among them, as noise of one size."""
    rng = np.random.default_rng(3)
    return {
        name: bf16(rng.normal(0, 0.02, tensor[1]))
        for name, tensor in tensors.items()
        if isinstance(tensor, tuple) and len(tensor[1]) == 2
    }


def uneven(generator: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Numbers of which some stretches are larger than others: what no initialisation makes."""
    return np.asarray(generator.normal(0, 0.02, count) * (1 + 0.6 * np.sin(np.arange(count) / 500)))


def random_bytes(generator: np.random.Generator, dtype: str, size: int) -> bytes:
    """Ordinary values of a dtype: floats as weights are (no NaN), integers in 0..99, booleans."""
    count = size * 8 // DTYPE_BITS[dtype]
    if dtype == "BOOL":
        return generator.integers(0, 2, count, dtype=np.uint8).tobytes()
    if dtype.startswith(("F8", "F6", "F4")):
        # Below every code for NaN and infinity, and around 1 as a scale.
        return generator.integers(0x30, 0x7B, size, dtype=np.uint8).tobytes()
    if dtype == "BF16":
        return bf16(uneven(generator, count)).data
    if dtype == "C64":
        return uneven(generator, 2 * count).astype("<f4").tobytes()
    if dtype[0] == "F":
        return uneven(generator, count).astype(f"<f{DTYPE_BITS[dtype] // 8}").tobytes()
    return generator.integers(0, 100, count).astype(f"<i{DTYPE_BITS[dtype] // 8}").tobytes()


def write_checkpoint(
    folder: Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    *,
    shards: int = 1,
    index: bool | None = None,
    extra_files: Mapping[str, Any] | None = None,
    fill: Fill = "random",
) -> Path:
    """config.json and weights; an index where there are several shards, unless `index` says otherwise. Extra files by
    name: bytes, text, tensors (for a .safetensors name), or anything else as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    names = list(tensors)
    weight_map: dict[str, str] = {}
    for k in range(shards):
        file = "model.safetensors" if shards == 1 else f"model-{k + 1:05d}-of-{shards:05d}.safetensors"
        part = names[len(names) * k // shards : len(names) * (k + 1) // shards]
        write_safetensors(folder / file, {name: tensors[name] for name in part}, fill=fill)
        weight_map.update(dict.fromkeys(part, file))
    if shards > 1 if index is None else index:
        write_index(folder, weight_map, sum(layout_bytes(as_layout(tensor)) for tensor in tensors.values()))
    for name, content in (extra_files or {}).items():
        write_extra(folder / name, content, fill)
    return folder


def write_index(folder: Path, weight_map: Mapping[str, str], total_size: int) -> Path:
    """model.safetensors.index.json."""
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": total_size}, "weight_map": dict(weight_map)}))
    return path


def write_extra(path: Path, content: Any, fill: Fill) -> None:
    """One more file of a checkpoint."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".safetensors":
        write_safetensors(path, content, fill=fill)
    else:
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")


def llama_tensors(
    config: Mapping[str, Any], prefix: str = "model.", *, qk_norm: bool | None = None
) -> dict[str, Layout]:
    """The tensors of a dense decoder as Llama, Qwen2 and Qwen3 name them, in `dtype` of the config (bfloat16 without).

    `qk_norm` None: as `model_type` says (qwen3 has them). Biases follow `attention_bias` and `mlp_bias`; qwen2 has them
    on q, k, v. `prefix` stands before all but lm_head.
    """
    C, V = config["hidden_size"], config["vocab_size"]
    kind = str(config.get("model_type", "llama"))
    dtype = CONFIG_DTYPES[config.get("dtype") or config.get("torch_dtype") or "bfloat16"]
    normed = kind.startswith("qwen3") if qk_norm is None else qk_norm
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (V, C)}
    for layer in range(config["num_hidden_layers"]):
        shapes |= layer_shapes(config, f"{prefix}layers.{layer}.", normed)
    shapes[f"{prefix}norm.weight"] = (C,)
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (V, C)
    return {name: (dtype, shape) for name, shape in shapes.items()}


def layer_shapes(config: Mapping[str, Any], at: str, qk_norm: bool) -> dict[str, tuple[int, ...]]:
    """One decoder layer's tensors; `at` ends with a dot."""
    C, F, N = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    K = config.get("num_key_value_heads") or N
    H = config.get("head_dim") or C // N
    biased = "qkvo" if config.get("attention_bias") else "qkv" if config.get("model_type") == "qwen2" else ""
    shapes: dict[str, tuple[int, ...]] = {f"{at}input_layernorm.weight": (C,)}
    for letter, shape in {"q": (N * H, C), "k": (K * H, C), "v": (K * H, C), "o": (C, N * H)}.items():
        shapes[f"{at}self_attn.{letter}_proj.weight"] = shape
        if letter in biased:
            shapes[f"{at}self_attn.{letter}_proj.bias"] = (shape[0],)
    if qk_norm:
        shapes |= {f"{at}self_attn.q_norm.weight": (H,), f"{at}self_attn.k_norm.weight": (H,)}
    shapes[f"{at}post_attention_layernorm.weight"] = (C,)
    for name, shape in {"gate": (F, C), "up": (F, C), "down": (C, F)}.items():
        shapes[f"{at}mlp.{name}_proj.weight"] = shape
        if config.get("mlp_bias"):
            shapes[f"{at}mlp.{name}_proj.bias"] = (shape[0],)
    return shapes


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in byte-level vocabularies, sorted."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return sorted([chr(byte) for byte in printable] + [chr(256 + k) for k in range(256 - len(printable))])


def write_tokenizer(folder: Path, vocab: Mapping[str, int] | int, added: Sequence[Mapping[str, Any]] = ()) -> Path:
    """tokenizer.json: byte-level BPE without merges, loadable by `tokenizers`. A number stands for that many tokens:
    the bytes first, then `t256`, `t257` and so on. `added`: at least `id` and `content`; special unless said."""
    if isinstance(vocab, int):
        alphabet = byte_alphabet()
        vocab = {alphabet[i] if i < 256 else f"t{i}": i for i in range(vocab)}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    model: dict[str, Any] = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
        "vocab": dict(vocab), "merges": [],
    }  # fmt: skip
    content = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": token["id"], "content": token["content"], **flags, **token} for token in added],
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level, "model": model,
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path
