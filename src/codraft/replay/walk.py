"""The walk: from what every anchor's draft would have matched, to the steps decoding would have taken.

For a lossless method the text is the target's own whatever the drafter, so one stream answers for every drafter and
every D. A draft matters only while all before it matched; from anchor p with a matches the next anchor is p + a + 1.
"""

import numpy as np
from numpy.typing import NDArray

from codraft.core.acceptance import StepLog
from codraft.decode.drafter import Unrolled


def runs(unrolled: Unrolled) -> NDArray[np.int64]:
    """[A] leading drafts that equal the stream, from every anchor (one-hot drafts)."""
    D = unrolled.hit_AD.shape[1]
    hits_AD = unrolled.hit_AD.astype(bool) & (np.arange(D) < unrolled.drafted_A[:, None])
    length_A: NDArray[np.int64] = np.logical_and.accumulate(hits_AD, axis=1).sum(axis=1)
    return length_A


def walk(drafted_A: NDArray[np.int64], run_A: NDArray[np.int64], D: int, num_anchors: int, end: int | None) -> StepLog:
    """Steps of decoding at D along a stream: anchors 0..num_anchors - 1; `end` is the position of an EOS, if any.

    A run that reaches `end` accepts the EOS and ends the stream without a bonus; drafts behind it do not count.
    """
    drafted, run = drafted_A.tolist(), run_A.tolist()
    steps: list[tuple[int, int, int, bool]] = []
    p = 0
    while p < num_anchors:
        k, a = min(D, drafted[p]), min(D, run[p])
        if end is not None and p + a >= end:
            steps.append((p, end - p, end - p, True))
            break
        steps.append((p, k, a, False))
        p += a + 1
    return StepLog.of(steps)


def expect(
    drafted_A: NDArray[np.int64], accept_AD: NDArray[np.float64], D: int, num_anchors: int, end: int | None
) -> StepLog:
    """Expected steps when drafts are drawn: `accept_AD[p, i]` is P(draft i+1 from p accepted | the stream's token).

    Forward recursion over anchors: visit[p] is the chance that decoding stops at p; every outcome of a step there is
    one weighted entry. Under rejection sampling the event is min(1, p_draft(y) / p_target(y)), independent along the
    chain once the emitted text is given, so nothing is drawn and acceptance adds no variance.
    """
    visit = np.zeros(len(drafted_A) + D + 2)
    visit[0] = 1.0
    rows: list[tuple[int, int, int, bool]] = []
    weights: list[float] = []
    for p in range(num_anchors):
        if visit[p] == 0:
            continue
        k = min(D, int(drafted_A[p]))
        reach = float(visit[p])
        for a in range(k + 1):
            if end is not None and p + a >= end:
                rows.append((p, a, a, True))
                weights.append(reach)
                break
            go_on = float(accept_AD[p, a]) if a < k else 0.0
            stop_here = reach * (1 - go_on)
            if stop_here > 0:
                rows.append((p, k, a, False))
                weights.append(stop_here)
                visit[p + a + 1] += stop_here
            reach *= go_on
            if reach == 0:
                break
    log = StepLog.of(rows)
    return StepLog(
        anchor_N=log.anchor_N,
        drafted_N=log.drafted_N,
        accepted_N=log.accepted_N,
        cut_N=log.cut_N,
        weight_N=np.array(weights, dtype=np.float64),
    )
