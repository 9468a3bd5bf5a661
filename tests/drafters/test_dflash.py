"""DFlash: published code, an overfit head, own vocabularies, and what must be refused."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from codraft.core.errors import SpecError
from codraft.core.spec import DflashSpec, Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.load import sizes_of
from codraft.decode.hf.model import HFModel
from codraft.drafters import dflash, registry
from codraft.drafters.beside import Beside
from codraft.drafters.block import BlockDrafter, stream_blocks
from codraft.drafters.layers.parts import ACTIVATIONS
from codraft.drafters.pick import Picker
from codraft.formats.heads.options import ACTS
from codraft.replay.measure import replay

from tests.drafters.blocks import TAPS, WIDE, V, drafter_of, module_of, overfit, published
from tests.drafters.heads import assert_replay_is_live, gather, random_stream, streams_of
from tests.drafters.laws import FeatureToy
from tests.drafters.test_external import net

GOLDEN = Path(__file__).parents[1] / "golden" / "heads"
CASES = sorted(folder.name for folder in GOLDEN.glob("dflash_*"))
GREEDY = Sampling()


@pytest.mark.parametrize("case", CASES)
def test_published_code_gives_the_same_block_behind_every_anchor(case: str) -> None:
    about = json.loads((GOLDEN / case / "golden.json").read_text())
    golden = load_file(GOLDEN / case / "golden.safetensors")
    module, _ = published(GOLDEN / case, "dflash")
    features = {tap: golden["features"][:, i].double() for i, tap in enumerate(module.taps)}
    fused = module.fuse(features)
    context = module.context(fused, torch.arange(len(fused)))
    for suffix, size in (("", module.size), ("_small", about.get("block_small"))):
        if size is None:
            continue
        hidden = stream_blocks(module, context, golden["token_ids"], golden["anchors"], size)
        torch.testing.assert_close(hidden.float(), golden[f"hidden{suffix}"], rtol=0, atol=1e-5)
        logits = module.logits(hidden[:, 1:].flatten(0, 1)).unflatten(0, (len(hidden), size - 1))
        torch.testing.assert_close(logits.float(), golden[f"logits{suffix}"], rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_live_drafter_drafts_what_published_code_drafts(case: str) -> None:
    """Through the whole path: the anchors one after the other, features as they are committed."""
    golden = load_file(GOLDEN / case / "golden.safetensors")
    about = json.loads((GOLDEN / case / "golden.json").read_text())
    module, ids = published(GOLDEN / case, "dflash")
    tokens, features = golden["token_ids"].tolist(), golden["features"].double()
    drafter = drafter_of(module, Picker("greedy", GREEDY, 48, ids), block="resize")
    fed = 1

    def rows(start: int, end: int) -> dict[Any, list[torch.Tensor]]:
        return {tap: [features[start:end, i]] for i, tap in enumerate(module.taps)}

    drafter.prefill([Request(0, tokens[:1], 99)], [tokens[1]], rows(0, 1))
    compared = 0
    for row, p in enumerate(golden["anchors"].tolist()):
        if p == 0:
            continue
        if p > fed:
            drafter.commit([tokens[fed + 1 : p]], [tokens[p]], rows(fed, p))
            fed = p
        assert drafter.propose([tokens[p]], module.size - 1).tokens[0] == golden["draft_tokens"][row].tolist()
        compared += 1
        if "draft_tokens_small" in golden:
            small = drafter.propose([tokens[p]], about["block_small"] - 1).tokens[0]
            assert small == golden["draft_tokens_small"][row].tolist()
    assert compared >= 4


@pytest.mark.parametrize(("variant", "block"), [("same_slot", "resize"), ("causal", "truncate")])
def test_an_overfit_head_is_always_right(variant: str, block: str) -> None:
    target = FeatureToy(16, seed=3, eos=False)
    prompts = [[(3 * i + 5 * j) % 16 for j in range(3)] for i in range(8)]
    streams = streams_of(target, prompts, GREEDY, asked=6, tail=3)
    module = module_of("dflash", variant, **WIDE)
    overfit(module, target, streams, 3, 50)
    drafter = drafter_of(module, Picker("greedy", GREEDY, 16), block=block)
    logs = replay(target, drafter, streams, GREEDY, target.eos_ids, [3])
    assert [log.accepted_N.tolist() for log in logs.by_depth[3]] == [[3, 3]] * 8
    assert_replay_is_live(target, drafter, streams, GREEDY, [3])


def test_a_head_of_a_part_of_the_vocabulary_drafts_in_the_targets_ids() -> None:
    """And never a token that it does not know; replay and live agree."""
    target = FeatureToy(V, seed=3)
    module = module_of("dflash", "own_ends", draft_vocab_size=3)
    drafter = drafter_of(module, Picker("greedy", GREEDY, V, torch.tensor([1, 4, 5])))
    streams = streams_of(target, [[3, 1], [2], [5, 5, 4]], GREEDY, asked=12, tail=4)
    assert_replay_is_live(target, drafter, streams, GREEDY, [1, 4])
    stream = random_stream(0, V, 16, TAPS, (4, 3))
    drafter.prefill([Request(0, stream.prompt_ids, 9)], [0], gather([stream], [0], [(0, 4)]))
    assert set(drafter.propose([0], 6).tokens[0]) <= {1, 4, 5}


TARGET = net(0)
SHAPE = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "head_dim": 8,
    "vocab_size": 48,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "block_size": 4,
    "dflash_config": {"mask_token_id": 47, "target_layer_ids": [-1, 1]},
}


def beside(target: HFModel = TARGET, sampling: Sampling = GREEDY) -> Beside:
    return Beside("-", Path("-"), sizes_of(target.model.config), sampling, "float64", lambda: target)


def write_head(
    folder: Path, config: Mapping[str, Any], more: Mapping[str, tuple[int, ...]], drop: tuple[str, ...] = ()
) -> Path:
    """A drafter folder with random weights; `more` are tensors beside those of every DFlash head."""
    H, q, kv = config["hidden_size"], 16, 8
    taps = len(config.get("dflash_config", {}).get("target_layer_ids", config.get("target_layer_ids", [0])))
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (H, taps * 16),
        "hidden_norm.weight": (H,),
        "norm.weight": (H,),
    }
    for i in range(config["num_hidden_layers"]):
        shapes |= {
            f"layers.{i}.self_attn.q_proj.weight": (q, H),
            f"layers.{i}.self_attn.k_proj.weight": (kv, H),
            f"layers.{i}.self_attn.v_proj.weight": (kv, H),
            f"layers.{i}.self_attn.o_proj.weight": (H, q),
            f"layers.{i}.self_attn.q_norm.weight": (8,),
            f"layers.{i}.self_attn.k_norm.weight": (8,),
            f"layers.{i}.mlp.gate_proj.weight": (24, H),
            f"layers.{i}.mlp.up_proj.weight": (24, H),
            f"layers.{i}.mlp.down_proj.weight": (H, 24),
            f"layers.{i}.input_layernorm.weight": (H,),
            f"layers.{i}.post_attention_layernorm.weight": (H,),
        }
    generator = torch.Generator().manual_seed(0)
    tensors = {
        name: torch.randn(shape, generator=generator)
        for name, shape in (shapes | dict(more)).items()
        if name not in drop
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(
    "more",
    [{}, {"mask_embedding": (1, 1, 16)}, {"mask_embedding.weight": (16,), "embed_tokens.weight": (48, 16)}],
    ids=["plain", "mask", "mask and embedding"],
)
def test_a_checkpoint_drafts_beside_a_real_target(tmp_path: Path, more: Mapping[str, tuple[int, ...]]) -> None:
    """Features of its embeddings and of its last layer, ends borrowed; replay is live decoding."""
    folder = write_head(tmp_path / "head", SHAPE, more)
    drafter = registry.build(DflashSpec(path=str(folder)), beside())
    assert isinstance(drafter, BlockDrafter)
    assert drafter.taps == (-1, 1)
    assert drafter.info.options == {"draft": "greedy", "block": "resize"}
    streams = streams_of(TARGET, [[3, 4, 5], [9], [7, 8]], GREEDY, asked=10, tail=4)
    assert_replay_is_live(TARGET, drafter, streams, GREEDY, [1, 3])


def test_a_masks_own_embedding_stands_for_the_token(tmp_path: Path) -> None:
    """The embedding of the mask token, stored as the mask's own, changes nothing; another one does."""
    plain = dflash.build(DflashSpec(path=str(write_head(tmp_path / "a", SHAPE, {}))), beside())
    own = dflash.build(DflashSpec(path=str(write_head(tmp_path / "b", SHAPE, {"mask_embedding": (16,)}))), beside())
    starts = torch.tensor([3])
    stream = random_stream(0, 48, 16, (-1, 1), (3, 2))

    def block(drafter: Any) -> torch.Tensor:
        head = drafter.head
        context = head.context(head.fuse(stream.rows(0, 3)), torch.arange(3))
        return stream_blocks(head, context, torch.tensor([*stream.prompt_ids, 5]), starts, 4)

    assert not torch.allclose(block(plain), block(own))
    own.head.mask_embedding.data = TARGET.embed(torch.tensor([47]))[0]  # type: ignore[attr-defined]
    assert torch.equal(block(plain), block(own))


