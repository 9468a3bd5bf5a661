"""Run jobs on a real vLLM, in process on the CPU, and write down what its proposer drafts at every step.

Belongs to `.venv-vllm` and imports nothing of codraft: `python record.py JOBS.json`. A job names the target, vLLM's
`speculative_config`, the dtype, prompts as token ids and the token limit; its record is written to `out`.
"""

import gc
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

# In process, so that the proposer can be wrapped; before vLLM is imported.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
# Bound to one core each, the threads would wait for one another beside other work.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

import torch
from vllm import LLM, SamplingParams
from vllm.distributed import cleanup_dist_env_and_memory
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.models import registry
from vllm.model_executor.models.qwen3_dflash import DFlashQwen3Model
from vllm.platforms.cpu import CpuPlatform

# Room for every test prompt at once, and for drafts behind the last token: vLLM stops drafting near the end of it.
MAX_MODEL_LEN = 1024
MAX_TOKENS_IN_PASS = 4096
# Keys and values of all prompts, target and drafter.
CACHE_BYTES = 384 << 20


def norm_context_by_layer(model: DFlashQwen3Model, all_k: torch.Tensor) -> torch.Tensor:
    """Keys [layers, tokens, heads, size] of a DFlash head's context, each layer normed with its own weights."""
    return torch.stack([layer.self_attn.k_norm(k) for layer, k in zip(model.layers, all_k, strict=True)])


# Errors of this build's kernels for the CPU that stand between two right implementations; a job asks for the mending.
# `context_norm`: `rms_norm` takes one row of weights, and where it is given one for each layer all layers are normed
# with the first one's (mended for XPU by a loop, vllm-project/vllm#56431). `rotary`: `rotary_embedding` takes queries
# [tokens, heads, size], as latent attention hands them over, for rows of one head, and turns the first rows only;
# PyTorch's own form of it is right.
MENDINGS = {
    "context_norm": (DFlashQwen3Model, "_normalize_context_k", norm_context_by_layer),
    "rotary": (RotaryEmbedding, "forward_cpu", RotaryEmbedding.forward_native),
}


class Watch:
    """Stands between the model runner and its proposer, and keeps one log for each request.

    The runner asks for drafts after every target pass, prefill included, with the tokens it has just sampled: those
    of the last verification, and in front of them nothing. So a call closes one step of a request and opens the next.
    """

    def __init__(self, runner: Any) -> None:
        self.runner = runner
        self.output_ids: dict[str, list[int]] = {}
        self.steps: dict[str, list[dict[str, Any]]] = {}
        self._propose: Callable[..., Any] = runner.propose_draft_token_ids
        runner.propose_draft_token_ids = self.propose

    def propose(self, scheduler_output: Any, sampled_token_ids: Any, *args: Any, **kwargs: Any) -> Any:
        """The runner's own method, watched."""
        drafts = self._propose(scheduler_output, sampled_token_ids, *args, **kwargs)
        for index, request in enumerate(self.runner.input_batch.req_ids):
            self.note(request, row(sampled_token_ids, index), row(drafts, index))
        return drafts

    def note(self, request: str, sampled: list[int], drafted: list[int]) -> None:
        """Close the open step of a request with what was sampled, open the next with what was drafted."""
        emitted, steps = self.output_ids.setdefault(request, []), self.steps.setdefault(request, [])
        if not sampled:
            raise RuntimeError(f"request {request} got no token in a pass: prompts must be read in one piece")
        if steps:
            steps[-1]["accepted"] = len(sampled) - 1
        emitted += sampled
        steps.append({"anchor": len(emitted) - 1, "drafted": drafted})


def row(tokens: Any, index: int) -> list[int]:
    """One request's tokens of a padded tensor (-1 is padding) or of a list of lists."""
    values = tokens[index].tolist() if isinstance(tokens, torch.Tensor) else tokens[index]
    return [int(value) for value in values if value != -1]


