"""Tiny MTP modules of every family, made of transformers' own decoder layers: weights in the names that files have."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from codraft.decode.target import Ends, Tap
from codraft.drafters.mtp import MtpHead, make_head
from codraft.drafters.weights import headers_of
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.heads.mtp_layout import MtpLayout, read_layout

from tests.drafters.heads import randomize

V, H = 24, 16
SHAPE = {
    "vocab_size": V,
    "hidden_size": H,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-3,
    "bos_token_id": 1,
    "eos_token_id": 0,
    "pad_token_id": None,
}
LATENT = {
    **SHAPE,
    "num_key_value_heads": 4,
    "q_lora_rank": 6,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 6,
    "n_group": 4,
    "topk_group": 2,
    "routed_scaling_factor": 1.7,
}
HYBRID = {
    **SHAPE,
    "head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "num_experts": 5,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 6,
    "shared_expert_intermediate_size": 10,
}
YARN = {
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 32,
    "beta_slow": 1, "mscale": 0.8, "mscale_all_dim": 0.7,
}  # fmt: skip
MROPE = {
    "rope_type": "default",
    "rope_theta": 300.0,
    "partial_rotary_factor": 0.5,
    "mrope_section": [1, 1, 0],
    "mrope_interleaved": True,
}


@dataclass(frozen=True)
class Family:
    """transformers' classes (`prefix` of their names), config, index of the layer that is like a module's, and how
    files call the parts around it."""

    where: str
    prefix: str
    config: Mapping[str, Any]
    layer: int
    style: str
    count: str = "num_nextn_predict_layers"
    extra: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def modeling(self) -> Any:
        return importlib.import_module(f"transformers.models.{self.where}.modeling_{self.where}")

    def part(self, name: str) -> Any:
        return getattr(self.modeling, f"{self.prefix}{name}")

    def hf_config(self) -> Any:
        module = importlib.import_module(f"transformers.models.{self.where}.configuration_{self.where}")
        kind = getattr(module, f"{self.prefix}{self.text}Config")
        config = kind(**self.config)
        config._attn_implementation = "sdpa"
        config._experts_implementation = "eager"
        return config


FAMILIES: dict[str, Family] = {
    "deepseek": Family("deepseek_v3", "DeepseekV3", LATENT, 3, "deepseek"),
    "deepseek_yarn": Family(
        "deepseek_v3", "DeepseekV3",
        {**LATENT, "q_lora_rank": None, "rope_parameters": YARN, "norm_topk_prob": False, "attention_bias": True},
        3, "deepseek",
    ),
    "deepseek_dense": Family("deepseek_v3", "DeepseekV3", {**LATENT, "rope_interleave": False}, 0, "deepseek"),
    "glm": Family(
        "glm4_moe", "Glm4Moe",
        {**LATENT, "num_key_value_heads": 2, "head_dim": 8, "attention_bias": True, "use_qk_norm": True,
         "n_group": 1, "topk_group": 1},
        3, "deepseek",
    ),
    "glm_lite": Family("glm4_moe_lite", "Glm4MoeLite", {**LATENT, "n_group": 1, "topk_group": 1}, 1, "deepseek"),
    "qwen3_next": Family("qwen3_next", "Qwen3Next", HYBRID, 1, "qwen"),
    "qwen3_5": Family(
        "qwen3_5", "Qwen3_5", {**HYBRID, "rope_parameters": MROPE}, 1, "qwen", "mtp_num_hidden_layers", text="Text"
    ),
    "qwen3_5_moe": Family(
        "qwen3_5_moe", "Qwen3_5Moe", {**HYBRID, "attention_bias": True}, 1, "qwen", "mtp_num_hidden_layers", text="Text"
    ),
    "mimo": Family(
        "qwen2", "Qwen2", {**SHAPE, "rope_parameters": {"rope_type": "default", "rope_theta": 640.0}}, 0, "mimo",
        extra={"model_type": "mimo"},
    ),
    "speculators": Family("qwen3", "Qwen3", {**SHAPE, "head_dim": 6}, 0, "speculators"),
    "speculators_hybrid": Family("qwen3_5_moe", "Qwen3_5Moe", HYBRID, 1, "speculators", text="Text"),
}  # fmt: skip
# Those that store the layer's experts one by one, by its name in transformers.
NUMBERED = ("deepseek", "glm", "qwen3_next")
JOINTS = {
    "deepseek": ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "qwen": ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    "mimo": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
    "speculators": ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
}
PLACES = {
    "deepseek": ("model.layers.{}.", "model.layers.{}."),
    "qwen": ("mtp.", "mtp.layers.{}."),
    "mimo": ("model.mtp_layers.{}.", "model.mtp_layers.{}."),
    "speculators": ("mtp_layers.{}.", "mtp_layers.{}."),
}


@dataclass(frozen=True)
class Made:
    """Modules in memory: transformers' layers, tensors in the family's names, the config that goes with them."""

    family: Family
    layers: list[Any]
    joints: list[dict[str, Tensor]]
    tensors: dict[str, Tensor]
    config: dict[str, Any]

    def layout(self) -> MtpLayout:
        return read_layout(checkpoint_of(self.config, self.tensors), "here")

    def head(self, ends: Ends, layout: MtpLayout | None = None) -> MtpHead:
        layout = layout or self.layout()
        tap: Tap = "final" if layout.options.dialect.reads == "final" else 1
        return make_head(layout, dict(self.tensors), tap, ends, torch.float64, "cpu")


def made(name: str, modules: int = 1, seed: int = 0, **more: Any) -> Made:
    """Modules of a family with random weights; `more` are keys of its config."""
    family = replace(FAMILIES[name], config={**FAMILIES[name].config, **more})
    config = family.hf_config()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [family.part("DecoderLayer")(config, family.layer) for _ in range(modules)]
    tensors: dict[str, Tensor] = {}
    joints: list[dict[str, Tensor]] = []
    for i, layer in enumerate(layers):
        randomize(layer, 10 * seed + i, 0.4)
        for key, buffer in layer.named_buffers():
            if key.endswith("e_score_correction_bias"):
                buffer.copy_(torch.linspace(-0.3, 0.3, len(buffer), dtype=torch.float64).roll(i))
        number = i + (2 if family.style == "deepseek" else 0)
        around, inside = (place.format(number) for place in PLACES[family.style])
        joints.append(joints[0] if joints and family.style == "qwen" else joint_weights(100 * seed + i))
        for part, tensor in zip(JOINTS[family.style], joints[-1].values(), strict=True):
            tensors[f"{around}{part}.weight"] = tensor
        tensors |= {f"{inside}{key}": tensor for key, tensor in layer_tensors(layer, name in NUMBERED)}
    return Made(family, layers, joints, tensors, written_config(family, config, modules))


def joint_weights(seed: int) -> dict[str, Tensor]:
    """The four tensors around a layer."""
    generator = torch.Generator().manual_seed(seed)
    one, two, three = (1 + 0.3 * torch.randn(H, generator=generator, dtype=torch.float64) for _ in range(3))
    proj = 0.4 * torch.randn((H, 2 * H), generator=generator, dtype=torch.float64)
    return {"embed": one, "hidden": two, "proj": proj, "final": three}


def layer_tensors(layer: nn.Module, numbered: bool) -> Iterator[tuple[str, Tensor]]:
    """A layer's tensors, its experts one by one where files have them so."""
    for name, tensor in layer.state_dict().items():
        if not numbered or ".experts." not in name:
            yield name, tensor
        elif name.endswith("down_proj"):
            for e, down in enumerate(tensor):
                yield f"mlp.experts.{e}.down_proj.weight", down.clone()
        else:
            for e, both in enumerate(tensor):
                gate, up = both.chunk(2)
                yield f"mlp.experts.{e}.gate_proj.weight", gate.clone()
                yield f"mlp.experts.{e}.up_proj.weight", up.clone()


def written_config(family: Family, config: Any, modules: int) -> dict[str, Any]:
    """config.json as the family writes it."""
    text = {**config.to_dict(), **family.extra}
    if family.style == "speculators":
        return {
            "speculators_model_type": "mtp",
            "architectures": ["MTPDraftModel"],
            family.count: modules,
            "transformer_layer_config": text,
        }
    text[family.count] = modules
    return text


def checkpoint_of(config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Checkpoint:
    """A checkpoint that was never written."""
    return Checkpoint(source=cast(Any, None), config=dict(config), tensors=headers_of(tensors))


def without_blank(layout: MtpLayout) -> MtpLayout:
    """As transformers runs it, which zeroes nothing."""
    options = replace(layout.options, dialect=replace(layout.options.dialect, blank_first=False))
    return replace(layout, options=options)


@contextmanager
def in_float64(family: Family) -> Iterator[None]:
    """transformers casts norms, routers and angles to float32; here these casts are to float64."""
    proxy = SimpleNamespace(**{name: getattr(torch, name) for name in dir(torch) if not name.startswith("__")})
    proxy.float32 = proxy.float = torch.float64
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family.modeling, "torch", proxy)
        patch.setattr(Tensor, "float", Tensor.double)
        yield
