"""Two processes under torchrun on the CPU, against one that takes the same batches in turn."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from codraft.train.state import FILE

from tests.train import teaching
from tests.train.teaching import losses

FLAGS = (
    "--batch-tokens", "64", "--max-steps", "5", "--eval-every", "5", "--held-out", "3", "--depth", "3", "--select",
    "3", "--shortlist", "0", "--loops", "keep", "--dtype", "float32", "--lr", "0.01",
)  # fmt: skip


def codraft(*words: str, processes: int) -> None:
    """`codraft train` under torchrun, or plainly."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"] if processes > 1 else []
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "codraft", "train", *words],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="module")
def data(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers of the tiny target."""
    return teaching.write_answers(tiny_model_dir, tmp_path_factory.mktemp("data") / "tokens.safetensors", count=24)


@pytest.mark.parametrize(
    ("mechanism", "parallel", "optimizer"),
    [("eagle3", "ddp", "adamw"), ("dspark", "fsdp", "adamw"), ("mtp", "fsdp", "muon")],
)
def test_two_processes_have_the_loss_curve_of_one(
    mechanism: str, parallel: str, optimizer: str, tiny_model_dir: Path, data: Path, tmp_path: Path
) -> None:
    """A step of two processes is a step of one that accumulates two batches; so are the weights after five."""
    words = [mechanism, str(tiny_model_dir), "--data", str(data), "--optimizer", optimizer, *FLAGS]
    words += ["--layers", "1"] if mechanism == "dspark" else []
    codraft(*words, "-o", str(tmp_path / "two"), "--parallel", parallel, processes=2)
    codraft(*words, "-o", str(tmp_path / "one"), "--accumulate", "2", processes=1)
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert two == pytest.approx(one, rel=1e-4)
    states = [load_file(tmp_path / name / "run" / FILE) for name in ("one", "two")]
    assert states[0].keys() == states[1].keys()
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name].float(), value.float(), rtol=2e-3, atol=2e-4, msg=name)
