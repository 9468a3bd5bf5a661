"""Drafting by blocks: the live view against the teacher-forced one and against attention written out, for every option;
losslessness, replay, and exact laws where drafts are drawn."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.decode.loop import decode
from codraft.drafters.block import BlockDrafter, stream_blocks, visible
from codraft.drafters.pick import Picker
from codraft.drafters.schedule import Threshold
from codraft.formats.heads.options import layer_windows
from codraft.replay.measure import replay

from tests.drafters.blocks import (
    DFLASH,
    DSPARK,
    SIZE,
    TAPS,
    H,
    V,
    assert_live_is_unrolled,
    drafter_of,
    head_of,
    module_of,
    slot_by_slot,
)
from tests.drafters.heads import ForcedPicker, assert_replay_is_live, gather, random_stream, streams_of
from tests.drafters.laws import WARM, FeatureToy, enumerated, filled_up, first_step, texts

HEADS = [*(("dflash", name) for name in DFLASH), *(("dspark", name) for name in DSPARK)]
GREEDY = Sampling()


@pytest.mark.parametrize("block", ["resize", "truncate"])
@pytest.mark.parametrize(("mechanism", "variant"), HEADS)
def test_live_drafting_is_the_teacher_forced_view_at_every_position(mechanism: str, variant: str, block: str) -> None:
    """In a ragged batch whose streams end one after the other, D changing from step to step."""
    streams = [random_stream(s, V, H, TAPS, (1 + 4 * s, 8 + 3 * s)) for s in range(3)]
    picker = ForcedPicker(V)
    drafter = drafter_of(module_of(mechanism, variant), picker, block=block)
    assert assert_live_is_unrolled(drafter, picker, streams, [3, 1, 6], [0, 2, 1, 0, 3]) > 30


@settings(max_examples=10)
@given(
    seed=st.integers(0, 999),
    depths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    taken=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    prompt=st.integers(1, 9),
)
def test_any_sequence_of_depths_and_acceptances_agrees(
    seed: int, depths: list[int], taken: list[int], prompt: int
) -> None:
    streams = [random_stream(seed + s, V, H, TAPS, (prompt + s, 12)) for s in range(2)]
    picker = ForcedPicker(V)
    drafter = drafter_of(module_of("dspark", "rnn_sliding", seed), picker)
    assert_live_is_unrolled(drafter, picker, streams, depths, taken)


@pytest.mark.parametrize(("mechanism", "variant"), HEADS)
def test_a_block_is_what_attention_written_out_gives(mechanism: str, variant: str) -> None:
    """The first anchors of a stream, one in its middle and the last, each alone: masks, windows, positions, sinks."""
    module = module_of(mechanism, variant)
    config = (DFLASH if mechanism == "dflash" else DSPARK)[variant][0]
    windows = layer_windows(head_of(mechanism, config))
    stream = random_stream(5, V, H, TAPS, (1, 14))
    fused = module.fuse(stream.rows(0, 14))
    context = module.context(fused, torch.arange(14))
    tokens = torch.tensor([*stream.prompt_ids, *stream.output_ids])
    starts = torch.arange(1, 14)
    blocks = stream_blocks(module, context, tokens, starts, SIZE)
    for p in (1, 2, 7, 13):
        expected = slot_by_slot(module, stream, p, SIZE, windows)
        torch.testing.assert_close(blocks[p - 1], expected, rtol=1e-10, atol=1e-10)


def test_what_a_slot_sees() -> None:
    """Two blocks of 2 slots at positions 3 and 5, causal, a window of 3: rows are slots, columns 0..4, then slots."""
    seen = visible(torch.tensor([3, 5]), 2, 0, 5, 3, causal=True).int().tolist()
    assert seen == [
        [0, 1, 1, 0, 0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 1, 1, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 0, 0, 1, 1],
    ]


def test_sizes_of_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [random_stream(s, V, H, TAPS, (2 + s, 9)) for s in range(3)]
    module = module_of("dspark", "rnn_sliding")
    whole = drafter_of(module, Picker("greedy", GREEDY, V)).unroll(
        streams[0].prompt_ids, streams[0].output_ids, streams[0].whole(), 3
    )
    for slots, rows in ((1, 512), (5, 2), (512, 3)):
        monkeypatch.setattr("codraft.drafters.block.SLOTS_AT_ONCE", slots)
        monkeypatch.setattr("codraft.drafters.block.ROWS_AT_ONCE", rows)
        again = drafter_of(module, Picker("greedy", GREEDY, V)).unroll(
            streams[0].prompt_ids, streams[0].output_ids, streams[0].whole(), 3
        )
        assert np.array_equal(whole.hit_AD, again.hit_AD)
    monkeypatch.undo()
    alone = [propose_all(drafter_of(module, Picker("greedy", GREEDY, V)), [stream]) for stream in streams]
    monkeypatch.setattr("codraft.drafters.block.ROWS_AT_ONCE", 4)
    together = propose_all(drafter_of(module, Picker("greedy", GREEDY, V)), streams)
    assert together == [one[0] for one in alone]


def propose_all(drafter: BlockDrafter, streams: list) -> list[list[int]]:  # type: ignore[type-arg]
    """Drafts after the prompts."""
    spans = [(0, len(stream.prompt_ids)) for stream in streams]
    requests = [Request(i, stream.prompt_ids, 99) for i, stream in enumerate(streams)]
    anchors = [stream.output_ids[0] for stream in streams]
    drafter.prefill(requests, anchors, gather(streams, range(len(streams)), spans))
    return drafter.propose(anchors, 2).tokens


def test_the_context_is_what_true_features_alone_give() -> None:
    """After steps with drafts taken and drafts dropped: nothing that a block wrote is left."""
    stream = random_stream(1, V, H, TAPS, (4, 12))
    module = module_of("dflash", "sliding")
    used, fresh = (drafter_of(module, Picker("greedy", GREEDY, V)) for _ in range(2))
    used.prefill([Request(0, stream.prompt_ids, 99)], [stream.output_ids[0]], gather([stream], [0], [(0, 4)]))
    place = 0
    for a in (0, 2, 3, 1):
        used.propose([stream.output_ids[place]], 5)
        spans = [(4 + place, 5 + place + a)]
        accepted = stream.output_ids[place + 1 : place + 1 + a]
        used.commit([accepted], [stream.output_ids[place + 1 + a]], gather([stream], [0], spans))
        place += 1 + a
    tokens = [*stream.prompt_ids, *stream.output_ids[:place]]
    fresh.prefill([Request(0, tokens, 99)], [stream.output_ids[place]], gather([stream], [0], [(0, 4 + place)]))
    assert used._cache.lengths == fresh._cache.lengths == [4 + place]
    for layer in range(2):
        for one, other in zip(used._cache.held(layer, 0), fresh._cache.held(layer, 0), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("variant", "block", "stable"),
    [
        ("same_slot", "resize", False),
        ("same_slot", "truncate", True),
        ("sliding", "resize", False),
        ("causal", "resize", True),
    ],
)
def test_a_draft_is_a_prefix_of_a_longer_one_where_it_says_so(variant: str, block: str, stable: bool) -> None:
    module = module_of("dflash", variant)
    drafter = drafter_of(module, Picker("greedy", GREEDY, V), block=block)
    assert drafter.prefix_stable is stable
    streams = [random_stream(s, V, H, TAPS, (5, 3)) for s in range(8)]
    drafts = [propose_at(drafter, streams, D) for D in range(1, 4)]
    same = all(
        long[: len(short)] == short for D in (0, 1) for short, long in zip(drafts[D], drafts[D + 1], strict=True)
    )
    assert same is stable


def propose_at(drafter: BlockDrafter, streams: list, D: int) -> list[list[int]]:  # type: ignore[type-arg]
    """Drafts after the prompts, at some D."""
    propose_all(drafter, streams)
    return drafter.propose([stream.output_ids[0] for stream in streams], D).tokens


@pytest.mark.parametrize(
    ("mechanism", "block", "lengths"),
    [
        ("dflash", "resize", [1, 3, 9]),
        ("dflash", "truncate", [1, SIZE - 1, SIZE - 1]),
        ("dspark", "truncate", [1, 3, SIZE]),
    ],
)
def test_a_block_of_fixed_size_drafts_no_more_than_it_has_slots_for(
    mechanism: str, block: str, lengths: list[int]
) -> None:
    drafter = drafter_of(
        module_of(mechanism, "same_slot" if mechanism == "dflash" else "vanilla"),
        Picker("greedy", GREEDY, V),
        block=block,
    )
    stream = random_stream(0, V, H, TAPS, (5, 12))
    for D, length in zip((1, 3, 9), lengths, strict=True):
        assert [len(tokens) for tokens in propose_at(drafter, [stream], D)] == [length]
        found = drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), D)
        assert found.drafted_A.tolist() == [length] * 11
        assert found.hit_AD.shape == (11, D)
        assert not found.hit_AD[:, length:].any()


def test_beyond_the_streams_end_nothing_hits() -> None:
    """Though the picker says that everything does; drafts keep their length."""
    stream = random_stream(0, V, H, TAPS, (3, 6))
    for cut in (None, Threshold(0.0)):
        drafter = drafter_of(module_of("dspark", "vanilla"), AlwaysRight(V), cut=cut)
        found = drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), 4)
        assert found.hit_AD.tolist() == [[p + 1 + i < 6 for i in range(4)] for p in range(5)]
        assert found.drafted_A.tolist() == [4] * 5


class AlwaysRight(ForcedPicker):
    """Likes the stream's tokens, and behind its end the last one again."""

    def best(self, logits_NV: torch.Tensor) -> torch.Tensor:
        self.seen.append(logits_NV)
        i = len(self.seen)
        tokens = random_stream(0, V, H, TAPS, (3, 6)).output_ids
        return torch.tensor([tokens[min(p + i, 5)] for p in range(5)])


