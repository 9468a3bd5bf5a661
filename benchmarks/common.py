"""What the benchmark scripts share: prompts, one JSON record last, medians with spread."""

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from codraft.core.provenance import machine
from codraft.core.spec import Sampling
from codraft.decode.hf.load import Card, engine_versions, load_card, load_model
from codraft.decode.hf.model import HFModel
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import StreamSet, Writing, write_streams

GREEDY = Sampling()


def load(dtype: str = "auto") -> tuple[HFModel, Card, TextCodec]:
    """The embedded model."""
    card = load_card("demo")
    return load_model("demo", dtype), card, TextCodec(card.tokenizer)


def streams(model: HFModel, codec: TextCodec, source: str, tokens: int, tail: int, batch: int) -> StreamSet:
    """First turns of a prompt set, answered greedily by the model."""
    from dataclasses import replace

    conversations = [replace(c, followups=()) for c in load_prompts([source]).conversations]
    how = Writing(sampling=GREEDY, max_new_tokens=tokens, tail=tail, batch=batch, window=model.window)
    return write_streams(model, codec, conversations, how, name=source, progress=show("write streams"))


def show(title: str) -> Callable[[int, int], None]:
    """Progress on stderr."""
    return lambda done, total: print(f"  {title}: {done}/{total}", file=sys.stderr)


def spread(values: list[float], digits: int = 3) -> dict[str, Any]:
    """Median with minimum and maximum."""
    return {
        "median": round(float(np.median(values)), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
        "n": len(values),
    }


def finish(name: str, figures: dict[str, Any], goals: dict[str, bool], dtype: str) -> int:
    """Print the record as the last line; 1 if a goal is missed."""
    record = {
        "benchmark": name,
        "figures": figures,
        "goals_met": goals,
        "dtype": dtype,
        "machine": machine("cpu"),
        "engine": engine_versions(),
    }
    print(json.dumps(record))
    return 0 if all(goals.values()) else 1
