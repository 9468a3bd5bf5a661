"""Real transformers models, tiny and random, in float64: every cache rolls back to what a fresh pass would hold."""

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.errors import CapabilityError
from codraft.core.spec import NgramSpec, Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.cache import SlotCache, SnapshotCache
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.decode.target import Tap
from codraft.drafters.ngram import NgramDrafter

V = 40
SMALL: dict[str, Any] = {
    "vocab_size": V,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]


def config_of(family: str) -> Any:
    match family:
        case "llama":
            return transformers.LlamaConfig(**SMALL)
        case "mistral":
            return transformers.MistralConfig(**SMALL, sliding_window=6)
        case "gemma3":
            return transformers.Gemma3TextConfig(**SMALL, head_dim=8, sliding_window=6, layer_types=MIXED)
        case "gpt2":
            return transformers.GPT2Config(
                vocab_size=V, n_embd=32, n_layer=3, n_head=4, n_positions=256, eos_token_id=2
            )
        case "mixtral":
            return transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
        case "qwen3_next":
            return transformers.Qwen3NextConfig(
                **SMALL,
                head_dim=8,
                linear_num_value_heads=4,
                linear_num_key_heads=2,
                linear_key_head_dim=8,
                linear_value_head_dim=8,
                num_experts=4,
                num_experts_per_tok=2,
                moe_intermediate_size=16,
                shared_expert_intermediate_size=16,
                layer_types=["linear_attention", "full_attention", "linear_attention"],
            )
        case "lfm2":
            return transformers.Lfm2Config(**SMALL, layer_types=["conv", "full_attention", "conv"])
    raise AssertionError(family)


FAMILIES = ["llama", "mistral", "gemma3", "gpt2", "mixtral", "qwen3_next", "lfm2"]
MODELS: dict[str, HFModel] = {}
# Qwen3-Next's recurrence runs in float32 inside, whatever the model's dtype.
TOLERANCE = {"qwen3_next": 1e-5}


def model_of(family: str) -> HFModel:
    """Random weights, large enough for logits to depend on the text."""
    if family not in MODELS:
        torch.manual_seed(0)
        net = transformers.AutoModelForCausalLM.from_config(
            config_of(family), dtype=torch.float64, experts_implementation="eager"
        )
        with torch.no_grad():
            for weight in net.parameters():
                if weight.ndim == 2:
                    weight.mul_(4)
        MODELS[family] = HFModel(net.double(), family)
    return MODELS[family]


def assert_close(found: torch.Tensor, expected: torch.Tensor, family: str) -> None:
    """Equal within what a family's own arithmetic allows."""
    tolerance = TOLERANCE.get(family, 1e-7)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def fresh_logits(model: HFModel, tokens: list[int]) -> torch.Tensor:
    """[V] after a history, from one pass of transformers' own, with no cache."""
    with torch.inference_mode():
        logits: torch.Tensor = model.model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0, -1]
    return logits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_cache_is_slots_where_all_is_attention_and_snapshots_elsewhere(family: str) -> None:
    expected = SnapshotCache if family in ("qwen3_next", "lfm2") else SlotCache
    assert isinstance(model_of(family).new_cache(1, 8), expected)


tokens_of = st.lists(st.integers(3, V - 1), min_size=1, max_size=5)
histories = st.lists(
    st.tuples(st.lists(tokens_of, min_size=3, max_size=3), st.lists(st.floats(0, 1), min_size=3, max_size=3)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=6)
@given(
    prompts=st.lists(st.lists(st.integers(3, V - 1), min_size=1, max_size=12), min_size=3, max_size=3),
    history=histories,
)
def test_after_any_accept_pattern_the_cache_equals_one_rebuilt_from_the_committed_tokens(
    family: str, prompts: list[list[int]], history: list[tuple[list[list[int]], list[float]]]
) -> None:
    """Ragged prompts, ragged passes, ragged rollbacks; then the next logits must be those of a fresh pass."""
    model = model_of(family)
    cache = model.new_cache(3, 64)
    model.forward(prompts, cache, num_logits=1)
    committed = [list(prompt) for prompt in prompts]
    for new, shares in history:
        model.forward(new, cache)
        kept = [1 + int(share * (len(row) - 1)) for row, share in zip(new, shares, strict=True)]
        for row, tokens, count in zip(committed, new, kept, strict=True):
            row += tokens[:count]
        cache.rollback([len(row) for row in committed])
    probe = [[5], [6], [7]]
    logits = model.forward(probe, cache).logits
    for row, extra, found in zip(committed, probe, logits, strict=True):
        assert_close(found[-1], fresh_logits(model, row + extra), family)
    cache.keep([2, 0])
    logits = model.forward([[8, 9], [4]], cache).logits
    for row, extra, found in zip((committed[2] + [7], committed[0] + [5]), ([8, 9], [4]), logits, strict=True):
        assert_close(found[-1], fresh_logits(model, row + extra), family)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.9, seed=4)])