def run(job: dict[str, Any]) -> dict[str, Any]:
    """One job, with the mendings that it asks for."""
    with ExitStack() as stack:
        for name in job.get("mend", ()):
            stack.enter_context(patch.object(*MENDINGS[name]))
        return run_mended(job)


def run_mended(job: dict[str, Any]) -> dict[str, Any]:
    """Load, generate greedily with all prompts in one batch, and collect."""
    start = time.monotonic()
    llm = LLM(
        model=job["target"],
        dtype=job["dtype"],
        speculative_config=job["speculative_config"],
        skip_tokenizer_init=True,
        enforce_eager=True,
        enable_prefix_caching=False,
        async_scheduling=False,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=len(job["prompts"]),
        max_num_batched_tokens=MAX_TOKENS_IN_PASS,
        kv_cache_memory_bytes=CACHE_BYTES,
        disable_log_stats=False,
        seed=0,
        **job.get("engine", {}),
    )
    loaded = time.monotonic()
    try:
        return {**generate(llm, job), "load_s": loaded - start, "generate_s": time.monotonic() - loaded}
    finally:
        shut(llm)


def generate(llm: LLM, job: dict[str, Any]) -> dict[str, Any]:
    """Requests in the order of the prompts, and vLLM's own counters."""
    runner = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
    watch = Watch(runner)
    before = counters(llm)
    sampling = SamplingParams(
        temperature=0.0, max_tokens=job["max_tokens"], stop_token_ids=job["eos_ids"], detokenize=False, seed=0
    )
    prompts = [{"prompt_token_ids": prompt} for prompt in job["prompts"]]
    done = llm.generate(prompts, sampling, use_tqdm=False)
    names = dict(zip(sorted(watch.steps, key=arrival), range(len(prompts)), strict=True))
    logs = {number: watch.steps[name] for name, number in names.items()}
    requests = [
        {"prompt_ids": out.prompt_token_ids, "output_ids": list(out.outputs[0].token_ids), "steps": closed(logs[i])}
        for i, out in enumerate(done)
    ]
    after = counters(llm)
    return {"requests": requests, "counters": {name: after[name] - before.get(name, 0) for name in after}}


def arrival(request: str) -> int:
    """The number vLLM gave a request: ids are `N` or `N-suffix`."""
    return int(request.split("-")[0])


def closed(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Steps that were verified: the drafts behind the last token of a request were thrown away."""
    return [step for step in steps if "accepted" in step]


def counters(llm: LLM) -> dict[str, float]:
    """vLLM's counters of speculative decoding."""
    return {
        metric.name: metric.value
        for metric in llm.get_metrics()
        if metric.name.startswith("vllm:spec_decode") and hasattr(metric, "value")
    }


def shut(llm: LLM) -> None:
    """Free an engine so that another one can start in this process."""
    # Its own end collects garbage six times over, among all imported modules.
    with patch.object(gc, "collect", lambda *generation: 0):
        llm.llm_engine.engine_core.shutdown()
        cleanup_dist_env_and_memory()
    del llm
    set_aside()
    # Every engine would register vLLM's kernels for the CPU again, and a second time fails.
    CpuPlatform.register_triton_kernel_overrides = classmethod(lambda cls: None)


def set_aside() -> None:
    """Keep what lives now, all imported modules, out of later collections: an engine's start asks for five."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def main(path: str) -> None:
    """Run every job; one that vLLM refuses leaves its error as the record, and the others go on."""
    # Else each architecture is first looked at in a process of its own, twenty seconds on a fresh machine.
    registry._run_in_subprocess = lambda look: look()
    set_aside()
    for job in json.loads(Path(path).read_text()):
        try:
            record = run(job)
        except Exception as error:  # noqa: BLE001 - whatever vLLM says is the answer of that job
            record = {"error": f"{type(error).__name__}: {error}"}
        out = Path(job["out"])
        out.with_suffix(".part").write_text(json.dumps(record))
        out.with_suffix(".part").rename(out)
        print(out.name, record.get("error", "ok"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
