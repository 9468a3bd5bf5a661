"""The loop on toy targets: the text never depends on drafter, D or batch, and the counts add up."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.spec import Sampling
from codraft.decode.accept import Verdict
from codraft.decode.drafter import Features, Request
from codraft.decode.loop import Batch, Gain, NoProbe, Stream, decode, gain, step

from tests.toy import EOS, RULES, Rule, RuleDrafter, SamplingDrafter, ToyCache, ToyTarget, greedy_text

GREEDY = Sampling()
PROMPTS = [[3], [1, 2, 3, 4], [5, 5, 5], [2, 4], [1]]


def requests(prompts: list[list[int]], limit: int) -> list[Request]:
    return [Request(i, prompt, limit) for i, prompt in enumerate(prompts)]


def check_counts(stream: Stream) -> None:
    """One token from prefill, then every step's accepted tokens and bonus, but no bonus after an accepted EOS."""
    accepted = sum(a for _, _, a, _ in stream.steps)
    cut = sum(c for _, _, _, c in stream.steps)
    assert len(stream.output_ids) == 1 + len(stream.steps) + accepted - cut
    position = 0
    for anchor, drafted, taken, _ in stream.steps:
        assert anchor == position
        assert 0 <= taken <= drafted
        position += taken + 1


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("D", [0, 1, 4, 9])
@pytest.mark.parametrize("B", [1, 3])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.9, seed=11), Sampling(temperature=1.3, top_p=0.8)])
def test_the_text_is_plain_decodings_for_every_drafter_depth_and_batch(
    rule: str, D: int, B: int, sampling: Sampling
) -> None:
    target = ToyTarget(7, seed=3)
    plain = [decode(target, None, [r], sampling, 0)[0].text_ids for r in requests(PROMPTS, 23)]
    drafter = RuleDrafter(RULES[rule](target))
    texts = []
    for start in range(0, len(PROMPTS), B):
        for stream in decode(target, drafter, requests(PROMPTS, 23)[start : start + B], sampling, D):
            texts.append(stream.text_ids)
            check_counts(stream)
    assert texts == plain


def test_plain_greedy_text_is_the_argmax_chain() -> None:
    target = ToyTarget(9, seed=1, eos=False)
    stream = decode(target, None, requests([[4, 2]], 30), GREEDY, 0)[0]
    assert stream.text_ids == greedy_text(target, [4, 2], 30)
    assert len(stream.steps) == 29


def test_an_oracle_needs_one_step_for_every_d_plus_one_tokens() -> None:
    target = ToyTarget(9, seed=1, eos=False)
    stream = decode(target, RuleDrafter(RULES["oracle"](target)), requests([[4, 2]], 31), GREEDY, 4)[0]
    assert stream.steps == [(5 * i, 4, 4, False) for i in range(6)]


def test_a_step_past_the_limit_counts_in_full_and_only_the_output_is_cut() -> None:
    target = ToyTarget(9, seed=1, eos=False)
    stream = decode(target, RuleDrafter(RULES["oracle"](target)), requests([[4, 2]], 3), GREEDY, 8)[0]
    assert stream.steps == [(0, 8, 8, False)]
    assert stream.text_ids == greedy_text(target, [4, 2], 3)
    assert stream.stop_reason(target.eos_ids) == "length"


def eos_stream(target: ToyTarget) -> tuple[list[int], int] | None:
    """A prompt whose greedy text meets EOS a few tokens in, and where; None where there is none."""
    for first in range(1, target.vocab_size):
        for second in range(1, target.vocab_size):
            text = greedy_text(target, [first, second], 12)
            if EOS in text[3:] and EOS not in text[:3]:
                return [first, second], text.index(EOS)
    return None


ENDING = [(seed, found) for seed in range(20) if (found := eos_stream(ToyTarget(11, seed=seed)))]


def test_most_toys_do_say_eos() -> None:
    assert len(ENDING) >= 10


@pytest.mark.parametrize(("seed", "found"), ENDING)
def test_an_accepted_eos_ends_the_stream_without_a_bonus(seed: int, found: tuple[list[int], int]) -> None:
    target = ToyTarget(11, seed=seed)
    prompt, end = found
    stream = decode(target, RuleDrafter(RULES["oracle"](target)), requests([prompt], 50), GREEDY, 12)[0]
    assert stream.output_ids == greedy_text(target, prompt, end + 1)
    assert stream.steps == [(0, end, end, True)], "drafts behind the EOS do not count"
    assert stream.stop_reason(target.eos_ids) == "eos"


def test_an_eos_accepted_beyond_the_limit_leaves_the_reason_at_length() -> None:
    seed, (prompt, end) = ENDING[0]
    target = ToyTarget(11, seed=seed)
    stream = decode(target, RuleDrafter(RULES["oracle"](target)), requests([prompt], end), GREEDY, 12)[0]
    assert stream.steps == [(0, end, end, True)]
    assert stream.stop_reason(target.eos_ids) == "length"
    assert len(stream.text_ids) == end


def test_a_first_token_that_is_eos_takes_no_step() -> None:
    target = ToyTarget(5, seed=0)
    target.last_VV[:, EOS] = 100
    stream = decode(target, RuleDrafter(RULES["oracle"](target)), requests([[1, 2]], 9), GREEDY, 3)[0]
    assert stream.output_ids == [EOS]
    assert stream.steps == []


def test_a_limit_of_one_takes_no_step() -> None:
    target = ToyTarget(5, seed=0, eos=False)
    assert decode(target, None, requests([[1]], 1), GREEDY, 0)[0].steps == []


