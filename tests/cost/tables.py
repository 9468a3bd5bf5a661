"""Made-up AL curves and step times for properties of the decision."""

from hypothesis import strategies as st

from codraft.core.schema import TimingPoint
from codraft.cost.curves import CurveAt, DrafterCurve, full_drafts

from tests.build import timing

DRAFTERS = ("a", "b", "c")


def curve(name: str, *ALs: float) -> DrafterCurve:
    """AL at D = 1, 2, ... of a drafter that always drafts D tokens."""
    points = [CurveAt(D=D, AL=AL, lengths=full_drafts(D)) for D, AL in enumerate(ALs, start=1)]
    return DrafterCurve(name=name, points=points)


@st.composite
def growing(draw: st.DrawFn, name: str = "a", *, least: float = 0.0, deepest: int = 6) -> DrafterCurve:
    """AL grows by more than `least` and at most 1 with every D."""
    gains = draw(st.lists(st.floats(least, 1, exclude_min=least > 0), min_size=1, max_size=deepest))
    return curve(name, *(1 + sum(gains[: i + 1]) for i in range(len(gains))))


@st.composite
def ragged_curve(draw: st.DrawFn, name: str = "a") -> DrafterCurve:
    """A drafter whose drafts may be shorter than D; it never has more accepted than it drafts."""
    points = []
    for D in range(1, draw(st.integers(1, 4)) + 1):
        weights = draw(st.lists(st.integers(0, 5), min_size=D + 1, max_size=D + 1).filter(any))
        lengths = [weight / sum(weights) for weight in weights]
        drafted = sum(k * share for k, share in enumerate(lengths))
        points.append(CurveAt(D=D, AL=1 + draw(st.floats(0, 1)) * drafted, lengths=lengths))
    return DrafterCurve(name=name, points=points)


@st.composite
def curves(draw: st.DrawFn) -> list[DrafterCurve]:
    """One to three drafters."""
    return [draw(growing(name) | ragged_curve(name)) for name in DRAFTERS[: draw(st.integers(1, 3))]]


@st.composite
def times(draw: st.DrawFn, B: int | None = None, S: int = 256) -> list[TimingPoint]:
    """Step times at D = 0..6 of one load; nothing ties them together."""
    seconds = st.floats(1e-3, 1.0)
    B = B or draw(st.integers(1, 9))
    points = []
    for D in range(7):
        drafting = {name: draw(seconds) for name in DRAFTERS} if D else {}
        points.append(timing(D, draw(seconds), sys=draw(seconds), B=B, S=S, **drafting))
    return points
