"""AL(D) as the decision needs it, from a record or from a user's own CSV."""

from collections.abc import Sequence
from dataclasses import dataclass

from codraft.core.schema import AcceptanceResult


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveAt:
    """AL at one D; `lengths[k]` is the share of steps that drafted k tokens."""

    D: int
    AL: float
    AL_ci95: tuple[float, float] | None = None
    lengths: list[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrafterCurve:
    """AL(D) of one drafter."""

    name: str
    points: list[CurveAt]

    def at(self, depths: Sequence[int]) -> "DrafterCurve":
        """The points at these D alone."""
        return DrafterCurve(name=self.name, points=[point for point in self.points if point.D in depths])


def curves_of(results: Sequence[AcceptanceResult]) -> list[DrafterCurve]:
    """The curves of an acceptance record; proposal lengths are those recorded."""
    return [
        DrafterCurve(
            name=result.drafter.name,
            points=[
                CurveAt(
                    D=point.D,
                    AL=point.AL,
                    AL_ci95=point.AL_ci95,
                    lengths=[sum(row) / point.steps for row in point.counts],
                )
                for point in result.curve
            ],
        )
        for result in results
    ]


def full_drafts(D: int) -> list[float]:
    """Proposal lengths of a drafter that always drafts D tokens."""
    return [0.0] * D + [1.0]
