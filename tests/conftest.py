"""Shared fixtures; hypothesis runs the same examples every time."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.mechanisms import Mechanisms

# Read when huggingface_hub is imported: no test may reach for a hub.
os.environ["HF_HUB_OFFLINE"] = "1"

settings.register_profile("codraft", derandomize=True, deadline=None)
settings.load_profile("codraft")

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random two-layer Llama with a token per byte, four specials (260 ids) and a window of 128."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    specials = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(specials)
    config = LlamaConfig(
        vocab_size=len(alphabet) + len(specials),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.token_to_id("<|end|>"),
    )
    folder = tmp_path_factory.mktemp("models") / "tiny"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<|end|>", chat_template=CHAT_TEMPLATE, model_max_length=128
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def mechanisms(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> "Mechanisms":
    """A target with the tokenizer of the tiny model, and a drafter of every mechanism; see tests/mechanisms.py."""
    from tests.mechanisms import write_mechanisms

    return write_mechanisms(tmp_path_factory.mktemp("mechanisms"), tiny_model_dir)
