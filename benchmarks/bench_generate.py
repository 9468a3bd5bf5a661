"""`generate` against transformers' own: plain, and n-gram drafting against its prompt lookup. Paired, one model.

Tokens/s count everything after the prompt's ids are known, prefill included, on both sides.
"""

import sys
import time

import torch

from codraft.core.spec import parse_drafter
from codraft.decode.drafter import Request
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.registry import build
from codraft.replay.prompts import load_prompts
from common import GREEDY, REPETITIVE, finish, load, spread

TOKENS = 48
PAIRS = 7
DRAFTED_PAIRS = 5


def ours(model: HFModel, drafter: object, prompts: list[list[int]], D: int) -> tuple[float, list[list[int]]]:
    """Seconds and texts of our loop."""
    start = time.perf_counter()
    texts = [decode(model, drafter, [Request(i, p, TOKENS)], GREEDY, D)[0].text_ids for i, p in enumerate(prompts)]  # type: ignore[arg-type]
    return time.perf_counter() - start, texts


def theirs(model: HFModel, prompts: list[list[int]], lookup: int | None) -> tuple[float, list[list[int]]]:
    """Seconds and texts of transformers' generate."""
    extra = {} if lookup is None else {"prompt_lookup_num_tokens": lookup}
    start = time.perf_counter()
    texts = []
    with torch.inference_mode():
        for p in prompts:
            ids = torch.tensor([p])
            out = model.model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False, **extra
            )
            texts.append(out[0, len(p) :].tolist())
    return time.perf_counter() - start, texts


def main() -> int:
    """Print figures and the record."""
    model, card, codec = load()
    mixed = [codec.prompt_ids(c.opening, c.where) for c in load_prompts(["demo:8"]).conversations]
    repetitive = [codec.prompt_ids([{"role": "user", "content": text}], "repetitive") for text in REPETITIVE]
    drafter = build(parse_drafter("ngram"), card.vocab_size, card.folder, GREEDY, "auto")
    for warm in (lambda: ours(model, None, mixed[:1], 0), lambda: theirs(model, mixed[:1], None)):
        warm()
    figures: dict[str, object] = {}
    goals: dict[str, bool] = {}

    ratios, rates, same = [], [], True
    for i in range(PAIRS):
        order = (0, 1) if i % 2 == 0 else (1, 0)
        results: dict[int, tuple[float, list[list[int]]]] = {}
        for side in order:
            results[side] = ours(model, None, mixed[:3], 0) if side == 0 else theirs(model, mixed[:3], None)
        ratios.append(results[1][0] / results[0][0])
        rates.append(sum(map(len, results[0][1])) / results[0][0])
        same &= results[0][1] == results[1][1]
        print(f"  plain pair {i + 1}: {ratios[-1]:.3f} of transformers' tokens/s", file=sys.stderr)
    figures["plain_over_transformers"] = spread(ratios)
    figures["plain_tokens_per_s"] = spread(rates, 1)
    figures["plain_same_texts"] = same
    goals["plain at least 0.97 of transformers"] = float(figures["plain_over_transformers"]["median"]) >= 0.97  # type: ignore[index]

    for name, prompts, least in (("mixed", mixed, 1.15), ("repetitive", repetitive, 1.5)):
        best, by_depth = compare_depths(model, drafter, prompts)
        gains, lookups = [], []
        for i in range(DRAFTED_PAIRS):
            plain = ours(model, None, prompts, 0)
            drafted = ours(model, drafter, prompts, best)
            lookup = theirs(model, prompts, best)
            gains.append(plain[0] / drafted[0])
            lookups.append(lookup[0] / drafted[0])
            same &= plain[1] == drafted[1]
            print(
                f"  {name} pair {i + 1}: {gains[-1]:.2f} of plain, {lookups[-1]:.2f} of prompt lookup", file=sys.stderr
            )
        figures[name] = {
            "best_D": best,
            "speedup_by_D_one_run": by_depth,
            "ngram_over_plain": spread(gains),
            "ngram_over_prompt_lookup": spread(lookups),
        }
        goals[f"{name}: ngram at least {least} times plain"] = spread(gains)["median"] >= least
        goals[f"{name}: no slower than prompt lookup"] = spread(lookups)["median"] >= 1.0
    figures["same_texts"] = same
    goals["texts identical to plain"] = same
    return finish("generate", figures, goals, model.dtype)


def compare_depths(model: HFModel, drafter: object, prompts: list[list[int]]) -> tuple[int, dict[int, float]]:
    """The fastest D of a few, each run once beside plain decoding."""
    plain, _ = ours(model, None, prompts, 0)
    gains = {D: plain / ours(model, drafter, prompts, D)[0] for D in (3, 5, 7, 9)}
    return max(gains, key=lambda D: gains[D]), {D: round(gain, 2) for D, gain in gains.items()}


if __name__ == "__main__":
    sys.exit(main())
