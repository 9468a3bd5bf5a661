"""A tiny target with a drafter of every mechanism, all of them files as users have them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from codraft.core.record import write_record
from codraft.formats.heads.detect import detect
from codraft.formats.heads.layout import expected
from codraft.formats.heads.read import read_head

from tests.build import timing, timing_record
from tests.drafters.mtps import H, Made, made
from tests.drafters.pairs import write_head

# The ids that the target likes to write: what heads draft with its output head is then often right by chance.
FAVOURITES = range(40, 48)
SCALE = 2
SHAPE: dict[str, Any] = {
    "hidden_size": H,
    "intermediate_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
}
BLOCK = {"model_type": "qwen3", "block_size": 4}
CONFIGS: dict[str, dict[str, Any]] = {
    "eagle3": {
        **SHAPE,
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 1]},
    },
    "dflash": {
        **SHAPE,
        **BLOCK,
        "architectures": ["DFlashDraftModel"],
        "dflash_config": {"mask_token_id": 5, "target_layer_ids": [0, 1]},
    },
    "dspark": {
        **SHAPE,
        **BLOCK,
        "architectures": ["Qwen3DSparkModel"],
        "mask_token_id": 5,
        "target_layer_ids": [1],
        "markov_rank": 3,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    },
}


@dataclass(frozen=True)
class Mechanisms:
    """Folders: the target, which has an MTP module of its own, heads by mechanism, `mtp` in a file of its own."""

    target: Path
    heads: Mapping[str, Path]

    @property
    def drafters(self) -> list[str]:
        """All seven as on the command line, MTP by both ways; none remembers, so a batch drafts as one does alone."""
        learned = [f"{name}:{path}" for name, path in self.heads.items() if name != "mtp"]
        apart = f"mtp:{self.heads['mtp']},name=mtp-apart"
        return [
            "ngram,n_min=1",
            "suffix,max_cached_requests=0",
            f"external:{self.target},layers=1",
            *learned,
            "mtp",
            apart,
        ]

    @property
    def names(self) -> list[str]:
        """What they are called."""
        return ["ngram", "suffix", "external", "eagle3", "dflash", "dspark", "mtp", "mtp-apart"]


def write_mechanisms(folder: Path, tokenizer: Path) -> Mechanisms:
    """A DeepSeek of two layers with the tokenizer of another folder, and a random head of every kind beside it."""
    words = json.loads((tokenizer / "config.json").read_text())
    vocab_size = int(words["vocab_size"])
    ids = {"vocab_size": vocab_size, "eos_token_id": words["eos_token_id"], "bos_token_id": None}
    one = made("deepseek", **ids, max_position_embeddings=256)
    target = write_target(folder / "target", one)
    for file in tokenizer.glob("*token*"):
        (target / file.name).write_bytes(file.read_bytes())
    for file in tokenizer.glob("*.jinja"):
        (target / file.name).write_bytes(file.read_bytes())
    heads = {
        mechanism: write_random_head(folder / mechanism, {**config, "vocab_size": vocab_size}, seed)
        for seed, (mechanism, config) in enumerate(CONFIGS.items())
    }
    heads["mtp"] = write_head(folder / "mtp", one.config, {name: t.clone() for name, t in one.tensors.items()})
    return Mechanisms(target, heads)


def write_target(folder: Path, one: Made) -> Path:
    """The whole model of transformers with large weights, and the modules' tensors in the same file."""
    import transformers

    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(one.family.hf_config(), dtype=torch.float64)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(SCALE)
        model.lm_head.weight[FAVOURITES.start : FAVOURITES.stop].mul_(20)
    model.save_pretrained(folder)
    file = folder / "model.safetensors"
    save_file({**load_file(file), **{name: t.clone() for name, t in one.tensors.items()}}, file, {"format": "pt"})
    own = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(own | one.config | {"dtype": "float64"}))
    return folder


def write_random_head(folder: Path, config: Mapping[str, Any], seed: int) -> Path:
    """The tensors that the layout of a head must have, norms around one."""
    kind = detect(config, ())
    assert kind is not None
    head = read_head(kind, config, {}, "config.json")
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for item in expected(head) or ():
        if item.required:
            assert item.shape is not None
            noise = torch.randn(item.shape, generator=generator, dtype=torch.float64)
            tensors[item.name] = 1 + 0.2 * noise if "norm" in item.name else 0.5 * noise
    return write_head(folder, config, tensors)


def write_timing(path: Path, second: float) -> Path:
    """A timing record: 1 second for a pass of one token, `second` for one of two, and so on."""
    record = timing_record(*(timing(D, 1 + (second - 1) * D, dspark=0.01) for D in range(5)))
    write_record(record, path)
    return path
