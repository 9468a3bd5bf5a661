"""Small random targets with one MTP module, of families that vLLM serves on the CPU in float32.

The trunk is written by transformers, the module beside it in the family's own names. vLLM runs one module again and
again for any D; Qwen3-Next has full attention in every layer, since its linear attention takes bfloat16 only there.
"""

import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from codraft.drafters.mtp import JOINT, MtpHead
from codraft.formats.checkpoint import open_checkpoint
from codraft.formats.heads.mtp_layout import read_layout

HIDDEN, VOCAB, FFN, LAYERS = 128, 512, 256, 2
COMMON: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
EXPERTS: dict[str, Any] = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "moe_intermediate_size": 64,
    "first_k_dense_replace": 1,
}
Tensors = dict[str, Tensor]


@dataclass(frozen=True, slots=True)
class Family:
    """A family's target. `kind` names its classes in transformers, `config` its sizes, `written` what config.json says
    beside or instead of what transformers writes. `module` makes the MTP tensors from the trunk's.

    `drafter` is config.json of a folder of its own for codraft, where the family's own model type is one that
    transformers does not know and vLLM is told otherwise. `mend`: see record.py.
    """

    kind: str
    config: Mapping[str, Any]
    written: Mapping[str, Any]
    module: Callable[[Tensors, torch.Generator], Tensors]
    unit_offset: bool = False
    drafter: Mapping[str, Any] | None = None
    mend: tuple[str, ...] = ()


def noise(shape: tuple[int, ...], generator: torch.Generator, *, unit_offset: bool) -> Tensor:
    """A matrix that keeps the scale, or a norm's weights around one."""
    values = torch.randn(shape, generator=generator)
    return values / shape[-1] ** 0.5 if len(shape) > 1 else 0.2 * values + (not unit_offset)


def like(
    tensors: Tensors, before: str, after: str, generator: torch.Generator, *, unit_offset: bool = False
) -> Tensors:
    """Fresh tensors of the shapes of one of the trunk's layers, under another prefix."""
    return {
        after + name.removeprefix(before): noise(tuple(tensor.shape), generator, unit_offset=unit_offset)
        for name, tensor in tensors.items()
        if name.startswith(before)
    }


def joint(names: Mapping[str, str], generator: torch.Generator, *, unit_offset: bool = False) -> Tensors:
    """The projection that joins and the norms around it; `names` by what they are."""
    made = {names[part]: noise((HIDDEN,), generator, unit_offset=unit_offset) for part in ("embed", "hidden", "final")}
    return made | {names["proj"]: noise((HIDDEN, 2 * HIDDEN), generator, unit_offset=False)}


