"""Suffix drafts beside ArcticInference's own package: equal token for token, and what each costs.

Needs the package, which the project does not depend on: `pip install --no-deps arctic-inference==0.1.1`. Streams are
the embedded model's greedy answers to the built-in prompts, or those of a stream file given as argument.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from codraft.core.spec import SuffixSpec
from codraft.drafters.suffix import SuffixDrafter
from codraft.replay.streams import TokenStream
from common import finish, load, spread, streams

DEPTHS = list(range(1, 17))
SETTINGS = [
    SuffixSpec(max_tree_depth=24),
    SuffixSpec(max_tree_depth=64),
    SuffixSpec(max_tree_depth=24, max_spec_factor=2.0, min_token_prob=0.3),
    SuffixSpec(max_tree_depth=24, max_cached_requests=4),
    SuffixSpec(max_tree_depth=24, max_cached_requests=0),
]
REPEATS = 5


def main() -> int:
    """Compare drafts at every anchor, setting and D; then time both."""
    from arctic_inference.suffix_decoding import SuffixDecodingCache

    if len(sys.argv) > 1:
        from codraft.decode.hf.load import load_card
        from codraft.decode.hf.text import TextCodec
        from codraft.replay.streams import load_streams

        card = load_card("demo")
        codec = TextCodec(card.tokenizer)
        chosen = load_streams(Path(sys.argv[1]), codec, card.eos_ids, card.vocab_size, max(DEPTHS), None).measurable
    else:
        model, _, codec = load()
        chosen = streams(model, codec, "demo:16", 106, max(DEPTHS), 8).measurable
    compared = {"drafts": 0, "different": 0}
    for spec in SETTINGS:
        compare(SuffixDecodingCache(spec.max_tree_depth, spec.max_cached_requests), spec, chosen, compared)
    tokens = sum(stream.num_anchors() + 1 for stream in chosen)
    ours, theirs, step = [], [], []
    for _ in range(REPEATS):
        ours.append(our_replay(SETTINGS[0], chosen))
        theirs.append(their_replay(SuffixDecodingCache, SETTINGS[0], chosen))
        step.append(our_step(SETTINGS[0], chosen))
    figures: dict[str, Any] = {
        "streams": len(chosen),
        "tokens": tokens,
        "settings": len(SETTINGS),
        "drafts_compared": compared["drafts"],
        "drafts_different": compared["different"],
        "replay_16_depths_s": spread(ours),
        "arctic_replay_16_depths_s": spread(theirs),
        "speculate_us": spread([s for s, _ in step], 1),
        "update_us": spread([u for _, u in step], 1),
    }
    goals = {
        "drafts equal": compared["different"] == 0,
        "replay of 16 depths within 3 s": float(np.median(ours)) < 3,
        "replay of 16 depths within 0.3 s": float(np.median(ours)) < 0.3,
    }
    return finish("suffix", figures, goals, "none")


def compare(cache: Any, spec: SuffixSpec, chosen: Sequence[TokenStream], compared: dict[str, int]) -> None:
    """Both packages fed token by token; every draft at every D must be the same."""
    drafter = SuffixDrafter(spec)
    for number, stream in enumerate(chosen):
        cache.start_request(number, stream.prompt_ids)
        request = stream.request(len(stream.output_ids))
        output = stream.output_ids
        text = list(stream.prompt_ids)
        for p, token in enumerate(output[:-1]):
            if p == 0:
                drafter.prefill([request], [token], {})
            else:
                drafter.commit([[]], [token], {})
            cache.add_active_response(number, [token])
            text.append(token)
            for D in DEPTHS:
                [mine] = drafter.propose([token], D).tokens
                found = cache.speculate(
                    number,
                    text[-spec.max_tree_depth :],
                    max_spec_tokens=D,
                    max_spec_factor=spec.max_spec_factor,
                    min_token_prob=spec.min_token_prob,
                )
                compared["drafts"] += 1
                compared["different"] += mine != found.token_ids
        drafter.commit([[]], [output[-1]], {})
        cache.add_active_response(number, [output[-1]])
        cache.stop_request(number)


def our_replay(spec: SuffixSpec, chosen: Sequence[TokenStream]) -> float:
    """Seconds to unroll every stream for all D."""
    drafter = SuffixDrafter(spec)
    start = time.perf_counter()
    for stream in chosen:
        drafter.unroll_each(stream.prompt_ids, stream.output_ids, DEPTHS, stream.asked)
    return time.perf_counter() - start


def their_replay(kind: Any, spec: SuffixSpec, chosen: Sequence[TokenStream]) -> float:
    """Seconds to decode every stream once for each D, in the way of the package's simulator."""
    start = time.perf_counter()
    for D in DEPTHS:
        cache = kind(spec.max_tree_depth, spec.max_cached_requests)
        for number, stream in enumerate(chosen):
            output = np.asarray(stream.output_ids[: stream.asked], dtype=np.int32)
            text = np.concatenate([np.asarray(stream.prompt_ids, dtype=np.int32), output])
            first = len(stream.prompt_ids)
            cache.start_request(number, text[:first])
            cache.add_active_response(number, output[:1])
            p = 0
            while p < len(output) - 1:
                end = first + p + 1
                draft = cache.speculate(
                    number, text[max(0, end - spec.max_tree_depth) : end], max_spec_tokens=D
                ).token_ids
                a = 0
                while a < len(draft) and p + 1 + a < len(output) and draft[a] == output[p + 1 + a]:
                    a += 1
                cache.add_active_response(number, output[p + 1 : p + a + 2])
                p += a + 1
            cache.stop_request(number)
    return time.perf_counter() - start


def our_step(spec: SuffixSpec, chosen: Sequence[TokenStream]) -> tuple[float, float]:
    """Microseconds of one proposal at D = 8, and of taking in one token."""
    drafter = SuffixDrafter(spec)
    spent = {"propose": 0.0, "commit": 0.0}
    count = 0
    for stream in chosen:
        drafter.prefill([stream.request(stream.asked)], stream.output_ids[:1], {})
        for token in stream.output_ids[1 : stream.asked]:
            start = time.perf_counter()
            drafter.propose([0], 8)
            proposed = time.perf_counter()
            drafter.commit([[]], [token], {})
            spent["commit"] += time.perf_counter() - proposed
            spent["propose"] += proposed - start
            count += 1
    return spent["propose"] / count * 1e6, spent["commit"] / count * 1e6


if __name__ == "__main__":
    sys.exit(main())
