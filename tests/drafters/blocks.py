"""What tests of block drafters share: heads of every option, their training, and slow references."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from codraft.core.schema import DrafterInfo
from codraft.decode.drafter import Request
from codraft.drafters.block import BlockDrafter, BlockSight, Site
from codraft.drafters.dflash import DFlashHead, prepared
from codraft.drafters.dspark import DSparkHead
from codraft.drafters.pick import Picker
from codraft.drafters.weights import load_head, open_head, target_ids
from codraft.formats.heads.head import MAPS, Head, Kind
from codraft.formats.heads.read import read_head
from codraft.replay.streams import TokenStream

from tests.drafters.heads import ForcedPicker, Stream, ToyEnds, gather, randomize
from tests.drafters.laws import FeatureToy, features_of

V, H, TAPS, SIZE = 7, 16, (0, 2), 4
SHAPE: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "hidden_size": H,
    "intermediate_size": 20,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": V,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500.0,
    "block_size": SIZE,
    "dflash_config": {"mask_token_id": 6, "target_layer_ids": list(TAPS)},
}
NEXT = {"sample_from_anchor": True}
SLIDING = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 5}
MARKOV = {"markov_rank": 3, "enable_confidence_head": True, "confidence_head_with_markov": True}
GATE, JOINT = "markov_head.gate_proj.bias", "markov_head.joint_proj.bias"
# A head wide enough to learn eight streams by heart.
WIDE = {
    "vocab_size": 16,
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "target_hidden_size": H,
}
# Every option that changes what a block computes: the keys that set it, and tensors that a file has beside the usual.
DFLASH: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "same_slot": ({}, ()),
    "next_slot": (NEXT, ()),
    "causal": ({"is_causal": True}, ()),
    "sliding": (SLIDING, ()),
    "sliding_non_causal": ({**SLIDING, "is_causal": False}, ()),
    "window_below_block": ({**SLIDING, "sliding_window": 2}, ()),
    "swa": ({"dflash_config": {**SHAPE["dflash_config"], "use_swa": True, "swa_window_size": 6}}, ()),
    "interleaved": ({"is_neox_style": False}, ()),
    "biased": ({"attention_bias": True}, ("layers.0.self_attn.o_proj.bias", "layers.1.self_attn.o_proj.bias")),
    "sinks": ({}, ("layers.0.self_attn.sinks", "layers.1.self_attn.sinks")),
    "mask_embedding": ({}, ("mask_embedding",)),
    "own_ends": ({}, ("embed_tokens.weight", "lm_head.weight")),
}
DSPARK: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "bare": ({"markov_rank": 0}, ()),
    "vanilla": (MARKOV, ()),
    "gated": ({**MARKOV, "markov_head_type": "gated"}, (GATE,)),
    "gated_unbiased": ({**MARKOV, "markov_head_type": "gated"}, ()),
    "rnn": ({**MARKOV, "markov_head_type": "rnn"}, (JOINT,)),
    "rnn_same_slot": ({**MARKOV, "markov_head_type": "rnn", "sample_from_anchor": False}, (JOINT,)),
    "rnn_sliding": ({**MARKOV, **SLIDING, "markov_head_type": "rnn"}, (JOINT,)),
    "confidence_without_token": ({**MARKOV, "confidence_head_with_markov": False}, ()),
}
INFO = DrafterInfo(name="block", mechanism="block", options={})


def head_of(mechanism: str, config: Mapping[str, Any]) -> Head:
    kind = Kind(mechanism=mechanism, family="zlab", seen=("test", True))
    return read_head(kind, {**SHAPE, **config}, {}, "config.json")


def module_of(mechanism: str, variant: str, seed: int = 0, **more: Any) -> DFlashHead:
    """A head with random weights in float64."""
    config, own = (DFLASH if mechanism == "dflash" else DSPARK)[variant]
    head = head_of(mechanism, {**config, **more})
    kind = DFlashHead if mechanism == "dflash" else DSparkHead
    with torch.random.fork_rng():
        module = kind(head, ToyEnds(head.vocab_size or 0, head.geometry.hidden), own)
    randomize(module, seed)
    return module


def drafter_of(module: DFlashHead, picker: Picker, **options: Any) -> BlockDrafter:
    return BlockDrafter(module, picker, INFO, **options)


def unrolled(drafter: BlockDrafter, picker: ForcedPicker, stream: Stream, D: int) -> dict[tuple[int, int], Tensor]:
    """(anchor, draft) -> logits [V'] of the teacher-forced view."""
    picker.seen = []
    drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), D)
    return {(p, i): logits_V for i, logits_NV in enumerate(picker.seen) for p, logits_V in enumerate(logits_NV)}


