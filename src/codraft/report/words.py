"""Numbers as text, always with their unit at hand; and the few words that depend on a number."""

from collections.abc import Sequence

EN_DASH = "\u2013"
TIMES = "\u00d7"
MINUS = "\u2212"
# Holds a number and its unit on one line.
NBSP = "\u00a0"
MICRO = "\u00b5"


def figures(value: float, digits: int = 3) -> str:
    """About three significant digits, never an exponent."""
    if value == 0:
        return "0"
    size = abs(value)
    decimals = max(0, digits - 1 - exponent(size))
    return f"{value:,.{decimals}f}"


def exponent(size: float) -> int:
    """Power of ten of a positive number."""
    return int(f"{size:e}".partition("e")[2])


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    scale, unit = time_unit([value])
    return f"{figures(value * scale)}{NBSP}{unit}"


def time_unit(values: Sequence[float]) -> tuple[float, str]:
    """Factor and unit in which the largest of some times reads well."""
    largest = max((abs(value) for value in values), default=0.0)
    if largest >= 1:
        return 1.0, "s"
    return (1e3, "ms") if largest >= 1e-3 else (1e6, f"{MICRO}s")


def rate_unit(values: Sequence[float]) -> tuple[float, str]:
    """Factor and prefix in which the largest of some rates reads well."""
    largest = max((abs(value) for value in values), default=0.0)
    for factor, prefix in ((1e-12, "T"), (1e-9, "G"), (1e-6, "M"), (1e-3, "k")):
        if largest * factor >= 1:
            return factor, prefix
    return 1.0, ""


def ratio(value: float) -> str:
    """A dimensionless factor."""
    return f"{value:.2f}"


def times(value: float) -> str:
    """A speed-up."""
    return f"{value:.2f}{TIMES}"


def pair(interval: tuple[float, float], digits: int = 2) -> str:
    """An interval."""
    return f"{interval[0]:.{digits}f}{EN_DASH}{interval[1]:.{digits}f}"


def percent(value: float, digits: int = 0) -> str:
    """A share."""
    return f"{value * 100:.{digits}f}{NBSP}%"


def signed_percent(value: float) -> str:
    """A signed share."""
    return f"{value * 100:+.0f}{NBSP}%".replace("-", MINUS)


def rate(value: float) -> str:
    """Tokens per second."""
    return f"{figures(value)}{NBSP}tokens/s"


def size(num_bytes: float) -> str:
    """Memory, in powers of ten."""
    factor, prefix = rate_unit([num_bytes])
    return f"{figures(num_bytes * factor)}{NBSP}{prefix}B" if prefix else f"{num_bytes:.0f}{NBSP}bytes"


def count(value: float) -> str:
    """A number of things; expectations have a digit behind the point."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def plural(number: float, noun: str) -> str:
    """`1 prompt`, `2 prompts`."""
    return f"{count(number)}{NBSP}{noun}" + ("" if number == 1 else "s")


def load(B: int, S: int) -> str:
    """A load in words."""
    return f"B = {plural(B, 'sequence')}, S = {plural(S, 'token')}"


def short_load(B: int, S: int, several_S: bool) -> str:
    """A load where room is scarce."""
    return f"B = {B}, S = {S}" if several_S else f"B = {B}"


def listing(items: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def flops(value: float) -> str:
    """Arithmetic throughput."""
    factor, prefix = rate_unit([value])
    return f"{figures(value * factor)}{NBSP}{prefix}FLOP/s"
