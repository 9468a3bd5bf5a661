"""Write hidden states with vLLM, in an environment of its own: `python vllm_features.py JOB.json`.

Imports nothing of codraft. The job names the target, layers by their outputs, and shards: each a file of `layer.I`
[T, H] for rows of token ids, one after the other. A shard is written whole; those that are there are left out. For
targets that one process cannot hold: `engine` takes tensor_parallel_size and the like.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
# Without a GPU in this process: no second Python.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", str(int(os.path.exists("/dev/nvidia0"))))

import torch
from safetensors.torch import save_file
from vllm import LLM, SamplingParams
from vllm.distributed.kv_transfer.kv_connector.v1.example_hidden_states_connector import load_hidden_states

# Steps after the last, at most, until the states of an engine in this process are on disk.
STEPS = 100


def main(path: str) -> None:
    """All shards that are not there yet."""
    job = json.loads(Path(path).read_text())
    folder = Path(job["folder"])
    shards = [shard for shard in job["shards"] if not (folder / shard["name"]).exists()]
    if not shards:
        return
    scratch = tempfile.mkdtemp(prefix="codraft-states-", dir=folder)
    try:
        llm = engine(job, scratch)
        for shard in shards:
            states_TLH = read(llm, shard["rows"])
            tensors = {f"layer.{layer}": states_TLH[:, i].contiguous() for i, layer in enumerate(job["layers"])}
            part = folder / f".{shard['name']}.part"
            save_file({name: one.to(getattr(torch, job["store"])) for name, one in tensors.items()}, part)
            part.chmod(0o644)
            part.replace(folder / shard["name"])
            print(json.dumps({"tokens": len(states_TLH)}), flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def engine(job: dict[str, Any], scratch: str) -> LLM:
    """An engine that keeps the outputs of these layers; vLLM counts what enters a layer, so that of i is i + 1."""
    # It imports the connector by name.
    sys.path.insert(0, str(Path(__file__).parent))
    plain = {} if torch.cuda.is_available() else {"kv_connector_module_path": "vllm_connector"}
    name = "PlainHiddenStatesConnector" if plain else "ExampleHiddenStatesConnector"
    return LLM(
        model=job["target"],
        dtype=job["dtype"],
        skip_tokenizer_init=True,
        max_model_len=max(len(row) for shard in job["shards"] for row in shard["rows"]) + 2,
        enable_prefix_caching=False,
        speculative_config={
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {
                "hf_config": {"eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in job["layers"]]}
            },
        },
        kv_transfer_config={
            "kv_connector": name,
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": scratch},
            **plain,
        },
        **job.get("engine", {}),
    )


def read(llm: LLM, rows: list[list[int]]) -> torch.Tensor:
    """[T, L, H] of rows one after the other."""
    sampling = SamplingParams(temperature=0.0, max_tokens=1, detokenize=False)
    done = llm.generate([{"prompt_token_ids": row} for row in rows], sampling, use_tqdm=False)
    found = []
    paths = [output.kv_transfer_params["hidden_states_path"] for output in done]
    # An engine in this process stands still between calls, and states are written in the step after the last.
    for _ in range(STEPS if os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0" else 0):
        if all(map(os.path.exists, paths)):
            break
        llm.llm_engine.step()
    for row, path in zip(rows, paths, strict=True):
        held = load_hidden_states(path)
        if held["token_ids"].tolist() != row:
            raise RuntimeError(f"{path} holds the states of other tokens")
        found.append(held["hidden_states"])
        os.unlink(path)
        os.unlink(f"{path}.lock")
    return torch.cat(found)


if __name__ == "__main__":
    main(sys.argv[1])
