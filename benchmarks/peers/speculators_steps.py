"""Training steps of the speculators library, timed: `python speculators_steps.py JOB`, where that library is installed.

The job names the target's folder, the algorithm, sizes, and a file of tensors: one sequence of token ids, its mask,
the target's hidden states. The library's own model, losses and AdamW run on it; nothing of codraft is imported.
"""

import json
import sys
import time

import torch
from safetensors.torch import load_file
from speculators.models.dflash import DFlashDraftModel
from speculators.models.dspark import DSparkDraftModel
from speculators.models.eagle3 import Eagle3DraftModel
from transformers import AutoConfig, Qwen3Config

KINDS = {"eagle3": Eagle3DraftModel, "dflash": DFlashDraftModel, "dspark": DSparkDraftModel}


def main(path: str) -> None:
    """One record on stdout."""
    with open(path) as file:
        job = json.load(file)
    tensors = load_file(job["tensors"])
    config = AutoConfig.from_pretrained(job["target"])
    if job["algorithm"] != "eagle3":
        keys = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "rms_norm_eps",
                "max_position_embeddings")  # fmt: skip
        config = Qwen3Config(**{key: getattr(config, key) for key in keys}, rope_theta=100000.0)
    config.num_hidden_layers, config.intermediate_size = job["layers"], job["ffn"]
    size = job["draft_vocab"]
    how = {
        "draft_vocab_size": size, "norm_before_residual": False, "verifier_name_or_path": job["target"],
        "target_layer_ids": job["layer_ids"], "draft_attn_impl": "sdpa", "ttt_steps": job["drafts"],
        "block_size": job["block_size"], "markov_rank": job["markov_rank"], "mask_token_id": job["mask_token_id"],
        "loss_fn": job["loss"], "loss_implementation": "eager", "ttt_step_loss_decay": 0.8,
        "max_anchors": job["anchors"],
    }  # fmt: skip
    t2d = torch.zeros(config.vocab_size, dtype=torch.bool)
    t2d[tensors["draft_ids"]] = True
    maps = (t2d, tensors["draft_ids"] - torch.arange(size)) if size < config.vocab_size else (None, None)
    torch.manual_seed(0)
    kind = KINDS[job["algorithm"]]
    model = kind.from_training_args(config, *maps, **how).float().train()
    call, _ = kind.get_trainer_kwargs(**how)
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-4)
    batch = {
        "hidden_states": tensors["hidden"][None],
        "input_ids": tensors["ids"][None],
        "loss_mask": tensors["mask"][None],
        "verifier_last_hidden_states": tensors["last"][None],
        "document_ids": torch.zeros_like(tensors["ids"])[None],
    }
    seconds = []
    for _ in range(job["steps"]):
        start = time.perf_counter()
        loss = model(**batch, **call)[1]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    print(json.dumps({"seconds": seconds, "parameters": sum(p.numel() for p in learning), "loss": float(loss)}))


if __name__ == "__main__":
    main(sys.argv[1])
