"""Heads that draft from two of three tokens: drawn drafts keep the target's law, and replay expects what live does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from codraft.core.schema import DrafterInfo
from codraft.decode.drafter import Drafter
from codraft.drafters.eagle3 import Eagle3Head
from codraft.drafters.pick import Picker
from codraft.drafters.serial import SerialDrafter

from tests.drafters import blocks, test_eagle3
from tests.drafters.heads import ToyEnds, randomize
from tests.drafters.laws import WARM, FeatureToy, enumerated, filled_up, first_step, texts

V, D = 3, 2
# In either order: a map of draft ids need not ascend.
IDS = ([0, 2], [2, 1])


def picker(ids: list[int]) -> Picker:
    return Picker("sample", WARM, V, torch.tensor(ids))


def eagle3(ids: list[int]) -> Drafter:
    config = {**test_eagle3.SHAPE, "vocab_size": V, "draft_vocab_size": len(ids)}
    head = test_eagle3.head_of(config)
    with torch.random.fork_rng():
        module = Eagle3Head(head, test_eagle3.TAPS, ToyEnds(V, test_eagle3.H), ["lm_head.weight"])
    randomize(module, 3, 0.3)
    return SerialDrafter(module, picker(ids), test_eagle3.TAPS, DrafterInfo(name="e", mechanism="eagle3", options={}))


def block(mechanism: str, variant: str) -> Callable[[list[int]], Drafter]:
    def made(ids: list[int]) -> Drafter:
        own: dict[str, Any] = {"vocab_size": V, "draft_vocab_size": len(ids)}
        config = {"mask_token_id": 1, "target_layer_ids": [0, 2]}
        module = blocks.module_of(mechanism, variant, 4, **own, dflash_config=config)
        assert module.lm_head is None or len(module.lm_head.weight) == len(ids)
        if module.lm_head is None:
            # The target's head has a row for each of its tokens; a reduced head has its own.
            module.lm_head = torch.nn.Linear(blocks.H, len(ids), bias=False, dtype=torch.float64)
            randomize(module, 4, 0.3)
        return blocks.drafter_of(module, picker(ids))

    return made


HEADS: dict[str, Callable[[list[int]], Drafter]] = {
    "eagle3": eagle3,
    "dflash": block("dflash", "own_ends"),
    "dspark": block("dspark", "rnn"),
}


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("mechanism", HEADS)
def test_drawn_drafts_of_a_part_of_the_vocabulary_keep_the_targets_law(
    mechanism: str, ids: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact: every draft of two tokens, every text of three; also the token that the head does not know is committed
    as often as the target writes it."""
    target, prompt, anchor = FeatureToy(V, seed=5, eos=False, scale=0.8), [1, 2], 0
    drafter = HEADS[mechanism](ids)
    law, drafts, accepted = enumerated(drafter, target, prompt, anchor, D, monkeypatch)
    assert set(drafts) == {(a, b) for a in ids for b in ids}
    assert abs(sum(drafts.values()) - 1) < 1e-12
    whole = filled_up(law, target, [*prompt, anchor], D + 1)
    expected = [0.0] * (D + 1)
    for text, p in texts(target, [*prompt, anchor], D + 1):
        assert abs(whole[text] - p) < 1e-12
        for a, mass in enumerate(first_step(drafter, target, prompt, [anchor, *text], D)):
            expected[a] += p * mass
    assert np.allclose(accepted, expected, rtol=0, atol=1e-12)
    assert accepted[2] > 0.01
