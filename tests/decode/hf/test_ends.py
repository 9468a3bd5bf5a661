"""The ends that heads borrow: what the first layer gets, and the logits of the last state, for targets that scale."""

from typing import Any

import pytest
import torch
import transformers

from codraft.decode.hf.model import HFModel

SMALL: dict[str, Any] = {
    "vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "gemma2": lambda: transformers.Gemma2Config(**SMALL, head_dim=8, final_logit_softcapping=3.0),
    "granite": lambda: transformers.GraniteConfig(**SMALL, embedding_multiplier=12.0, logits_scaling=4.0),
    "cohere": lambda: transformers.CohereConfig(**SMALL, logit_scale=0.25),
}


@torch.inference_mode()
@pytest.mark.parametrize("family", CONFIGS)
def test_ends_are_what_the_model_does_with_them(family: str) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family]()).double()
    target = HFModel(model, family)
    tokens = [5, 9, 31, 7]
    given: list[torch.Tensor] = []
    layer = model.get_decoder().layers[0]
    handle = layer.register_forward_pre_hook(
        lambda _, args, kwargs: given.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    out = target.forward([tokens], target.new_cache(1, 16), taps=(-1, "final"))
    handle.remove()
    entering = given[-1][0]
    torch.testing.assert_close(target.embed(torch.tensor(tokens)), entering, rtol=0, atol=0)
    torch.testing.assert_close(out.features[-1][0], entering, rtol=0, atol=0)
    logits = target.read_out(out.features["final"][0])
    torch.testing.assert_close(logits, out.logits[0], rtol=1e-12, atol=1e-12)
    assert logits.std() > 1e-3