def behind_the_last_layer(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """DeepSeek and GLM: a layer more, with copies of both ends."""
    at = f"model.layers.{LAYERS}."
    names = {"embed": "enorm", "hidden": "hnorm", "final": "shared_head.norm", "proj": "eh_proj"}
    made = like(tensors, f"model.layers.{LAYERS - 1}.", at, generator)
    made |= joint({part: f"{at}{name}.weight" for part, name in names.items()}, generator)
    made[f"{at}shared_head.head.weight"] = tensors["lm_head.weight"].clone()
    made[f"{at}embed_tokens.weight"] = tensors["model.embed_tokens.weight"].clone()
    return made


def in_a_namespace(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """Qwen3-Next: `mtp.`, norms that multiply by 1 + w."""
    names = {"embed": "pre_fc_norm_embedding", "hidden": "pre_fc_norm_hidden", "final": "norm", "proj": "fc"}
    made = like(tensors, f"model.layers.{LAYERS - 1}.", "mtp.layers.0.", generator, unit_offset=True)
    return made | joint({part: f"mtp.{name}.weight" for part, name in names.items()}, generator, unit_offset=True)


def mimo_module(tensors: Tensors, generator: torch.Generator) -> Tensors:
    """MiMo: `model.mtp_layers.`, a Qwen2 layer without a wrapper."""
    at = "model.mtp_layers.0."
    names = {"embed": "token_layernorm", "hidden": "hidden_layernorm", "final": "final_layernorm", "proj": "input_proj"}
    made = like(tensors, f"model.layers.{LAYERS - 1}.", at, generator)
    return made | joint({part: f"{at}{name}.weight" for part, name in names.items()}, generator)


FAMILIES = {
    "deepseek-v3": Family(
        kind="DeepseekV3",
        config={
            **COMMON,
            **EXPERTS,
            "num_key_value_heads": 4,
            # Latent and rotated channels of the one size that vLLM's latent attention has a kernel for.
            "head_dim": 64,
            "q_lora_rank": 64,
            "kv_lora_rank": 512,
            "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 64,
            "v_head_dim": 64,
            "n_group": 2,
            "topk_group": 1,
            "routed_scaling_factor": 1.5,
        },
        written={"topk_method": "noaux_tc", "scoring_func": "sigmoid", "num_nextn_predict_layers": 1},
        module=behind_the_last_layer,
        mend=("rotary",),
    ),
    "glm4-moe": Family(
        kind="Glm4Moe",
        config={**COMMON, **EXPERTS, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 1.0, "use_qk_norm": True},
        written={"num_nextn_predict_layers": 1},
        module=behind_the_last_layer,
    ),
    "qwen3-next": Family(
        kind="Qwen3Next",
        config={
            **COMMON,
            "layer_types": ["full_attention"] * LAYERS,
            "partial_rotary_factor": 0.5,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 32,
            "linear_value_head_dim": 32,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        },
        written={"num_nextn_predict_layers": 1},
        module=in_a_namespace,
        unit_offset=True,
    ),
    "mimo": Family(
        kind="Qwen2",
        config=COMMON,
        written={"architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1},
        module=mimo_module,
        drafter={"model_type": "mimo"},
    ),
}


def write(name: str, folder: Path, seed: int = 0) -> Path:
    """The target of a family, its module inside."""
    family = FAMILIES[name]
    trunk, config = trunk_of(family, seed)
    tensors = trunk | family.module(trunk, torch.Generator().manual_seed(seed + 1))
    save(folder, {**config, **family.written}, tensors)
    if family.drafter is not None:
        save(drafter_folder(folder), {**config, **family.written, **family.drafter}, tensors)
    return folder


def trunk_of(family: Family, seed: int) -> tuple[Tensors, dict[str, Any]]:
    """Tensors in the names of published files, and what transformers writes as config.json."""
    import transformers

    config = getattr(transformers, f"{family.kind}Config")(**family.config)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{family.kind}ForCausalLM")(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            shape = tuple(weight.shape)
            weight.copy_(noise(shape, generator, unit_offset=family.unit_offset and weight.ndim == 1))
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(scratch)
        stored = load_file(Path(scratch, "model.safetensors"))
        written = json.loads(Path(scratch, "config.json").read_text())
    return stored, written


def save(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> None:
    """A checkpoint folder without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2))


def put_back(head: MtpHead, known: Path, folder: Path) -> None:
    """Write a head's weights over the module's tensors in a folder, every one under the file's own name. `known` is a
    folder with the same tensors and a config that codraft reads."""
    layout = read_layout(open_checkpoint(str(known)), str(known))
    tensors, state = load_file(folder / "model.safetensors"), head.state_dict()
    for i, module in enumerate(layout.modules):
        for part, name in module.items():
            if part != "head":
                tensors[name] = tensor_of(state, i, part)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors", {"format": "pt"})


def tensor_of(state: Tensors, i: int, part: str) -> Tensor:
    """One part of module i. Numbered experts stand in one tensor for all, gate above up."""
    if part.partition(".")[0] in JOINT:
        return state[f"joints.{i}.{part}"].clone()
    numbered = re.fullmatch(r"mlp\.experts\.(\d+)\.(\w+)_proj\.weight", part)
    if numbered is None:
        return state[f"blocks.{i}.{part}"].clone()
    expert, kind = int(numbered[1]), numbered[2]
    if kind == "down":
        return state[f"blocks.{i}.mlp.experts.down_proj"][expert].clone()
    return state[f"blocks.{i}.mlp.experts.gate_up_proj"][expert].chunk(2)[kind == "up"].clone()


def drafter_folder(folder: Path) -> Path:
    """Where codraft finds the module of a family whose target goes by another name."""
    return folder.with_name(f"{folder.name}-modules")


def prompts() -> list[list[int]]:
    """Random ids, prompts of several lengths."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in (17, 40, 9, 23)]
