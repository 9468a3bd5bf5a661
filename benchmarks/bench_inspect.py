"""How long `codraft inspect` takes, whole processes on fake checkpoints of real size (sparse files, real headers).

A 70B target with an EAGLE-3 head; a mixture of experts of 400 GB in 150 files; and a head of hidden 576 for a target of
hidden 960, which speculators' `convert` takes 14 s to call valid.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import finish, spread

from tests.checkpoints import Tensor, llama_tensors, write_checkpoint

ROUNDS = 7
LLAMA_70B = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
    "max_position_embeddings": 131072, "rope_theta": 500000.0, "torch_dtype": "bfloat16", "head_dim": 128,
    "tie_word_embeddings": False,
}  # fmt: skip
HEAD_70B = {
    "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 1,
    "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 28672, "vocab_size": 128256,
    "draft_vocab_size": 32000, "max_position_embeddings": 2048, "head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
# The shape of Qwen3-235B-A22B, 470 GB in bf16.
MOE = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096, "num_hidden_layers": 94,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1,
    "norm_topk_prob": True, "vocab_size": 151936, "max_position_embeddings": 262144, "rope_theta": 5000000.0,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "mlp_only_layers": [],
}  # fmt: skip


def moe_tensors() -> dict[str, Tensor]:
    """The tensors of Qwen3-235B-A22B, 36,000 of them."""
    tensors: dict[str, Tensor] = {}
    for name, layout in llama_tensors(MOE).items():
        if ".mlp." not in name:
            tensors[name] = layout
    for layer in range(MOE["num_hidden_layers"]):  # type: ignore[call-overload]
        at = f"model.layers.{layer}.mlp"
        tensors[f"{at}.gate.weight"] = ("BF16", (128, 4096))
        for expert in range(128):
            for part in ("gate_proj", "up_proj"):
                tensors[f"{at}.experts.{expert}.{part}.weight"] = ("BF16", (1536, 4096))
            tensors[f"{at}.experts.{expert}.down_proj.weight"] = ("BF16", (4096, 1536))
    return tensors


def head_tensors(config: dict[str, Any]) -> dict[str, Tensor]:
    """An EAGLE-3 head."""
    C, F, V, Vd = config["hidden_size"], config["intermediate_size"], config["vocab_size"], config["draft_vocab_size"]
    q, kv = (config[key] * config["head_dim"] for key in ("num_attention_heads", "num_key_value_heads"))
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (C, 3 * C), "norm.weight": (C,), "lm_head.weight": (Vd, C), "midlayer.hidden_norm.weight": (C,),
        "midlayer.input_layernorm.weight": (C,), "midlayer.post_attention_layernorm.weight": (C,),
        "midlayer.self_attn.q_proj.weight": (q, 2 * C), "midlayer.self_attn.k_proj.weight": (kv, 2 * C),
        "midlayer.self_attn.v_proj.weight": (kv, 2 * C), "midlayer.self_attn.o_proj.weight": (C, q),
        "midlayer.mlp.gate_proj.weight": (F, C), "midlayer.mlp.up_proj.weight": (F, C),
        "midlayer.mlp.down_proj.weight": (C, F),
    }  # fmt: skip
    import numpy as np

    tensors: dict[str, Tensor] = {name: ("BF16", shape) for name, shape in shapes.items()}
    ids = np.sort(np.random.default_rng(0).choice(V, Vd, replace=False))
    marks = np.zeros(V, dtype=bool)
    marks[ids] = True
    return {**tensors, "d2t": ids - np.arange(Vd), "t2d": marks}


def run(*argv: str) -> tuple[float, float, dict[str, Any], int]:
    """(wall s, CPU s, record, exit code) of one process."""
    # As installed: with compiled modules, which the first run writes.
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "codraft", "inspect", *argv, "--json", "-"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, check=False,
    )  # fmt: skip
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, json.loads(done.stdout), done.returncode


def measured(*argv: str) -> dict[str, Any]:
    """Medians of whole processes."""
    run(*argv)
    runs = [run(*argv) for _ in range(ROUNDS)]
    record = runs[0][2]
    return {
        "wall_s": spread([wall for wall, *_ in runs]),
        "cpu_s": spread([cpu for _, cpu, *_ in runs]),
        "bytes_read": record["bytes_read"],
        "errors": sorted({f["code"] for f in record["findings"] if f["severity"] == "error"}),
        "exit_code": runs[0][3],
    }


def main() -> int:
    """Write the checkpoints, inspect them, print figures and the record."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        target = write_checkpoint(root / "llama-70b", LLAMA_70B, dict(llama_tensors(LLAMA_70B)), shards=30)
        head = write_checkpoint(root / "head", HEAD_70B, head_tensors(HEAD_70B))
        moe = write_checkpoint(root / "moe", MOE, moe_tensors(), shards=150)
        gigabytes = sum(file.stat().st_size for file in moe.iterdir()) / 1e9
        small = {**HEAD_70B, "hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
                 "intermediate_size": 1536, "vocab_size": 49152, "draft_vocab_size": 16000}  # fmt: skip
        other = {**LLAMA_70B, "hidden_size": 960, "num_hidden_layers": 32, "num_attention_heads": 15,
                 "num_key_value_heads": 5, "head_dim": 64, "intermediate_size": 2560}  # fmt: skip
        wrong = (
            str(write_checkpoint(root / "other", other, dict(llama_tensors(other)))),
            str(write_checkpoint(root / "small", small, head_tensors(small))),
        )
        figures: dict[str, Any] = {
            "70B target": measured(str(target)),
            "70B target with its head": measured(str(target), str(head)),
            f"{gigabytes:.0f} GB, 150 files": measured(str(moe)),
            "head of 576 for a target of 960": measured(*wrong),
        }
    for name, figure in figures.items():
        print(f"{name:36} {figure['wall_s']['median']:.2f} s wall, {figure['cpu_s']['median']:.2f} s CPU, "
              f"{figure['bytes_read'] / 1e6:.1f} MB read, errors: {', '.join(figure['errors']) or 'none'}")  # fmt: skip
    large = next(figure for name, figure in figures.items() if "GB" in name)
    goals = {
        "70B target with its head under 0.6 s": figures["70B target with its head"]["wall_s"]["median"] < 0.6,
        "70B pair without an error": not figures["70B target with its head"]["errors"],
        "400 GB under 2 s of CPU": large["cpu_s"]["median"] < 2,
        "the wrong pair is refused": "hidden.mismatch" in figures["head of 576 for a target of 960"]["errors"],
    }
    return finish("inspect", figures, goals, "none")


if __name__ == "__main__":
    sys.exit(main())
