"""The main job as a user meets it, after installation: wall time and peak memory of `codraft tune demo`.

The embedded model is converted beforehand if it is not in the cache yet; that happens once per machine.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from codraft.decode.hf.load import resolve_folder
from common import finish


def main() -> int:
    """Print figures and the record."""
    resolve_folder("demo")
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        command = [sys.executable, "-m", "codraft", "tune", "demo", "-o", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        decision = json.loads((Path(folder) / "records" / "decision.json").read_text(encoding="utf-8"))
        page_mb = (Path(folder) / "report.html").stat().st_size / 1e6
    peak_gib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    confirmation = decision["confirmation"]
    figures = {
        "wall_s": round(seconds, 1),
        "peak_gib": round(peak_gib, 2),
        "front_runner": f"{confirmation['drafter']} D = {confirmation['D']}",
        "predicted": round(confirmation["predicted"], 3),
        "measured": round(confirmation["measured"], 3),
        "signed_error": round(confirmation["signed_error"], 3),
        "schedule": decision["schedule"],
        "report_mb": round(page_mb, 1),
    }
    goals = {
        "under 6 minutes": seconds < 360,
        "under 4 GiB": peak_gib < 4,
        "predicted within 10 %": abs(confirmation["signed_error"]) < 0.1,
    }
    return finish("demo", figures, goals, decision["provenance"]["dtype"])


if __name__ == "__main__":
    sys.exit(main())
