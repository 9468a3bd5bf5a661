"""Tiny real targets with heads beside them: random targets in float64, heads written as the files that users have."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from codraft.core.spec import Sampling
from codraft.decode.forced import forced_pass
from codraft.decode.hf.load import sizes_of
from codraft.decode.hf.model import HFModel
from codraft.decode.target import Tap
from codraft.drafters.beside import Beside
from codraft.replay.streams import TokenStream

# A loss at which the likeliest token is the right one everywhere.
LEARNT = 0.2
V, HIDDEN, LAYERS = 48, 32, 8


def tiny_target(seed: int = 0) -> HFModel:
    """A random Llama of eight layers whose weights are large enough to matter."""
    config = transformers.LlamaConfig(
        vocab_size=V,
        hidden_size=HIDDEN,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
        rope_theta=500.0,
        max_position_embeddings=512,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.LlamaForCausalLM(config).double()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(4)
    return HFModel(model, f"tiny-{seed}")


def beside(target: HFModel, sampling: Sampling | None = None) -> Beside:
    """The target as builders see it."""
    return Beside(
        target.id, Path("-"), sizes_of(target.model.config), sampling or Sampling(), "float64", lambda: target
    )


def write_head(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Path:
    """A checkpoint of a head."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def prompts(count: int = 8, length: int = 5) -> list[list[int]]:
    """Prompts that differ."""
    return [[3 + (7 * i + 5 * j) % (V - 3) for j in range(1 + (length + i) % 7)] for i in range(count)]


def stream_features(target: HFModel, stream: TokenStream, taps: Sequence[Tap]) -> dict[Tap, Tensor]:
    """The target's features of a stream, every position but the last."""
    tokens = [*stream.prompt_ids, *stream.output_ids]
    _, features = forced_pass(target, tokens[:-1], tokens[1:], None, taps)
    # Clones: what a pass in inference mode makes cannot be trained on.
    return {tap: states[0].clone() for tap, states in features.items()}


def train(module: nn.Module, loss: Callable[[int], Tensor], count: int, steps: int, lr: float = 2e-2) -> None:
    """Adam over the parts of a loss, a whole round of them a step, until nothing is left to learn."""
    module.requires_grad_(True)
    optimizer = torch.optim.Adam(module.parameters(), lr)
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(steps):
            optimizer.zero_grad()
            total = torch.stack([loss(i) for i in range(count)]).mean()
            total.backward()
            optimizer.step()
            if float(total.detach()) < LEARNT:
                break
    module.requires_grad_(False)


def cross_entropy(logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
    """Mean over rows."""
    return functional.cross_entropy(logits_NV, tokens_N)
