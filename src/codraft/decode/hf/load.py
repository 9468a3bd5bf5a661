"""Finding and loading a model: a local folder, a hub id, or the embedded default."""

import json
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codraft.core.errors import CapabilityError, SpecError
from codraft.decode.hf.embedded import EMBEDDED, embedded_folder
from codraft.formats.hub import fetch_model

DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to run, its tokenizer and where both lie."""

    model: Any
    tokenizer: Any
    folder: Path


def quiet_transformers() -> None:
    """transformers' own bars and warnings would drown ours; errors still reach the user."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)


def resolve_folder(model_id: str, *, progress: bool = True) -> Path:
    """The local folder of a model: `demo` and its kin, a folder, or a hub id (fetched)."""
    if model_id in EMBEDDED:
        return embedded_folder(model_id)
    path = Path(model_id).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SpecError(f"model folder {model_id} has no config.json; name the folder that holds config.json and weights")
        return path
    if path.is_file():
        raise SpecError(f"model {model_id} is a file; name the folder that holds config.json and weights")
    return fetch_model(model_id)


def import_torch() -> Any:
    """torch, or one sentence on how to get it."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        raise CapabilityError(
            f"this needs torch and transformers ({error.name} is not installed): pip install 'codraft[torch]'"
        ) from error
    return torch


def pick_dtype(name: str, config_dtype: Any, device: str) -> Any:
    """A torch dtype. `auto` is the checkpoint's own, but float32 on a CPU without fast bf16 or fp16 arithmetic."""
    torch = import_torch()
    if name != "auto":
        return getattr(torch, name)
    own = config_dtype if isinstance(config_dtype, torch.dtype) else torch.float32
    if device == "cpu" and own in (torch.bfloat16, torch.float16):
        # There a pass of k tokens takes k times as long as one of 1: no drafter could ever pay.
        return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    return own


def load_model(model_id: str, dtype: str = "auto") -> Loaded:
    """Model and tokenizer, in evaluation mode on the best device here. No remote code, no pickled objects."""
    check_dtype(dtype)
    torch = import_torch()
    quiet_transformers()
    import transformers
    from codraft.decode.hf.model import HFModel

    folder = resolve_folder(model_id)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=pick_dtype(dtype, getattr(config, "dtype", None), device), local_files_only=True
        ).to(device)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, json.JSONDecodeError, AttributeError) as error:
        raise SpecError(f"cannot load model {model_id}: {first_line(error)}") from error
    except Exception as error:  # noqa: BLE001 (safetensors raises its own bare Exception subclass)
        raise SpecError(f"cannot load model {model_id}: {first_line(error)}") from error
    return Loaded(HFModel(model, model_id), tokenizer, folder)


def check_dtype(dtype: str) -> str:
    """One of the dtypes by name."""
    if dtype not in DTYPES:
        raise SpecError(f"dtype must be one of {', '.join(DTYPES)}; got '{dtype}'")
    return dtype


def first_line(error: BaseException) -> str:
    """An exception in one line, without its traceback."""
    text = " ".join(str(error).split())
    return (text[:240] + "...") if len(text) > 240 else text or type(error).__name__


def engine_versions() -> dict[str, str]:
    """What ran the passes, for provenance."""
    import torch
    import transformers

    return {"name": "torch", "torch": torch.__version__, "transformers": transformers.__version__}
