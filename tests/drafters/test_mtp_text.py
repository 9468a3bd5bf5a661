"""MTP modules change no text: with modules that accept much, with random ones, and exactly where drafts are drawn."""

from dataclasses import dataclass
from functools import cache

import pytest
import torch
import transformers
from torch.nn import functional

from codraft.core.schema import DrafterInfo
from codraft.core.spec import Sampling
from codraft.decode.drafter import Request
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.mtp import MtpHead
from codraft.drafters.pick import Picker
from codraft.drafters.rollout import Rollout
from codraft.drafters.serial import SerialDrafter
from codraft.replay.measure import replay
from codraft.replay.streams import TokenStream

from tests.drafters.heads import (
    ToyEnds,
    assert_replay_is_live,
    gather,
    pooled_AL,
    random_stream,
    randomize,
    streams_of,
)
from tests.drafters.laws import FeatureToy, Fork
from tests.drafters.mtps import SHAPE, H, V, made

ENDS = ToyEnds(V, H)
INFO = DrafterInfo(name="mtp", mechanism="mtp", options={})


def drafter_of(head: MtpHead, picker: Picker) -> SerialDrafter:
    return SerialDrafter(head, picker, (head.tap,), INFO)


@dataclass(frozen=True)
class Trained:
    """Modules that know some streams of a tiny target by heart, to depth D."""

    target: HFModel
    drafter: SerialDrafter
    streams: list[TokenStream]
    D: int


def tiny_target() -> HFModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPE, head_dim=4)).double()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight.mul_(12)
    return HFModel(model.requires_grad_(False), "tiny")


@cache
def trained(name: str, modules: int, D: int, count: int) -> Trained:
    """Adam on the roll-out that replay reads, until every draft of every anchor hits."""
    target = tiny_target()
    prompts = [[3 + (7 * i + j) % (V - 3) for j in range(2 + i % 3)] for i in range(count)]
    streams = streams_of(target, prompts, Sampling(), 8, 4)
    head = made(name, modules).head(target)
    randomize(head, 1, 0.25)
    head.requires_grad_(True)
    data = []
    for stream in streams:
        tokens = [*stream.prompt_ids, *stream.output_ids]
        out = target.forward([tokens[:-1]], target.new_cache(1, 99), num_logits=1, taps=(head.tap,))
        data.append((torch.tensor(tokens), out.features[head.tap][0].clone(), len(stream.prompt_ids) - 1))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.04)
    for _ in range(150):
        loss, missed = torch.zeros((), dtype=torch.float64), 0
        for tokens_T, features_TH, first in data:
            rollout = Rollout(head, features_TH, tokens_T)
            for k in range(D):
                readable_NH = rollout.step()
                kept_N = (rollout.rows_N >= first) & (rollout.rows_N + 2 + k < len(tokens_T))
                logits_NV = head.logits(k % modules, readable_NH[kept_N])
                wanted_N = tokens_T[rollout.rows_N[kept_N] + 2 + k]
                loss = loss + functional.cross_entropy(logits_NV, wanted_N)
                missed += int((logits_NV.argmax(-1) != wanted_N).sum())
        if not missed:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    head.requires_grad_(False)
    return Trained(target, drafter_of(head, Picker("greedy", Sampling(), V)), streams, D)


# One module on its own output, and eight streams; two, the first of which comes round again.
LEARNERS = [("qwen3_5", 1, 3, 8), ("mimo", 2, 3, 4)]


@pytest.mark.parametrize("learner", LEARNERS)
def test_modules_overfitted_on_short_streams_accept_every_draft(learner: tuple[str, int, int, int]) -> None:
    one = trained(*learner)
    logs = replay(one.target, one.drafter, one.streams, Sampling(), one.target.eos_ids, range(1, one.D + 1))
    for D in range(1, one.D + 1):
        assert pooled_AL(logs.by_depth[D]) == D + 1


