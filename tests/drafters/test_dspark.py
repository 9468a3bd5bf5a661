"""DSpark: published code, serial heads, drafts that end by confidence or by cost and keep the law, what is refused."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from codraft.core.errors import SpecError
from codraft.core.provenance import provenance
from codraft.core.record import write_record
from codraft.core.schema import TimingPoint, TimingRecord
from codraft.core.spec import DsparkSpec, Sampling
from codraft.decode.drafter import Request
from codraft.drafters import dspark, registry
from codraft.drafters.block import BlockDrafter, stream_blocks
from codraft.drafters.dspark import DSparkHead
from codraft.drafters.pick import Picker
from codraft.drafters.schedule import CostTable, Cut, Schedule, Threshold
from codraft.replay.measure import replay

from tests.drafters.blocks import (
    TAPS,
    WIDE,
    H,
    V,
    drafter_of,
    module_of,
    overfit,
    published,
)
from tests.drafters.heads import assert_replay_is_live, gather, random_stream, streams_of
from tests.drafters.laws import WARM, FeatureToy, enumerated, filled_up, first_step, texts
from tests.drafters.test_dflash import SHAPE, TARGET, beside, write_head

GOLDEN = Path(__file__).parents[1] / "golden" / "heads"
CASES = sorted(folder.name for folder in GOLDEN.glob("dspark_*"))
GREEDY = Sampling()


@pytest.mark.parametrize("case", CASES)
def test_published_code_gives_the_same_logits_and_confidences(case: str) -> None:
    """Behind every anchor: the backbone, then the bias and the confidence of the stream's own tokens before each draft,
    and of the greedy chain's, where the authors' code drafts."""
    golden = load_file(GOLDEN / case / "golden.safetensors")
    module, _ = published(GOLDEN / case, "dspark")
    hidden = blocks(module, golden)
    torch.testing.assert_close(hidden.float(), golden["hidden"], rtol=0, atol=1e-5)
    hidden = hidden[:, module.first_slot :]
    base = module.logits(hidden.flatten(0, 1)).unflatten(0, hidden.shape[:2])
    torch.testing.assert_close(base.float(), golden["base_logits"], rtol=0, atol=1e-5)
    stream = golden["token_ids"][golden["anchors"][:, None] + torch.arange(hidden.shape[1])]
    before = {"forced": stream}
    if "draft_tokens" in golden:
        before["draft"] = torch.cat((stream[:, :1], golden["draft_tokens"][:, :-1]), dim=1)
    for name, previous in before.items():
        memory = module.begin(hidden[:, 0])
        for i in range(hidden.shape[1]):
            if f"{name}_confidence_logits" in golden:
                confidence = module.confidence(hidden[:, i], previous[:, i])
                expected = golden[f"{name}_confidence_logits"][:, i].sigmoid()
                torch.testing.assert_close(confidence.float(), expected, rtol=0, atol=1e-5)
            logits, memory = module.correct(base[:, i], hidden[:, i], previous[:, i], memory)
            torch.testing.assert_close(logits.float(), golden[f"{name}_logits"][:, i], rtol=0, atol=1e-5)


def blocks(module: Any, golden: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """[A, B, H] of a golden's anchors."""
    features = {tap: golden["features"][:, i].double() for i, tap in enumerate(module.taps)}
    fused = module.fuse(features)
    context = module.context(fused, torch.arange(len(fused)))
    return stream_blocks(module, context, golden["token_ids"], golden["anchors"], module.size)


