"""Write answers with vLLM, in an environment of its own: `python vllm_write.py JOB.json`.

Imports nothing of codraft, so that vLLM's environment needs none of it: the two meet in files. The job names the
target, the requests (JSON lines of `key`, `prompt_ids`, `max_tokens`, `temperature`, `top_p`, `top_k`) and
the file that answers are appended to (`key`, `output_ids`, `stop_reason`), each as soon as it ends. What that file
holds already is not written again, so a job that was killed goes on where it stood. Where the job has `limit_tokens`,
no request is begun once so many tokens are written; those in flight are finished.
"""

import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# In process: no server, no second Python. Read when vLLM is imported.
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")

from vllm import LLM, SamplingParams


def main(path: str) -> None:
    """Everything of one job that has no answer yet."""
    job = json.loads(Path(path).read_text())
    out = Path(job["out"])
    written = keys_in(out)
    with Path(job["requests"]).open() as lines:
        requests = [row for row in map(json.loads, lines) if row["key"] not in written]
    if not requests:
        return
    llm = LLM(
        model=job["target"],
        dtype=job["dtype"],
        skip_tokenizer_init=True,
        max_model_len=job["max_model_len"],
        max_num_seqs=job["max_num_seqs"],
        seed=job["seed"],
        **job.get("engine", {}),
    )
    with out.open("a") as file:
        for row in answers(llm, requests, job["eos_ids"], job.get("limit_tokens"), job["max_num_seqs"]):
            file.write(json.dumps(row) + "\n")
            # Whole lines, so that a killed job leaves at most one that is torn.
            file.flush()
            print(json.dumps({"tokens": len(row["output_ids"])}), flush=True)


def keys_in(path: Path) -> set[str]:
    """Keys of the answers a file holds; a torn last line is cut off."""
    if not path.exists():
        return set()
    whole, end, _ = path.read_bytes().rpartition(b"\n")
    with path.open("rb+") as file:
        file.truncate(len(whole) + len(end))
    return {json.loads(line)["key"] for line in whole.splitlines()}


def answers(
    llm: LLM, requests: list[dict[str, Any]], eos_ids: list[int], limit: int | None, batch: int
) -> Iterator[dict[str, Any]]:
    """Answers in the order in which they end; the engine batches as it likes. Under a limit it is given no more than
    it can run at once, for what it has been given is finished."""
    engine = llm.llm_engine
    waiting = deque(requests)
    running = written = 0
    while waiting or engine.has_unfinished_requests():
        if limit is not None and written >= limit:
            waiting.clear()
        while waiting and (limit is None or running < batch):
            row = waiting.popleft()
            engine.add_request(row["key"], {"prompt_token_ids": row["prompt_ids"]}, sampling(row, eos_ids))
            running += 1
        if not engine.has_unfinished_requests():
            break
        for done in engine.step():
            if done.finished:
                answer = done.outputs[0]
                running -= 1
                written += len(answer.token_ids)
                yield {
                    "key": done.request_id,
                    "output_ids": list(answer.token_ids),
                    "stop_reason": "eos" if answer.finish_reason == "stop" else "length",
                }


def sampling(row: dict[str, Any], eos_ids: list[int]) -> SamplingParams:
    """One request's settings. The seed is the engine's: vLLM's build for the CPU refuses seeded requests."""
    greedy = row["temperature"] == 0
    return SamplingParams(
        temperature=row["temperature"],
        top_p=1.0 if greedy else row.get("top_p", 1.0),
        top_k=0 if greedy else row.get("top_k", 0),
        max_tokens=row["max_tokens"],
        stop_token_ids=eos_ids,
        detokenize=False,
    )


if __name__ == "__main__":
    main(sys.argv[1])
