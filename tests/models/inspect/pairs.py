"""Pairs that fit, in every layout, small, with real tensor names. Tests change one thing and look for its finding."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tests.checkpoints import Tensor, bf16, llama_tensors, write_checkpoint, write_tokenizer

Config = dict[str, Any]
Tensors = dict[str, Tensor]

L, H, HEADS, KV, V = 12, 64, 8, 4, 512
VD = 128
RANK = 16
# Ascending target ids: most bytes, and some of the rest; neither the first ones nor evenly spaced.
ORDER = np.random.default_rng(0).permutation(256)
DRAFT_IDS = np.sort(np.concatenate([ORDER[:90], 256 + ORDER[90:VD]])).astype(np.int64)
# The target's embedding, which a head may hold a copy of.
EMBEDDING: Tensor = bf16(np.random.default_rng(1).normal(0, 0.02, (V, H)))


@dataclass
class Side:
    """One checkpoint in the making."""

    config: Config
    tensors: Tensors
    # Fewer tokens than rows: embeddings are padded, and the last row is free for a mask.
    vocab: Any = V - 8
    added: list[Mapping[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    shards: int = 1
    index: bool | None = None
    tokenizer: bool = True

    def write(self, folder: Path) -> Path:
        """The checkpoint as files."""
        write_checkpoint(
            folder, self.config, self.tensors, shards=self.shards, index=self.index, extra_files=self.extra
        )
        if self.tokenizer:
            write_tokenizer(folder, self.vocab, self.added)
        return folder


@dataclass
class Two:
    """A target and its drafter."""

    target: Side
    drafter: Side | None = None
    asked: dict[str, Any] = field(default_factory=dict)


def target_config(**more: Any) -> Config:
    """A dense Qwen3 of twelve layers."""
    return {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": H, "num_hidden_layers": L,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "head_dim": 8, "intermediate_size": 128,
        "vocab_size": V, "max_position_embeddings": 4096, "rope_theta": 1_000_000.0, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "rms_norm_eps": 1e-6, **more,
    }  # fmt: skip


def target(**more: Any) -> Side:
    """A target with its tensors and tokenizer."""
    config = target_config(**more)
    return Side(config, {**llama_tensors(config), "model.embed_tokens.weight": EMBEDDING})


def layer(name: str, *, inputs: int = 1, normed: bool = False) -> Tensors:
    """A drafter's decoder layer."""
    shapes = {
        "self_attn.q_proj.weight": (HEADS * 8, inputs * H), "self_attn.k_proj.weight": (KV * 8, inputs * H),
        "self_attn.v_proj.weight": (KV * 8, inputs * H), "self_attn.o_proj.weight": (H, HEADS * 8),
        "mlp.gate_proj.weight": (128, H), "mlp.up_proj.weight": (128, H), "mlp.down_proj.weight": (H, 128),
        "input_layernorm.weight": (H,), "post_attention_layernorm.weight": (H,),
    }  # fmt: skip
    if normed:
        shapes |= {"self_attn.q_norm.weight": (8,), "self_attn.k_norm.weight": (8,)}
    return {f"{name}.{part}": ("BF16", shape) for part, shape in shapes.items()}


def layer_config(**more: Any) -> Config:
    """The layer keys of a drafter's config."""
    return {
        "hidden_size": H, "num_hidden_layers": 1, "num_attention_heads": HEADS, "num_key_value_heads": KV,
        "head_dim": 8, "intermediate_size": 128, "vocab_size": V, "max_position_embeddings": 4096,
        "rope_theta": 1_000_000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16", **more,
    }  # fmt: skip


def maps() -> Tensors:
    """d2t as offsets, and t2d."""
    t2d = np.zeros(V, dtype=bool)
    t2d[DRAFT_IDS] = True
    return {"d2t": DRAFT_IDS - np.arange(VD), "t2d": t2d}


def eagle3_tensors(name: str) -> Tensors:
    """An EAGLE-3 head of one layer under this name, with a reduced vocabulary."""
    return {
        "fc.weight": ("BF16", (H, 3 * H)), **layer(name, inputs=2), f"{name}.hidden_norm.weight": ("BF16", (H,)),
        "norm.weight": ("BF16", (H,)), "lm_head.weight": ("BF16", (VD, H)), **maps(),
    }  # fmt: skip