def test_ngram_drafts_leave_the_text_as_it_is(family: str, sampling: Sampling) -> None:
    model = model_of(family)
    prompts = [[3, 4, 5, 3, 4], [9], [7, 8, 7, 8, 7, 8, 7]]
    plain = [decode(model, None, [Request(i, p, 14)], sampling, 0)[0].text_ids for i, p in enumerate(prompts)]
    drafter = NgramDrafter(NgramSpec(n_min=1, n_max=3))
    drafted = decode(model, drafter, [Request(i, p, 14) for i, p in enumerate(prompts)], sampling, 4)
    assert [stream.text_ids for stream in drafted] == plain
    assert not sampling.greedy or sum(accepted for stream in drafted for _, _, accepted, _ in stream.steps) > 0


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_next"])
def test_taps_are_what_transformers_calls_hidden_states(family: str) -> None:
    model = model_of(family)
    tokens = [3, 9, 4, 11, 6]
    taps: tuple[Tap, ...] = (-1, 0, 1, "final")
    with torch.inference_mode():
        hidden = model.model(input_ids=torch.tensor([tokens]), use_cache=False, output_hidden_states=True).hidden_states
    out = model.forward([tokens], model.new_cache(1, 8), taps=taps)
    for tap, expected in zip(taps, (*hidden[:3], hidden[-1]), strict=True):
        found = out.features[tap][0]
        # Gemma scales its embeddings after the embedding module.
        scale = 1.0 if tap != -1 else float((expected[0].norm() / found.norm()).item())
        torch.testing.assert_close(found * scale, expected[0], rtol=1e-6, atol=1e-6)


def test_taps_of_ragged_rows_hold_each_rows_own_positions() -> None:
    model = model_of("llama")
    rows = [[3, 4, 5], [6]]
    out = model.forward(rows, model.new_cache(2, 8), taps=(1,))
    for row, states in zip(rows, out.features[1], strict=True):
        alone = model.forward([row], model.new_cache(1, 8), taps=(1,)).features[1][0]
        assert states.shape == (len(row), 32)
        torch.testing.assert_close(states, alone)


@pytest.mark.parametrize("num_logits", [1, 2, 3, None])
def test_num_logits_gives_the_last_rows_of_every_sequence(num_logits: int | None) -> None:
    model = model_of("llama")
    rows = [[3, 4, 5, 6], [7, 8, 9, 10], [11]]
    whole = [model.forward([row], model.new_cache(1, 8)).logits[0] for row in rows]
    for group in ([0, 1], [0, 1, 2], [2]):
        out = model.forward([rows[i] for i in group], model.new_cache(len(group), 8), num_logits=num_logits)
        for i, found in zip(group, out.logits, strict=True):
            expected = whole[i] if num_logits is None else whole[i][-num_logits:]
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("family", "projections"),
    [("llama", 12), ("gemma3", 12), ("gpt2", 6), ("mixtral", 12), ("qwen3_next", 10), ("lfm2", None)],
)
def test_a_layer_falls_into_ffn_and_attention_or_its_kinds_are_not_told(family: str, projections: int | None) -> None:
    """Of LFM2, some layers have a convolution in place of attention; they must not pass for no work at all."""
    found = model_of(family).modules_by_kind()
    if projections is None:
        assert found is None
    else:
        assert found is not None
        counts = {kind: len(modules) for kind, modules in found.items()}
        assert counts == {"ffn": 3, "attention": 3, "projections": projections, "head": 1}


def test_linear_layers_are_told_once_for_each_shape() -> None:
    assert model_of("llama").linear_shapes() == [
        ("q_proj", 32, 32),
        ("k_proj", 16, 32),
        ("gate_proj", 48, 32),
        ("down_proj", 32, 48),
        ("lm_head", 40, 32),
    ]


