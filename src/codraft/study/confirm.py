"""The proof: plain decoding and the chosen configuration, one after the other over the same prompts."""

from collections.abc import Sequence

import numpy as np

from codraft.core.schema import Confirmation, Generated
from codraft.core.spec import Sampling
from codraft.core.stats import bootstrap_weights, interval95
from codraft.decode.drafter import Drafter, fresh
from codraft.decode.hf.text import TextCodec
from codraft.decode.target import Target
from codraft.replay.generate import generate_one
from codraft.replay.streams import Progress, TokenStream


def confirm(
    target: Target,
    drafter: Drafter,
    codec: TextCodec,
    streams: Sequence[TokenStream],
    sampling: Sampling,
    *,
    D: int,
    predicted: float,
    progress: Progress | None = None,
) -> Confirmation:
    """Measured speed-up: tokens per second after prefill, drafted over plain, pooled; pairs alternate who goes first.

    The last step counts in full, as it does in AL, also where its tokens pass the limit.

    The first prompt runs once beforehand, untimed. Prompts run in their order and the drafter starts fresh, as in the
    replay that predicts it. Intervals resample prompts.
    """
    first = streams[0].request(8)
    for which in (None, fresh(drafter)):
        generate_one(target, which, codec, first, sampling, D)
    drafter = fresh(drafter)
    pairs: list[tuple[Generated, Generated]] = []
    for i, stream in enumerate(streams):
        request = stream.request(stream.num_anchors() + 1)
        order = (None, drafter) if i % 2 == 0 else (drafter, None)
        outputs = {
            which is None: generate_one(target, which, codec, request, sampling, D if which else 0) for which in order
        }
        pairs.append((outputs[True], outputs[False]))
        if progress:
            progress(i + 1, len(streams))
    plain_s, drafted_s = (np.array([decode_seconds(pair[side]) for pair in pairs]) for side in (0, 1))
    plain_n, drafted_n = (np.array([decoded_tokens(pair[side]) for pair in pairs]) for side in (0, 1))
    measured = (drafted_n.sum() / drafted_s.sum()) / (plain_n.sum() / plain_s.sum())
    interval = None
    if len(pairs) > 1:
        w = bootstrap_weights(len(pairs))
        interval = interval95((w @ drafted_n) / (w @ drafted_s) / ((w @ plain_n) / (w @ plain_s)))
    return Confirmation(
        drafter=drafter.info.name,
        D=D,
        predicted=predicted,
        measured=float(measured),
        measured_ci95=interval,
        signed_error=float(predicted / measured - 1),
        plain_tokens_per_s=float(plain_n.sum() / plain_s.sum()),
        drafted_tokens_per_s=float(drafted_n.sum() / drafted_s.sum()),
        num_pairs=len(pairs),
        identical_outputs=sum(plain.output_ids == drafted.output_ids for plain, drafted in pairs),
        num_outputs=len(pairs),
    )


def decoded_tokens(output: Generated) -> int:
    """Tokens that the steps after prefill committed, those of the last step past the limit included."""
    return output.steps + output.accepted if output.stop_reason == "length" else len(output.output_ids) - 1


def decode_seconds(output: Generated) -> float:
    """Seconds after prefill."""
    return output.seconds - output.prefill_s