def test_a_stream_of_one_token_has_no_anchor() -> None:
    drafter = drafter_of(module_of("dflash", "same_slot"), Picker("greedy", GREEDY, V))
    found = drafter.unroll([1, 2], [3], {}, 4)
    assert found.hit_AD.shape == (0, 4)


def test_rows_that_stay_keep_their_own_context() -> None:
    streams = [random_stream(s, V, H, TAPS, (2 + 3 * s, 5)) for s in range(3)]
    drafter = drafter_of(module_of("dspark", "rnn"), Picker("greedy", GREEDY, V))
    propose_all(drafter, streams)
    drafter.keep([2, 0])
    kept = [streams[2], streams[0]]
    together = drafter.propose([stream.output_ids[0] for stream in kept], 3).tokens
    alone = [propose_at(drafter_of(drafter.head, drafter.picker), [stream], 3)[0] for stream in kept]  # type: ignore[arg-type]
    assert together == alone


def test_bytes_are_those_of_its_own_weights_and_of_its_context() -> None:
    module = module_of("dflash", "own_ends")
    drafter = drafter_of(module, Picker("greedy", GREEDY, V))
    parameters = sum(weight.numel() for weight in module.parameters())
    rows = 2 * 2 * 2 * (H // 4)
    assert drafter.device_bytes(3, 10) == 8 * (parameters + 30 * rows)
    borrowed = drafter_of(module_of("dflash", "same_slot"), Picker("greedy", GREEDY, V))
    assert drafter.device_bytes(0, 0) - borrowed.device_bytes(0, 0) == 8 * 2 * V * H


PROMPTS = [[3, 1], [2], [5, 5, 4, 1, 2, 6, 3], [1, 6, 2]]


@pytest.mark.parametrize("block", ["resize", "truncate"])
@pytest.mark.parametrize(
    ("mechanism", "variant"),
    [("dflash", "same_slot"), ("dflash", "next_slot"), ("dflash", "sliding"), ("dspark", "rnn"), ("dspark", "gated")],
)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.7, seed=4)], ids=["greedy", "sampled"])
def test_replay_takes_the_very_steps_of_live_decoding(
    mechanism: str, variant: str, block: str, sampling: Sampling
) -> None:
    """And the text is the target's own, token for token; some streams end by EOS."""
    target = FeatureToy(V, seed=3)
    streams = streams_of(target, PROMPTS, sampling, asked=14, tail=6)
    drafter = drafter_of(module_of(mechanism, variant), Picker("greedy", sampling, V), block=block)
    assert_replay_is_live(target, drafter, streams, sampling, (1, 2, 6))
    logs = replay(target, drafter, streams, sampling, target.eos_ids, [6])
    assert sum(int(log.accepted_N.sum()) for log in logs.by_depth[6]) > 0


