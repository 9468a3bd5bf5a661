"""Finding and loading a model: a local folder, a hub id, or the embedded default."""

import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from codraft.core.errors import CapabilityError, SpecError
from codraft.decode.hf.embedded import EMBEDDED, embedded_folder
from codraft.formats.borrowed import whole
from codraft.formats.heads.gate import Sizes
from codraft.formats.hub import fetch_model

if TYPE_CHECKING:
    from codraft.decode.hf.model import HFModel

# Nothing is fetched behind the user's back, and no code that comes with a model is ever run.
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
WINDOW_KEY = "max_position_embeddings"
DTYPES = ("auto", "float32", "bfloat16", "float16", "float64")


@dataclass(frozen=True, slots=True)
class Card:
    """What is known of a model without its weights: enough to read logs and to draft without a model."""

    id: str
    folder: Path
    tokenizer: Any
    sizes: Sizes
    window: int | None
    eos_ids: frozenset[int]

    @property
    def vocab_size(self) -> int:
        """Rows of its output head."""
        return self.sizes.vocab_size


def quiet_transformers() -> None:
    """transformers' own bars and warnings would drown ours; errors still reach the user."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    logging.getLogger("transformers").setLevel(logging.ERROR)


def resolve_folder(model_id: str, *, pickled: bool = False) -> Path:
    """The local folder of a model: `demo` and its kin, a folder, or a hub id (fetched; `pickled` as `fetch_model`)."""
    if model_id in EMBEDDED:
        return embedded_folder(model_id)
    try:
        return whole(local_folder(model_id) or fetch_model(model_id, pickled=pickled), resolve_folder)
    except (OSError, RuntimeError) as error:
        raise SpecError(f"cannot read model {model_id}: {first_line(error)}; check the path") from error


def local_folder(model_id: str) -> Path | None:
    """A model folder on this machine, None where there is nothing of that name."""
    path = Path(model_id).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise SpecError(
                f"model folder {model_id} has no config.json; name the folder that holds config.json and weights"
            )
        return path
    if path.is_file():
        raise SpecError(f"model {model_id} is a file; name the folder that holds config.json and weights")
    return None


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
        # There a pass grows steeply with its width (docs/log.md), and wide passes are what speculation is made of.
        return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    return own


def read_config(folder: Path, model_id: str) -> Any:
    """A checkpoint's config as transformers reads it."""
    import_torch()
    quiet_transformers()
    import transformers

    with readable(model_id):
        return transformers.AutoConfig.from_pretrained(folder, **LOCAL)


def load_card(model_id: str) -> Card:
    """Config and tokenizer of a model; no weights are read."""
    import_torch()
    quiet_transformers()
    import transformers

    folder = resolve_folder(model_id)
    config = read_config(folder, model_id)
    with readable(model_id):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        generation = None
        if (folder / "generation_config.json").is_file():
            generation = transformers.GenerationConfig.from_pretrained(folder, local_files_only=True)
        text = config.get_text_config(decoder=True)
        return Card(
            id=model_id,
            folder=folder,
            tokenizer=tokenizer,
            sizes=sizes_of(text),
            window=getattr(text, WINDOW_KEY, None),
            eos_ids=eos_ids_of(generation, text),
        )


def sizes_of(text: Any) -> Sizes:
    """What drafters must fit, from the decoder's part of a config."""
    return Sizes(vocab_size=int(text.vocab_size), hidden=int(text.hidden_size), num_layers=int(text.num_hidden_layers))


def window_of(model_id: str) -> int | None:
    """A model's context window from its config alone, None where it names none."""
    return getattr(read_config(resolve_folder(model_id), model_id).get_text_config(decoder=True), WINDOW_KEY, None)


def shortest_window(target: Card, drafter_models: Sequence[str]) -> int | None:
    """The window that target and drafter models all have."""
    windows = [target.window, *(window_of(model) for model in drafter_models)]
    return min((window for window in windows if window is not None), default=None)


def device() -> str:
    """The kind of device passes run on."""
    return "cuda" if import_torch().cuda.is_available() else "cpu"


def device_label() -> str:
    """The device passes run on, by name: `cpu`, or `cuda` and which."""
    return f"cuda ({import_torch().cuda.get_device_name()})" if device() == "cuda" else "cpu"


def load_model(model_id: str, dtype: str = "auto", layers: int | None = None) -> "HFModel":
    """The weights, in evaluation mode on the best device here; safetensors, or plain tensors of older files.

    `layers` keeps the first decoder layers alone, with the model's own last norm and head.
    """
    check_dtype(dtype)
    torch = import_torch()
    quiet_transformers()
    import transformers

    from codraft.decode.hf.model import HFModel

    folder = resolve_folder(model_id)
    config = read_config(folder, model_id)
    if layers is not None:
        keep_layers(config.get_text_config(decoder=True), layers, model_id)
    with readable(model_id):
        kind = pick_dtype(dtype, own_dtype(config), device())
        # torch has no grouped matrix product in float64, which transformers would run a mixture of experts with.
        options = {"experts_implementation": "eager"} if kind == torch.float64 else {}
        model, found = transformers.AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=kind, output_loading_info=True, **options, **LOCAL
        )
        refuse_missing(found["missing_keys"], model_id)
        return HFModel(model.to(device()), model_id)


def refuse_missing(names: Collection[str], model_id: str) -> None:
    """SpecError for tensors that no file holds: transformers fills them with noise and goes on."""
    if names:
        first = sorted(names)[0]
        raise SpecError(
            f"cannot load model {model_id}: its files lack {len(names)} tensors that its config asks for ({first}); "
            "fetch it again, or mend the config"
        )


def keep_layers(config: Any, layers: int, model_id: str) -> None:
    """Shorten a decoder's config to its first layers, per-layer lists included."""
    total = config.num_hidden_layers
    if layers > total:
        raise SpecError(f"layers must be in 1..{total}, the layers of {model_id}; got {layers}")
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]


def resolved_dtype(folder: Path, dtype: str) -> str:
    """The name of the dtype that a model of this folder runs in here."""
    return str(pick_dtype(dtype, own_dtype(read_config(folder, str(folder))), device())).removeprefix("torch.")


def own_dtype(config: Any) -> Any:
    """The dtype a config names for its weights, None where it names none."""
    return getattr(config.get_text_config(decoder=True), "dtype", None) or getattr(config, "dtype", None)


@contextmanager
def readable(model_id: str) -> Iterator[None]:
    """Whatever transformers, tokenizers or safetensors raise over a model's files becomes one sentence."""
    try:
        yield
    except (SpecError, CapabilityError):
        raise
    except Exception as error:
        raise SpecError(f"cannot load model {model_id}: {first_line(error)}") from error


def eos_ids_of(*sources: Any) -> frozenset[int]:
    """Every id that ends a text: of the first source (generation config, config) that names any."""
    for source in sources:
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()


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

    return {
        "name": "torch",
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "threads": str(torch.get_num_threads()),
    }
