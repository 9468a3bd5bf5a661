"""Training steps of Model-Optimizer's EAGLE-3, timed, the target's forward included: `python modelopt_steps.py JOB`.

Runs in an environment that has nvidia-modelopt; the job is that of speculators_steps.py. Nothing of codraft is in it.
"""

import json
import sys
import time

import modelopt.torch.speculative as mtsp
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM


def main(path: str) -> None:
    """One record on stdout."""
    with open(path) as file:
        job = json.load(file)
    tensors = load_file(job["tensors"])
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(job["target"], dtype=torch.float32)
    architecture = {
        "num_hidden_layers": 1, "intermediate_size": job["ffn"], "draft_vocab_size": job["draft_vocab"],
        "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True, "use_aux_hidden_state": True,
    }  # fmt: skip
    mtsp.convert(model, [("eagle", {"eagle_decoder_type": "llama", "eagle_architecture_config": architecture})])
    if job["draft_vocab"] < model.config.vocab_size:
        model.eagle_module.d2t.copy_(tensors["draft_ids"] - torch.arange(job["draft_vocab"]))
    model.train()
    learning = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learning, lr=1e-4)
    ids = tensors["ids"][None]
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "loss_mask": tensors["mask"][None].long(),
             "labels": ids}  # fmt: skip
    ready = time.perf_counter() - start
    seconds = []
    for _ in range(job["steps"]):
        start = time.perf_counter()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learning, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - start)
    record = {"seconds": seconds, "ready_s": ready, "parameters": sum(p.numel() for p in learning), "loss": float(loss)}
    print(json.dumps(record))


if __name__ == "__main__":
    main(sys.argv[1])
