"""Replay against the live loop, per token and D, and against its floor.

Streams: 16 prompts x 128 tokens, D = 1..8. Live: 8 prompts x 64 tokens, D = 1, 2, 4, 8, one stream at a time, as
replay goes. Writing the streams is timed at the default batch of `codraft accept` (8) and at the live loop's (1). At
equal batch the gain with writing cannot exceed 8 x (live time / plain time) per token: one stream serves 8 depths.
"""

import sys
import time
from dataclasses import replace

import numpy as np

from codraft.core.spec import parse_drafter
from codraft.drafters.beside import Beside
from codraft.drafters.external import ExternalDrafter
from codraft.drafters.registry import build
from codraft.replay.measure import curve, live, replay
from common import GREEDY, finish, load, show, streams

DEPTHS = range(1, 9)
LIVE_DEPTHS = [1, 2, 4, 8]
TOKENS, LIVE_TOKENS, LIVE_PROMPTS = 128, 64, 8


def forward_alone(drafter: ExternalDrafter, prompts: list[tuple[list[int], list[int]]]) -> float:
    """Seconds of one plain pass of the drafter model over the same tokens, logits where replay asks for them."""
    start = time.perf_counter()
    for prompt_ids, output_ids in prompts:
        inputs = [*prompt_ids, *output_ids[:-1]]
        drafter.model.forward([inputs], drafter.model.new_cache(1, len(inputs)), num_logits=len(output_ids) - 1)
    return time.perf_counter() - start


def main() -> int:
    """Print figures and the record."""
    model, card, codec = load()
    written = {}
    for batch in (8, 1):
        start = time.perf_counter()
        stream_set = streams(model, codec, "demo:16", TOKENS, max(DEPTHS), batch)
        written[batch] = time.perf_counter() - start
    chosen = stream_set.streams
    positions = sum(len(s.output_ids) - 1 for s in chosen)
    per_token_D = stream_set.num_tokens * len(DEPTHS)
    figures: dict[str, object] = {
        "stream_tokens": stream_set.num_tokens,
        "write_s": {f"batch {batch}": round(seconds, 2) for batch, seconds in written.items()},
    }
    goals: dict[str, bool] = {}
    for text in ("ngram", "external:demo-noisy"):
        drafter = build(parse_drafter(text), Beside.of(card, GREEDY, "auto", lambda: model))
        name = drafter.info.name
        replay(None, drafter, chosen[:1], GREEDY, card.eos_ids, DEPTHS)
        seconds, floors = [], []
        for _ in range(5 if name == "ngram" else 3):
            start = time.perf_counter()
            logs = replay(None, drafter, chosen, GREEDY, card.eos_ids, DEPTHS)
            seconds.append(time.perf_counter() - start)
            if isinstance(drafter, ExternalDrafter):
                floors.append(forward_alone(drafter, [(s.prompt_ids, s.output_ids) for s in chosen]))
        replay_s = float(np.median(seconds))
        some = chosen[:: len(chosen) // LIVE_PROMPTS][:LIVE_PROMPTS]
        short = [replace(s, asked=min(s.asked, LIVE_TOKENS)) for s in some]
        start = time.perf_counter()
        live_logs = live(model, drafter, short, GREEDY, LIVE_DEPTHS, 1, show(f"live {name}"))
        live_s = time.perf_counter() - start
        again = replay(None, drafter, short, GREEDY, card.eos_ids, LIVE_DEPTHS)
        equal = all(
            np.array_equal(a.accepted_N, b.accepted_N) and np.array_equal(a.drafted_N, b.drafted_N)
            for D in LIVE_DEPTHS
            for a, b in zip(live_logs.by_depth[D], again.by_depth[D], strict=True)
        )
        live_unit = live_s / (sum(s.num_anchors() + 1 for s in short) * len(LIVE_DEPTHS))
        given = live_unit / (replay_s / per_token_D)
        writing = live_unit / ((replay_s + written[8]) / per_token_D)
        figures[name] = {
            "replay_s": round(replay_s, 3),
            "replay_us_per_token_and_D": round(replay_s / per_token_D * 1e6, 2),
            "live_ms_per_token_and_D": round(live_unit * 1e3, 2),
            "times_faster_streams_given": round(given, 1),
            "times_faster_with_writing_as_accept_does": round(writing, 1),
            "times_faster_with_writing_at_batch_1": round(live_unit / ((replay_s + written[1]) / per_token_D), 1),
            "steps_equal_live": equal,
            "us_per_position": round(replay_s / positions * 1e6, 1),
            "AL": {point.D: round(point.AL, 3) for point in curve(logs, chosen)},
        }
        goals[f"{name}: 100 times with streams given"] = given >= 100
        goals[f"{name}: 15 times with writing them as accept does"] = writing >= 15
        goals[f"{name}: replay = live"] = equal
        if floors:
            ratio = replay_s / float(np.median(floors))
            figures[name]["over_one_forward"] = round(ratio, 3)  # type: ignore[index]
            goals[f"{name}: within 1.3 of one forward"] = ratio <= 1.3
        else:
            goals[f"{name}: under 50 us per position"] = replay_s / positions < 50e-6
    return finish("replay", figures, goals, model.dtype)


if __name__ == "__main__":
    sys.exit(main())
