"""Checkpoints of random heads for the embedded target, in the layouts that vLLM loads.

Written with safetensors and json alone, from what the families' own code writes, so that neither side's idea of a
layout is its own witness. Seeded; scales are such that the two best logits rarely tie.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

# SmolLM2-135M-Instruct.
HIDDEN, VOCAB, LAYERS, THETA = 576, 49152, 30, 100_000.0
HEADS, KV_HEADS, HEAD_DIM = 9, 3, 64
FFN = 512
# <|im_start|>: what a block's masks are filled with. Any id does.
MASK_ID = 1
SHAPE: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "vocab_size": VOCAB,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": THETA,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}
KEY_NORM = "self_attn.k_norm.weight"
FIRST_KEY_NORM = f"layers.0.{KEY_NORM}"
# Logits of a standard deviation of six: the two best rarely tie, and training starts from a small loss.
HEAD_SCALE = 0.25
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head to be written: `method` is vLLM's, `config` its config.json, `shapes` its tensors under codraft's names.

    `prefix` is what the file has in place of "layers.0.". `draft_vocab`: a reduced vocabulary of this size. `embeds`:
    the file has an embedding of its own. `mend`: see record.py.
    """

    method: str
    config: Mapping[str, Any]
    shapes: Shapes
    prefix: str = "layers.0."
    draft_vocab: int | None = None
    embeds: bool = False
    seed: int = 0
    mend: tuple[str, ...] = ()

    def stored(self, name: str) -> str:
        """The file's name of a tensor."""
        return name.replace("layers.0.", self.prefix)


def decoder(index: int, inputs: int, *, qk_norm: bool, hidden_norm: bool = False) -> Shapes:
    """One Llama or Qwen3 layer whose attention reads `inputs` channels."""
    at, q, kv = f"layers.{index}.", HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    shapes: Shapes = {
        f"{at}self_attn.q_proj.weight": (q, inputs),
        f"{at}self_attn.k_proj.weight": (kv, inputs),
        f"{at}self_attn.v_proj.weight": (kv, inputs),
        f"{at}self_attn.o_proj.weight": (HIDDEN, q),
        f"{at}mlp.gate_proj.weight": (FFN, HIDDEN),
        f"{at}mlp.up_proj.weight": (FFN, HIDDEN),
        f"{at}mlp.down_proj.weight": (HIDDEN, FFN),
        f"{at}input_layernorm.weight": (HIDDEN,),
        f"{at}post_attention_layernorm.weight": (HIDDEN,),
    }
    if hidden_norm:
        shapes[f"{at}hidden_norm.weight"] = (HIDDEN,)
    if qk_norm:
        shapes |= {f"{at}self_attn.{part}_norm.weight": (HEAD_DIM,) for part in "qk"}
    return shapes


def eagle3_shapes(
    num_layers: int,
    num_taps: int,
    draft_vocab: int,
    *,
    qk_norm: bool = False,
    fc_norm: bool = False,
    norm: bool = False,
) -> Shapes:
    """EAGLE-3: the first layer reads embedding and hidden state side by side, later ones the hidden state."""
    shapes: Shapes = {
        "fc.weight": (HIDDEN, num_taps * HIDDEN),
        "norm.weight": (HIDDEN,),
        "lm_head.weight": (draft_vocab, HIDDEN),
    }
    for i in range(num_layers):
        shapes |= decoder(i, HIDDEN if i else 2 * HIDDEN, qk_norm=qk_norm, hidden_norm=i == 0)
    if fc_norm:
        shapes |= {f"fc_norm.{i}.weight": (HIDDEN,) for i in range(num_taps)}
    if norm:
        shapes["input_norm.weight"] = (num_taps * HIDDEN,)
    return shapes


def dflash_shapes(num_layers: int, num_taps: int) -> Shapes:
    """DFlash: Qwen3 layers, one fusion for all of them."""
    shapes: Shapes = {
        "fc.weight": (HIDDEN, num_taps * HIDDEN),
        "hidden_norm.weight": (HIDDEN,),
        "norm.weight": (HIDDEN,),
    }
    for i in range(num_layers):
        shapes |= decoder(i, HIDDEN, qk_norm=True)
    return shapes


