"""One point of AL(D), as records hold it. Apart from the arithmetic, so that reading a record needs no numpy."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """One point of AL(D), as it stands in a record. Counts are whole unless they are expectations."""

    D: int
    AL: float
    AL_ci95: tuple[float, float] | None = None
    AL_macro: float
    coverage: float
    steps: int | float
    drafted_steps: int | float
    cut_steps: int | float
    accepted: int | float
    drafted: int | float
    counts: list[list[int | float]]
    joint: list[float]
    conditional: list[float | None]
