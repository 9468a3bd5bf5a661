"""MTP modules: their layers against transformers' own, published code's numbers, live drafting against the
teacher-forced view."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from codraft.core.schema import DrafterInfo
from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.drafters.mtp import MtpHead, make_head
from codraft.drafters.pick import Picker
from codraft.drafters.rollout import Building, Rollout
from codraft.drafters.serial import SerialDrafter
from codraft.formats.heads.mtp_layout import MtpLayout, read_layout

from tests.drafters.heads import (
    ForcedPicker,
    ToyEnds,
    assert_live_follows_unroll,
    gather,
    random_stream,
)
from tests.drafters.mtps import FAMILIES, H, Made, V, checkpoint_of, in_float64, made, without_blank

ENDS = ToyEnds(V, H)
INFO = DrafterInfo(name="mtp", mechanism="mtp", options={})
GOLDEN = Path(__file__).parents[1] / "golden" / "heads"
CASES = sorted(folder.name for folder in GOLDEN.glob("mtp_*"))


def drafter_of(head: MtpHead, picker: Picker) -> SerialDrafter:
    return SerialDrafter(head, picker, (head.tap,), INFO)


def hf_layer(one: Made, index: int, x_NH: Tensor, start: int = 0) -> Tensor:
    """A causal pass of transformers' own layer over rows at positions `start`..."""
    family = one.family
    positions = torch.arange(start, start + len(x_NH))[None]
    kind = "TextRotaryEmbedding" if family.text else "RotaryEmbedding"
    # Its frequencies stay float32, as ours do.
    rotary = family.part(kind)(family.hf_config())
    with in_float64(family):
        turned = rotary(x_NH[None], positions)
        out = one.layers[index](x_NH[None], attention_mask=None, position_ids=positions, position_embeddings=turned)
    return out[0] if out.dim() == 3 else out


