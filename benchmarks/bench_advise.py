"""How long a decision takes once AL curves and step times are there: 8 draft lengths at 4 loads, and many more."""

import sys
import time

from codraft.core.schema import TimingPoint
from codraft.cost.choose import decide
from codraft.cost.curves import CurveAt, DrafterCurve, full_drafts
from codraft.cost.frontier import frontier
from common import finish, spread

REPEATS = 7


def curves(drafters: int, depths: int) -> list[DrafterCurve]:
    """Drafters whose acceptance falls with position."""
    return [
        DrafterCurve(
            name=f"drafter-{i}",
            points=[
                CurveAt(
                    D=D,
                    AL=1 + sum((0.5 + 0.04 * i) ** k for k in range(1, D + 1)),
                    AL_ci95=(1.0, 1.0 + D),
                    lengths=full_drafts(D),
                )
                for D in range(1, depths + 1)
            ],
        )
        for i in range(drafters)
    ]


def timings(loads: list[int], drafters: int, depths: int) -> list[TimingPoint]:
    """Passes that grow a little with their width."""
    return [
        TimingPoint(
            B=B,
            S=1024,
            D=D,
            x=B * (1 + D),
            t_verif_s=0.02 + 1e-4 * B * (1 + D),
            t_sys_s=1e-3,
            t_draft_s={f"drafter-{i}": 1e-3 * D for i in range(drafters)} if D else {},
            num_samples=1,
            p10=0.02,
            p90=0.02,
        )
        for B in loads
        for D in range(depths + 1)
    ]


def seconds(loads: list[int], drafters: int, depths: int) -> float:
    """One decision with its frontier."""
    AL, times = curves(drafters, depths), timings(loads, drafters, depths)
    start = time.perf_counter()
    points, _ = decide(AL, times, None, "packed")
    frontier(points)
    return time.perf_counter() - start


def main() -> int:
    """Print figures and the record."""
    small = [seconds([1, 4, 16, 64], 1, 8) for _ in range(REPEATS)]
    large = [seconds([2**i for i in range(8)], 7, 64) for _ in range(REPEATS)]
    per_second = 8 * 7 * 64 / sorted(large)[REPEATS // 2]
    figures = {
        "8_depths_x_4_loads_s": spread(small, 4),
        "64_depths_x_8_loads_x_7_drafters_s": spread(large, 3),
        "points_per_s": round(per_second),
    }
    return finish("advise", figures, {"32 points under 0.1 s": sorted(small)[REPEATS // 2] < 0.1}, "none")


if __name__ == "__main__":
    sys.exit(main())
