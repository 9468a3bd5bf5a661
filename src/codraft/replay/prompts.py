"""Prompt sets: rows of the common shapes, as conversations. `promptsets.py` finds the files behind their names.

A row holds `turns` (a list of user messages), `messages` (chat, ending in the user) or `prompt` (one user message);
`category` and an id (`id`, `question_id`, `task_id`, `uid`) are optional. Other keys are left alone. Two benchmarks
have shapes of their own: HumanEval's `prompt` is a bare function header, which gets a request around it, and GSM8K has
`question` and `answer`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.files import sha256_text
from codraft.core.stats import evenly
from codraft.decode.hf.text import Message
from codraft.formats.rows import read_rows
from codraft.replay.promptsets import BUILT_IN, OPEN_SETS, RAW, SPEED, how_to_prepare, is_placeholder, locate

ROLES = ("system", "developer", "user", "assistant", "tool")
ID_KEYS = ("id", "question_id", "task_id", "uid")
PROMPT_KEYS = ("turns", "messages", "prompt")
# Rows of benchmarks with a shape of their own. Questions and answers are a common pair, so GSM8K's has nothing else.
HUMANEVAL_KEYS = ("task_id", "prompt", "entry_point")
GSM8K_KEYS = {"question", "answer"}
OPTIONAL_KEYS = ("category", *ID_KEYS)
# Around a bare function header, which a chat model would not know what to do with; it changes AL.
CODE_REQUEST = (
    "Complete this Python function. Answer with the whole function in one code block.\n\n```python\n{header}\n```"
)
# Names listed in an error.
MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row: messages before the first answer, then one more user message for each further turn."""

    id: str
    category: str | None
    where: str
    opening: tuple[Message, ...]
    followups: tuple[str, ...] = ()

    @property
    def num_turns(self) -> int:
        """Answers to be written."""
        return 1 + len(self.followups)


@dataclass(frozen=True, slots=True)
class PromptSet:
    """Conversations of one or more files, with a hash of what was really used."""

    name: str
    sha256: str
    conversations: list[Conversation]


