"""After the target has changed: AL of a drafter before, after, and adapted.

    python benchmarks/adapt.py GSM8K_TEST.jsonl DRAFTER_FOLDER WORK_FOLDER [MECHANISM]

The embedded target is fine-tuned on 1,000 rows of GSM8K (question, worked answer), which changes how it writes: short
steps, marks around every calculation. Then the drafter, made for the target as it was, is measured on other questions
before and after, and once more after `codraft train --from` on the new target's own answers to the 1,000 questions.
All of it but the fine-tuning are the commands that a user would give. Everything lies in WORK_FOLDER, and what is there
is not done again.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import torch

from codraft.decode.hf.load import load_card, load_model
from codraft.decode.hf.text import TextCodec
from codraft.train.checkpoint import copy_tokenizer
from common import finish

TRAINED, ASKED = 1000, 64
STEPS, BATCH, RATE = 120, 8, 3e-5
ADAPT_STEPS = 120
DEPTH = "4"


def rows_of(path: Path) -> list[dict[str, str]]:
    """Questions and answers."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def fine_tune(rows: list[dict[str, str]], folder: Path) -> float:
    """The target after some steps of plain cross-entropy on the answers; the last loss."""
    torch.manual_seed(0)
    model, card = load_model("demo", "float32"), load_card("demo")
    codec, loss_value = TextCodec(card.tokenizer), 0.0
    pairs = []
    for i, row in enumerate(rows):
        chat = [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]
        prompt = codec.prompt_ids(chat[:1], f"row {i}")
        pairs.append((prompt, codec.answer_ids(chat, prompt, f"row {i}")))
    model.model.train().requires_grad_(True)
    optimizer = torch.optim.AdamW(model.model.parameters(), lr=RATE, weight_decay=0.0)
    order = torch.randperm(len(pairs))
    for step in range(STEPS):
        for i in order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(pairs)].tolist():
            prompt, answer = pairs[i]
            ids = torch.tensor([[*prompt, *answer]])
            labels = torch.tensor([[*[-100] * len(prompt), *answer]])
            loss = model.model(input_ids=ids, labels=labels, use_cache=False).loss / BATCH
            loss.backward()
            loss_value = float(loss.detach()) * BATCH
        optimizer.step()
        optimizer.zero_grad()
        print(f"  fine-tune: {step + 1}/{STEPS}, loss {loss_value:.2f}", file=sys.stderr)
    model.model.to(torch.bfloat16).save_pretrained(folder)
    copy_tokenizer(card.folder, folder)
    return loss_value


def codraft(*words: str | Path) -> None:
    """A command of codraft."""
    subprocess.run([sys.executable, "-m", "codraft", *map(str, words)], check=True)


def AL_of(target: str | Path, drafter: str, prompts: Path, record: Path) -> float:
    """AL(4) on these prompts, greedy."""
    if not record.exists():
        codraft("accept", target, "-d", drafter, "-p", prompts, "-D", DEPTH, "--max-new-tokens", "128", "--dtype",
                "float32", "--json", record)  # fmt: skip
    found = json.loads(record.read_text())
    return float(found["results"][0]["curve"][-1]["AL"])


def main() -> int:
    """Print figures and the record."""
    rows, head, work = rows_of(Path(sys.argv[1])), Path(sys.argv[2]).absolute(), Path(sys.argv[3])
    mechanism = sys.argv[4] if len(sys.argv) > 4 else "eagle3"
    work.mkdir(parents=True, exist_ok=True)
    for name, part in (("trained", rows[:TRAINED]), ("asked", rows[-ASKED:])):
        lines = [json.dumps({"prompt": row["question"]}) for row in part]
        (work / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    tuned, tokens, adapted = work / "tuned", work / "tokens.safetensors", work / "adapted"
    if not tuned.exists():
        fine_tune(rows[:TRAINED], tuned)
    if not tokens.exists():
        codraft("train", "data", tuned, "-p", work / "trained.jsonl", "--max-new-tokens", "160", "--batch", "64",
                "--dtype", "float32", "-o", tokens)  # fmt: skip
    start = time.perf_counter()
    words = ["train", mechanism, tuned, "--from", head, "--data", tokens, "-o", adapted, "--dtype", "float32"]
    codraft(*words, "--max-steps", str(ADAPT_STEPS), "--eval-every", "40", "--warmup", "0.1")
    seconds = time.perf_counter() - start
    asked, kept = work / "asked.jsonl", f"{mechanism}:{head}"
    figures = {
        "mechanism": mechanism,
        "AL(4) before": round(AL_of("demo", kept, asked, work / "before.json"), 3),
        "AL(4) after the target has changed": round(AL_of(tuned, kept, asked, work / "after.json"), 3),
        "AL(4) adapted": round(AL_of(tuned, f"{mechanism}:{adapted}", asked, work / "adapted.json"), 3),
        "adaptation_s (this run)": round(seconds, 1),
    }
    ordered = figures["AL(4) after the target has changed"] < figures["AL(4) adapted"]  # type: ignore[operator]
    return finish("adapt", figures, {"adaptation raises AL": bool(ordered)}, "float32")


if __name__ == "__main__":
    sys.exit(main())
