"""How much of each row is learnt from: what fits, and of an answer that goes round in circles the first two rounds.

A small target that writes greedily often ends in a loop until its limit. Any drafter, the cheapest ones first, drafts
loops; to learn from them teaches little and costs as much as text.
"""

import numpy as np
from numpy.typing import NDArray

from codraft.train.tokens import TokenFile

# A loop is at least three rounds, and so many tokens; longer rounds than these are taken for text.
ROUNDS, FEWEST, LONGEST_ROUND = 3, 12, 64


def kept_lengths(data: TokenFile, max_length: int, *, loops: bool) -> NDArray[np.int64]:
    """[N] tokens of each row that are looked at: at most `max_length`, and none behind the second round of a loop
    unless `loops`."""
    kept = np.minimum(data.lengths, max_length)
    if loops:
        return kept
    for index in range(len(data)):
        row = data.row(index)
        spans = row.spans()
        if spans and spans[-1][1] == len(row.ids):
            first, last = spans[-1]
            kept[index] = min(int(kept[index]), first + before_loop(row.ids[first:last]))
    return kept


def before_loop(ids: NDArray[np.int64]) -> int:
    """How many tokens there are up to the third round of a loop that goes on to the end; all where there is none."""
    n = best = len(ids)
    for period in range(1, min(LONGEST_ROUND, n // ROUNDS) + 1):
        if ids[-1] != ids[-1 - period]:
            continue
        broken = np.flatnonzero(ids[period:] != ids[:-period])
        begin = int(broken[-1]) + 1 if len(broken) else 0
        if n - begin >= max(ROUNDS * period, FEWEST):
            best = min(best, begin + (ROUNDS - 1) * period)
    return best