def test_rotary_pairs_are_those_that_the_config_says() -> None:
    """Turning keeps the length of every pair: halves of a head as a rule, neighbours where `is_neox_style` is false."""
    for variant, pairs in (("same_slot", [(0, 2), (1, 3)]), ("interleaved", [(0, 1), (2, 3)])):
        module = module_of("dflash", variant)
        fused = random_stream(0, V, 16, (0,), (1, 1)).features[0].expand(2, 16)
        [(still, turned), *_] = [keys[:, 0] for keys, _ in module.context(fused, torch.tensor([0, 3]))]
        assert not torch.allclose(still, turned)
        for pair in pairs:
            torch.testing.assert_close(still[list(pair)].norm(), turned[list(pair)].norm())


def test_a_layer_may_be_read_twice(tmp_path: Path) -> None:
    config = changed(dflash_config={"mask_token_id": 47, "target_layer_ids": [1, 0, 1]})
    drafter = dflash.build(DflashSpec(path=str(write_head(tmp_path / "head", config, {}))), beside())
    assert drafter.taps == (1, 0)
    streams = streams_of(TARGET, [[3, 4, 5], [9]], GREEDY, asked=6, tail=2)
    assert_replay_is_live(TARGET, drafter, streams, GREEDY, [2])


OWN: dict[str, Any] = dict(SHAPE["dflash_config"])  # type: ignore[call-overload]