def numbers(rows: int, seed: int = 1) -> Tensor:
    return torch.randn((rows, H), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normed(x_NH: Tensor, weight_H: Tensor, eps: float = 1e-3) -> Tensor:
    return x_NH * torch.rsqrt(x_NH.square().mean(-1, keepdim=True) + eps) * weight_H


@pytest.mark.parametrize("name", FAMILIES)
def test_the_block_is_transformers_own_layer(name: str) -> None:
    one = made(name, seed=3)
    x_NH = numbers(11)
    found = one.head(ENDS).blocks[0](x_NH, torch.arange(11), Building())
    torch.testing.assert_close(found, hf_layer(one, 0, x_NH), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_is_run_as_its_family_defines_it(name: str) -> None:
    """Joint, layer, last norm and what is handed on, for two modules: written out with transformers' layers."""
    one = made(name, modules=2, seed=4)
    head, style = one.head(ENDS), one.family.style
    stream = random_stream(5, V, H, (head.tap,), (4, 8))
    tokens = torch.tensor([*stream.prompt_ids, *stream.output_ids])
    rollout = Rollout(head, head.fuse(stream.features), tokens)
    offset = 1.0 if "Qwen3" in one.family.prefix and name != "speculators" else 0.0
    hidden = stream.features[head.tap]
    for k in range(2):
        rows = len(tokens) - 1 - k
        weights = {part: w + offset if w.dim() == 1 else w for part, w in one.joints[k].items()}
        embedding = ENDS.embed(tokens[1 + k :])
        if style in ("deepseek", "mimo"):
            embedding = torch.cat([torch.zeros_like(embedding[:1]), embedding[1:]])
        pair = [normed(embedding, weights["embed"]), normed(hidden[:rows], weights["hidden"])]
        joined = torch.cat(pair[::-1] if style == "mimo" else pair, -1) @ weights["proj"].T
        out = hf_layer(one, k, joined, start=k)
        readable = normed(out, weights["final"])
        torch.testing.assert_close(rollout.step(), readable, rtol=1e-8, atol=1e-8)
        # GLM is the one whose engines differ: vLLM hands on what the norm has not seen.
        hidden = out if name.startswith("glm") else readable
        torch.testing.assert_close(rollout.hidden_NH, hidden, rtol=1e-8, atol=1e-8)
    assert head.tap == (1 if style == "mimo" else "final")


def published(case: str) -> tuple[dict[str, Any], Mapping[str, Tensor], MtpLayout, Mapping[str, Tensor], ToyEnds]:
    """A golden: what is said of it, its numbers, its modules through our reader, and the target's ends."""
    about = json.loads((GOLDEN / case / "golden.json").read_text())
    golden, stored = load_file(GOLDEN / case / "golden.safetensors"), load_file(GOLDEN / case / "model.safetensors")
    config = json.loads((GOLDEN / case / "config.json").read_text())
    layout = without_blank(read_layout(checkpoint_of(config, stored), case))
    ends = ToyEnds(V, H)
    ends.embedding_VH = golden.get("target.embed_tokens", stored.get("model.embed_tokens.weight")).double()
    ends.head_VH = golden.get("target.lm_head", stored.get("lm_head.weight")).double()
    return about, golden, layout, stored, ends


@pytest.mark.parametrize("case", CASES)
def test_published_code_gives_the_same_logits_at_every_step(case: str) -> None:
    """Several modules in turn, one re-used on its own output, and greedy chains, through the reader of files."""
    about, golden, layout, stored, ends = published(case)
    one_module = replace(layout, modules=layout.modules[:1], sparse=layout.sparse[:1], fused=layout.fused[:1])
    runs = {"module_logits": layout, "logits": layout, "reuse_logits": one_module}
    runs = {key: run.with_feedback("post_norm") for key, run in runs.items() if key in golden}
    runs |= {key: one_module.with_feedback("pre_norm") for key in ("reuse_logits_unnormed",) if key in golden}
    assert runs
    for key, run in runs.items():
        head = make_head(run, dict(stored), "final", ends, torch.float64, "cpu")
        rollout = Rollout(head, golden["features"].double(), golden["token_ids"])
        for k, expected in enumerate(golden[key]):
            logits = head.logits(k % head.num_modules, rollout.step())[: len(expected)]
            torch.testing.assert_close(logits.float(), expected, rtol=0, atol=about["tolerance"])
    head = make_head(layout.with_feedback("post_norm"), dict(stored), "final", ends, torch.float64, "cpu")
    tokens, features = golden["token_ids"].tolist(), golden["features"].double()
    for row, chain in zip(golden["chain_rows"].tolist(), golden["chain_tokens"].tolist(), strict=True):
        drafter = drafter_of(head, Picker("greedy", Sampling(), len(ends.head_VH)))
        drafter.prefill([Request(0, tokens[: row + 1], 99)], [tokens[row + 1]], {"final": [features[: row + 1]]})
        assert drafter.propose([tokens[row + 1]], len(chain)).tokens[0] == chain


@pytest.mark.parametrize("modules", [1, 2, 3])
@pytest.mark.parametrize("name", FAMILIES)
def test_live_drafting_is_the_teacher_forced_view_at_every_position(name: str, modules: int) -> None:
    head = made(name, modules, seed=modules).head(ENDS)
    streams = [random_stream(s, V, H, (head.tap,), (1 + 4 * s, 9 + 3 * s)) for s in range(3)]
    picker = ForcedPicker(V)
    compared = assert_live_follows_unroll(
        drafter_of(head, picker), picker, streams, lambda step: (2 * modules + 2 - 3 * step) % (2 * modules + 3)
    )
    assert compared > 20


@settings(max_examples=15)
@given(
    seed=st.integers(0, 999),
    modules=st.integers(1, 4),
    depths=st.lists(st.integers(0, 10), min_size=1, max_size=4),
    prompt=st.integers(1, 9),
)
def test_any_sequence_of_depths_and_acceptances_agrees(seed: int, modules: int, depths: list[int], prompt: int) -> None:
    head = made("mimo", modules, seed % 7).head(ENDS)
    streams = [random_stream(seed + s, V, H, (head.tap,), (prompt + s, 14)) for s in range(2)]
    picker = ForcedPicker(V)
    assert_live_follows_unroll(drafter_of(head, picker), picker, streams, lambda step: depths[step % len(depths)], seed)


@pytest.mark.parametrize("modules", [1, 2, 3])
@pytest.mark.parametrize("name", ["deepseek", "qwen3_5_moe"])
def test_the_cache_holds_what_a_fresh_one_would_be_built_from_true_features(name: str, modules: int) -> None:
    head = made(name, modules).head(ENDS)
    stream = random_stream(1, V, H, (head.tap,), (4, 12))
    picker = ForcedPicker(V)
    used, rebuilt = drafter_of(head, picker), drafter_of(head, picker)
    used.prefill([Request(0, stream.prompt_ids, 99)], [stream.output_ids[0]], gather([stream], [0], [(0, 4)]))
    for at in (0, 2, 4):
        picker.script = [[5], [1], [2], [7], [3]]
        used.propose([stream.output_ids[at]], 5)
        used.commit(
            [[stream.output_ids[at + 1]]], [stream.output_ids[at + 2]], gather([stream], [0], [(4 + at, 6 + at)])
        )
    tokens = [*stream.prompt_ids, *stream.output_ids[:6]]
    rebuilt.prefill([Request(0, tokens, 99)], [stream.output_ids[6]], gather([stream], [0], [(0, 10)]))
    for drafter in (used, rebuilt):
        picker.script = [[0]] * modules
        drafter.propose([stream.output_ids[6]], modules)
    row = sum(held[0].numel() for cache in used._caches for held in cache.held(0, 0))
    assert head.device_bytes(5) - head.device_bytes(0) == 5 * 8 * row
    for m in range(modules):
        assert used._caches[m].lengths == rebuilt._caches[m].lengths == [10 - m]
        for one, other in zip(used._caches[m].held(0, 0), rebuilt._caches[m].held(0, 0), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_modules_run_in_the_targets_dtype_and_choose_experts_in_float32(name: str) -> None:
    one = made(name, 2)
    ends, layout = ToyEnds(V, H), one.layout()
    ends.embedding_VH, ends.head_VH = ends.embedding_VH.bfloat16(), ends.head_VH.bfloat16()
    head = make_head(layout, dict(one.tensors), "final", ends, torch.bfloat16, "cpu")
    stored = {key.rpartition(".")[2]: weight.dtype for key, weight in head.named_parameters()}
    assert stored.pop("e_score_correction_bias", torch.float32) == torch.float32
    assert set(stored.values()) == {torch.bfloat16}
    rollout = Rollout(head, numbers(6).bfloat16(), torch.arange(7))
    assert head.logits(0, rollout.step()).dtype == torch.bfloat16