def test_linear_layers_are_told_under_whatever_name_and_no_name_twice() -> None:
    """GPT-2 keeps its weights the other way round, and calls two layers of a block c_proj."""
    shapes = [
        ("c_attn", 96, 32),
        ("c_proj", 32, 32),
        ("c_fc", 128, 32),
        ("c_proj 32x128", 32, 128),
        ("lm_head", 40, 32),
    ]
    assert model_of("gpt2").linear_shapes() == shapes


@pytest.mark.parametrize(("family", "kv_heads"), [("llama", 2), ("gpt2", 4), ("gemma3", 2)])
def test_a_model_tells_its_heads_and_the_bytes_of_its_weights_and_slots(family: str, kv_heads: int) -> None:
    model = model_of(family)
    shape = model.attention_shape()
    assert shape is not None
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.G) == (4, kv_heads, 8, 4 // kv_heads)
    assert model.device_bytes(0, 0) == 8 * sum(p.numel() for p in model.model.parameters())
    assert model.device_bytes(3, 10) - model.device_bytes(0, 0) == 3 * 10 * 3 * 2 * kv_heads * 8 * 8


@pytest.mark.parametrize(("family", "ragged"), [("llama", "padded"), ("gpt2", "padded"), ("lfm2", "packed")])
def test_rows_of_unequal_length_are_padded_in_slots_and_run_one_by_one_elsewhere(family: str, ragged: str) -> None:
    model_of(family).new_cache(1, 4)
    assert model_of(family).ragged == ragged


def test_a_tap_outside_the_model_is_refused_by_number() -> None:
    with pytest.raises(ValueError, match=r"tap 3 is outside -1\.\.2"):
        model_of("llama").forward([[3]], model_of("llama").new_cache(1, 4), taps=(3,))


def test_a_model_whose_state_is_not_in_the_common_cache_is_refused() -> None:
    net = transformers.AutoModelForCausalLM.from_config(
        transformers.MambaConfig(vocab_size=V, hidden_size=16, num_hidden_layers=2, state_size=4)
    )
    if "past_key_values" in net.forward.__code__.co_varnames:
        pytest.skip("this transformers gives Mamba the common cache")
    with pytest.raises(CapabilityError, match="cannot roll back"):
        HFModel(net, "mamba")


def test_rolling_back_forward_or_too_far_is_an_error() -> None:
    model = model_of("llama")
    cache = model.new_cache(1, 8)
    model.forward([[3, 4]], cache)
    with pytest.raises(ValueError, match="cannot roll back"):
        cache.rollback([3])
    snapshots = model_of("lfm2").new_cache(1, 8)
    model_of("lfm2").forward([[3, 4]], snapshots)
    model_of("lfm2").forward([[5, 6]], snapshots)
    with pytest.raises(ValueError, match="cannot roll back"):
        snapshots.rollback([1])


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2"])
def test_passes_of_one_token_after_a_rollback_can_be_taken_back_but_for_the_first(family: str) -> None:
    """What a recurrent external drafter does: anchor, then drafts one by one, then back to what was accepted."""
    model = model_of(family)
    cache = model.new_cache(1, 32)
    model.forward([[3, 4, 5]], cache)
    cache.rollback([3])
    for token in (6, 7, 8, 9):
        model.forward([[token]], cache)
    cache.rollback([5])
    found = model.forward([[10]], cache).logits[0][-1]
    assert_close(found, fresh_logits(model, [3, 4, 5, 6, 7, 10]), family)


def test_plain_decoding_in_snapshots_copies_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("lfm2")
    decode(model, None, [Request(0, [3, 4], 3)], Sampling(), 0)
    copies: list[object] = []

    def copied(cache: object) -> object:
        copies.append(cache)
        return cache

    monkeypatch.setattr("codraft.decode.hf.cache.copy.deepcopy", copied)
    decode(model, None, [Request(0, [3, 4], 9)], Sampling(), 0)
    assert len(copies) <= 1, "at most the one before the first step"


def test_a_full_cache_says_so_before_anything_is_written() -> None:
    model = model_of("llama")
    cache = model.new_cache(1, 3)
    with pytest.raises(ValueError, match="cache of 3 slots"):
        model.forward([[3, 4, 5, 6]], cache)
    assert cache.lengths == [0]