def speculators(mechanism: str, layer: Mapping[str, Any], **keys: Any) -> dict[str, Any]:
    """A config.json as the speculators library writes it."""
    return {
        "architectures": [f"{mechanism.capitalize()}Speculator"],
        "speculators_model_type": mechanism,
        "speculators_version": "0.5.0",
        "speculators_config": {
            "algorithm": mechanism,
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": 3}],
            "default_proposal_method": "greedy",
            "verifier": {"name_or_path": "HuggingFaceTB/SmolLM2-135M-Instruct", "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": {**SHAPE, **layer},
        **keys,
    }


def safeailab() -> HeadPlan:
    """EAGLE-3 as SafeAILab and SpecForge write it: one `midlayer`, a reduced vocabulary, default layers."""
    size = 4096
    config = {
        **SHAPE,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "num_hidden_layers": 1,
        "draft_vocab_size": size,
    }
    return HeadPlan("eagle3", config, eagle3_shapes(1, 3, size), prefix="midlayer.", draft_vocab=size)


def speculators_llama() -> HeadPlan:
    """EAGLE-3 of the speculators library: chosen layers, a norm for each feature, normed residual and feedback."""
    size = 4096
    config = speculators(
        "eagle3",
        {"model_type": "llama", "num_hidden_layers": 1},
        draft_vocab_size=size,
        norm_before_residual=True,
        fc_norm=True,
        norm_output=True,
        eagle_aux_hidden_state_layer_ids=[0, 10, 30],
    )
    return HeadPlan("eagle3", config, eagle3_shapes(1, 3, size, fc_norm=True), draft_vocab=size, embeds=True, seed=1)


def speculators_qwen3() -> HeadPlan:
    """EAGLE-3 of the speculators library with two Qwen3 layers, four features normed together, the whole vocabulary."""
    config = speculators(
        "eagle3",
        {"model_type": "qwen3", "num_hidden_layers": 2},
        draft_vocab_size=VOCAB,
        norm_before_residual=False,
        norm_before_fc=True,
        eagle_aux_hidden_state_layer_ids=[3, 9, 15, 28],
    )
    return HeadPlan("eagle3", config, eagle3_shapes(2, 4, VOCAB, qk_norm=True, norm=True), seed=2)


def zlab() -> HeadPlan:
    """DFlash as z-lab writes it: two bidirectional layers, ends borrowed from the target."""
    config = {
        **SHAPE,
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "num_target_layers": LAYERS,
        "block_size": 8,
        "layer_types": ["full_attention"] * 2,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [1, 14, 26]},
    }
    return HeadPlan("dflash", config, dflash_shapes(2, 3), seed=3)


def zlab_norms() -> HeadPlan:
    """As `zlab`, with norms of keys that differ from layer to layer."""
    return replace(zlab(), seed=6, mend=("context_norm",))


def zlab_sliding() -> HeadPlan:
    """DFlash with sliding layers, which are causal inside the block; embeddings and last layer among the features."""
    window = 24
    config = {
        **zlab().config,
        "layer_types": ["sliding_attention"] * 2,
        "use_sliding_window": True,
        "sliding_window": window,
        "dflash_config": {"mask_token_id": MASK_ID, "target_layer_ids": [-1, 20, 29]},
    }
    return HeadPlan("dflash", config, dflash_shapes(2, 3), seed=4)


def speculators_dflash() -> HeadPlan:
    """DFlash of the speculators library: a reduced vocabulary with an output head of its own, layers as inputs."""
    size = 4096
    config = speculators(
        "dflash",
        {"model_type": "qwen3", "num_hidden_layers": 1},
        draft_vocab_size=size,
        block_size=8,
        mask_token_id=MASK_ID,
        aux_hidden_state_layer_ids=[2, 15, 27],
        sliding_window_non_causal=True,
        sample_from_anchor=False,
    )
    shapes = dflash_shapes(1, 3) | {"lm_head.weight": (size, HIDDEN)}
    return HeadPlan("dflash", config, shapes, draft_vocab=size, embeds=True, seed=5)


def random_tensors(plan: HeadPlan) -> dict[str, Tensor]:
    """Weights that keep the scale of what they multiply, norms around one, an output head with wide margins.

    Layers of a DFlash head norm their keys alike, since vLLM 0.32's kernel for the CPU would do so anyhow (record.py),
    unless that is mended.
    """
    generator = torch.Generator().manual_seed(plan.seed)
    tensors: dict[str, Tensor] = {}
    for name, shape in plan.shapes.items():
        noise = torch.randn(shape, generator=generator)
        if len(shape) == 1:
            tensors[name] = 1 + 0.2 * noise
        else:
            tensors[name] = noise * (HEAD_SCALE if name.startswith("lm_head") else shape[1] ** -0.5)
    if plan.method == "dflash" and not plan.mend:
        tensors |= {name: tensors[FIRST_KEY_NORM] for name in tensors if name.endswith(KEY_NORM)}
    return tensors


def draft_ids(plan: HeadPlan, needed: list[int]) -> Tensor | None:
    """[V'] ascending target ids of a reduced vocabulary: those needed, the rest at random."""
    if plan.draft_vocab is None:
        return None
    generator = torch.Generator().manual_seed(plan.seed)
    others = [int(i) for i in torch.randperm(VOCAB, generator=generator)]
    chosen = list(dict.fromkeys([*needed, *others]))[: plan.draft_vocab]
    return torch.tensor(sorted(chosen))


def write(plan: HeadPlan, folder: Path, tensors: Mapping[str, Tensor], ids: Tensor | None, embedding: Tensor) -> Path:
    """The checkpoint of a head: `ids` of its vocabulary become offsets, `embedding` is the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {plan.stored(name): tensor.contiguous().clone() for name, tensor in tensors.items()}
    if ids is not None:
        stored["d2t"] = ids - torch.arange(len(ids))
        stored["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill(0, ids, True)
    if plan.embeds:
        # Near the target's own and not equal, so that neither side may quietly borrow.
        stored["embed_tokens.weight"] = embedding * 0.9
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(plan.config), indent=2))
    return folder


PLANS = {
    "safeailab": safeailab,
    "speculators-llama": speculators_llama,
    "speculators-qwen3": speculators_qwen3,
    "zlab": zlab,
    "zlab-sliding": zlab_sliding,
    "zlab-norms": zlab_norms,
    "speculators-dflash": speculators_dflash,
}