class Ledger(RuleDrafter):
    """Writes down, stream by stream, the first anchor and all that is committed after it."""

    def __init__(self, rule: Rule) -> None:
        super().__init__(rule)
        self.written: dict[int, list[int]] = {}
        self.rows: list[int] = []

    def prefill(self, requests: Sequence[Request], anchors: Sequence[int], features: Features) -> None:
        super().prefill(requests, anchors, features)
        self.rows = [r.index for r in requests]
        self.written.update({r.index: [anchor] for r, anchor in zip(requests, anchors, strict=True)})

    def commit(self, accepted: Sequence[Sequence[int]], bonus: Sequence[int], features: Features) -> None:
        super().commit(accepted, bonus, features)
        for index, tokens, last in zip(self.rows, accepted, bonus, strict=True):
            self.written[index] += [*tokens, last]

    def keep(self, rows: Sequence[int]) -> None:
        super().keep(rows)
        self.rows = [self.rows[row] for row in rows]


@pytest.mark.parametrize("rule", ["oracle", "scrambled", "eos_inside", "ragged"])
@pytest.mark.parametrize("D", [1, 4, 9])
@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.9, seed=11)])
def test_what_is_committed_is_what_the_output_grows_by(rule: str, D: int, sampling: Sampling) -> None:
    """Also in a step that an accepted EOS cuts or that passes the limit; features are of those positions alone."""
    cut = passed = 0
    for seed in range(6):
        target = ToyTarget(7, seed=seed)
        drafter = Ledger(RULES[rule](target))
        for stream in decode(target, drafter, requests(PROMPTS, 9), sampling, D):
            assert drafter.written[stream.request.index] == stream.output_ids
            cut += any(c for *_, c in stream.steps)
            passed += len(stream.output_ids) > 9
    assert passed > 0 or D < 4
    assert cut > 0


def test_the_cache_never_holds_what_lies_behind_an_accepted_eos() -> None:
    """The other stream of the batch goes on: its rows are rolled back to what each committed."""
    seed, (prompt, end) = ENDING[0]
    target = ToyTarget(11, seed=seed)
    batch = Batch.prefill(
        target, RuleDrafter(RULES["oracle"](target)), requests([prompt, [7]], 50), GREEDY, 12, NoProbe()
    )
    cache = batch.cache
    assert isinstance(cache, ToyCache)
    held: list[list[int]] = []
    rollback = cache.rollback

    def watched(lengths: Sequence[int]) -> None:
        rollback(lengths)
        held.append(list(cache.tokens[0]))

    cache.rollback = watched  # type: ignore[method-assign]
    step(batch, 12)
    assert held == [[*prompt, *greedy_text(target, prompt, end)]], "everything before the EOS, which is the last token"


@pytest.mark.parametrize(
    ("draft", "verdict", "expected"),
    [
        ([3, 4, 5], Verdict(2, 7), Gain([3, 4], 7, False)),
        ([], Verdict(0, 7), Gain([], 7, False)),
        ([3, EOS, 5], Verdict(1, EOS), Gain([3], EOS, False)),  # The bonus may be an EOS: a step like any other.
        ([3, EOS, 5], Verdict(3, 7), Gain([3], EOS, True)),
        ([EOS, EOS], Verdict(2, 7), Gain([], EOS, True)),
    ],
)
def test_a_gain_ends_at_the_first_accepted_eos(draft: list[int], verdict: Verdict, expected: Gain) -> None:
    assert gain(draft, verdict, frozenset([EOS])) == expected


def test_a_stream_grows_by_its_gains() -> None:
    stream = Stream(Request(0, [1], 99), [2])
    stream.extend(3, Gain([4, 5], 6, False))
    stream.extend(0, Gain([], 7, False))
    stream.extend(6, Gain([8], EOS, True))
    assert stream.output_ids == [2, 4, 5, 6, 7, 8, EOS]
    assert stream.steps == [(0, 3, 2, False), (3, 0, 0, False), (4, 2, 2, True)]


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_batch_composition_does_not_change_a_sampled_text(seed: int, B: int) -> None:
    target = ToyTarget(6, seed=2)
    sampling = Sampling(temperature=1.0, seed=seed)
    alone = [decode(target, None, [r], sampling, 0)[0].text_ids for r in requests(PROMPTS[:B], 12)]
    together = [s.text_ids for s in decode(target, None, list(reversed(requests(PROMPTS[:B], 12))), sampling, 0)]
    assert together == alone[::-1]


def test_drawn_drafts_keep_the_targets_law() -> None:
    """Chi-square over all texts of two tokens (V = 3, 8 degrees), 4,000 seeds; false alarm below 1e-6 (42.7)."""
    target = ToyTarget(3, seed=8, scale=0.7, eos=False)
    draft_model = ToyTarget(3, seed=9, scale=0.7, eos=False)
    counts: dict[tuple[int, ...], int] = {}
    total = 4000
    for seed in range(total):
        sampling = Sampling(temperature=1.0, seed=seed)
        text = tuple(
            decode(target, SamplingDrafter(draft_model, sampling), requests([[1, 2]], 3), sampling, 2)[0].text_ids
        )
        counts[text[1:]] = counts.get(text[1:], 0) + 1
    expected: dict[tuple[int, ...], float] = {}
    for a in range(3):
        for b in range(3):
            for c in range(3):
                p = 1.0
                for history, token in (([1, 2], a), ([1, 2, a], b), ([1, 2, a, b], c)):
                    p *= float(target.logits(history).softmax(-1)[token])
                expected[b, c] = expected.get((b, c), 0.0) + p * total
    assert sum((counts.get(text, 0) - e) ** 2 / e for text, e in expected.items()) < 42.7
