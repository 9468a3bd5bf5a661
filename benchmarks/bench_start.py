"""How fast the command answers, and what it imports: whole processes, median of 7."""

import subprocess
import sys
import time

from common import finish, spread


def seconds(argv: list[str]) -> float:
    """Wall time of one process."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-m", "codraft", *argv], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Print figures and the record."""
    figures: dict[str, object] = {}
    for argv in (["--help"], ["tune", "--help"], ["accept", "--help"]):
        seconds(argv)
        figures["codraft " + " ".join(argv)] = spread([seconds(argv) for _ in range(7)])
    probe = "import sys; from codraft.cli.main import main; main(['--help']); sys.exit('torch' in sys.modules)"
    clean = subprocess.run([sys.executable, "-c", probe], stdout=subprocess.DEVNULL).returncode == 0
    goals = {
        "codraft --help under 0.3 s": figures["codraft --help"]["median"] < 0.3,  # type: ignore[index]
        "--help imports no torch": clean,
    }
    return finish("start", figures, goals, "none")


if __name__ == "__main__":
    sys.exit(main())
