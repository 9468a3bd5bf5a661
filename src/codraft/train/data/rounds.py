"""Answers, turn by turn: round k writes turn k of every conversation, behind the target's own earlier answers."""

import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling
from codraft.decode.hf.text import Message, TextCodec
from codraft.replay.prompts import Conversation
from codraft.replay.streams import fits
from codraft.train.data.answers import Progress, Wanted, Written
from codraft.train.data.writers import Writer
from codraft.train.tokens import Row

# Indexes below key the noise of the target's user turns.
FIRST_INDEX = 1 << 40


class Ui(Protocol):
    """How long work shows itself."""

    def stage(self, title: str) -> AbstractContextManager[Progress]:
        """A named stage with a progress callback."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer behind its prompt; `ended` by the target itself. `number` is its conversation's."""

    number: int
    prompt_ids: list[int]
    output_ids: list[int]
    ended: bool
    category: str | None

    def row(self) -> Row:
        """As a row to train on: the target wrote the answer, and nothing of the prompt."""
        ids = np.array([*self.prompt_ids, *self.output_ids], dtype=np.int64)
        return Row(ids, np.arange(len(ids)) >= len(self.prompt_ids), self.category)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How answers are written: `also`, where there is one, writes that share of the conversations once more."""

    sampling: Sampling
    max_new_tokens: int
    window: int | None
    eos_ids: frozenset[int]
    also: Sampling | None = None
    also_share: float = 0.0
    limit: int | None = None

    @property
    def samplings(self) -> list[Sampling]:
        """Every way in which answers are drawn."""
        return [self.sampling] if self.also is None else [self.sampling, self.also]


@dataclass(slots=True, eq=False)
class Dialogue:
    """A conversation in the making. `prefix` of its keys tells a second, sampled one from the first."""

    number: int
    source: Conversation
    sampling: Sampling
    prefix: str
    first_index: int
    history: list[Message]
    answers: list[Answer] = field(default_factory=list)

    def wanted(self, prompt_ids: list[int], turn: int, max_tokens: int) -> Wanted:
        """The request for a turn."""
        key = f"{self.prefix}-{self.number:06d}-{turn}"
        return Wanted(key, self.first_index + turn, prompt_ids, max_tokens, self.sampling)

    def take(self, wanted: Wanted, text: Written, plan: Plan) -> None:
        """Take in an answer that holds a token to be predicted."""
        ended = text.stop_reason == "eos"
        self.answers.append(Answer(self.number, list(wanted.prompt_ids), text.output_ids, ended, self.source.category))


@dataclass(slots=True)
class Answered:
    """All answers in the order of the conversations. `unreached`: conversations that the limit left without any."""

    answers: list[Answer]
    unreached: set[int]
    skipped_turns: int = 0
    empty: int = 0


def dialogues(conversations: Sequence[Conversation], plan: Plan) -> list[Dialogue]:
    """Every conversation, and the chosen ones once more."""
    count = len(conversations)
    chosen = random.Random(plan.sampling.seed).sample(range(count), round(plan.also_share * count)) if plan.also else []
    pairs = [(number, plan.sampling, "answer") for number in range(count)]
    pairs += [(number, plan.also, "sampled") for number in sorted(chosen) if plan.also]
    made, index = [], FIRST_INDEX
    for number, sampling, prefix in pairs:
        source = conversations[number]
        made.append(Dialogue(number, source, sampling, prefix, index, list(source.opening)))
        index += source.num_turns
    return made


def write_answers(
    writer: Writer, codec: TextCodec, conversations: Sequence[Conversation], plan: Plan, out: Path, ui: Ui
) -> Answered:
    """Let the target write every turn. A conversation ends early where it outgrows the window, where an answer is
    empty, or at the limit."""
    every = dialogues(conversations, plan)
    result = Answered([], set())
    open_now, turn, tokens = every, 0, 0
    while open_now:
        requests = {}
        for d in open_now:
            prompt_ids = next_prompt(d, codec)
            if prompt_ids is None or not fits(prompt_ids, plan.max_new_tokens, plan.window):
                result.skipped_turns += d.source.num_turns - turn
            else:
                requests[d] = d.wanted(prompt_ids, turn, plan.max_new_tokens)
        left = None if plan.limit is None else max(plan.limit - tokens, 0)
        with ui.stage("write answers" if turn == 0 else f"write answers of turn {turn + 1}") as progress:
            texts = writer.write(list(requests.values()), out, plan.eos_ids, progress, left)
        open_now = take_round(requests, texts, plan, codec, result, turn)
        tokens += sum(len(text.output_ids) for text in texts.values())
        turn += 1
    result.answers = [answer for d in sorted(every, key=lambda d: d.number) for answer in d.answers]
    result.unreached -= {answer.number for answer in result.answers}
    return result


def next_prompt(d: Dialogue, codec: TextCodec) -> list[int] | None:
    """The prompt of its next turn, None where the template refuses the target's own answer in it."""
    try:
        return codec.prompt_ids(d.history, d.source.where)
    except SpecError:
        return None


def take_round(
    requests: dict[Dialogue, Wanted], texts: dict[str, Written], plan: Plan, codec: TextCodec, out: Answered, turn: int
) -> list[Dialogue]:
    """Take in a round's answers; the dialogues that go on."""
    going_on = []
    for d, wanted in requests.items():
        text = texts.get(wanted.key)
        if text is None:
            out.unreached.add(d.number)
        elif plan.eos_ids.issuperset(text.output_ids):
            out.empty += 1
        else:
            d.take(wanted, text, plan)
            if turn < len(d.source.followups):
                d.history += [
                    {"role": "assistant", "content": codec.text(text.output_ids)},
                    {"role": "user", "content": d.source.followups[turn]},
                ]
                going_on.append(d)
    return going_on