@pytest.mark.parametrize("case", [case for case in CASES if "deepspec" in case])
def test_the_live_drafter_drafts_what_published_code_drafts(case: str) -> None:
    """Each anchor that has a prompt before it, greedy, and cut where the authors' code would cut."""
    golden = load_file(GOLDEN / case / "golden.safetensors")
    module, _ = published(GOLDEN / case, "dspark")
    tokens, features = golden["token_ids"].tolist(), golden["features"].double()
    for row, p in enumerate(golden["anchors"].tolist()):
        if p == 0:
            continue
        for least in (None, 0.35, 0.5):
            if least is not None and "draft_confidence_logits" not in golden:
                continue
            cut = None if least is None else Threshold(least)
            drafter = drafter_of(module, Picker("greedy", GREEDY, 48), cut=cut)
            rows = {tap: [features[:p, i]] for i, tap in enumerate(module.taps)}
            drafter.prefill([Request(0, tokens[:p], 99)], [tokens[p]], rows)
            chain = golden["draft_tokens"][row].tolist()
            if least is not None:
                sure = (golden["draft_confidence_logits"][row].sigmoid() >= least).tolist()
                chain = chain[: ([*sure, False]).index(False)]
            assert drafter.propose([tokens[p]], module.size).tokens[0] == chain


CUTS: dict[str, Cut] = {
    "threshold": Threshold(0.4),
    "schedule": Schedule(CostTable((1, 2, 3, 4, 6), (1.0, 1.2, 1.5, 1.9, 3.2))),
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("block", ["resize", "truncate"])
@pytest.mark.parametrize("variant", ["vanilla", "gated", "rnn_same_slot", "confidence_without_token"])
def test_drafts_end_in_replay_where_they_end_live(variant: str, block: str, cut: str) -> None:
    """At every position and every D, also behind a draft that misses, whose confidences follow the draft."""
    stream = random_stream(4, V, H, TAPS, (2, 16))
    drafter = drafter_of(module_of("dspark", variant), Picker("greedy", GREEDY, V), block=block, cut=CUTS[cut])
    drafter.prefill([Request(0, stream.prompt_ids, 99)], [stream.output_ids[0]], gather([stream], [0], [(0, 2)]))
    short = 0
    found = {D: drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), D) for D in (1, 3, 4, 7)}
    for p in range(15):
        for D, view in found.items():
            tokens = drafter.propose([stream.output_ids[p]], D).tokens[0]
            assert view.drafted_A[p] == len(tokens)
            ahead = stream.output_ids[p + 1 :]
            run = next((i for i, t in enumerate(tokens) if i >= len(ahead) or t != ahead[i]), len(tokens))
            assert view.hit_AD[p, :run].all()
            assert not view.hit_AD[p, run:].any() or run == len(tokens)
            short += 0 < len(tokens) < min(D, 4)
        drafter.commit([[]], [stream.output_ids[p + 1]], gather([stream], [0], [(2 + p, 3 + p)]))
    assert short > 1


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.7, seed=4)], ids=["greedy", "sampled"])
def test_replay_takes_the_very_steps_of_live_decoding(cut: str, sampling: Sampling) -> None:
    """One sequence at a time, as the schedule of replay has it."""
    target = FeatureToy(V, seed=3)
    drafter = drafter_of(module_of("dspark", "rnn"), Picker("greedy", sampling, V), cut=CUTS[cut])
    drafted = 0
    for index, prompt in enumerate([[3, 1], [2], [5, 5, 4, 1, 2, 6, 3]]):
        [stream] = streams_of(target, [prompt], sampling, asked=12, tail=6)
        if index == 0 or sampling.greedy:
            assert_replay_is_live(target, drafter, [stream], sampling, (1, 4, 6))
        log = replay(target, drafter, [stream], sampling, target.eos_ids, [6]).by_depth[6][0]
        drafted += len(set(log.drafted_N.tolist()))
    assert drafted > 3