def changed(**keys: Any) -> dict[str, Any]:
    return {**SHAPE, **keys}


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in SHAPE.items() if name != key}


Refused = tuple[Callable[[], dict[str, Any]], Mapping[str, tuple[int, ...]], str]
REFUSED: dict[str, Refused] = {
    "layers": (
        lambda: changed(dflash_config={"mask_token_id": 47, "target_layer_ids": [0, 2]}),
        {},
        "layers \\[0, 2\\].*target's are 0..1",
    ),
    "no layers": (lambda: changed(dflash_config={"mask_token_id": 47}, num_target_layers=2), {}, "no layer ids"),
    "vocabulary": (lambda: changed(vocab_size=50), {}, "vocab_size is 50, the target's 48"),
    "no vocabulary": (
        lambda: without("vocab_size"),
        {"embed_tokens.weight": (48, 16)},
        "no vocab_size; write that of its target",
    ),
    "feature width": (lambda: changed(target_hidden_size=8), {"fc.weight": (16, 16)}, "width 8.*hidden size is 16"),
    "scale": (
        lambda: changed(dflash_config={**OWN, "attention_value_scale": 0.5}),
        {},
        "does not know what dflash_config.attention_value_scale \\(0.5\\) changes",
    ),
    "unknown factors": (
        lambda: changed(dflash_config={**OWN, "input_embedding_scale": 0.5, "output_multiplier": 2.0}),
        {},
        "input_embedding_scale \\(0.5\\), dflash_config.output_multiplier \\(2.0\\) changes",
    ),
    "mask": (
        lambda: without("vocab_size") | {"dflash_config": {**OWN, "mask_token_id": 48}},
        {},
        "mask_token_id is 48, expected one of the target's 0..47",
    ),
    "mask width": (lambda: SHAPE, {"mask_embedding": (3,)}, "mask_embedding has 3 values, expected 16"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_head_that_cannot_work_beside_the_target_is_refused(tmp_path: Path, case: str) -> None:
    config, more, message = REFUSED[case]
    folder = write_head(tmp_path / "head", config(), more)
    with pytest.raises(SpecError, match=message):
        dflash.build(DflashSpec(path=str(folder)), beside())


def test_factors_of_one_and_switches_that_are_off_change_nothing(tmp_path: Path) -> None:
    config = changed(dflash_config={**OWN, "output_multiplier": 1.0, "attention_sink_bias": False, "novel": False})
    streams = streams_of(TARGET, [[3, 4, 5]], GREEDY, asked=6, tail=2)
    drafter = dflash.build(DflashSpec(path=str(write_head(tmp_path, config, {}))), beside())
    assert_replay_is_live(TARGET, drafter, streams, GREEDY, [2])


def test_what_a_head_turns_by_goes_to_the_targets_device(tmp_path: Path) -> None:
    """In float32, whatever the target's dtype; a share of each head where the config says so."""
    target = net(0)
    target.device, target.dtype = "meta", "bfloat16"
    config = changed(partial_rotary_factor=0.5)
    inverse = dflash.build(DflashSpec(path=str(write_head(tmp_path, config, {}))), beside(target)).head.rotary.inverse  # type: ignore[attr-defined]
    assert (inverse.device.type, inverse.dtype, len(inverse)) == ("meta", torch.float32, 2)


def test_a_narrower_head_needs_ends_of_its_own(tmp_path: Path) -> None:
    config = changed(hidden_size=12, target_hidden_size=16)
    folder = write_head(tmp_path / "head", config, {"embed_tokens.weight": (48, 12)})
    with pytest.raises(SpecError, match="hidden size 12 and no lm_head of its own"):
        dflash.build(DflashSpec(path=str(folder)), beside())
    whole = write_head(tmp_path / "whole", config, {"embed_tokens.weight": (48, 12), "lm_head.weight": (48, 12)})
    streams = streams_of(TARGET, [[3, 4, 5]], GREEDY, asked=6, tail=2)
    assert_replay_is_live(TARGET, dflash.build(DflashSpec(path=str(whole)), beside()), streams, GREEDY, [2])


def test_every_activation_that_a_config_may_name_is_there() -> None:
    assert set(ACTS) == set(ACTIVATIONS)
