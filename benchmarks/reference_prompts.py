"""Prompts of which drafters learn to copy: the target's own earlier answers, and a request to say them again.

    python benchmarks/reference_prompts.py TOKENS.safetensors PROMPTS.jsonl [SHORT] [LONG]
    codraft train data demo -p PROMPTS.jsonl --writer vllm --vllm-python .venv-vllm/bin/python -o MORE.safetensors

SHORT prompts (default 1,200) hold one answer and ask to repeat, correct, quote, shorten or rewrite it; LONG ones
(default 600) hold several, up to 900 tokens, and ask about them. No text of anybody else is in it.
"""

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from codraft.decode.hf.load import load_card
from codraft.train.tokens import TokenFile

FEWEST, MOST = 60, 330
LONG_TOKENS = (450, 900)
SHORT_REQUESTS = (
    "Repeat this text word for word:\n\n{}",
    "Copy the following text exactly:\n\n{}",
    "Correct the spelling and grammar of this text, and change nothing else:\n\n{}",
    "Proofread this and write out the corrected version:\n\n{}",
    "{}\n\nWrite the text above again.",
    "Here is a text. Quote its most important sentences.\n\n{}",
    "Rewrite this text with the same words, as a list:\n\n{}",
    "{}\n\nSummarise the text above.",
    "Rewrite this for a website:\n\n{}",
    "Edit this so that it is a little shorter:\n\n{}",
)
LONG_REQUESTS = (
    "Summarise this:\n\n{}",
    "{}\n\nSummarise the above in a few sentences.",
    "Here are some texts.\n\n{}\n\nWrite out the first of them again.",
    "Here are some texts.\n\n{}\n\nQuote one sentence from each.",
    "Answer from these texts alone, and quote them: what are they about?\n\n{}",
    "Read these notes and list what they say, in their own words.\n\n{}",
    "{}\n\nWhat does the last text say? Answer with its own sentences.",
    "Translate into plain English, and keep names and numbers as they are:\n\n{}",
)


def answers(data: TokenFile, chance: random.Random) -> Iterator[tuple[str, int]]:
    """Texts that the target wrote and their tokens, in an order of chance, none twice."""
    tokenizer, begun = load_card("demo").tokenizer, set()
    order = list(range(len(data)))
    chance.shuffle(order)
    for index in order:
        row = data.row(index)
        spans = row.spans()
        if not spans or not FEWEST <= spans[-1][1] - spans[-1][0] <= MOST:
            continue
        text = tokenizer.decode(row.ids[slice(*spans[-1])].tolist(), skip_special_tokens=True).strip()
        if text[:80] not in begun:
            begun.add(text[:80])
            yield text, spans[-1][1] - spans[-1][0]


def joined(texts: Iterator[tuple[str, int]], chance: random.Random) -> str:
    """Several answers, one under the other."""
    parts, held, wanted = [], 0, chance.uniform(*LONG_TOKENS)
    for text, tokens in texts:
        parts.append(text)
        held += tokens
        if held >= wanted:
            break
    return "\n\n".join(parts)


def main() -> None:
    """Write the prompts."""
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    short, long = (int(word) for word in (*sys.argv[3:5], *("1200", "600")[len(sys.argv[3:5]) :]))
    chance, data = random.Random(0), TokenFile(source)
    texts = answers(data, chance)
    asked = [chance.choice(SHORT_REQUESTS).format(next(texts)[0]) for _ in range(short)]
    texts = answers(data, chance)
    asked += [chance.choice(LONG_REQUESTS).format(joined(texts, chance)) for _ in range(long)]
    output.write_text("".join(json.dumps({"prompt": text, "category": "copy"}) + "\n" for text in asked))
    print(f"{output}: {len(asked)} prompts")


if __name__ == "__main__":
    main()
