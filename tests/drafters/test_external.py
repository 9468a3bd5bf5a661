"""The external drafter on tiny real models in float64: `propose` against `unroll`, live against replay, golden AL."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from codraft.core.acceptance import Acceptance
from codraft.core.errors import SpecError
from codraft.core.spec import ExternalSpec, Sampling, parse_drafters
from codraft.decode.drafter import Request
from codraft.decode.hf.load import load_model
from codraft.decode.hf.model import HFModel
from codraft.decode.loop import decode
from codraft.drafters.beside import Beside
from codraft.drafters.external import ExternalDrafter
from codraft.drafters.registry import check
from codraft.formats.heads.gate import Sizes
from codraft.replay.measure import replay
from codraft.replay.streams import TokenStream

from tests.mechanisms import Mechanisms

PAIR = Path(__file__).parents[1] / "golden" / "pair"
V = 48


def net(seed: int, *, vocab_size: int = V, family: str = "llama") -> HFModel:
    """A tiny model with random weights large enough to matter."""
    torch.manual_seed(seed)
    shape: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    config = (
        transformers.LlamaConfig(**shape)
        if family == "llama"
        else transformers.Lfm2Config(**shape, layer_types=["conv", "full_attention"])
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float64).double()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 2:
                weight.mul_(5)
    return HFModel(model, f"{family}-{seed}")


def nearly(model: HFModel, seed: int, scale: float, *, vocab_size: int = V, family: str = "llama") -> HFModel:
    """A copy with noise, agreeing on some tokens; its embedding may be padded."""
    from codraft.decode.hf.embedded import perturb

    copy = net(seed, vocab_size=vocab_size, family=family)
    with torch.no_grad():
        ours, theirs = dict(model.model.named_parameters()), dict(copy.model.named_parameters())
        for name, weight in theirs.items():
            source = ours[name]
            rows = min(len(weight), len(source))
            weight[:rows] = source[:rows]
    perturb(copy.model, scale, seed)
    return copy


TARGET = net(0)
GREEDY = Sampling()
WARM = Sampling(temperature=0.8, seed=5)


def drafter_of(model: HFModel, draft: str = "greedy", sampling: Sampling = GREEDY) -> ExternalDrafter:
    return ExternalDrafter(ExternalSpec(path="-", draft=draft), model, V, sampling)  # type: ignore[arg-type]


def plain_streams(sampling: Sampling, count: int, asked: int, tail: int, target: HFModel = TARGET) -> list[TokenStream]:
    prompts = [[3 + (7 * i + j) % (V - 3) for j in range(1 + i % 5)] for i in range(count)]
    streams = []
    for i, prompt in enumerate(prompts):
        text = decode(target, None, [Request(i, prompt, asked + tail)], sampling, 0)[0].text_ids
        streams.append(
            TokenStream(
                index=i,
                conversation=str(i),
                turn=0,
                category=None,
                prompt_ids=prompt,
                output_ids=text,
                asked=asked,
            )
        )
    return streams


@pytest.mark.parametrize("family", ["llama", "lfm2"])
@settings(max_examples=15)
@given(
    st.lists(st.integers(3, V - 1), min_size=1, max_size=8),
    st.lists(st.integers(3, V - 1), min_size=2, max_size=10),
)
def test_propose_on_every_prefix_equals_unroll(family: str, prompt: list[int], output: list[int]) -> None:
    """Also for a drafter with convolution states, which goes back by snapshot."""
    D = 3
    model = net(1, family=family)
    unrolled = drafter_of(model).unroll(prompt, output, {}, D)
    live = drafter_of(model)
    live.prefill([Request(0, prompt, 99)], [output[0]], {})
    for p in range(len(output) - 1):
        draft = live.propose([output[p]], D).tokens[0]
        matching = True
        for i, token in enumerate(draft):
            if not matching or p + 1 + i >= len(output):
                break
            matching = token == output[p + 1 + i]
            assert unrolled.hit_AD[p, i] == matching
        live.commit([[]], [output[p + 1]], {})


def test_unrolled_probabilities_are_those_that_drafts_are_drawn_from() -> None:
    prompt, output = [4, 5, 6], [7, 8, 9, 10, 11]
    model = net(1)
    unrolled = drafter_of(model, "sample", WARM).unroll(prompt, output, {}, 2)
    live = drafter_of(model, "sample", WARM)
    live.prefill([Request(0, prompt, 99)], [output[0]], {})
    for p in range(len(output) - 1):
        p_draft = live.propose([output[p]], 1).p_draft[0]
        assert p_draft is not None
        assert abs(float(p_draft[0, output[p + 1]]) - unrolled.hit_AD[p, 0]) < 1e-12
        live.commit([[]], [output[p + 1]], {})


def same_steps(live: list[tuple[int, int, int, bool]], log: Any) -> bool:
    rows = zip(log.anchor_N, log.drafted_N, log.accepted_N, log.cut_N, strict=True)
    return [(int(p), int(k), int(a), bool(c)) for p, k, a, c in rows] == live


@pytest.mark.parametrize(
    ("sampling", "vocab_size", "B"),
    [(GREEDY, V, 1), (WARM, V, 1), (GREEDY, V, 4), (WARM, V + 16, 1), (GREEDY, V + 16, 4), (GREEDY, V - 5, 4)],
)
def test_replay_takes_the_very_steps_of_live_decoding(sampling: Sampling, vocab_size: int, B: int) -> None:
    """Greedy drafts, also with an embedding padded beyond the target's, or short of it."""
    streams = plain_streams(sampling, 5, asked=12, tail=6)
    depths = (1, 2, 4, 6) if (vocab_size, B) == (V, 1) else (2, 6)
    drafter = drafter_of(nearly(TARGET, 1, 0.25, vocab_size=vocab_size), "greedy", sampling)
    logs = replay(None, drafter, streams, sampling, TARGET.eos_ids, depths)
    assert sum(int(log.accepted_N.sum()) for log in logs.by_depth[6]) > 0
    for D in depths:
        for start in range(0, len(streams), B):
            requests = [s.request(s.asked) for s in streams[start : start + B]]
            for i, stream in enumerate(decode(TARGET, drafter, requests, sampling, D), start=start):
                assert same_steps(stream.steps, logs.by_depth[D][i])
                assert stream.text_ids == streams[i].output_ids[: streams[i].asked]


