"""A learning curve of AL, and what more tokens would give.

AL is fitted as a - b * tokens^-c, the form in which a model's error falls with data [Hestness17]: it rises and flattens
at a. For a given c the rest is linear least squares, so c is searched on a grid. Where the curve does not bend enough
to tell a, AL is taken as linear in log tokens. Weights come from the checkpoints' intervals. The interval of a forecast
refits resampled curves [Efron79], the choice of the form with them; it is wide for few points. No forecast is given
from points that cannot carry one, nor where AL falls: then more of the same training makes the drafter worse, whatever
the loss says, and the best checkpoint is named.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from codraft.core.errors import SpecError
from codraft.core.spec import check_depth
from codraft.core.stats import interval95
from codraft.core.training import Forecast

Floats = NDArray[np.float64]

LEAST_POINTS = 4
LEAST_SPAN = 4.0
# Exponents tried. Below the lowest the curve cannot be told from a line in log tokens.
EXPONENTS = np.geomspace(0.05, 3.0, 200)
RESAMPLES = 1000
# Half a 95 % interval in standard errors.
HALF_95 = 1.96
# No checkpoint counts as known better than this: replay of a finite set of prompts is not.
LEAST_SIGMA = 1e-3
# AL falls if it ends so many standard errors of a point below its best, and by so much at all. Over 300 noisy flat
# curves of 4 to 40 points each, at most 6 % were taken for falling.
FALL_SIGMAS = 3.5
LEAST_FALL = 0.01
# A plateau is named where its interval is no wider than this; else it cannot be told yet.
WIDEST_PLATEAU = 1.0


@dataclass(frozen=True, slots=True)
class LearningPoint:
    """AL at one D of a checkpoint that has seen `tokens` supervised tokens, repeats counted; its 95 % interval."""

    tokens: int
    AL: float
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Fits of R curves at once: a forecast of each, and where it flattens (infinite for a line)."""

    at_R: Floats
    plateau_R: Floats
    fitted_RN: Floats


def forecast(points: Sequence[LearningPoint], D: int, at_tokens: int) -> Forecast:
    """AL at D after `at_tokens`, by the checkpoints so far; of two after the same tokens (a run that was resumed
    measures again) the later one counts. SpecError for points that cannot be."""
    check_points(points, D, at_tokens)
    ordered = sorted({point.tokens: point for point in points}.values(), key=lambda point: point.tokens)
    found = Forecast(D=D, at_tokens=at_tokens, num_points=len(ordered), reason=too_few(ordered))
    if not ordered:
        return found
    best, last = max(ordered, key=lambda point: point.AL), ordered[-1]
    found = replace(found, last=(last.tokens, last.AL), best=(best.tokens, best.AL), falling=falls(ordered))
    if found.falling:
        found = replace(found, reason=falling_reason(best, last, D))
    if found.reason is not None:
        return found
    t_N = np.array([point.tokens for point in ordered], dtype=np.float64)
    AL_N = np.array([point.AL for point in ordered])
    sigma_N = sigmas(ordered, t_N, AL_N, at_tokens, D)
    curve = fit(t_N, AL_N[None], sigma_N, at_tokens, D)
    noise_RN = np.random.default_rng(0).standard_normal((RESAMPLES, len(t_N))) * sigma_N
    resampled = fit(t_N, curve.fitted_RN + noise_RN, sigma_N, at_tokens, D)
    plateau, plateau_ci95 = plateau_of(curve, resampled, D)
    return replace(
        found,
        AL=float(np.clip(curve.at_R[0], 1, 1 + D)),
        AL_ci95=interval95(np.clip(resampled.at_R, 1, 1 + D)),
        form="saturating" if np.isfinite(curve.plateau_R[0]) else "log-linear",
        plateau=plateau,
        plateau_ci95=plateau_ci95,
        extrapolated=at_tokens / last.tokens,
    )


def check_points(points: Sequence[LearningPoint], D: int, at_tokens: int) -> None:
    """Refuse what cannot be: no drafter is outside 1..1 + D."""
    check_depth(D, lowest=1)
    if at_tokens < 1:
        raise SpecError(f"at_tokens must be at least 1; got {at_tokens}")
    for point in points:
        if point.tokens < 1:
            raise SpecError(f"tokens of a checkpoint must be at least 1; got {point.tokens}")
        if not 1 <= point.AL <= 1 + D:
            raise SpecError(f"AL({D}) must be in 1..{1 + D}; got {point.AL} at {point.tokens} tokens")
        if point.ci95 is not None and not -math.inf < point.ci95[0] <= point.ci95[1] < math.inf:
            raise SpecError(f"AL_ci95 must be two numbers, the lower first; got {point.ci95} at {point.tokens} tokens")