@pytest.mark.parametrize("learner", LEARNERS)
def test_text_is_plain_decodings_and_steps_are_replays(learner: tuple[str, int, int, int]) -> None:
    """Also where drafts go wrong: beyond the depth that was learnt, and on other texts."""
    one = trained(*learner)
    other = streams_of(one.target, [[5, 9], [7, 7, 7], [4]], Sampling(), 10, 8)
    for B in (1, 3, 8):
        assert_replay_is_live(one.target, one.drafter, one.streams[:B], Sampling(), (1, 2, one.D, 2 * one.D + 1))
    assert_replay_is_live(one.target, one.drafter, other, Sampling(), (1, 3, 6))


@pytest.mark.parametrize("name", ["deepseek", "qwen3_next", "glm"])
def test_random_modules_of_a_mixture_change_no_text(name: str) -> None:
    target = tiny_target()
    head = made(name, 2).head(target)
    streams = streams_of(target, [[5, 9], [7, 7, 7], [4]], Sampling(), 8, 6)
    assert_replay_is_live(target, drafter_of(head, Picker("greedy", Sampling(), V)), streams, Sampling(), (1, 3, 5))


def test_one_seed_gives_one_text_with_greedy_drafts() -> None:
    one = trained(*LEARNERS[0])
    warm = Sampling(temperature=0.7, seed=3)
    streams = streams_of(one.target, [stream.prompt_ids for stream in one.streams], warm, 10, 5)
    drafter = drafter_of(one.drafter.head, Picker("greedy", warm, V))  # type: ignore[arg-type]
    assert_replay_is_live(one.target, drafter, streams, warm, (1, 3))


@pytest.mark.parametrize("modules", [1, 2])
def test_probabilities_of_a_replay_are_those_that_drafts_are_drawn_from(modules: int) -> None:
    warm = Sampling(temperature=0.8, top_k=9, seed=4)
    head = made("speculators", modules).head(ENDS)
    stream = random_stream(3, V, H, (head.tap,), (3, 9))
    drafter = drafter_of(head, Picker("sample", warm, V))
    unrolled = drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), 4)
    assert drafter.draft_kind == "dense"
    drafter.prefill([Request(0, stream.prompt_ids, 9)], [stream.output_ids[0]], gather([stream], [0], [(0, 3)]))
    for p in range(8):
        proposal = drafter.propose([stream.output_ids[p]], 4)
        p_draft_KV = proposal.p_draft[0]
        assert p_draft_KV is not None
        torch.testing.assert_close(p_draft_KV.sum(-1), torch.ones(4, dtype=torch.float64))
        assert all(float(p_V[token]) > 0 for p_V, token in zip(p_draft_KV, proposal.tokens[0], strict=True))
        assert abs(float(p_draft_KV[0, stream.output_ids[p + 1]]) - unrolled.hit_AD[p, 0]) < 1e-12
        drafter.commit([[]], [stream.output_ids[p + 1]], gather([stream], [0], [(3 + p, 4 + p)]))


@pytest.mark.parametrize(("size", "modules", "D"), [(3, 1, 1), (2, 1, 2), (2, 2, 2)])
def test_drawn_drafts_leave_the_targets_law_exactly(
    size: int, modules: int, D: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All texts of three tokens, through the whole loop, every branch enumerated."""
    warm = Sampling(temperature=1.0)
    target, head = FeatureToy(size, 5, scale=0.7, eos=False), made("mimo", modules).head(ToyEnds(size, H))
    fork = Fork()
    for module in ("drafters.pick", "decode.loop", "decode.sampling"):
        monkeypatch.setattr(f"codraft.{module}.draw", fork.draw)
    monkeypatch.setattr("codraft.decode.loop.uniform", fork.coin)

    def run() -> tuple[int, ...]:
        drafter = drafter_of(head, Picker("sample", warm, size))
        return tuple(decode(target, drafter, [Request(0, [1, 0], 3)], warm, D)[0].text_ids)

    found = fork.outcomes(run)
    assert len(found) == size**3
    for text, chance in found.items():
        expected = 1.0
        for i, token in enumerate(text):
            expected *= float(target.logits([1, 0, *text[:i]]).softmax(-1)[token])
        assert abs(chance - expected) < 1e-12