@pytest.mark.parametrize(("mechanism", "variant"), [("dflash", "same_slot"), ("dspark", "rnn"), ("dspark", "vanilla")])
def test_unrolled_probabilities_are_those_that_drafts_are_drawn_from(
    mechanism: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live chain is made to draw the stream's own tokens."""
    stream = random_stream(2, V, H, TAPS, (3, 9))
    drafter = drafter_of(module_of(mechanism, variant), Picker("sample", Sampling(temperature=0.8, top_k=5), V))
    found = drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), 3)
    ids = stream.output_ids + [0] * 9
    monkeypatch.setattr("codraft.drafters.pick.draw", lambda p_V, seed, stream, position, purpose: ids[position])
    drafter.prefill([Request(0, stream.prompt_ids, 99)], [ids[0]], gather([stream], [0], [(0, 3)]))
    compared = 0
    for p in range(8):
        proposal = drafter.propose([ids[p]], 3)
        assert proposal.tokens == [ids[p + 1 : p + 4]]
        p_draft_KV = proposal.p_draft[0]
        assert p_draft_KV is not None
        torch.testing.assert_close(p_draft_KV.sum(1), torch.ones(3, dtype=torch.float64))
        for i in range(min(3, 8 - p)):
            # Behind a token that cannot be drawn nothing is followed further.
            if all(found.hit_AD[p, j] > 0 for j in range(i)):
                assert abs(float(p_draft_KV[i, ids[p + 1 + i]]) - found.hit_AD[p, i]) < 1e-12
                compared += 1
        drafter.commit([[]], [ids[p + 1]], gather([stream], [0], [(3 + p, 4 + p)]))
    assert compared > 12