def too_few(ordered: Sequence[LearningPoint]) -> str | None:
    """Why these points carry no forecast, None where they do."""
    span = ordered[-1].tokens / ordered[0].tokens if ordered else 1.0
    if len(ordered) >= LEAST_POINTS and span >= LEAST_SPAN:
        return None
    return (
        f"a forecast needs at least {LEAST_POINTS} checkpoints over a factor of {LEAST_SPAN:g} in tokens; there "
        f"{'is' if len(ordered) == 1 else 'are'} {len(ordered)}"
        + (f" over a factor of {span:.1f}" if len(ordered) > 1 else "")
    )


def falling_reason(best: LearningPoint, last: LearningPoint, D: int) -> str:
    """What a falling AL means."""
    return (
        f"AL({D}) is falling: best {best.AL:.2f} at {tokens_text(best.tokens)} tokens, {last.AL:.2f} at "
        f"{tokens_text(last.tokens)}; keep the checkpoint of the best, more of the same training does not help"
    )


def falls(ordered: Sequence[LearningPoint]) -> bool:
    """Whether the last two points (or the last, if the best is the one before) lie well below the best.

    What the points scatter is judged in two ways that do not take a curve for noise: about the line between their
    neighbours, and about a parabola in log tokens; and by their intervals, which are wider if anything, since all
    checkpoints draft the same prompts.
    """
    if len(ordered) < LEAST_POINTS:
        return False
    AL_N = np.array([point.AL for point in ordered])
    best = int(AL_N.argmax())
    behind = AL_N[best + 1 :][-2:]
    x_N = np.log([point.tokens for point in ordered])
    noise = [
        surely(len(ordered) - 2) * off_neighbours(x_N, AL_N),
        surely(len(ordered) - 3) * off_parabola(x_N, AL_N),
    ]
    widths = [(p.ci95[1] - p.ci95[0]) / (2 * HALF_95) for p in ordered if p.ci95 is not None]
    if widths:
        noise.append(FALL_SIGMAS * float(np.median(widths)))
    return len(behind) > 0 and bool(AL_N[best] - behind.mean() > max(LEAST_FALL, min(noise)))


def surely(free: int) -> float:
    """Standard errors that a fall must have, where `free` degrees of freedom say what one is."""
    return FALL_SIGMAS * (1 + 4 / math.sqrt(free) ** 3)


def off_neighbours(x_N: Floats, AL_N: Floats) -> float:
    """Standard error of a point by how far each lies off the line between its neighbours."""
    right = (x_N[1:-1] - x_N[:-2]) / (x_N[2:] - x_N[:-2])
    off = AL_N[1:-1] - (1 - right) * AL_N[:-2] - right * AL_N[2:]
    return float(np.sqrt(np.mean(off**2 / (1 + right**2 + (1 - right) ** 2))))


def off_parabola(x_N: Floats, AL_N: Floats) -> float:
    """Standard error of a point about the parabola through all."""
    powers_N3 = np.vander(x_N - x_N.mean(), 3)
    left_N = AL_N - powers_N3 @ np.linalg.lstsq(powers_N3, AL_N, rcond=None)[0]
    return float(np.sqrt((left_N**2).sum() / (len(x_N) - 3)))


def sigmas(ordered: Sequence[LearningPoint], t_N: Floats, AL_N: Floats, at_tokens: int, D: int) -> Floats:
    """[N] standard errors: of the intervals (a point without takes the median of the others), raised to what the
    points scatter about the curve; without any interval, that scatter."""
    known = [None if p.ci95 is None else (p.ci95[1] - p.ci95[0]) / (2 * HALF_95) for p in ordered]
    given = [sigma for sigma in known if sigma is not None]
    typical = float(np.median(given)) if given else 1.0
    sigma_N = np.maximum(LEAST_SIGMA, [typical if sigma is None else sigma for sigma in known])
    curve = fit(t_N, AL_N[None], sigma_N, at_tokens, D)
    free = len(ordered) - (3 if np.isfinite(curve.plateau_R[0]) else 2)
    scatter = math.sqrt(float((((AL_N - curve.fitted_RN[0]) / sigma_N) ** 2).sum()) / free)
    # Few degrees of freedom know the scatter badly: about what Student's t has over the normal distribution.
    scatter *= 1 + 5.5 / free**2
    return np.maximum(LEAST_SIGMA, sigma_N * (max(1.0, scatter) if given else scatter))


