"""EAGLE-3: the two views against each other, published code, exact losslessness, and what must be refused."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.decode.drafter import Request
from codraft.drafters.eagle3 import Eagle3Head, usual_taps
from codraft.drafters.rollout import Rollout
from codraft.drafters.serial import SerialDrafter
from codraft.drafters.weights import target_ids
from codraft.formats.heads.detect import detect
from codraft.formats.heads.head import Head
from codraft.formats.heads.read import read_head

from tests.drafters.heads import (
    ForcedPicker,
    ToyEnds,
    assert_live_follows_unroll,
    gather,
    random_stream,
    randomize,
)

V, H, TAPS = 7, 16, (0, 2, 4)
SHAPE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": H,
    "intermediate_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": V,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
}
# Every switch in which families differ, by the key that sets it.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norm_before_residual": {"norm_before_residual": True},
    "norm_before_fc": {"norm_before_fc": True},
    "fc_norm": {"fc_norm": True},
    "feeds_normed_state": {"norm_output": True, "speculators_model_type": "eagle3"},
    "no_output_norm": {"norm_output": False},
    "two_layers": {"num_hidden_layers": 2, "architectures": ["Eagle3"], "eagle_config": {}},
    "qwen3": {"architectures": ["Qwen3ForCausalLMEagle3"], "model_type": "qwen3", "head_dim": 8},
    "wide_target": {"target_hidden_size": 24, "own": ["embed_tokens.weight"]},
    "sliding": {
        "num_hidden_layers": 2,
        "eagle_config": {},
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 3,
    },
    "biased": {"attention_bias": True, "mlp_bias": True},
    "biased_everywhere": {"attention_bias": True, "own": ["fc.bias", "layers.0.self_attn.o_proj.bias"]},
    "no_first_norm": {"eagle_config": {"use_input_layernorm_in_first_layer": False}},
    "doubled_later_layers": {"num_hidden_layers": 2, "eagle_config": {"next_layer_regular": False}},
    "deepspec": {"num_hidden_layers": 2, "architectures": ["Qwen3Eagle3Model"], "model_type": "qwen3", "head_dim": 8},
    "return_hidden_post_norm": {"eagle_config": {"return_hidden_post_norm": True}},
    "no_last_norm": {"eagle_config": {"use_last_layernorm": False}},
    "post_norm_without_last_norm": {"eagle_config": {"return_hidden_post_norm": True, "use_last_layernorm": False}},
    "one_tap": {"taps": [3]},
    "five_taps": {"taps": [0, 1, 3, 4, 6], "fc_norm": True},
    "wide_norm_before_fc": {"target_hidden_size": 24, "eagle_config": {"norm_before_fc": True}},
    "wide_fc_norm": {"target_hidden_size": 24, "fc_norm": True, "taps": [0, 5]},
    "llama3_rope": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        }
    },
}


def head_of(config: Mapping[str, Any]) -> Head:
    kind = detect(config, ())
    assert kind is not None
    return read_head(kind, config, {}, "config.json")


def module_of(variant: str, seed: int = 0) -> Eagle3Head:
    head = head_of({**SHAPE, **VARIANTS[variant]})
    with torch.random.fork_rng():
        module = Eagle3Head(head, taps_of(variant), ToyEnds(V, H), VARIANTS[variant].get("own", []))
    randomize(module, seed)
    return module


def taps_of(variant: str) -> tuple[int, ...]:
    return tuple(VARIANTS[variant].get("taps", TAPS))


def drafter_of(module: Eagle3Head, picker: ForcedPicker) -> SerialDrafter:
    return SerialDrafter(module, picker, module.taps, DrafterInfo(name="eagle3", mechanism="eagle3", options={}))


def width_of(variant: str) -> int:
    return int(VARIANTS[variant].get("target_hidden_size", H))


@pytest.mark.parametrize("variant", VARIANTS)
def test_live_drafting_is_the_teacher_forced_view_at_every_position(variant: str) -> None:
    streams = [random_stream(s, V, width_of(variant), taps_of(variant), (3 + 4 * s, 9 + 3 * s)) for s in range(3)]
    picker = ForcedPicker(V)
    compared = assert_live_follows_unroll(drafter_of(module_of(variant), picker), picker, streams, lambda s: 1 + s % 5)
    assert compared > 20


def written_out(module: Eagle3Head, config: Mapping[str, Any], features: Sequence[Tensor], token: int) -> list[Tensor]:
    """What the first row of a stream feeds on and reads out, from the config's own words: it sees itself alone, so its
    attention is its value, and position 0 turns nothing."""
    weights, switches = module.state_dict(), config.get("eagle_config", {})

    def linear(name: str, x: Tensor) -> Tensor:
        return x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", torch.zeros((), dtype=torch.float64))

    def norm(name: str, x: Tensor) -> Tensor:
        return x / (x.square().mean() + config["rms_norm_eps"]).sqrt() * weights[f"{name}.weight"]

    parts = [norm(f"fc_norm.{i}", part) if config.get("fc_norm") else part for i, part in enumerate(features)]
    joined = torch.cat(parts)
    before = config.get("norm_before_fc") or switches.get("norm_before_fc")
    hidden = linear("fc", norm("input_norm", joined) if before else joined)
    table = weights["embed_tokens.weight"] if "embed_tokens.weight" in weights else ToyEnds(V, H).embedding_VH
    every = switches.get("next_layer_regular") is False or config["architectures"] == ["Qwen3Eagle3Model"]
    for i in range(config["num_hidden_layers"]):
        at, residual = f"layers.{i}", hidden
        if i == 0 or every:
            bare = i == 0 and switches.get("use_input_layernorm_in_first_layer") is False
            embedding = table[token] if bare else norm(f"{at}.input_layernorm", table[token])
            normed = norm(f"{at}.hidden_norm", hidden)
            residual = normed if config.get("norm_before_residual") else hidden
            read = torch.cat((embedding, normed))
        else:
            read = norm(f"{at}.input_layernorm", hidden)
        value = linear(f"{at}.self_attn.v_proj", read).unflatten(0, (2, -1)).repeat_interleave(2, 0).flatten()
        hidden = residual + linear(f"{at}.self_attn.o_proj", value)
        x = norm(f"{at}.post_attention_layernorm", hidden)
        gate, up = (linear(f"{at}.mlp.{part}_proj", x) for part in ("gate", "up"))
        hidden = hidden + linear(f"{at}.mlp.down_proj", gate * gate.sigmoid() * up)
    library = "speculators_model_type" in config
    feeds = switches.get("return_hidden_post_norm") or (library and config.get("norm_output"))
    reads = config.get("norm_output", True) if not library else True
    reads = reads and switches.get("use_last_layernorm", True)
    return [norm("norm", hidden) if normed_ else hidden for normed_ in (feeds, reads)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_row_is_what_the_layers_written_out_give(variant: str) -> None:
    module, config = module_of(variant), {**SHAPE, **VARIANTS[variant]}
    stream = random_stream(7, V, width_of(variant), taps_of(variant), (1, 2))
    rollout = Rollout(module, module.fuse(stream.features), torch.tensor([3, 5, 1]))
    readable = rollout.step()
    features = [stream.features[tap][0] for tap in taps_of(variant)]
    for found, expected in zip((rollout.hidden_NH, readable), written_out(module, config, features, 5), strict=True):
        torch.testing.assert_close(found[0], expected, rtol=1e-10, atol=1e-10)


@settings(max_examples=15)
@given(seed=st.integers(0, 999), depths=st.lists(st.integers(0, 6), min_size=1, max_size=4), prompt=st.integers(1, 9))
def test_any_sequence_of_depths_and_acceptances_agrees(seed: int, depths: list[int], prompt: int) -> None:
    streams = [random_stream(seed + s, V, H, TAPS, (prompt + s, 12)) for s in range(2)]
    picker = ForcedPicker(V)
    drafter = drafter_of(module_of("two_layers", seed), picker)
    assert_live_follows_unroll(drafter, picker, streams, lambda s: depths[s % len(depths)], seed)


def test_the_cache_holds_what_a_fresh_one_would_be_built_from_true_features() -> None:
    stream = random_stream(1, V, H, TAPS, (4, 10))
    picker = ForcedPicker(V)
    module = module_of("two_layers")
    used, rebuilt = drafter_of(module, picker), drafter_of(module, picker)
    used.prefill([Request(0, stream.prompt_ids, 99)], [stream.output_ids[0]], gather([stream], [0], [(0, 4)]))
    for at in (0, 2, 4):
        picker.script = [[5], [1], [2]]
        used.propose([stream.output_ids[at]], 3)
        used.commit(
            [[stream.output_ids[at + 1]]], [stream.output_ids[at + 2]], gather([stream], [0], [(4 + at, 6 + at)])
        )
    picker.script = [[0], [0]]
    used.propose([stream.output_ids[6]], 1)
    tokens = [*stream.prompt_ids, *stream.output_ids[:6]]
    rebuilt.prefill([Request(0, tokens, 99)], [stream.output_ids[6]], gather([stream], [0], [(0, 10)]))
    rebuilt.propose([stream.output_ids[6]], 1)
    assert used._caches[0].lengths == rebuilt._caches[0].lengths == [10]
    for layer in range(2):
        for one, other in zip(used._caches[0].held(layer, 0), rebuilt._caches[0].held(layer, 0), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


GOLDEN = Path(__file__).parents[1] / "golden" / "heads"
CHAINS = ("chain_rows", "chain_tokens")
CASES = sorted(folder.name for folder in GOLDEN.glob("eagle3_*"))


@pytest.mark.parametrize("case", CASES)
def test_published_code_gives_the_same_logits_at_every_step(case: str) -> None:
    """The roll-out from every row, and what is fed back, against the authors' own code."""
    folder = GOLDEN / case
    about = json.loads((folder / "golden.json").read_text())
    golden = load_file(folder / "golden.safetensors")
    loaded, module = published(folder, golden)
    features = golden["features"].double()
    fused = module.fuse({tap: features[:, i] for i, tap in enumerate(module.taps)})
    rollout = Rollout(module, fused, golden["token_ids"])
    # A window moves with the position here, as in every engine's cache; in speculators' training code it does not.
    for k in range(1 if "masks" in about else about["depth"]):
        readable = rollout.step()
        rows = min(len(rollout.rows_N), golden["logits"].shape[1])
        torch.testing.assert_close(
            module.logits(0, readable)[:rows].float(), golden["logits"][k, :rows], rtol=0, atol=about["tolerance"]
        )
        torch.testing.assert_close(
            rollout.hidden_NH[:rows].float(), golden["hidden"][k, :rows], rtol=0, atol=about["tolerance"]
        )
    ids = target_ids(loaded, loaded.head.vocab_size or 0)
    chains = (
        ((), ()) if "chain_rows" not in golden else (golden["chain_rows"].tolist(), golden["chain_tokens"].tolist())
    )
    for row, chain in zip(*chains, strict=True):
        assert greedy_chain(module, ids, golden, features, row, len(chain)) == chain


