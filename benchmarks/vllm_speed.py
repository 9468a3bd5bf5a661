"""A shipped drafter inside vLLM at B = 1: faster than plain decoding, and by how much?

    python benchmarks/vllm_speed.py VLLM_PYTHON [MECHANISM] [D] [PROMPTS]

Two engines are held at once, one plain and one with the drafter, and answer the same Spec-Bench prompts in turn, first
turns alone, greedy, float32, 96 tokens each. Prefill is included. The ratio is of the sums of seconds; its spread is
over prompts. AL is of the engine's own counters.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from codraft.core.spec import parse_drafter
from codraft.decode.hf.load import load_card, resolve_folder
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import load_prompts
from common import finish, spread

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
TOKENS, AIM = 96, 1.3
METHODS = {"eagle3": "eagle3", "dflash": "dflash", "external": "draft_model"}
ENGINE = {"dtype": "float32", "max_model_len": 2048, "kv_cache_memory_bytes": 1 << 30, "max_num_batched_tokens": 2048}


class Engine:
    """One vLLM in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.write: IO[str] = process.stdin
        self.read: IO[str] = process.stdout
        assert self.read.readline().strip() == "ready"

    def answer(self, ids: list[int]) -> dict[str, Any]:
        """Seconds, output and counters of one prompt."""
        self.write.write(json.dumps(ids) + "\n")
        self.write.flush()
        found: dict[str, Any] = json.loads(self.read.readline())
        return found


@contextmanager
def engine(python: str, folder: Path, **more: Any) -> Iterator[Engine]:
    """Started, and ended with the block."""
    job = {"engine": {"model": str(load_card("demo").folder), **ENGINE, **more}, "max_tokens": TOKENS}
    file = folder / f"{'plain' if not more else 'drafting'}.json"
    file.write_text(json.dumps(job))
    command = [python, str(HERE / "peers" / "vllm_answer.py"), str(file)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Engine(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def measure(plain: Engine, drafting: Engine, prompts: list[list[int]]) -> dict[str, Any]:
    """Both in turn, the first one alternating; a prompt beforehand warms both up."""
    for one in (plain, drafting):
        one.answer(prompts[0])
    seconds: list[tuple[float, float]] = []
    counted = dict.fromkeys(("steps", "drafted", "accepted"), 0.0)
    same = 0
    for i, ids in enumerate(prompts):
        order = (plain, drafting) if i % 2 == 0 else (drafting, plain)
        found = {one: one.answer(ids) for one in order}
        seconds.append((found[plain]["seconds"], found[drafting]["seconds"]))
        same += found[plain]["output_ids"] == found[drafting]["output_ids"]
        for key in counted:
            counted[key] += found[drafting][key]
        print(f"  {i + 1}/{len(prompts)}: {seconds[-1][0]:.1f} s, {seconds[-1][1]:.1f} s", file=sys.stderr)
    whole = np.array(seconds)
    return {
        "prompts": len(prompts),
        "tokens": len(prompts) * TOKENS,
        "plain tok/s": round(len(prompts) * TOKENS / whole[:, 0].sum(), 2),
        "drafting tok/s": round(len(prompts) * TOKENS / whole[:, 1].sum(), 2),
        "ratio": round(whole[:, 0].sum() / whole[:, 1].sum(), 3),
        "ratio by prompt": spread((whole[:, 0] / whole[:, 1]).tolist()),
        "AL by counters": round(1 + counted["accepted"] / counted["steps"], 3),
        "same text": same,
    }


def main() -> int:
    """Print figures and the record."""
    python = sys.argv[1]
    mechanism = sys.argv[2] if len(sys.argv) > 2 else "eagle3"
    D = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    source = sys.argv[4] if len(sys.argv) > 4 else "spec-bench:24"
    codec = TextCodec(load_card("demo").tokenizer)
    prompts = [codec.prompt_ids(c.opening, c.where) for c in load_prompts([source]).conversations]
    spec: Any = parse_drafter(f"{mechanism}:{MODELS / f'smollm2-135m-{mechanism}'}")
    how = {"method": METHODS[mechanism], "model": str(resolve_folder(spec.path)), "num_speculative_tokens": D}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with engine(python, folder) as plain, engine(python, folder, speculative_config=how) as drafting:
            figures = measure(plain, drafting, prompts)
    figures = {"mechanism": mechanism, "D": D, "prompts from": source, **figures}
    return finish("vllm_speed", figures, {f"{AIM} times plain": figures["ratio"] >= AIM}, "float32")


if __name__ == "__main__":
    sys.exit(main())