def test_a_batch_is_scheduled_together() -> None:
    """The same two sequences: alone each may have a draft, together the table has room for one."""
    cost = CostTable((2, 3, 4), (1.0, 1.0, 50.0))
    streams = [random_stream(s, V, H, TAPS, (3 + s, 3)) for s in range(2)]
    module = module_of("dspark", "vanilla")
    drafter = drafter_of(module, Picker("greedy", GREEDY, V), cut=Schedule(cost))
    requests = [Request(i, stream.prompt_ids, 99) for i, stream in enumerate(streams)]
    drafter.prefill(requests, [0, 0], gather(streams, [0, 1], [(0, 3), (0, 4)]))
    together = [len(tokens) for tokens in drafter.propose([0, 0], 1).tokens]
    drafter.cut = None
    confidence = []
    for stream in streams:
        p = len(stream.prompt_ids)
        context = module.context(module.fuse(stream.rows(0, p)), torch.arange(p))
        hidden = stream_blocks(module, context, torch.tensor([*stream.prompt_ids, 0]), torch.tensor([p]), 1)
        confidence.append(float(module.confidence(hidden[0], torch.tensor([0]))))
    assert together == [int(confidence[0] >= confidence[1]), int(confidence[0] < confidence[1])]


class Greedless:
    """A schedule that is wrong on purpose: the best length of all, looking at confidences of drafts to come."""

    def __init__(self, cost: Callable[[int], float]) -> None:
        self.cost = cost

    def lengths(self, confidence: Sequence[Sequence[float]]) -> list[int]:
        [row] = confidence
        rates = [(1 + sum(np.cumprod(row)[:n])) / self.cost(1 + n) for n in range(len(row) + 1)]
        return [int(np.argmax(rates))]


# A second token costs much and a third nothing.
STAIRCASE = CostTable((1, 2, 3), (1.0, 2.0, 2.1))
LAWS: dict[str, tuple[Cut, bool]] = {
    "threshold": (Threshold(0.55), True),
    "schedule": (Schedule(CostTable((1, 2, 3), (1.0, 1.2, 1.65))), True),
    "schedule on a staircase": (Schedule(STAIRCASE), True),
    "global search on a staircase": (Greedless(STAIRCASE), False),
}


