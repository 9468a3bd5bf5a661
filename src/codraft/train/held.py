"""Rows that are held out to measure AL on, and rows that are left to learn from.

By prompt, not by row: a token file may hold several answers to one prompt and several turns of one conversation, and a
drafter that has learnt one of them knows more of the others than it would of new text.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from codraft.core.errors import SpecError
from codraft.core.stats import evenly
from codraft.replay.streams import TokenStream
from codraft.train.tokens import TokenFile

# Share of the prompts that is held out, and how many at least and at most.
SHARE, FEWEST, MOST = 0.02, 8, 96


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that nothing learns from, and of each prompt among them one answer as a stream: the file's first, which is
    the greedy one where there are several."""

    rows: list[int]
    streams: list[TokenStream]


def hold_out(
    data: TokenFile, count: int | None, eos_ids: frozenset[int], depth: int, kept: NDArray[np.int64]
) -> HeldOut:
    """`count` prompts (None: 2 %, 8 to 96), spread evenly over the file; `kept` [N] is how much of each row counts."""
    if not data.num_supervised:
        raise SpecError(
            f"{data.path}: no row holds a token that the target wrote, so there is nothing to learn from; look at it "
            "with: codraft train show"
        )
    prompts = [prompt_of(data, row) for row in range(len(data))]
    firsts = list(dict(zip(reversed(prompts), reversed(range(len(data))), strict=True)).values())[::-1]
    total = len(firsts)
    asked = min(MOST, max(FEWEST, round(SHARE * total))) if count is None else count
    if asked < 1 or asked >= total:
        raise SpecError(f"--held-out must leave prompts to learn from: from 1 to {total - 1} of {total}; got {asked}")
    chosen = evenly(firsts, asked)
    streams = [stream_of(data, row, eos_ids, depth, int(kept[row])) for row in chosen]
    usable = [stream for stream in streams if stream is not None and stream.num_anchors() > 0]
    if not usable:
        raise SpecError(f"none of the {asked} prompts held out holds a step to measure; raise --held-out")
    return HeldOut(list(related(data, prompts, chosen)), usable)


def prompt_of(data: TokenFile, row: int) -> bytes:
    """What stands before the first token that the target wrote; ids as bytes."""
    found = data.row(row)
    first = int(found.mask.argmax()) if found.mask.any() else len(found.ids)
    return found.ids[:first].tobytes()


def related(data: TokenFile, prompts: list[bytes], chosen: list[int]) -> Iterator[int]:
    """Rows whose conversation begins as one of the chosen rows does, or is the beginning of one."""
    held = {prompts[row] for row in chosen}
    sizes = {len(prompt) for prompt in prompts}
    begun = {whole[:size] for row in chosen for whole in (data.row(row).ids.tobytes(),) for size in sizes}
    lengths = {len(prompt) for prompt in held}
    for row, prompt in enumerate(prompts):
        whole = data.row(row).ids.tobytes()
        if prompt in begun or any(whole[:length] in held for length in lengths):
            yield row


def stream_of(data: TokenFile, row: int, eos_ids: frozenset[int], depth: int, kept: int) -> TokenStream | None:
    """The last answer in the first `kept` tokens of a row. Of one that does not end by itself the last `depth` tokens
    are tail."""
    found = data.row(row)
    spans = [(first, min(last, kept)) for first, last in found.spans() if first < kept]
    if not spans:
        return None
    first, last = spans[-1]
    output = found.ids[first:last].tolist()
    asked = len(output) if output[-1] in eos_ids else len(output) - depth
    return TokenStream(
        index=row,
        conversation=str(row),
        turn=0,
        category=found.category,
        prompt_ids=found.ids[:first].tolist(),
        output_ids=output,
        asked=asked,
    )


def learning_rows(data: TokenFile, held: HeldOut, kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows that hold an anchor within what is `kept` of them, two tokens side by side that the target wrote; without
    those held out."""
    aside = set(held.rows)
    usable = []
    for row in range(len(data)):
        mask = data.row(row).mask[: kept[row]]
        if row not in aside and bool((mask[1:] & mask[:-1]).any()):
            usable.append(row)
    if not usable:
        raise SpecError(
            f"{data.path}: nothing is left to learn from beside {len(held.streams)} prompts held out; lower "
            "--held-out, or write more answers"
        )
    return np.array(usable, dtype=np.int64)
