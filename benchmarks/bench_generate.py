"""`generate` against transformers' own: plain, and n-gram drafting against its prompt lookup. Paired, one model.

Seconds count everything once the prompt's ids are known, prefill included, on all sides. Sides take turns prompt by
prompt, so that a machine that drifts does so for all of them. `bench_generate.py plain mixed repetitive` runs all three
parts; name fewer to run fewer.
"""

import sys
import time
from collections.abc import Callable, Sequence

import torch

from codraft.core.spec import parse_drafter
from codraft.decode.drafter import Drafter, Request
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.beside import Beside
from codraft.drafters.registry import build
from codraft.replay.prompts import load_prompts
from common import GREEDY, finish, load, spread

PLAIN_TOKENS = 48
TOKENS = 96
PAIRS = 7
DRAFTED_PAIRS = 2
# Around the best D that `codraft tune demo` names on the machine of the README; name more to search wider.
DEPTHS = (7,)
LEAST_GAIN = {"mixed": 1.15, "repetitive": 1.5}
Run = Callable[[list[int]], list[int]]
Figures = dict[str, object]
Goals = dict[str, bool]


def ours(model: HFModel, drafter: Drafter | None, D: int, tokens: int = TOKENS) -> Run:
    """Our loop."""
    return lambda prompt: decode(model, drafter, [Request(0, prompt, tokens)], GREEDY, D)[0].text_ids


def theirs(model: HFModel, lookup: int | None, tokens: int = TOKENS) -> Run:
    """transformers' generate, with prompt lookup of that many tokens or without."""
    extra = {} if lookup is None else {"prompt_lookup_num_tokens": lookup}

    def run(prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt])
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            out = model.model.generate(ids, attention_mask=mask, max_new_tokens=tokens, do_sample=False, **extra)
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


def plain_part(model: HFModel, prompts: Sequence[list[int]], figures: Figures, goals: Goals) -> None:
    """Plain decoding against transformers' own."""
    sides = {"ours": ours(model, None, 0, PLAIN_TOKENS), "theirs": theirs(model, None, PLAIN_TOKENS)}
    race(sides, prompts[:1], 0)
    ratios, rates = [], []
    for turn in range(PAIRS):
        seconds, texts = race(sides, prompts, turn)
        ratios.append(seconds["theirs"] / seconds["ours"])
        rates.append(sum(map(len, texts["ours"])) / seconds["ours"])
        print(f"  plain pair {turn + 1}: {ratios[-1]:.3f} of transformers' tokens/s", file=sys.stderr)
    figures["plain_over_transformers"] = spread(ratios)
    figures["plain_tokens_per_s"] = spread(rates, 1)
    goals["plain at least 0.97 of transformers"] = float(spread(ratios)["median"]) >= 0.97


def drafted_part(
    model: HFModel, drafter: Drafter, name: str, prompts: Sequence[list[int]], figures: Figures, goals: Goals
) -> None:
    """n-gram drafting at its best D against plain decoding and prompt lookup."""
    plain = ours(model, None, 0)
    best = DEPTHS[0]
    if len(DEPTHS) > 1:
        scan, _ = race({str(D): ours(model, drafter, D) for D in DEPTHS}, prompts, 0)
        best = min(DEPTHS, key=lambda D: scan[str(D)])
    gains, lookups, same = [], [], True
    for turn in range(DRAFTED_PAIRS):
        sides = {"plain": plain, "ngram": ours(model, drafter, best), "lookup": theirs(model, best)}
        seconds, texts = race(sides, prompts, turn)
        gains.append(seconds["plain"] / seconds["ngram"])
        lookups.append(seconds["lookup"] / seconds["ngram"])
        same &= texts["plain"] == texts["ngram"]
        print(f"  {name} {turn + 1}: {gains[-1]:.2f} of plain, {lookups[-1]:.2f} of prompt lookup", file=sys.stderr)
    figures[name] = {
        "best_D": best,
        "ngram_over_plain": spread(gains),
        "ngram_over_prompt_lookup_same_D": spread(lookups),
        "texts_identical_to_plain": same,
    }
    goals[f"{name}: ngram at least {LEAST_GAIN[name]} times plain"] = spread(gains)["median"] >= LEAST_GAIN[name]
    goals[f"{name}: no slower than prompt lookup"] = spread(lookups)["median"] >= 1.0
    goals[f"{name}: texts identical to plain"] = same


def main() -> int:
    """Print figures and the record."""
    parts = sys.argv[1:] or ["plain", *LEAST_GAIN]
    model, card, codec = load()
    everything = load_prompts(["demo"]).conversations
    # One prompt of each category.
    mixed = [codec.prompt_ids(c.opening, c.where) for c in everything if c.id.endswith("-1")]
    # Edits of given code: the answer repeats the prompt. (Plain "repeat this" prompts do not: this model stops early.)
    edits = [c for c in everything if c.category == "code_edit"][:4]
    repetitive = [codec.prompt_ids(c.opening, c.where) for c in edits]
    drafter = build(parse_drafter("ngram"), Beside.of(card, GREEDY, "auto", lambda: model))
    figures: Figures = {}
    goals: Goals = {}
    if "plain" in parts:
        plain_part(model, mixed[:2], figures, goals)
    for name, prompts in (("mixed", mixed), ("repetitive", repetitive)):
        if name in parts:
            drafted_part(model, drafter, name, prompts, figures, goals)
    return finish("generate", figures, goals, model.dtype)


if __name__ == "__main__":
    sys.exit(main())