@pytest.mark.parametrize("case", LAWS)
def test_ending_a_drawn_draft_early_keeps_the_targets_law_unless_it_looks_ahead(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exact over every draft of two tokens out of three; the last case shows that this test would see a wrong one."""
    cut, lossless = LAWS[case]
    target, prompt, anchor, D = FeatureToy(3, seed=5, eos=False, scale=0.8), [1, 2], 0, 2
    drafter = drafter_of(doubtful(), Picker("sample", WARM, 3), cut=cut)
    law, drafts, accepted = enumerated(drafter, target, prompt, anchor, D, monkeypatch)
    assert len({len(draft) for draft in drafts}) > 1 or case == "schedule on a staircase"
    whole = filled_up(law, target, [*prompt, anchor], D + 1)
    worst = max(abs(whole[text] - p) for text, p in texts(target, [*prompt, anchor], D + 1))
    if not lossless:
        assert worst > 1e-3
        return
    assert worst < 1e-12
    expected = [0.0] * (D + 1)
    for text, p in texts(target, [*prompt, anchor], D + 1):
        for a, mass in enumerate(first_step(drafter, target, prompt, [anchor, *text], D)):
            expected[a] += p * mass
    assert np.allclose(accepted, expected, rtol=0, atol=1e-12)


def doubtful() -> DSparkHead:
    """A head over three tokens that is sure of its second draft after some of its first, and not after others."""
    config = {"mask_token_id": 1, "target_layer_ids": list(TAPS)}
    module = module_of("dspark", "vanilla", vocab_size=3, dflash_config=config)
    assert isinstance(module, DSparkHead)
    assert module.confidence_head is not None
    assert module.markov_head is not None
    # Every token has a fair chance to be drawn.
    module._ends[0].head_VH *= 0.1  # type: ignore[attr-defined]
    module.markov_head.markov_w2.weight *= 0.1
    module.markov_head.markov_w1.weight[:, 0] = torch.tensor([3.0, -3.0, 3.0], dtype=torch.float64)
    weight = module.confidence_head.proj.weight
    weight.zero_()
    weight[0, H] = 1.0
    module.confidence_head.proj.bias.fill_(0.3)
    return module


@pytest.mark.parametrize("variant", ["vanilla", "rnn"])
def test_an_overfit_head_is_always_right(variant: str) -> None:
    target = FeatureToy(16, seed=3, eos=False)
    prompts = [[(3 * i + 5 * j) % 16 for j in range(3)] for i in range(8)]
    streams = streams_of(target, prompts, GREEDY, asked=6, tail=3)
    module = module_of("dspark", variant, **WIDE)
    overfit(module, target, streams, 3, 40)
    drafter = drafter_of(module, Picker("greedy", GREEDY, 16))
    logs = replay(target, drafter, streams, GREEDY, target.eos_ids, [3])
    assert [log.accepted_N.tolist() for log in logs.by_depth[3]] == [[3, 3]] * 8


def test_bias_and_confidence_are_summed_in_float32() -> None:
    """Whatever the weights are: a bias too small for bfloat16 beside a logit still decides."""
    module = module_of("dspark", "vanilla").bfloat16()
    assert isinstance(module, DSparkHead)
    assert module.markov_head is not None
    hidden = torch.zeros((1, H), dtype=torch.bfloat16)
    logits, _ = module.correct(
        torch.full((1, V), 256.0, dtype=torch.bfloat16), hidden, torch.tensor([1]), module.begin(hidden)
    )
    bias, _ = module.markov_head(torch.tensor([1]), hidden, module.begin(hidden))
    assert logits.dtype == torch.float32
    assert torch.equal(logits, 256.0 + bias.float())
    assert module.confidence(hidden, torch.tensor([1])).dtype == torch.float32


CONFIG = {
    **SHAPE,
    "architectures": ["Qwen3DSparkModel"],
    "target_layer_ids": [-1, 1],
    "mask_token_id": 47,
    "markov_rank": 4,
    "markov_head_type": "gated",
    "enable_confidence_head": True,
    "confidence_head_with_markov": True,
    "num_anchors": 8,
}
CONFIG.pop("dflash_config")
TENSORS: dict[str, tuple[int, ...]] = {
    "embed_tokens.weight": (48, 16),
    "lm_head.weight": (48, 16),
    "markov_head.markov_w1.weight": (48, 4),
    "markov_head.markov_w2.weight": (48, 4),
    "markov_head.gate_proj.weight": (4, 20),
    "markov_head.gate_proj.bias": (4,),
    "confidence_head.proj.weight": (1, 20),
    "confidence_head.proj.bias": (1,),
}


def timing_file(folder: Path, seconds: Mapping[int, float]) -> Path:
    """A timing record of one sequence."""
    points = [
        TimingPoint(
            B=1,
            S=64,
            D=x - 1,
            x=x,
            t_verif_s=t,
            t_sys_s=0.0,
            t_draft_s={"dspark": 0.25} if x > 1 else {},
            num_samples=9,
            p10=t,
            p90=t,
        )
        for x, t in seconds.items()
    ]
    record = TimingRecord(
        schema=TimingRecord.SCHEMA,
        provenance=provenance(engine={}, input_hashes={}),
        target="-",
        ragged="padded",
        points=points,
    )
    write_record(record, folder / "timing.json")
    return folder / "timing.json"


@pytest.mark.parametrize("option", [{}, {"confidence": 0.5}, {"timing": True}], ids=["all", "confidence", "timing"])
def test_a_checkpoint_drafts_beside_a_real_target(tmp_path: Path, option: Mapping[str, Any]) -> None:
    folder = write_head(tmp_path / "head", CONFIG, TENSORS)
    options = dict(option)
    if "timing" in options:
        options["timing"] = str(timing_file(tmp_path, {1: 1.0, 2: 1.1, 3: 1.3, 4: 2.0}))
    drafter = registry.build(DsparkSpec(path=str(folder), **options), beside())
    assert isinstance(drafter, BlockDrafter)
    assert drafter.info.options == {
        "draft": "greedy",
        "block": "resize",
        **options,
        **({"timed": "-, S = 64..64, x = 1..4"} if "timing" in options else {}),
    }
    if "timing" in options:
        assert isinstance(drafter.cut, Schedule)
        assert drafter.cut.cost == CostTable((1, 2, 3, 4), (1.25, 1.35, 1.55, 2.25))
    [stream] = streams_of(TARGET, [[3, 4, 5]], GREEDY, asked=10, tail=5)
    assert_replay_is_live(TARGET, drafter, [stream], GREEDY, [1, 4, 5])


def test_a_cut_needs_a_confidence_head(tmp_path: Path) -> None:
    config = {**CONFIG, "enable_confidence_head": False}
    tensors = {name: shape for name, shape in TENSORS.items() if "confidence" not in name}
    folder = str(write_head(tmp_path / "head", config, tensors))
    for options in ({"confidence": 0.5}, {"timing": str(timing_file(tmp_path, {1: 1.0, 2: 1.1}))}):
        with pytest.raises(SpecError, match=f"{next(iter(options))}= needs a confidence head"):
            dspark.build(DsparkSpec(path=folder, **options), beside())
    assert dspark.build(DsparkSpec(path=folder), beside()).cut is None


def test_an_unknown_serial_head_is_named(tmp_path: Path) -> None:
    """Its tensors are those of the plain kind, so there is nothing else to be refused."""
    plain = {name: shape for name, shape in TENSORS.items() if "gate" not in name}
    folder = write_head(tmp_path / "head", {**CONFIG, "markov_head_type": "second_order"}, plain)
    sentence = r"config\.json: markov_head_type is 'second_order'; codraft runs vanilla, gated, rnn$"
    with pytest.raises(SpecError, match=sentence):
        dspark.build(DsparkSpec(path=str(folder)), beside())


def test_a_timing_record_is_read_before_any_work(tmp_path: Path) -> None:
    folder = str(write_head(tmp_path / "head", CONFIG, TENSORS))
    with pytest.raises(SpecError, match="cannot read"):
        dspark.check(DsparkSpec(path=folder, timing=str(tmp_path / "none.json")), beside())
    one = timing_file(tmp_path, {2: 1.0})
    with pytest.raises(SpecError, match="profile several D"):
        dspark.check(DsparkSpec(path=folder, timing=str(one)), beside())
    for never in (0.0, -1.0):
        file = timing_file(tmp_path, {2: never, 3: 1.0})
        with pytest.raises(SpecError, match="times are above 0, so profile again"):
            dspark.check(DsparkSpec(path=folder, timing=str(file)), beside())


@pytest.mark.parametrize(
    "keys",
    [
        {"dflash_config": {"markov_rank": 9}},
        {"dflash_config": {"markov_head_type": "rnn"}},
        {"use_confidence_head": False},
        {"dspark_noise_token_id": 9},
    ],
)
def test_two_keys_that_say_different_things_are_refused(keys: dict[str, Any], tmp_path: Path) -> None:
    folder = write_head(tmp_path / "head", {**CONFIG, **keys}, TENSORS)
    with pytest.raises(SpecError, match="contradict each other; keep the one of the training"):
        dspark.check(DsparkSpec(path=str(folder)), beside())


def test_costs_of_another_target_are_noted(tmp_path: Path) -> None:
    folder = str(write_head(tmp_path / "head", CONFIG, TENSORS))
    timing = timing_file(tmp_path, {2: 1.0, 3: 1.5})
    for target, noted in (("-", 0), ("owner/another", 1)):
        ours = replace(beside(), target=target, notes=[])
        dspark.build(DsparkSpec(path=folder, timing=str(timing)), ours)
        assert len([note for note in ours.notes if "was timed with -, and the target is" in note]) == noted