def eagle3() -> Side:
    """SafeAILab's and SpecForge's layout, with layer ids where vLLM reads them."""
    config = layer_config(
        architectures=["LlamaForCausalLMEagle3"], model_type="llama", draft_vocab_size=VD,
        eagle_aux_hidden_state_layer_ids=[2, L // 2, L - 3],
    )  # fmt: skip
    return Side(config, eagle3_tensors("midlayer"), tokenizer=False)


def eagle3_modelopt() -> Side:
    """Model-Optimizer's layout: ids nested, as outputs; no head of its own where the vocabulary is whole."""
    config = layer_config(
        architectures=["LlamaForCausalLMEagle3"], model_type="llama", draft_vocab_size=VD,
        eagle_config={
            "eagle_aux_hidden_state_layer_ids": [1, L // 2 - 1, L - 4], "use_aux_hidden_state": True,
            "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
        },
    )  # fmt: skip
    tensors = eagle3_tensors("layers.0")
    del tensors["t2d"]
    return Side(config, tensors, tokenizer=False)


def eagle3_speculators() -> Side:
    """The speculators library's layout."""
    config = {
        "architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3", "draft_vocab_size": VD,
        "norm_before_residual": True, "target_hidden_size": H, "tie_word_embeddings": False,
        "eagle_aux_hidden_state_layer_ids": [2, L // 2, L - 3],
        "transformer_layer_config": layer_config(model_type="llama"),
        "speculators_config": {
            "algorithm": "eagle3", "verifier": {"name_or_path": "target", "architectures": ["Qwen3ForCausalLM"]},
        },
    }  # fmt: skip
    tensors = eagle3_tensors("layers.0")
    return Side(config, {**tensors, "embed_tokens.weight": EMBEDDING}, tokenizer=False)


def block_tensors(num_layers: int = 2, taps: int = 3) -> Tensors:
    """The backbone of DFlash and DSpark."""
    tensors: Tensors = {"fc.weight": ("BF16", (H, taps * H)), "hidden_norm.weight": ("BF16", (H,))}
    for i in range(num_layers):
        tensors |= layer(f"layers.{i}", normed=True)
    return {**tensors, "norm.weight": ("BF16", (H,))}


def dflash() -> Side:
    """z-lab's layout: block of 8, three features."""
    config = layer_config(
        architectures=["DFlashDraftModel"], model_type="qwen3", num_hidden_layers=2, block_size=8, num_target_layers=L,
        dflash_config={"mask_token_id": V - 1, "target_layer_ids": [1, 5, 9]},
    )  # fmt: skip
    return Side(config, block_tensors(), tokenizer=False)


def dspark() -> Side:
    """DeepSpec's layout, embedding and head left out."""
    config = layer_config(
        architectures=["Qwen3DSparkModel"], model_type="qwen3", num_hidden_layers=2, block_size=7, mask_token_id=V - 1,
        target_layer_ids=[1, 5, 9], num_target_layers=L, markov_rank=RANK, markov_head_type="vanilla",
        enable_confidence_head=True, confidence_head_with_markov=True,
    )  # fmt: skip
    heads: Tensors = {
        "markov_head.markov_w1.weight": ("BF16", (V, RANK)), "markov_head.markov_w2.weight": ("BF16", (V, RANK)),
        "confidence_head.proj.weight": ("BF16", (1, H + RANK)), "confidence_head.proj.bias": ("BF16", (1,)),
    }  # fmt: skip
    return Side(config, {**block_tensors(), **heads}, tokenizer=False)


def external() -> Side:
    """A small model of the same family and tokenizer."""
    config = target_config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                           intermediate_size=32)  # fmt: skip
    return Side(config, dict(llama_tensors(config)))


def mtp_target() -> Side:
    """A target with one MTP module in DeepSeek's way: a layer after the last."""
    config = target_config(num_nextn_predict_layers=1)
    side = Side(config, dict(llama_tensors(config)))
    module = layer(f"model.layers.{L}", normed=True)
    for name, shape in (("eh_proj", (H, 2 * H)), ("enorm", (H,)), ("hnorm", (H,)), ("shared_head.norm", (H,))):
        module[f"model.layers.{L}.{name}.weight"] = ("BF16", shape)
    side.tensors |= module
    return side


PAIRS: dict[str, Callable[[], Two]] = {
    "eagle3": lambda: Two(target(), eagle3(), {"method": "eagle3"}),
    "eagle3_modelopt": lambda: Two(target(), eagle3_modelopt(), {"method": "eagle3", "engine": "sglang"}),
    "eagle3_speculators": lambda: Two(target(), eagle3_speculators(), {"engine": "vllm"}),
    "dflash": lambda: Two(target(), dflash(), {"depth": 7}),
    "dspark": lambda: Two(target(), dspark(), {"depth": 7}),
    "external": lambda: Two(target(), external(), {"method": "external"}),
    "mtp": lambda: Two(mtp_target(), None, {"method": "mtp", "depth": 1}),
    "alone": lambda: Two(target()),
}


def pair(name: str) -> Two:
    """A fresh copy, to be changed at will."""
    return deepcopy(PAIRS[name]())