def fit(t_N: Floats, AL_RN: Floats, sigma_N: Floats, at_tokens: int, D: int) -> Curves:
    """The better form for each of R curves over the same tokens.

    The saturating form stands where it rises to a plateau of at most 1 + D and the best exponent that does is not the
    lowest of those. A curve whose plateau would have to be higher has not begun to flatten.
    """
    center = math.exp(float(np.log(t_N).mean()))
    x_N, at = np.log(t_N / center), math.log(at_tokens / center)
    slope_R, level_R, _ = (part[:, 0] for part in lines(x_N[None], AL_RN, sigma_N))
    b_RC, a_RC, loss_RC = lines(-np.exp(-EXPONENTS[:, None] * x_N), AL_RN, sigma_N)
    allowed_RC = (b_RC > 0) & (a_RC <= 1 + D)
    best_R = np.where(allowed_RC, loss_RC, np.inf).argmin(axis=1)
    bends_R = allowed_RC.any(axis=1) & (best_R > allowed_RC.argmax(axis=1))
    rows = np.arange(len(AL_RN))
    a_R, b_R, c_R = a_RC[rows, best_R], b_RC[rows, best_R], EXPONENTS[best_R]
    line_RN = level_R[:, None] + slope_R[:, None] * x_N
    bent_RN = a_R[:, None] - b_R[:, None] * np.exp(-c_R[:, None] * x_N)
    return Curves(
        at_R=np.where(bends_R, a_R - b_R * np.exp(-c_R * at), level_R + slope_R * at),
        plateau_R=np.where(bends_R, a_R, np.inf),
        fitted_RN=np.where(bends_R[:, None], bent_RN, line_RN),
    )


def lines(x_CN: Floats, y_RN: Floats, sigma_N: Floats) -> tuple[Floats, Floats, Floats]:
    """[R, C] weighted least squares of R curves over each of C choices of x: slope, value at x = 0, squares left."""
    w_N = 1 / sigma_N**2
    w_N = w_N / w_N.sum()
    mean_C, mean_R = x_CN @ w_N, y_RN @ w_N
    dx_CN, dy_RN = x_CN - mean_C[:, None], y_RN - mean_R[:, None]
    squares_C = dx_CN**2 @ w_N
    shared_RC = (dy_RN * w_N) @ dx_CN.T
    slope_RC = shared_RC / squares_C
    return slope_RC, mean_R[:, None] - slope_RC * mean_C, (dy_RN**2 @ w_N)[:, None] - shared_RC * slope_RC


def plateau_of(curve: Curves, resampled: Curves, D: int) -> tuple[float | None, tuple[float, float] | None]:
    """Where the curve flattens, and the interval of it; neither where resampled curves do not agree on it."""
    if not np.isfinite(curve.plateau_R[0]):
        return None, None
    low, high = interval95(np.minimum(resampled.plateau_R, 1 + D))
    if high - low > WIDEST_PLATEAU:
        return None, None
    return float(curve.plateau_R[0]), (low, high)


def sentence(found: Forecast) -> str:
    """A forecast for people, as `AL(4) 1.83 at 2.1 M tokens; at 8 M expect 2.02 (1.94..2.09)`."""
    if found.AL is None or found.last is None:
        told = "" if found.last is None or found.falling else f"{told_point(found.D, found.last)}; "
        return f"{told}{found.reason}" if found.falling else f"{told}no forecast: {found.reason}"
    interval = "" if found.AL_ci95 is None else f" ({found.AL_ci95[0]:.2f}..{found.AL_ci95[1]:.2f})"
    beyond = found.extrapolated or 1.0
    reach = f", extrapolated {beyond:.1f}x" if beyond > 1 else ", within the data"
    if found.plateau is not None and found.plateau_ci95 is not None:
        low, high = found.plateau_ci95
        flat = f"the curve flattens at {found.plateau:.2f} ({low:.2f}..{high:.2f})"
    else:
        flat = "where the curve flattens cannot be told yet"
    so_far = told_point(found.D, found.last)
    if found.best is not None and found.best != found.last:
        so_far += f" (best {found.best[1]:.2f} at {tokens_text(found.best[0])})"
    return f"{so_far}; at {tokens_text(found.at_tokens)} expect {found.AL:.2f}{interval}{reach}; {flat}"


def told_point(D: int, point: tuple[int, float]) -> str:
    """A checkpoint in words."""
    return f"AL({D}) {point[1]:.2f} at {tokens_text(point[0])} tokens"


def tokens_text(tokens: int) -> str:
    """Tokens for people: 2.1 M."""
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if tokens >= factor:
            return f"{tokens / factor:.3g} {unit}"
    return str(tokens)
