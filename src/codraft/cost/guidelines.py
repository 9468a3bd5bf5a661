"""The five guidelines of the co-design article [NVIDIA26] at one load: is the premise met, what value, and why."""

from collections.abc import Mapping, Sequence

from codraft.core.schema import Candidate, Guideline, TimingPoint
from codraft.models.shape import Shape

# A pass that costs at most this much more than one token is still on the memory-bound plateau.
PLATEAU = 1.25


def guidelines(
    B: int, S: int, by_depth: Mapping[int, TimingPoint], candidates: Sequence[Candidate], shape: Shape | None
) -> list[Guideline]:
    """All five, each with its reason; shares are of bytes read in a plain pass."""
    if shape is None:
        attention, shares = None, "FFN and attention shares are unknown: the config is not that of a dense transformer"
    else:
        ffn, attention = shape.shares(B, S)
        shares = f"bytes read: FFN {ffn:.0%}, attention {attention:.0%}, the rest {1 - ffn - attention:.0%}"
    return [
        compute_bound(by_depth, attention, shares),
        *tile_rules(attention, shape, shares),
        low_latency(B, candidates, shares),
        mechanism(candidates, shares),
    ]


def compute_bound(by_depth: Mapping[int, TimingPoint], attention: float | None, shares: str) -> Guideline:
    """1: draft up to where verification leaves the memory-bound plateau; said of GEMMs, not of attention."""
    plain = by_depth[0].t_verif_s
    flat = 0
    for D, point in sorted(by_depth.items()):
        if point.t_verif_s > PLATEAU * plain:
            break
        flat = D
    top = max(by_depth)
    grown = by_depth[top].t_verif_s / plain
    return Guideline(
        id=1,
        applies=attention is not None and attention < 0.5,
        value=flat,
        reason=f"T_verif at D = {top} is {grown:.2f} times that at D = 0; it stays within {PLATEAU:.2f} times up to "
        f"D = {flat}; {shares}",
    )


def tile_rules(attention: float | None, shape: Shape | None, shares: str) -> list[Guideline]:
    """2 and 3: fill the attention kernel's tile of query rows, G * (1 + D)."""
    if shape is None or attention is None:
        return [Guideline(id=i, applies=False, reason=shares) for i in (2, 3)]
    if shape.tile is None:
        why = f"this device's attention kernel has no query tile; {shares}"
        return [Guideline(id=i, applies=False, reason=why) for i in (2, 3)]
    first = max(0, shape.tile // shape.G - 1)
    why = f"G = {shape.G}, tile {shape.tile} (the article's, not measured here); {shares}"
    return [
        Guideline(id=2, applies=attention >= 0.5, value=first, reason=why),
        Guideline(id=3, applies=attention >= 0.5, value=2 * shape.tile // shape.G - 1, reason=why),
    ]


def low_latency(B: int, candidates: Sequence[Candidate], shares: str) -> Guideline:
    """4: at very low latency raise D only while the gain in AL pays the draft."""
    if not candidates:
        return Guideline(id=4, applies=False, reason=f"no candidate was measured; {shares}")
    name = candidates[0].drafter
    curve = sorted((c for c in candidates if c.drafter == name), key=lambda c: c.D)
    D, last = 0, 1.0
    for point in curve:
        if point.speedup <= last:
            break
        D, last = point.D, point.speedup
    reason = (
        f"raising D of {name} one by one pays up to D = {D} (speed-up {last:.2f})"
        if D
        else f"already D = {curve[0].D} of {name} loses (speed-up {curve[0].speedup:.2f})"
    )
    return Guideline(id=4, applies=B == 1, value=D, reason=f"{reason}; {shares}")


def mechanism(candidates: Sequence[Candidate], shares: str) -> Guideline:
    """5: the mechanism with the best speed-up, which need not have the best AL."""
    if not candidates:
        return Guideline(id=5, applies=False, reason=f"no candidate was measured; {shares}")
    fastest = candidates[0]
    longest = max(candidates, key=lambda c: c.AL)
    return Guideline(
        id=5,
        applies=len({c.drafter for c in candidates}) > 1,
        value=fastest.drafter,
        reason=f"{fastest.drafter} at D = {fastest.D}: AL {fastest.AL:.2f}, speed-up {fastest.speedup:.2f}; "
        f"the longest AL is {longest.drafter}'s {longest.AL:.2f} at D = {longest.D}, speed-up {longest.speedup:.2f}; "
        f"{shares}",
    )
