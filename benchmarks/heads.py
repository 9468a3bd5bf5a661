"""Random heads for the embedded model, one for each learned mechanism, in a public layout. They draft nonsense at the
cost of real ones, which is all that a measurement of cost needs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from codraft.formats.heads.detect import detect
from codraft.formats.heads.layout import expected
from codraft.formats.heads.read import read_head

# SmolLM2-135M-Instruct: 30 layers of hidden 576, 9 query and 3 KV heads of 64, 49,152 tokens.
LAYER: dict[str, Any] = {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100_000.0,
    "vocab_size": 49_152,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
}
BLOCK: dict[str, Any] = {**LAYER, "model_type": "qwen3", "num_hidden_layers": 5, "block_size": 8}
CONFIGS: Mapping[str, dict[str, Any]] = {
    "eagle3": {
        **LAYER,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": 16_384,
        "tie_word_embeddings": False,
    },
    "dflash": {
        **BLOCK,
        "architectures": ["DFlashDraftModel"],
        "dflash_config": {"mask_token_id": 5, "target_layer_ids": [1, 7, 13, 19, 26]},
    },
    "dspark": {
        **BLOCK,
        "architectures": ["DSparkDraftModel"],
        "dflash_config": {
            "projector_type": "dspark",
            "mask_token_id": 5,
            "target_layer_ids": [1, 7, 13, 19, 26],
            "markov_rank": 64,
            "markov_head_type": "vanilla",
        },
    },
}


MTP: dict[str, Any] = {
    "architectures": ["MTPDraftModel"],
    "speculators_model_type": "mtp",
    "num_nextn_predict_layers": 1,
    "transformer_layer_config": {**LAYER, "model_type": "qwen3", "num_hidden_layers": 30},
}
MTP_SHAPES: Mapping[str, tuple[int, ...]] = {
    "token_layernorm": (576,),
    "hidden_layernorm": (576,),
    "final_layernorm": (576,),
    "input_layernorm": (576,),
    "post_attention_layernorm": (576,),
    "input_proj": (576, 1152),
    "self_attn.q_proj": (576, 576),
    "self_attn.k_proj": (192, 576),
    "self_attn.v_proj": (192, 576),
    "self_attn.o_proj": (576, 576),
    "self_attn.q_norm": (64,),
    "self_attn.k_norm": (64,),
    "mlp.gate_proj": (1536, 576),
    "mlp.up_proj": (1536, 576),
    "mlp.down_proj": (576, 1536),
}


def random_head(folder: Path, mechanism: str, seed: int = 0) -> Path:
    """Write one, with the tensors that its layout asks for; a reduced vocabulary takes the first ids."""
    config = MTP if mechanism == "mtp" else CONFIGS[mechanism]
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes(mechanism, config):
        if name == "d2t":
            tensors[name] = torch.zeros(shape, dtype=torch.int64)
        elif len(shape) == 1:
            tensors[name] = torch.ones(shape)
        else:
            tensors[name] = 0.02 * torch.randn(shape, generator=generator)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def shapes(mechanism: str, config: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Every tensor that the head must have, in the names of its family."""
    if mechanism == "mtp":
        return [(f"mtp_layers.0.{name}.weight", shape) for name, shape in MTP_SHAPES.items()]
    kind = detect(config, ())
    assert kind is not None
    wanted = expected(read_head(kind, config, {}, "config.json")) or []
    before = {"eagle3": "midlayer."}.get(mechanism, "layers.0.")
    return [
        (one.name.replace("layers.0.", before), one.shape) for one in wanted if one.required and one.shape is not None
    ]
