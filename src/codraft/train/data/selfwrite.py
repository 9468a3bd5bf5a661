"""User turns that the target writes itself, where there are no prompts.

The chat template is rendered around a mark, which shows what stands before a user's text and what ends it. Behind that
and a beginning ("What is ") the target goes on as the user [Xu24]. A turn is kept where the target ended it with the
token that ends a user's turn. Beginnings of the categories in LONG ask about a text that follows, which may be cut at
the limit: those turns are kept too.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.spec import Sampling
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import Conversation, user
from codraft.train.data.answers import Wanted, Written
from codraft.train.data.rows import Drop, Finding, same_key

MARK = "\u2407codraft\u2407"
LONG = frozenset({"summary", "context", "rewrite", "extraction", "code"})
LONG_TOKENS = 220
SHORT_TOKENS = 96
TEMPERATURE = 0.9
TOP_P = 0.95
# Letters and digits of the shortest turn that asks anything, in any script.
SHORTEST = 6


@dataclass(frozen=True, slots=True)
class Frame:
    """The chat template around a user's text. `stop_ids` end it; where no single token does, the text `marker`."""

    head: str
    stop_ids: frozenset[int]
    marker: str | None


@dataclass(frozen=True, slots=True)
class Turn:
    """One user turn to be written."""

    wanted: Wanted
    category: str


def frame_of(codec: TextCodec, eos_ids: frozenset[int], target: str) -> Frame:
    """What stands around a user's text. SpecError for a model without a chat template, or with one that hides it."""
    if codec.raw:
        raise SpecError(
            f"{target} has no chat template, so it cannot write user turns itself; give prompts with --prompts, or "
            "answers it has written with --streams"
        )
    tokenizer = codec.tokenizer
    try:
        text = tokenizer.apply_chat_template([user(MARK)], tokenize=False, add_generation_prompt=True)
    except Exception as error:
        raise SpecError(f"{target}: its chat template refuses a lone user message; give prompts with --prompts") from (
            error
        )
    head, mark, tail = text.partition(MARK)
    if not mark or MARK in tail:
        raise SpecError(
            f"{target}: its chat template does not show a user's text exactly once; give prompts with --prompts"
        )
    first = ids_of(codec, tail.lstrip())[:1]
    single = bool(first) and first[0] in special_ids(tokenizer)
    return Frame(head, eos_ids | frozenset(first) if single else eos_ids, None if single else tail.strip() or None)


def ids_of(codec: TextCodec, text: str) -> list[int]:
    """Token ids of a rendered text, which has its special tokens already."""
    return list(codec.tokenizer(text, add_special_tokens=False)["input_ids"])


def special_ids(tokenizer: Any) -> set[int]:
    """Tokens that stand for no text: those that were added, and those with a part to play."""
    added = tokenizer.get_added_vocab().values() if hasattr(tokenizer, "get_added_vocab") else ()
    return {*added, *getattr(tokenizer, "all_special_ids", ())}


def read_openers(path: Path | None) -> dict[str, list[str]]:
    """Beginnings by category: a file's, or the built-in ones. An empty beginning leaves everything to the target."""
    source = path or resources.files("codraft.train") / "openers.json"
    try:
        openers = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise SpecError(f"cannot read {path}: {error.strerror or error}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise SpecError(f"--openers {path} is not JSON ({error}); mend it") from error
    lists = isinstance(openers, dict) and openers and all(isinstance(o, list) and o for o in openers.values())
    if not lists or not all(isinstance(text, str) for texts in openers.values() for text in texts):
        raise SpecError(
            f"--openers {path} must be a JSON object of categories, each with a list of beginnings, as "
            '{"question": ["What is ", "Who "]}'
        )
    return dict(openers)


def turns(codec: TextCodec, frame: Frame, openers: Mapping[str, Sequence[str]], count: int, seed: int) -> list[Turn]:
    """`count` turns to be written, every beginning as often as the others, in an order that the seed decides."""
    flat = [(category, text) for category, texts in openers.items() for text in texts]
    generator = random.Random(seed)
    order: list[tuple[str, str]] = []
    while len(order) < count:
        generator.shuffle(one := flat[:])
        order += one
    sampling = Sampling(temperature=TEMPERATURE, top_p=TOP_P, seed=seed)
    made = []
    for index, (category, text) in enumerate(order[:count]):
        # Most tokens hold the space before their word: one left at the end would hinder the next.
        prompt_ids = ids_of(codec, frame.head + text.rstrip(" "))
        if not prompt_ids:
            raise SpecError("the chat template has nothing before a user's text: give no empty beginning in --openers")
        limit = LONG_TOKENS if category in LONG else SHORT_TOKENS
        made.append(Turn(Wanted(f"turn-{index:06d}", index, prompt_ids, limit, sampling), category))
    return made


def check_room(turns: Sequence[Turn], window: int | None, target: str) -> None:
    """Refuse a window that the longest beginning and turn do not fit."""
    most = max(len(turn.wanted.prompt_ids) + turn.wanted.max_tokens for turn in turns)
    if window is not None and most > window:
        raise SpecError(
            f"a user turn may take {most} tokens with what stands before it, and the window of {target} is {window}; "
            "give prompts with --prompts, or shorter beginnings with --openers"
        )


def harvest(
    turns: Sequence[Turn], written: Mapping[str, Written], codec: TextCodec, frame: Frame, seen: set[str]
) -> list[Finding]:
    """Conversations of one user turn each; `seen` holds the keys of other prompts, and takes in these."""
    head = codec.text(ids_of(codec, frame.head))
    findings = []
    for turn in turns:
        key = turn.wanted.key
        where, number = f"self-written {key}", turn.wanted.index + 1
        try:
            if key not in written:
                raise Drop("limit")
            asked, ended = judged(turn, written[key], codec, frame, head)
            made = Conversation(key, turn.category, where, (user(asked),))
            if same_key(made) in seen:
                raise Drop("duplicate")
        except Drop as drop:
            findings.append(Finding(where, number, None, str(drop)))
            continue
        seen.add(same_key(made))
        findings.append(Finding(where, number, made, None, () if ended else ("cut",)))
    return findings


def judged(turn: Turn, text: Written, codec: TextCodec, frame: Frame, head: str) -> tuple[str, bool]:
    """(what the user says, whether it was ended and not cut); Drop where it is no use."""
    ended = text.stop_reason == "eos"
    begun = len(codec.text(turn.wanted.prompt_ids))
    whole = codec.text([*turn.wanted.prompt_ids, *(text.output_ids[:-1] if ended else text.output_ids)])
    if frame.marker is not None and frame.marker in whole[begun:]:
        whole, ended = whole[: whole.index(frame.marker, begun)], True
    if not ended and turn.category not in LONG:
        raise Drop("not_ended")
    if not whole[begun:].strip():
        raise Drop("nothing_written")
    asked = whole[len(head) :].strip()
    if sum(c.isalnum() for c in asked) < SHORTEST:
        raise Drop("too_short")
    return asked, ended
