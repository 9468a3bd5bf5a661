"""The proof by generating: same prompts, plain and drafted in turn, and the steps that replay foretold."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from codraft.core.acceptance import Acceptance
from codraft.core.schema import Generated
from codraft.core.spec import Sampling, SuffixSpec
from codraft.decode.drafter import Drafter, Request
from codraft.decode.hf.load import load_card, load_model
from codraft.decode.hf.model import HFModel
from codraft.decode.hf.text import TextCodec
from codraft.decode.loop import decode
from codraft.drafters.suffix import SuffixDrafter
from codraft.replay.generate import generate_one
from codraft.replay.measure import replay
from codraft.replay.streams import TokenStream
from codraft.study.confirm import confirm, decoded_tokens

D, TAIL = 3, 3


@pytest.fixture(scope="module")
def target(tiny_model_dir: Path) -> HFModel:
    return load_model(str(tiny_model_dir), "float64")


@pytest.fixture(scope="module")
def codec(tiny_model_dir: Path) -> TextCodec:
    return TextCodec(load_card(str(tiny_model_dir)).tokenizer)


@pytest.fixture(scope="module")
def streams(target: HFModel) -> list[TokenStream]:
    """Four answers; the prompts resemble each other, so that a memory helps."""
    found = []
    for i, asked in enumerate((12, 20, 9, 16)):
        prompt = [40 + i % 2, 41, 42, 43, 41, 42]
        [text] = decode(target, None, [Request(i, prompt, asked + TAIL)], Sampling(), 0)
        found.append(
            TokenStream(
                index=i,
                conversation=str(i),
                turn=0,
                category=None,
                prompt_ids=prompt,
                output_ids=text.text_ids,
                asked=asked,
            )
        )
    return found


class Watched:
    """`generate_one`, with every call kept; a second is as long as a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Drafter | None, Generated]] = []

        def watched(target: Any, drafter: Any, *rest: Any) -> Generated:
            output = generate_one(target, drafter, *rest)
            output = replace(output, prefill_s=5.0, seconds=5.0 + output.steps)
            self.calls.append((drafter, output))
            return output

        monkeypatch.setattr("codraft.study.confirm.generate_one", watched)


def test_the_steps_are_those_that_replay_foretold(
    target: HFModel, codec: TextCodec, streams: list[TokenStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a drafter that remembers: prompts in their order, from a fresh memory. Then the prediction holds exactly."""
    drafter = SuffixDrafter(SuffixSpec(max_spec_factor=2.0))
    logs = replay(None, drafter, streams, Sampling(), target.eos_ids, [D])
    pooled = Acceptance.pool([Acceptance.from_log(log, D) for log in logs.by_depth[D]])
    watched = Watched(monkeypatch)
    proof = confirm(target, drafter, codec, streams, Sampling(), D=D, predicted=pooled.AL)
    timed = watched.calls[2:]
    drafted = [output for which, output in timed if which is not None]
    assert sum(output.steps for output in drafted) == pooled.steps
    assert sum(output.accepted for output in drafted) == pooled.accepted > 0
    assert drafter.memory.num_requests == 0, "the drafter handed in is left as it came"
    # A step is a second here, plain or drafted: the speed-up is AL itself.
    assert proof.measured == pytest.approx(pooled.AL)
    assert proof.signed_error == pytest.approx(0)
    assert proof.plain_tokens_per_s == pytest.approx(1)
    assert proof.drafted_tokens_per_s == pytest.approx(pooled.AL)
    assert proof.identical_outputs == proof.num_outputs == proof.num_pairs == 4
    assert proof.measured_ci95 is not None
    assert proof.measured_ci95[0] <= proof.measured <= proof.measured_ci95[1]


def test_pairs_alternate_who_goes_first_after_an_untimed_run_of_both(
    target: HFModel, codec: TextCodec, streams: list[TokenStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    seen: list[tuple[int, int]] = []
    drafter = SuffixDrafter(SuffixSpec())
    confirm(
        target,
        drafter,
        codec,
        streams,
        Sampling(),
        D=D,
        predicted=1.0,
        progress=lambda done, total: seen.append((done, total)),
    )
    order = ["plain" if which is None else "drafted" for which, _ in watched.calls]
    assert order == ["plain", "drafted"] + ["plain", "drafted", "drafted", "plain"] * 2
    assert [output.drafted > 0 for which, output in watched.calls if which is None] == [False] * 5
    assert len({id(which) for which, _ in watched.calls[2:] if which is not None}) == 1, "one memory for all prompts"
    assert watched.calls[1][0] is not watched.calls[3][0], "what the untimed run taught is forgotten"
    assert seen == [(i, 4) for i in (1, 2, 3, 4)]


def test_one_pair_has_no_interval(
    target: HFModel, codec: TextCodec, streams: list[TokenStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    Watched(monkeypatch)
    proof = confirm(target, SuffixDrafter(SuffixSpec()), codec, streams[:1], Sampling(), D=D, predicted=1.0)
    assert (proof.num_pairs, proof.measured_ci95) == (1, None)


def output(stop_reason: str, tokens: int, steps: int, accepted: int) -> Generated:
    return Generated(
        index=0,
        turn=0,
        prompt_ids=[1],
        output_ids=[2] * tokens,
        text="",
        stop_reason=stop_reason,  # type: ignore[arg-type]
        steps=steps,
        drafted_steps=steps,
        drafted=9,
        accepted=accepted,
        seconds=2.0,
        prefill_s=0.5,
    )


def test_a_step_past_the_limit_counts_in_full_and_an_eos_has_no_bonus() -> None:
    assert decoded_tokens(output("length", tokens=10, steps=3, accepted=8)) == 11
    assert decoded_tokens(output("eos", tokens=10, steps=3, accepted=7)) == 9