def first_turns(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Without follow-ups: all that a model without a chat template can be asked."""
    return [replace(c, followups=()) for c in conversations]


def load_prompts(sources: list[str]) -> PromptSet:
    """`NAME_OR_FILE[/CATEGORY][:N]` each; N takes that many rows, spread evenly over the file or its category."""
    if not sources:
        names = ", ".join([*BUILT_IN, *OPEN_SETS, SPEED])
        raise SpecError(f"no prompts given; use --prompts NAME_OR_FILE[:N] (names: {names})")
    conversations = separate([c for source in sources for c in load_one(source)])
    content = repr([(c.category, c.opening, c.followups) for c in conversations])
    return PromptSet("+".join(sources), sha256_text(content), conversations)


def separate(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Other rows get other ids, also where files number theirs alike: the bootstrap tells conversations by id."""
    places: dict[str, str] = {}
    return [
        c if places.setdefault(c.id, c.where) == c.where else replace(c, id=f"{c.id} ({c.where})")
        for c in conversations
    ]


def typed_prompts(texts: Sequence[str]) -> list[Conversation]:
    """Prompts typed on the command line."""
    return [conversation({"prompt": text}, f"--prompt {i}", str(i)) for i, text in enumerate(texts, start=1)]


def load_one(source: str, base: str = RAW) -> list[Conversation]:
    """One `NAME_OR_FILE[/CATEGORY][:N]`; `base` is where the open sets are downloaded from."""
    name, count = split_count(source)
    found = locate(name, base)
    rows = [c for called, path in found.files.items() for c in read_conversations(path, called)]
    if not rows:
        raise SpecError(f"prompt file {name} has no rows; give at least one prompt")
    if found.category is not None:
        rows = of_category(rows, name, found.category)
    refuse_placeholders(rows, name)
    return rows if count is None else evenly(rows, count)


def split_count(source: str) -> tuple[str, int | None]:
    """`NAME:N` apart; a lone `NAME` has no N."""
    name, colon, digits = source.rpartition(":")
    if not colon or not re.fullmatch(r"-?[0-9]{1,18}", digits):
        return source, None
    if int(digits) < 1:
        raise SpecError(f"--prompts {source}: N must be at least 1; got {digits}")
    return name, int(digits)


def read_conversations(path: Path, called: str) -> list[Conversation]:
    """All rows of a file, whose places are told as `called`."""
    rows = read_rows(path, PROMPT_KEYS, (*OPTIONAL_KEYS, *HUMANEVAL_KEYS))
    return [conversation(row, f"{called}, {unit} {number}", str(number)) for unit, number, row in rows]


def of_category(rows: Sequence[Conversation], name: str, category: str) -> list[Conversation]:
    """The rows of one category."""
    chosen = [c for c in rows if c.category == category]
    if not chosen:
        there = ", ".join(sorted({c.category for c in rows if c.category is not None})[:MOST_NAMED]) or "none"
        parent = name.rstrip("/").rpartition("/")[0]
        raise SpecError(
            f"no prompt file {name}, and no row of {parent} has the category '{category}'; categories there: {there}"
        )
    return chosen


def refuse_placeholders(rows: Sequence[Conversation], name: str) -> None:
    """Unfilled rows all hold one English sentence, whose AL would be measured without a word."""
    unfilled = sum(any(map(is_placeholder, texts_of(c))) for c in rows)
    if unfilled:
        raise SpecError(
            f"prompts {name}: {unfilled} of {len(rows)} rows are placeholders of SPEED-Bench, to be filled from their "
            f"sources; {how_to_prepare()}"
        )


def texts_of(c: Conversation) -> list[str]:
    """Every text that a user or a system gives."""
    return [*(message["content"] for message in c.opening), *c.followups]


def conversation(row: Mapping[str, Any], where: str, fallback_id: str) -> Conversation:
    """One row, whichever of the shapes it has."""
    name = next((str(row[key]) for key in ID_KEYS if row.get(key) is not None), fallback_id)
    category = str(row["category"]) if row.get("category") is not None else None
    if "turns" in row:
        turns = row["turns"]
        if not isinstance(turns, list) or not turns:
            raise SpecError(f"{where}: 'turns' must be a non-empty list of texts")
        texts = [require_text(turn, f"{where}: turn {i}") for i, turn in enumerate(turns, start=1)]
        return Conversation(name, category, where, (user(texts[0]),), tuple(texts[1:]))
    if "messages" in row:
        messages = check_messages(row["messages"], where)
        if messages[-1]["role"] == "assistant":
            raise SpecError(
                f"{where}: 'messages' ends with the assistant; drop its answer, or pass the file as --streams"
            )
        return Conversation(name, category, where, tuple(messages))
    if "prompt" in row:
        text = require_text(row["prompt"], f"{where}: 'prompt'")
        if all(row.get(key) is not None for key in HUMANEVAL_KEYS):
            text, category = CODE_REQUEST.format(header=text.strip("\n")), category or "code"
        return Conversation(name, category, where, (user(text),))
    if row.keys() - set(OPTIONAL_KEYS) == GSM8K_KEYS:
        text = require_text(row["question"], f"{where}: 'question'")
        return Conversation(name, category or "maths", where, (user(text),))
    found = ", ".join(list(row)[:MOST_NAMED]) or "nothing"
    raise SpecError(f"{where}: no prompt in this row; it needs 'turns', 'messages' or 'prompt', and holds {found}")


def check_messages(messages: Any, where: str) -> list[Message]:
    """A non-empty list of {role, content} with text content."""
    if not isinstance(messages, list) or not messages:
        raise SpecError(f"{where}: 'messages' must be a non-empty list")
    for i, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise SpecError(f"{where}: message {i} needs a 'role', one of {', '.join(ROLES)}")
        require_text(message.get("content"), f"{where}: content of message {i}")
    return messages


def require_text(value: Any, what: str) -> str:
    """A non-blank string."""
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{what} must be a non-empty text")
    return value


def user(text: str) -> Message:
    """A user's message."""
    return {"role": "user", "content": text}