def test_a_copy_of_the_target_accepts_everything() -> None:
    streams = plain_streams(GREEDY, 4, asked=12, tail=4)
    logs = replay(None, drafter_of(TARGET), streams, GREEDY, TARGET.eos_ids, [4])
    for log in logs.by_depth[4]:
        assert (log.accepted_N[~log.cut_N] == 4).all()


def test_a_copy_of_the_target_that_draws_its_drafts_accepts_everything() -> None:
    streams = plain_streams(WARM, 4, asked=12, tail=4)
    logs = replay(TARGET, drafter_of(TARGET, "sample", WARM), streams, WARM, TARGET.eos_ids, [4])
    for log in logs.by_depth[4]:
        # Equal passes differ by rounding: an outcome of chance 1e-12 may stand beside the sure one.
        assert log.weight_N[(log.accepted_N < 4) & ~log.cut_N].sum() < 1e-9


def test_golden_acceptance_of_the_committed_pair() -> None:
    """Drafter bugs are silent: this pair's counts may change only with a reason."""
    golden = json.loads((PAIR / "golden.json").read_text())
    target, model = load_model(str(PAIR / "target"), "float64"), load_model(str(PAIR / "drafter"), "float64")
    drafter = ExternalDrafter(ExternalSpec(path="-"), model, target.vocab_size, GREEDY)
    streams = plain_streams(GREEDY, 6, asked=32, tail=4, target=target)
    logs = replay(None, drafter, streams, GREEDY, target.eos_ids, range(1, 5))
    found = {}
    for D in range(1, 5):
        pooled = Acceptance.pool([Acceptance.from_log(log, D) for log in logs.by_depth[D]])
        found[str(D)] = [int(pooled.steps), int(pooled.drafted), int(pooled.accepted)]
    assert found == golden["counts"], f"AL now {[1 + c[2] / c[0] for c in found.values()]}"


def test_rows_that_stay_keep_their_own_state() -> None:
    model = net(1)
    drafter = drafter_of(model)
    prompts = [[3, 4], [5, 6, 7], [8]]
    drafter.prefill([Request(i, p, 20) for i, p in enumerate(prompts)], [9, 9, 9], {})
    drafter.propose([9, 9, 9], 3)
    drafter.commit([[], [], []], [10, 10, 10], {})
    drafter.keep([2, 0])
    together = drafter.propose([10, 10], 3).tokens
    for prompt, draft in zip(([8], [3, 4]), together, strict=True):
        alone = drafter_of(model)
        alone.prefill([Request(0, prompt, 20)], [9], {})
        alone.commit([[]], [10], {})
        assert alone.propose([10], 3).tokens[0] == draft


def test_drafting_nothing_leaves_the_cache_alone() -> None:
    """A step at D = 0 between steps at D > 0: the drafter catches up by itself."""
    streams = plain_streams(GREEDY, 1, asked=12, tail=0)
    drafter = drafter_of(nearly(TARGET, 1, 0.25))
    drafter.prefill([streams[0].request(12)], [streams[0].output_ids[0]], {})
    for p in range(4):
        drafter.commit([[]], [streams[0].output_ids[p + 1]], {})
    late = drafter.propose([streams[0].output_ids[4]], 3).tokens[0]
    fresh = drafter_of(drafter.model)  # type: ignore[arg-type]
    fresh.prefill([Request(0, [*streams[0].prompt_ids, *streams[0].output_ids[:4]], 9)], [streams[0].output_ids[4]], {})
    assert fresh.propose([streams[0].output_ids[4]], 3).tokens[0] == late


def test_hits_are_whole_beyond_one_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, output = list(range(3, 12)), [3 + (5 * i) % (V - 3) for i in range(23)]
    whole = drafter_of(TARGET).unroll(prompt, output, {}, 3)
    for size in (1, 4, 9, 10):
        monkeypatch.setattr("codraft.decode.forced.CHUNK", size)
        assert np.array_equal(drafter_of(TARGET).unroll(prompt, output, {}, 3).hit_AD, whole.hit_AD)


def test_a_head_given_as_a_model_is_named_with_its_mechanism(mechanisms: Mechanisms) -> None:
    """Before transformers tries to make a model of it."""
    specs = {spec.mechanism: spec for spec in parse_drafters(mechanisms.drafters)}
    for mechanism in ("eagle3", "dflash", "dspark"):
        [path] = specs[mechanism].model_paths()
        sizes = Sizes(vocab_size=V, hidden=16, num_layers=2)
        beside = Beside(str(mechanisms.target), mechanisms.target, sizes, Sampling(), "float64", never)
        with pytest.raises(SpecError, match=rf"is a head \({mechanism}, .*; give it as {mechanism}:") as raised:
            check([ExternalSpec(path=path)], beside)
        assert "\n" not in str(raised.value)


def never() -> HFModel:
    """Nothing asks for the target's weights."""
    raise AssertionError
