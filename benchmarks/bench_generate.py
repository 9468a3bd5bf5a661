"""`generate` against transformers' own: plain, and n-gram drafting against its prompt lookup. Paired, one model.

Seconds count everything once the prompt's ids are known, prefill included, on all sides. Sides take turns prompt by
prompt, so that a machine that drifts does so for all of them.
"""

import sys
import time
from collections.abc import Callable, Sequence

import torch

from codraft.core.spec import parse_drafter
from codraft.decode.drafter import Drafter, Request
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.registry import build
from codraft.replay.prompts import load_prompts
from common import GREEDY, REPETITIVE, finish, load, spread

TOKENS = 48
PAIRS = 7
DRAFTED_PAIRS = 3
DEPTHS = (4, 7)
Run = Callable[[list[int]], list[int]]


def ours(model: HFModel, drafter: Drafter | None, D: int) -> Run:
    """Our loop."""
    return lambda prompt: decode(model, drafter, [Request(0, prompt, TOKENS)], GREEDY, D)[0].text_ids


def theirs(model: HFModel, lookup: int | None) -> Run:
    """transformers' generate, with prompt lookup of that many tokens or without."""
    extra = {} if lookup is None else {"prompt_lookup_num_tokens": lookup}

    def run(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            out = model.model.generate(ids, attention_mask=mask, max_new_tokens=TOKENS, do_sample=False, **extra)
        return out[0, len(prompt) :].tolist()  # type: ignore[no-any-return]

    return run


def race(runs: dict[str, Run], prompts: Sequence[list[int]], turn: int) -> tuple[dict[str, float], dict[str, list]]:  # type: ignore[type-arg]
    """Seconds and texts of each side over all prompts; who goes first rotates."""
    seconds = dict.fromkeys(runs, 0.0)
    texts: dict[str, list[list[int]]] = {name: [] for name in runs}
    names = list(runs)
    for k, prompt in enumerate(prompts):
        shift = (turn + k) % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.perf_counter()
            texts[name].append(runs[name](prompt))
            seconds[name] += time.perf_counter() - start
    return seconds, texts


def main() -> int:
    """Print figures and the record."""
    model, card, codec = load()
    mixed = [codec.prompt_ids(c.opening, c.where) for c in load_prompts(["demo:6"]).conversations]
    repetitive = [codec.prompt_ids([{"role": "user", "content": text}], "repetitive") for text in REPETITIVE]
    drafter = build(parse_drafter("ngram"), card.vocab_size, card.folder, GREEDY, "auto")
    plain = ours(model, None, 0)
    figures: dict[str, object] = {}
    goals: dict[str, bool] = {}
    same = True

    race({"ours": plain, "theirs": theirs(model, None)}, mixed[:1], 0)
    ratios, rates = [], []
    for turn in range(PAIRS):
        seconds, texts = race({"ours": plain, "theirs": theirs(model, None)}, mixed[:3], turn)
        ratios.append(seconds["theirs"] / seconds["ours"])
        rates.append(sum(map(len, texts["ours"])) / seconds["ours"])
        same &= texts["ours"] == texts["theirs"]
        print(f"  plain pair {turn + 1}: {ratios[-1]:.3f} of transformers' tokens/s", file=sys.stderr)
    figures["plain_over_transformers"] = spread(ratios)
    figures["plain_tokens_per_s"] = spread(rates, 1)
    goals["plain at least 0.97 of transformers"] = float(spread(ratios)["median"]) >= 0.97

    for name, prompts, least in (("mixed", mixed, 1.15), ("repetitive", repetitive, 1.5)):
        scan, _ = race({"plain": plain, **{str(D): ours(model, drafter, D) for D in DEPTHS}}, prompts, 0)
        best = min(DEPTHS, key=lambda D: scan[str(D)])
        gains, lookups = [], []
        for turn in range(DRAFTED_PAIRS):
            sides = {"plain": plain, "ngram": ours(model, drafter, best), "lookup": theirs(model, best)}
            seconds, texts = race(sides, prompts, turn)
            gains.append(seconds["plain"] / seconds["ngram"])
            lookups.append(seconds["lookup"] / seconds["ngram"])
            same &= texts["plain"] == texts["ngram"]
            print(f"  {name} {turn + 1}: {gains[-1]:.2f} of plain, {lookups[-1]:.2f} of prompt lookup", file=sys.stderr)
        figures[name] = {
            "best_D": best,
            "speedup_by_D_one_run": {D: round(scan["plain"] / scan[str(D)], 2) for D in DEPTHS},
            "ngram_over_plain": spread(gains),
            "ngram_over_prompt_lookup_same_D": spread(lookups),
        }
        goals[f"{name}: ngram at least {least} times plain"] = spread(gains)["median"] >= least
        goals[f"{name}: no slower than prompt lookup"] = spread(lookups)["median"] >= 1.0
    figures["texts_identical_to_plain"] = same
    goals["texts identical to plain"] = same
    return finish("generate", figures, goals, model.dtype)


if __name__ == "__main__":
    sys.exit(main())
