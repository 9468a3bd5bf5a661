"""Where training stands, on disk: one safetensors file that is whole or absent, and nothing pickled.

Parameters, both moments of every optimizer, and in the header the numbers: step, tokens seen, best AL. Batches, anchors
and noise are functions of the step, so no generator has a state. What was asked stands beside it (`job.begun`).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from codraft.core.errors import SpecError
from codraft.train.saving import appearing

FILE = "state.safetensors"
MODEL, MOMENT = "model.", "optimizer."
# Whole tensors in every process: a drafter is small, and a state may be taken up by another number of processes.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
BROADCAST = StateDictOptions(full_state_dict=True)


@dataclass(slots=True)
class Progress:
    """Numbers of a run. `tokens` are supervised ones seen; `seconds` those spent in steps; `points` are (tokens, AL,
    low, high) of every evaluation."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_AL: float = 0.0
    best_step: int = -1
    points: list[list[float]] = field(default_factory=list)


def save_state(
    folder: Path, module: nn.Module, optimizers: Sequence[Optimizer], progress: Progress, *, write: bool
) -> None:
    """The state of a run. Every process takes part; the one that is to `write` does."""
    tensors = {MODEL + name: value for name, value in trained(module).items()}
    scalars: dict[str, float] = {}
    found: Any = get_optimizer_state_dict(module, list(optimizers), options=WHOLE)
    if not write:
        return
    for name, state in found["state"].items():
        for key, value in state.items():
            if isinstance(value, Tensor):
                tensors[f"{MOMENT}{key}.{name}"] = value
            else:
                scalars[f"{key}.{name}"] = value
    header = {"progress": json.dumps(asdict(progress)), "scalars": json.dumps(scalars)}
    with appearing(folder / FILE) as part:
        save_file({name: value.contiguous() for name, value in tensors.items()}, part, metadata=header)


def trained(module: nn.Module) -> dict[str, Tensor]:
    """Whole values of the parameters that learn, by name; all processes take part, and the first one has them."""
    # What DDP puts before every name, torch's own state does not have.
    learning = {name.removeprefix("module.") for name, p in module.named_parameters() if p.requires_grad}
    found = get_model_state_dict(module, options=WHOLE)
    return {name: value for name, value in found.items() if name in learning and isinstance(value, Tensor)}


def load_state(folder: Path, module: nn.Module, optimizers: Sequence[Optimizer]) -> Progress:
    """Take up a run where it was saved. SpecError for a file that is cut or none of ours."""
    file = folder / FILE
    try:
        values, moments, progress = read_state(file)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise SpecError(f"cannot read {file}: {error}; delete the folder to begin anew") from error
    options = StateDictOptions(full_state_dict=True, strict=False)
    set_model_state_dict(module, values, options=options)
    held: Any = get_optimizer_state_dict(module, list(optimizers), options=BROADCAST)
    whole = {"state": moments, "param_groups": held["param_groups"]}
    set_optimizer_state_dict(module, list(optimizers), whole, options=BROADCAST)
    return progress


def read_state(file: Path) -> tuple[dict[str, Any], dict[str, Any], Progress]:
    """Parameters and moments by parameter, and the numbers."""
    values: dict[str, Any] = {}
    moments: dict[str, Any] = {}
    with safe_open(file, framework="pt") as handle:
        header = handle.metadata()
        for name in handle.keys():  # noqa: SIM118 (no mapping)
            if name.startswith(MODEL):
                values[name.removeprefix(MODEL)] = handle.get_tensor(name)
            else:
                key, _, parameter = name.removeprefix(MOMENT).partition(".")
                moments.setdefault(parameter, {})[key] = handle.get_tensor(name)
    for name, value in json.loads(header["scalars"]).items():
        key, _, parameter = name.partition(".")
        moments.setdefault(parameter, {})[key] = value
    return values, moments, Progress(**json.loads(header["progress"]))
