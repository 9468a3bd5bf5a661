"""Throughput against interactivity: AL / T_step for one user, B AL / T_step for the machine."""

from collections.abc import Sequence
from dataclasses import replace

from codraft.core.schema import DecisionPoint, FrontierPoint


def frontier(decisions: Sequence[DecisionPoint]) -> list[FrontierPoint]:
    """Every way to run at every load, with the undominated ones marked, among all and among plain decoding alone."""
    points = [point for decision in decisions for point in ways(decision)]
    best = undominated(points)
    plain = undominated([point for point in points if point.drafter is None])
    return [replace(point, frontier=id(point) in best, plain_frontier=id(point) in plain) for point in points]


def ways(decision: DecisionPoint) -> list[FrontierPoint]:
    """Plain decoding and every candidate at one load."""
    B, S = decision.B, decision.S
    options: list[tuple[str | None, int, float, float]] = [(None, 0, 1.0, decision.plain["t_step_s"])]
    options += [(c.drafter, c.D, c.AL, c.t_step_s) for c in decision.candidates]
    return [
        FrontierPoint(
            B=B,
            S=S,
            drafter=drafter,
            D=D,
            AL=AL,
            tokens_per_s_user=AL / t_step_s,
            tokens_per_s=B * AL / t_step_s,
            frontier=False,
            plain_frontier=False,
        )
        for drafter, D, AL, t_step_s in options
    ]


def undominated(points: Sequence[FrontierPoint]) -> set[int]:
    """Identities of the points that no other beats in one respect and equals in the other, at the same context."""
    kept: set[int] = set()
    for S in {point.S for point in points}:
        last, most = (0.0, 0.0), float("-inf")
        here = [point for point in points if S == point.S]
        for point in sorted(here, key=lambda p: (-p.tokens_per_s_user, -p.tokens_per_s)):
            speeds = (point.tokens_per_s_user, point.tokens_per_s)
            if point.tokens_per_s > most or speeds == last:
                kept.add(id(point))
                last, most = speeds, point.tokens_per_s
    return kept
