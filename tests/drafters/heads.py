"""What tests of learned drafters share: streams with features, ends to borrow, and the comparison that all rests on."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from codraft.core.acceptance import StepLog
from codraft.core.spec import Sampling
from codraft.decode.drafter import Drafter, Features, Request
from codraft.decode.loop import decode
from codraft.decode.target import Tap, Target
from codraft.drafters.pick import Picker
from codraft.replay.measure import replay
from codraft.replay.streams import TokenStream


class ToyEnds:
    """An embedding and an output head, float64."""

    def __init__(self, vocab_size: int, hidden: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.embedding_VH = torch.randn((vocab_size, hidden), generator=generator, dtype=torch.float64)
        self.head_VH = torch.randn((vocab_size, hidden), generator=generator, dtype=torch.float64)

    def embed(self, tokens_N: Tensor) -> Tensor:
        return self.embedding_VH[tokens_N]

    def read_out(self, hidden_NH: Tensor) -> Tensor:
        return hidden_NH @ self.head_VH.T


@dataclass(frozen=True)
class Stream:
    """A stream with features for every position but the last."""

    prompt_ids: list[int]
    output_ids: list[int]
    features: dict[Tap, Tensor]

    def rows(self, start: int, end: int) -> dict[Tap, Tensor]:
        return {tap: states[start:end] for tap, states in self.features.items()}

    def whole(self) -> Features:
        return {tap: [states] for tap, states in self.features.items()}


def random_stream(seed: int, vocab_size: int, width: int, taps: Sequence[Tap], lengths: tuple[int, int]) -> Stream:
    """Any tokens, any features."""
    rng = random.Random(seed)
    prompt, output = lengths
    tokens = [rng.randrange(vocab_size) for _ in range(prompt + output)]
    generator = torch.Generator().manual_seed(seed)
    features = {tap: torch.randn((len(tokens) - 1, width), generator=generator, dtype=torch.float64) for tap in taps}
    return Stream(tokens[:prompt], tokens[prompt:], features)


def randomize(module: nn.Module, seed: int = 0, scale: float = 0.5) -> None:
    """Weights that matter, norms around one, in float64."""
    module.double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            noise = torch.randn(weight.shape, generator=generator, dtype=torch.float64)
            weight.copy_(1 + 0.2 * noise if "norm" in name and weight.dim() == 1 else scale * noise)
    module.requires_grad_(False)


class ForcedPicker(Picker):
    """Picks what it is told and keeps all logits, so that live decoding follows the stream to any depth."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__("greedy", Sampling(), vocab_size)
        self.script: list[list[int]] = []
        self.seen: list[Tensor] = []

    def best(self, logits_NV: Tensor) -> Tensor:
        self.seen.append(logits_NV.clone())
        return torch.tensor(self.script.pop(0))

    def score(self, logits_NV: Tensor, tokens_N: Tensor) -> Tensor:
        self.seen.append(logits_NV.clone())
        return torch.ones(len(tokens_N), dtype=torch.bool)


def unrolled_logits(drafter: Drafter, picker: ForcedPicker, stream: Stream, D: int) -> dict[tuple[int, int], Tensor]:
    """(anchor, draft) -> logits [V'] of the teacher-forced view of a serial drafter."""
    picker.seen = []
    drafter.unroll(stream.prompt_ids, stream.output_ids, stream.whole(), D)
    found = {}
    for k, logits_NV in enumerate(picker.seen):
        for p, logits_V in enumerate(logits_NV):
            found[p, k] = logits_V
    return found