def assert_live_is_unrolled(
    drafter: BlockDrafter, picker: ForcedPicker, streams: Sequence[Stream], depths: Sequence[int], taken: Sequence[int]
) -> int:
    """Decode along the streams in a batch, `taken` tokens a step, and drop those that end. Every live logit must be the
    teacher-forced one at the same D. Returns how many were compared."""
    expected: dict[int, list[dict[tuple[int, int], Tensor]]] = {
        D: [unrolled(drafter, picker, stream, D) for stream in streams] for D in set(depths)
    }
    place, alive = [0] * len(streams), list(range(len(streams)))
    spans = [(0, len(stream.prompt_ids)) for stream in streams]
    drafter.prefill(
        [Request(i, stream.prompt_ids, 99) for i, stream in enumerate(streams)],
        [stream.output_ids[0] for stream in streams],
        gather(streams, alive, spans),
    )
    compared = 0
    for step in itertools.count():
        D = depths[step % len(depths)]
        _, k = drafter._shape(D)
        # What a live draft says beyond the stream's end has no teacher-forced counterpart.
        ids = [(streams[i].output_ids + [0] * 99)[place[i] + 1 : place[i] + 1 + k] for i in alive]
        picker.seen, picker.script = [], [[row[j] for row in ids] for j in range(k)]
        proposal = drafter.propose([streams[i].output_ids[place[i]] for i in alive], D)
        assert proposal.tokens == ids
        for j, logits_BV in enumerate(picker.seen):
            for i, logits_V in zip(alive, logits_BV, strict=True):
                if place[i] + 1 + j < len(streams[i].output_ids):
                    torch.testing.assert_close(logits_V, expected[D][i][place[i], j], rtol=1e-9, atol=1e-9)
                    compared += 1
        count = [min(taken[(step + i) % len(taken)], len(streams[i].output_ids) - 2 - place[i]) for i in alive]
        at = [len(streams[i].prompt_ids) + place[i] for i in alive]
        spans = [(start, start + 1 + a) for start, a in zip(at, count, strict=True)]
        drafter.commit(
            [streams[i].output_ids[place[i] + 1 : place[i] + 1 + a] for i, a in zip(alive, count, strict=True)],
            [streams[i].output_ids[place[i] + 1 + a] for i, a in zip(alive, count, strict=True)],
            gather(streams, alive, spans),
        )
        for i, a in zip(alive, count, strict=True):
            place[i] += 1 + a
        going = [row for row, i in enumerate(alive) if place[i] < len(streams[i].output_ids) - 1]
        if len(going) < len(alive):
            alive = [alive[row] for row in going]
            if not alive:
                break
            drafter.keep(going)
    return compared