def published(folder: Path, golden: Mapping[str, Tensor]) -> tuple[Any, Eagle3Head]:
    """The golden's head in float64, through the loading path of users."""
    from codraft.drafters.weights import load_head, open_head

    loaded = load_head(open_head(str(folder), "eagle3"))
    head = loaded.head
    table = golden.get("target.embed_tokens", torch.zeros((head.vocab_size or 0, head.geometry.hidden)))
    ends = ToyEnds(head.vocab_size or 0, head.geometry.hidden)
    ends.embedding_VH = table.double()
    if "target.lm_head" in golden:
        ends.head_VH = golden["target.lm_head"].double()
    taps = tuple(range(head.num_taps))
    module = Eagle3Head(head, taps, ends, loaded.tensors.keys()).double()
    module.load_state_dict({name: t for name, t in loaded.tensors.items() if name not in ("d2t", "t2d")}, strict=True)
    return loaded, module.requires_grad_(False)


def greedy_chain(
    module: Eagle3Head, ids: Tensor | None, golden: Mapping[str, Tensor], features: Tensor, row: int, depth: int
) -> list[int]:
    """What the live drafter drafts after this row's anchor."""
    from codraft.core.spec import Sampling
    from codraft.drafters.pick import Picker

    tokens = golden["token_ids"].tolist()
    picker = Picker("greedy", Sampling(), 64, ids)
    drafter = SerialDrafter(module, picker, module.taps, DrafterInfo(name="e", mechanism="eagle3", options={}))
    states = {tap: [features[: row + 1, i]] for i, tap in enumerate(module.taps)}
    drafter.prefill([Request(0, tokens[: row + 1], 99)], [tokens[row + 1]], states)
    return drafter.propose([tokens[row + 1]], depth).tokens[0]


def test_usual_taps_are_those_of_published_heads() -> None:
    # SafeAILab: inputs of layers 2, L // 2 and L - 3, which are outputs of the layers before.
    assert usual_taps(32) == (1, 15, 28)
    assert usual_taps(36) == (1, 17, 32)
