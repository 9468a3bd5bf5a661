"""The embedded language model in float32: replay equals live, step for step; conversion is whole or absent."""

from pathlib import Path

import pytest

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling, parse_drafter
from codraft.decode.hf import embedded
from codraft.decode.hf.load import Card, load_card, load_model
from codraft.decode.hf.model import HFModel
from codraft.decode.hf.text import TextCodec
from codraft.decode.loop import decode
from codraft.drafters.beside import Beside
from codraft.drafters.registry import build
from codraft.replay.measure import replay
from codraft.replay.prompts import load_prompts
from codraft.replay.streams import StreamSet, Writing, write_streams

pytestmark = pytest.mark.model
MAX_D = 3
ASKED = 14


@pytest.fixture(scope="module")
def target() -> HFModel:
    return load_model("demo", "float32")


@pytest.fixture(scope="module")
def card() -> Card:
    return load_card("demo")


def streams_of(target: HFModel, card: Card, sampling: Sampling) -> StreamSet:
    how = Writing(sampling=sampling, max_new_tokens=ASKED, tail=MAX_D, batch=4, window=8192)
    conversations = load_prompts(["demo:2"]).conversations
    return write_streams(target, TextCodec(card.tokenizer), conversations, how)


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=0.7, top_p=0.95, seed=5)], ids=["greedy", "sampled"]
)
def test_replay_takes_the_very_steps_of_live_decoding(target: HFModel, card: Card, sampling: Sampling) -> None:
    """Also: a stream written in a batch is the stream decoded alone, at every D, with either drafter."""
    streams = streams_of(target, card, sampling).streams
    assert len(streams) > 2, "some conversations have several turns"
    for text, depths in (("ngram", (1, MAX_D)), ("external:demo-noisy", (MAX_D,))):
        drafter = build(parse_drafter(text), Beside.of(card, sampling, "float32", lambda: target))
        logs = replay(None, drafter, streams, sampling, card.eos_ids, depths)
        for D in depths:
            for stream, log in zip(streams, logs.by_depth[D], strict=True):
                live = decode(target, drafter, [stream.request(ASKED)], sampling, D)[0]
                rows = zip(log.anchor_N, log.drafted_N, log.accepted_N, log.cut_N, strict=True)
                assert [(int(p), int(k), int(a), bool(c)) for p, k, a, c in rows] == live.steps
                assert live.text_ids == stream.output_ids[:ASKED]


def test_a_multi_turn_prompt_holds_the_targets_own_answer(target: HFModel, card: Card) -> None:
    streams = streams_of(target, card, Sampling()).streams
    codec = TextCodec(card.tokenizer)
    second = next(s for s in streams if s.turn == 1)
    first = next(s for s in streams if s.conversation == second.conversation and s.turn == 0)
    assert codec.text(first.output_ids[:ASKED]) in codec.text(second.prompt_ids)


class Interrupted:
    """A model whose writing is cut off in the middle."""

    def save_pretrained(self, folder: Path) -> None:
        (folder / "model.safetensors").write_bytes(b"half a file")
        raise KeyboardInterrupt


def test_an_interrupted_conversion_leaves_nothing_half_made(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        embedded.save(Interrupted(), None, tmp_path / "models" / "demo")
    assert list(tmp_path.rglob("*")) == [tmp_path / "models"]


def test_the_hub_serves_where_the_package_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fallback asks for the pinned revision and content; here a stand-in answers for the hub."""
    monkeypatch.setenv("CODRAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "config.json").write_text("{}")
    asked: list[object] = []

    def fetch(model_id: str, *, sha256: object) -> Path:
        asked.append((model_id, sha256))
        return snapshot

    monkeypatch.setattr(embedded, "fetch_model", fetch)
    folder = embedded.embedded_folder("demo")
    assert (folder / "config.json").read_text() == "{}"
    assert asked == [(embedded.HUB_ID, embedded.HUB_SHA256)]
    assert "@" in embedded.HUB_ID


def test_without_package_or_hub_one_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODRAFT_CACHE", str(tmp_path))
    monkeypatch.setattr(embedded, "packaged_gguf", lambda: None)

    def fetch(model_id: str, *, sha256: object) -> Path:
        raise SpecError("the hub cannot be reached")

    monkeypatch.setattr(embedded, "fetch_model", fetch)
    with pytest.raises(SpecError, match="cannot be reached"):
        embedded.embedded_folder("demo")
    assert not (tmp_path / "models" / "smollm2-135m-instruct-v1").exists()
