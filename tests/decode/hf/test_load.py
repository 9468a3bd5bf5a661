"""Loading a model: with its first layers alone, and a mixture of experts in float64."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling, parse_drafter
from codraft.decode.drafter import Request
from codraft.decode.hf.load import load_model, read_config, sizes_of
from codraft.decode.hf.model import HFModel
from codraft.drafters.beside import Beside
from codraft.drafters.external import ExternalDrafter
from codraft.drafters.registry import build

V = 32
SHAPE: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
CONFIGS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**SHAPE),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=V, n_embd=16, n_layer=3, n_head=2, n_positions=64),
    "gemma3": lambda: transformers.Gemma3TextConfig(
        **SHAPE,
        head_dim=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    ),
    "lfm2": lambda: transformers.Lfm2Config(**SHAPE, layer_types=["full_attention", "conv", "conv"]),
}


@pytest.fixture(scope="module", params=list(CONFIGS))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of three layers whose every layer matters."""
    path = tmp_path_factory.mktemp("models") / str(request.param)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(CONFIGS[request.param](), dtype=torch.float64).double()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(5)
    model.save_pretrained(path)
    return path


def truncated(folder: Path, layers: int) -> HFModel:
    """The whole model with its last layers taken out by hand."""
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    decoder = whole.get_decoder()
    name = next(n for n in ("layers", "h") if hasattr(decoder, n))
    setattr(decoder, name, getattr(decoder, name)[:layers])
    whole.config.num_hidden_layers = layers
    if getattr(whole.config, "layer_types", None):
        whole.config.layer_types = whole.config.layer_types[:layers]
    return HFModel(whole, "by hand")


def drafts(model: HFModel) -> list[list[int]]:
    """What an external drafter says after some prompts."""
    spec = parse_drafter("external:-")
    drafter = ExternalDrafter(spec, model, V, Sampling())  # type: ignore[arg-type]
    return drafts_of(drafter)


def drafts_of(drafter: Any) -> list[list[int]]:
    drafter.prefill([Request(i, [3 + i, 9, 4], 20) for i in range(4)], [5, 6, 7, 8], {})
    found: list[list[int]] = drafter.propose([5, 6, 7, 8], 4).tokens
    return found


@pytest.mark.parametrize("layers", [1, 2])
def test_the_first_layers_alone_draft_as_a_model_cut_by_hand(folder: Path, layers: int) -> None:
    spec = parse_drafter(f"external:{folder},layers={layers}")
    sizes = sizes_of(read_config(folder, str(folder)))
    beside = Beside(str(folder), folder, sizes, Sampling(), "float64", lambda: load_model(str(folder), "float64"))
    drafter = build(spec, beside)
    assert isinstance(drafter, ExternalDrafter)
    model = drafter.model
    assert isinstance(model, HFModel)
    assert model.num_layers == layers
    assert len(model._layers()) == layers
    assert len(getattr(model.model.config, "layer_types", None) or range(layers)) == layers
    expected = truncated(folder, layers)
    prompt = [3, 9, 4, 7, 5, 6, 11]
    found = model.forward([prompt], model.new_cache(1, 9)).logits[0]
    torch.testing.assert_close(found, expected.forward([prompt], expected.new_cache(1, 9)).logits[0])
    assert drafts_of(drafter) == drafts(expected)
    assert drafter.info.options["layers"] == layers
    assert model.device_bytes(1, 8) == expected.device_bytes(1, 8)


def test_every_layer_kept_is_the_model_itself_and_fewer_are_not(folder: Path) -> None:
    whole = drafts(load_model(str(folder), "float64"))
    assert drafts(load_model(str(folder), "float64", layers=3)) == whole
    assert drafts(load_model(str(folder), "float64", layers=1)) != whole


def test_more_layers_than_the_model_has_are_refused(folder: Path) -> None:
    with pytest.raises(SpecError, match=r"layers must be in 1\.\.3, the layers of .*; got 4"):
        load_model(str(folder), "float64", layers=4)
    with pytest.raises(SpecError, match="layers must be at least 1; got 0"):
        parse_drafter(f"external:{folder},layers=0")


MIXTURES: dict[str, Any] = {
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **SHAPE, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **{**SHAPE, "num_key_value_heads": 2},
        q_lora_rank=6, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=4,
        num_experts_per_tok=2, moe_intermediate_size=12, n_group=2, topk_group=1, first_k_dense_replace=1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_of_experts_runs_in_float64(name: str, tmp_path: Path) -> None:
    """transformers' own choice of kernels has none for it; other dtypes keep that choice."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made = transformers.AutoModelForCausalLM.from_config(
            MIXTURES[name](), dtype=torch.float64, experts_implementation="eager"
        )
        with torch.no_grad():
            for weight in made.parameters():
                weight.normal_(0, 0.5)
    made.save_pretrained(tmp_path)
    prompt = [3, 9, 4, 7, 5]
    with torch.no_grad():
        expected = made(torch.tensor([prompt])).logits[0]
    model = load_model(str(tmp_path), "float64")
    assert model.dtype == "float64"
    torch.testing.assert_close(model.forward([prompt], model.new_cache(1, 9)).logits[0], expected)
    assert load_model(str(tmp_path), "float32").model.config._experts_implementation == "grouped_mm"