def assert_live_follows_unroll(
    drafter: Drafter, picker: ForcedPicker, streams: Sequence[Stream], depths: Callable[[int], int], seed: int = 0
) -> int:
    """Decode along the streams in a batch, committing any number of tokens a step and dropping streams that end. Every
    live logit must be the teacher-forced one. Returns how many were compared."""
    rng = random.Random(seed)
    expected = [unrolled_logits(drafter, picker, stream, 16) for stream in streams]
    alive = list(range(len(streams)))
    place = dict.fromkeys(alive, 0)
    drafter.prefill(
        [Request(i, stream.prompt_ids, len(stream.output_ids)) for i, stream in enumerate(streams)],
        [stream.output_ids[0] for stream in streams],
        gather(streams, alive, [(0, len(stream.prompt_ids)) for stream in streams]),
    )
    compared = step = 0
    while True:
        ended = [i for i in alive if place[i] >= len(streams[i].output_ids) - 1]
        if ended:
            rows = [row for row, i in enumerate(alive) if i not in ended]
            alive = [alive[row] for row in rows]
            if not alive:
                return compared
            drafter.keep(rows)
        room = min(len(streams[i].output_ids) - 1 - place[i] for i in alive)
        D = min(depths(step), room)
        if D > 0:
            picker.seen = []
            picker.script = [[streams[i].output_ids[place[i] + 1 + k] for i in alive] for k in range(D)]
            proposal = drafter.propose([streams[i].output_ids[place[i]] for i in alive], D)
            assert [len(tokens) for tokens in proposal.tokens] == [D] * len(alive)
            for k, logits_BV in enumerate(picker.seen):
                for row, i in enumerate(alive):
                    torch.testing.assert_close(logits_BV[row], expected[i][place[i], k], rtol=1e-9, atol=1e-9)
                    compared += 1
        taken = [rng.randint(0, min(D, room - 1)) for _ in alive]
        spans = []
        for i, a in zip(alive, taken, strict=True):
            at = len(streams[i].prompt_ids) + place[i]
            spans.append((at, at + 1 + a))
        drafter.commit(
            [streams[i].output_ids[place[i] + 1 : place[i] + 1 + a] for i, a in zip(alive, taken, strict=True)],
            [streams[i].output_ids[place[i] + 1 + a] for i, a in zip(alive, taken, strict=True)],
            gather(streams, alive, spans),
        )
        for i, a in zip(alive, taken, strict=True):
            place[i] += a + 1
        step += 1


def gather(
    streams: Sequence[Stream], which: Sequence[int], spans: Sequence[tuple[int, int]]
) -> dict[Tap, list[Tensor]]:
    """Features of these spans of these streams, a list for each tap."""
    taps = streams[0].features.keys()
    return {
        tap: [streams[i].features[tap][start:end] for i, (start, end) in zip(which, spans, strict=True)] for tap in taps
    }


def streams_of(
    target: Target, prompts: Sequence[Sequence[int]], sampling: Sampling, asked: int | Sequence[int], tail: int
) -> list[TokenStream]:
    """What the target itself writes after these prompts, all in one batch, `tail` tokens past the limit (of each)."""
    limits = [asked] * len(prompts) if isinstance(asked, int) else asked
    requests = [Request(i, prompt, limit + tail) for i, (prompt, limit) in enumerate(zip(prompts, limits, strict=True))]
    return [
        TokenStream(
            index=i,
            conversation=str(i),
            turn=0,
            category=None,
            prompt_ids=list(stream.request.prompt_ids),
            output_ids=stream.output_ids,
            asked=limit,
        )
        for i, (stream, limit) in enumerate(zip(decode(target, None, requests, sampling, 0), limits, strict=True))
    ]


def assert_replay_is_live(
    target: Target, drafter: Drafter, streams: Sequence[TokenStream], sampling: Sampling, depths: Sequence[int]
) -> None:
    """Greedy: the same steps, drafted and accepted, stream by stream, and the same text as plain decoding."""
    logs = replay(target, drafter, streams, sampling, target.eos_ids, depths)
    for D in depths:
        requests = [Request(stream.index, stream.prompt_ids, stream.asked) for stream in streams]
        live = decode(target, drafter, requests, sampling, D)
        for stream, log, one in zip(streams, logs.by_depth[D], live, strict=True):
            assert one.text_ids == stream.output_ids[: stream.asked]
            found = [(a, k, n) for a, k, n, _ in one.steps]
            replayed = list(zip(log.anchor_N.tolist(), log.drafted_N.tolist(), log.accepted_N.tolist(), strict=True))
            assert found == replayed, f"D = {D}, stream {stream.index}"


def pooled_AL(logs: Sequence[StepLog]) -> float:
    """AL over the step logs of one D."""
    steps = sum(len(log.anchor_N) for log in logs)
    accepted = sum(int(log.accepted_N.sum()) for log in logs)
    return 1 + accepted / steps
