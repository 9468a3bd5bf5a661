"""A small Llama, its checkpoint's headers, and keys that make other kinds of layers of it."""

from collections.abc import Mapping
from typing import Any

from codraft.formats.safetensors import TensorInfo

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 8,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100,
}  # fmt: skip
MOE = {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
WINDOW = {"sliding_window": 16}
MAMBA = {"mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 8}
GDN = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8}
KDA = {"linear_attn_config": {"full_attn_layers": [3, 6], "kda_layers": [1, 2, 4, 5], "head_dim": 8, "num_heads": 4}}
LATENT = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
PATTERN = {"hybrid_override_pattern": "M-ME*E", "n_routed_experts": 4, "num_experts_per_tok": 1, **MAMBA}
BLOCKS = ["mamba", "mlp", "mamba", "moe", "attention", "moe"]
RHYTHM = ["sliding_attention", "full_attention"] * 3


def tensors(shapes: Mapping[str, tuple[int, ...]], dtype: str = "BF16") -> dict[str, TensorInfo]:
    """Headers of these shapes."""
    return {name: TensorInfo(name, dtype, shape, "model.safetensors", 0, 0) for name, shape in shapes.items()}


def llama_tensors(prefix: str = "model.", layers: int = 6, **changed: tuple[int, ...] | None) -> dict[str, TensorInfo]:
    """Headers of LLAMA's checkpoint; a shape given by its last name replaces one, None leaves it out."""
    layer = {
        "self_attn.q_proj.weight": (64, 64), "self_attn.k_proj.weight": (16, 64), "self_attn.v_proj.weight": (16, 64),
        "self_attn.o_proj.weight": (64, 64), "mlp.up_proj.weight": (96, 64),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {f"{prefix}embed_tokens.weight": (100, 64), "lm_head.weight": (100, 64)}
    shapes |= {f"{prefix}layers.{i}.{name}": shape for i in range(layers) for name, shape in layer.items()}
    kept = {}
    for name, shape in shapes.items():
        new = changed.get(name.split(".")[-2], shape)
        if new is not None:
            kept[name] = new
    return tensors(kept)
