"""The five guidelines of the co-design article [NVIDIA26] at one load.

Each states its premise, whether it holds here, the value it gives, the exact optimum from the same measurements, and
the share of speed lost by following it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codraft.core.constants import LEAST_GAIN
from codraft.core.schema import Candidate, Guideline, TimingPoint
from codraft.models.shape import Shape

# Our own: a pass that costs at most this much more than one token is still on the memory-bound plateau.
PLATEAU = 1.25
# Our own: a kind of work "dominates" a plain pass from this share on.
DOMINANT = 0.5


@dataclass(frozen=True, slots=True)
class Load:
    """What the guidelines look at: passes by D, candidates, and the best speed-up at every D."""

    B: int
    S: int
    by_depth: Mapping[int, TimingPoint]
    candidates: Sequence[Candidate]
    shape: Shape | None

    def speeds(self, drafter: str | None = None) -> dict[int, float]:
        """Speed-up by D, of one drafter or of the best at each D; 1 at D = 0."""
        best = {0: 1.0}
        for c in self.candidates:
            if drafter in (None, c.drafter):
                best[c.D] = max(best.get(c.D, 0.0), c.speedup)
        return best

    def attention(self) -> float | None:
        """Share of attention in a plain pass: of its time where that was measured, else of the bytes it reads."""
        measured = self.by_depth[0].shares
        if measured is not None:
            return measured["attention"]
        return None if self.shape is None else self.shape.shares(self.B, self.S)[1]

    def linear(self) -> float | None:
        """Share of all linear layers, the head included, likewise."""
        measured = self.by_depth[0].shares
        if measured is not None:
            return measured["ffn"] + measured["projections"] + measured.get("head", 0.0)
        attention = self.attention()
        return None if attention is None else 1 - attention

    def words(self) -> str:
        """FFN and attention shares in words."""
        measured = self.by_depth[0].shares
        if measured is not None:
            return (
                f"time of a plain pass: FFN {measured['ffn']:.0%}, attention's linear layers "
                f"{measured['projections']:.0%}, the rest of attention {measured['attention']:.0%}, "
                f"head {measured.get('head', 0.0):.0%}, other {measured['other']:.0%}"
            )
        if self.shape is None:
            return "FFN and attention shares are unknown: neither measured nor those of a dense transformer"
        ffn, attention = self.shape.shares(self.B, self.S)
        return f"bytes read: FFN {ffn:.0%}, attention {attention:.0%}, the rest {1 - ffn - attention:.0%}"


def guidelines(
    B: int, S: int, by_depth: Mapping[int, TimingPoint], candidates: Sequence[Candidate], shape: Shape | None
) -> list[Guideline]:
    """All five, each with its reason."""
    load = Load(B, S, by_depth, candidates, shape)
    rules = [compute_bound(load), *tile_rules(load), low_latency(load), mechanism(load)]
    return [replace(rule, reason=f"{rule.reason}; {load.words()}") for rule in rules]


def judged(load: Load, rule: Guideline, drafter: str | None = None) -> Guideline:
    """A rule that names a D beside the exact optimum; no loss where that D was not measured."""
    speeds = load.speeds(drafter)
    optimum = max(speeds, key=lambda D: (speeds[D], -D))
    if speeds[optimum] < LEAST_GAIN:
        optimum = 0
    value = rule.value
    if not isinstance(value, int):
        return replace(rule, optimum=optimum)
    if value not in speeds:
        return replace(rule, optimum=optimum, reason=f"{rule.reason}; D = {value} was not timed")
    return replace(rule, optimum=optimum, loss=max(0.0, 1 - speeds[value] / speeds[optimum]))


def compute_bound(load: Load) -> Guideline:
    """1: draft up to where verification leaves the memory-bound plateau; said of GEMMs, not of attention."""
    plain = load.by_depth[0].t_verif_s
    flat = 0
    for D, point in sorted(load.by_depth.items()):
        if point.t_verif_s > PLATEAU * plain:
            break
        flat = D
    top = max(load.by_depth)
    grown = load.by_depth[top].t_verif_s / plain
    linear = load.linear()
    return judged(
        load,
        Guideline(
            id=1,
            premise="linear layers take most of a pass",
            applies=linear is not None and linear >= DOMINANT,
            value=flat,
            reason=f"T_verif at D = {top} is {grown:.2f} times that at D = 0; it stays within {PLATEAU:.2f} times up "
            f"to D = {flat}",
        ),
    )


def tile_rules(load: Load) -> list[Guideline]:
    """2 and 3: fill the attention kernel's tile of query rows, G (1 + D)."""
    shape, attention = load.shape, load.attention()
    two = Guideline(
        id=2,
        premise="attention takes most of a pass, and its kernel works in tiles of query rows",
        applies=False,
        reason="",
    )
    three = replace(two, id=3, premise=f"{two.premise}, and more than one tile pays")
    if shape is None or not shape.tile:
        why = why_no_tile(shape)
        return [judged(load, replace(rule, reason=why)) for rule in (two, three)]
    first = max(0, shape.tile // shape.G - 1)
    second = max(0, 2 * shape.tile // shape.G - 1)
    dominant = attention is not None and attention >= DOMINANT
    why = f"G = {shape.G}, tile {shape.tile} (the article's, not measured here)"
    two = judged(load, replace(two, applies=dominant, value=first, reason=why))
    more_pays = isinstance(two.optimum, int) and two.optimum > first
    return [two, judged(load, replace(three, applies=dominant and more_pays, value=second, reason=why))]


def why_no_tile(shape: Shape | None) -> str:
    """What keeps the tile rules from giving a D."""
    if shape is None:
        return "the target's heads are unknown"
    if shape.tile is None:
        return "the attention kernel's tile is unknown"
    return "this device's attention kernel has no query tile"


def low_latency(load: Load) -> Guideline:
    """4: at very low latency raise D only while the gain in AL pays the draft."""
    rule = Guideline(id=4, premise="very low latency: one sequence at a time", applies=load.B == 1, reason="")
    if not load.candidates:
        return replace(rule, applies=False, reason="no candidate was measured")
    name = load.candidates[0].drafter
    curve = sorted((c for c in load.candidates if c.drafter == name), key=lambda c: c.D)
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
    return judged(load, replace(rule, value=D, reason=reason), drafter=name)


def mechanism(load: Load) -> Guideline:
    """5: balance AL against draft overhead; at its simplest the best AL / (1 + O_d), O_d = T_draft / T_verif(0).

    That form leaves out what wider passes cost, so it can lose against the measured speed-up [NVIDIA26].
    """
    names = {c.drafter for c in load.candidates}
    rule = Guideline(
        id=5, premise="more than one mechanism was measured", applies=len(names) > 1, reason="no candidate was measured"
    )
    if not load.candidates:
        return rule
    plain = load.by_depth[0].t_verif_s
    choice = max(load.candidates, key=lambda c: c.AL / (1 + (c.t_draft_s or 0.0) / plain))
    fastest = load.candidates[0]
    kept = max(load.speeds(choice.drafter).values())
    return replace(
        rule,
        value=choice.drafter,
        optimum=fastest.drafter if fastest.speedup >= LEAST_GAIN else "off",
        loss=1 - kept / max(1.0, fastest.speedup),
        reason=f"by AL / (1 + O_d) it is {choice.drafter} at D = {choice.D} (AL {choice.AL:.2f}), speed-up "
        f"{choice.speedup:.2f}; by measured speed-up {fastest.drafter} at D = {fastest.D} (AL {fastest.AL:.2f}), "
        f"{fastest.speedup:.2f}",
    )
