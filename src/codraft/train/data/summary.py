"""Answers in figures: lengths, languages, categories."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from codraft.core.traindata import CategoryTokens, Lengths
from codraft.train.data.rounds import Answer

# Categories of rows without one.
UNNAMED = "none"


def lengths_of(lengths: Sequence[int]) -> Lengths | None:
    """Quantiles that are lengths of the list, None of none."""
    if not lengths:
        return None
    p10, p50, p90 = np.quantile(lengths, [0.1, 0.5, 0.9], method="nearest")
    return Lengths(p10=int(p10), p50=int(p50), p90=int(p90), max=max(lengths))


def categories_of(answers: Sequence[Answer]) -> dict[str, CategoryTokens]:
    """Rows and supervised tokens by category."""
    rows: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    for answer in answers:
        name = answer.category or UNNAMED
        rows[name] += 1
        tokens[name] += len(answer.output_ids)
    return {name: CategoryTokens(rows=rows[name], supervised_tokens=tokens[name]) for name in sorted(rows)}


def answer_lengths(answers: Sequence[Answer]) -> tuple[Lengths, Lengths]:
    """Quantiles of prompts and of answers, of which there is at least one."""
    prompts = lengths_of([len(a.prompt_ids) for a in answers])
    texts = lengths_of([len(a.output_ids) for a in answers])
    assert prompts is not None
    assert texts is not None
    return prompts, texts