@pytest.mark.parametrize(
    ("mechanism", "variant"), [("dflash", "same_slot"), ("dflash", "next_slot"), ("dspark", "rnn"), ("dspark", "gated")]
)
def test_drawn_drafts_commit_by_the_targets_law_and_replay_expects_what_live_does(
    mechanism: str, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact: every draft of two tokens over a vocabulary of three, every text of the target."""
    target, prompt, anchor, D = FeatureToy(3, seed=5, eos=False, scale=0.8), [1, 2], 0, 2
    module = module_of(mechanism, variant, vocab_size=3, dflash_config={"mask_token_id": 1, "target_layer_ids": [0, 2]})
    drafter = drafter_of(module, Picker("sample", WARM, 3))
    law, _, accepted = enumerated(drafter, target, prompt, anchor, D, monkeypatch)
    whole = filled_up(law, target, [*prompt, anchor], D + 1)
    expected = [0.0] * (D + 1)
    for text, p in texts(target, [*prompt, anchor], D + 1):
        assert abs(whole[text] - p) < 1e-12
        for a, mass in enumerate(first_step(drafter, target, prompt, [anchor, *text], D)):
            expected[a] += p * mass
    assert np.allclose(accepted, expected, rtol=0, atol=1e-12)
    assert accepted[2] > 0.01


def test_decoding_with_drawn_drafts_runs_a_batch_to_its_end() -> None:
    target = FeatureToy(V, seed=3)
    sampling = Sampling(temperature=0.9, seed=2)
    drafter = drafter_of(module_of("dspark", "rnn"), Picker("sample", sampling, V))
    streams = decode(target, drafter, [Request(i, prompt, 12) for i, prompt in enumerate(PROMPTS)], sampling, 4)
    assert all(stream.done(target.eos_ids) for stream in streams)
    assert sum(accepted for stream in streams for _, _, accepted, _ in stream.steps) > 0
