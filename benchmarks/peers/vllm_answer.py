"""A vLLM that answers prompts one at a time, run by its own Python: `python vllm_answer.py JOB.json`.

The job has vLLM's arguments. It says "ready", then for each line of stdin (token ids as JSON) one line: seconds,
output ids, and the engine's counters of drafting since the last line.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
# Two of these take turns on the same cores.
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")

from vllm import LLM, SamplingParams

NAMES = {"num_drafts": "steps", "num_draft_tokens": "drafted", "num_accepted_tokens": "accepted"}


def counters(llm: LLM) -> dict[str, float]:
    """Drafting so far."""
    found = {}
    for metric in llm.get_metrics():
        short = metric.name.removeprefix("vllm:spec_decode_")
        if short in NAMES:
            found[NAMES[short]] = metric.value
    return found


def main() -> None:
    """Until stdin ends."""
    job = json.loads(Path(sys.argv[1]).read_text())
    # Whatever vLLM prints goes elsewhere.
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    llm = LLM(skip_tokenizer_init=True, disable_log_stats=False, max_num_seqs=1, **job["engine"])
    sampling = SamplingParams(temperature=0.0, max_tokens=job["max_tokens"], ignore_eos=True, detokenize=False)
    print("ready", file=told, flush=True)
    before = counters(llm)
    for line in sys.stdin:
        start = time.perf_counter()
        done = llm.generate([{"prompt_token_ids": json.loads(line)}], sampling, use_tqdm=False)
        seconds, now = time.perf_counter() - start, counters(llm)
        row = {key: value - before.get(key, 0) for key, value in now.items()}
        before = now
        answer = {"seconds": seconds, "output_ids": list(done[0].outputs[0].token_ids), **row}
        print(json.dumps(answer), file=told, flush=True)


if __name__ == "__main__":
    main()