def slot_by_slot(module: DFlashHead, stream: Stream, p: int, num_slots: int, windows: Sequence[int | None]) -> Tensor:
    """[num_slots, H] of the block behind the token at position p, every attention weight written out."""
    fused = module.fuse(stream.rows(0, p))
    ids = [[*stream.prompt_ids, *stream.output_ids][p], *[module.mask_token_id] * (num_slots - 1)]
    x = module._embed(torch.tensor(ids))
    if module.mask_embedding is not None:
        x[1:] = module.mask_embedding
    at = [p + j for j in range(num_slots)]
    for layer, causal, window in zip(module._stack, module.causal, windows, strict=True):
        attention, normed = layer.self_attn, layer.input_layernorm(x)
        q, _ = attention.queries(normed, torch.tensor(at))
        ck, cv = attention.keys_values(fused, torch.arange(p))
        bk, bv = attention.keys_values(normed, torch.tensor(at))
        keys, values, places = torch.cat((ck, bk)), torch.cat((cv, bv)), [*range(p), *at]
        rows = []
        for j, here in enumerate(at):
            seen = [
                m
                for m, there in enumerate(places)
                if (window is None or here - there < window) and (m < p or not causal or there <= here)
            ]
            heads = []
            for h in range(attention.heads):
                g = h // (attention.heads // attention.kv_heads)
                logits = (keys[seen, g] @ q[j, h]) / attention.head_dim**0.5
                if attention.sinks is not None:
                    logits = torch.cat((logits, attention.sinks[h : h + 1]))
                heads.append(logits.softmax(0)[: len(seen)] @ values[seen, g])
            rows.append(torch.cat(heads))
        x = x + attention.o_proj(torch.stack(rows))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    out: Tensor = module.norm(x)
    return out


def overfit(module: DFlashHead, target: FeatureToy, streams: Sequence[TokenStream], k: int, steps: int) -> None:
    """Train on the teacher-forced pass over all blocks of all streams, cross-entropy of the streams' tokens."""
    module.requires_grad_(True)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    num_slots = k + module.first_slot
    tokens = [torch.tensor([*s.prompt_ids, *s.output_ids]) for s in streams]
    starts = [torch.arange(len(s.prompt_ids), len(ids) - k) for s, ids in zip(streams, tokens, strict=True)]
    anchors_C = torch.cat([ids[at] for ids, at in zip(tokens, starts, strict=True)])
    wanted_Ck = torch.cat([ids[at[:, None] + 1 + torch.arange(k)] for ids, at in zip(tokens, starts, strict=True)])
    previous_Ck = torch.cat((anchors_C[:, None], wanted_Ck[:, :-1]), dim=1)
    features = [features_of(target, ids.tolist(), module.taps) for ids in tokens]
    for _ in range(steps):
        sites = []
        for rows, at in zip(features, starts, strict=True):
            fused = module.fuse({tap: rows[tap][0] for tap in module.taps})
            sites.append(Site(at.tolist(), module.context(fused, torch.arange(len(fused))).__getitem__))
        sight = BlockSight(sites, num_slots, module.causal)
        hidden_CkH = module.fill(anchors_C, torch.cat(starts), num_slots, sight)[:, module.first_slot :]
        memory_Cs, loss = module.begin(hidden_CkH[:, 0]), torch.zeros((), dtype=torch.float64)
        for i in range(k):
            base_CV = module.logits(hidden_CkH[:, i])
            logits_CV, memory_Cs = module.correct(base_CV, hidden_CkH[:, i], previous_Ck[:, i], memory_Cs)
            loss = loss + nn.functional.cross_entropy(logits_CV, wanted_Ck[:, i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    module.requires_grad_(False)


def published(folder: Path, mechanism: str) -> tuple[DFlashHead, Tensor | None]:
    """A golden's head in float64 through the loading path of users, and what its own ids mean."""
    loaded = prepared(load_head(open_head(str(folder), mechanism)))
    head, golden = loaded.head, load_file(folder / "golden.safetensors")
    ends = ToyEnds(head.vocab_size or 0, head.geometry.hidden)
    if "target.embed_tokens" in golden:
        ends.embedding_VH = golden["target.embed_tokens"].double()
    if "target.lm_head" in golden:
        ends.head_VH = golden["target.lm_head"].double()
    module = (DFlashHead if mechanism == "dflash" else DSparkHead)(head, ends, loaded.tensors.keys()).double()
    module.load_state_dict({name: t for name, t in loaded.tensors.items() if name not in MAPS}, strict=True)
    return module.requires_grad_(False), target_ids(loaded, head.vocab_size or 0)
