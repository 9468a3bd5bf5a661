"""Prompt sets: the one shipped with the package, and JSONL files in the common shapes.

A row holds `turns` (a list of user messages), `messages` (chat, ending in the user) or `prompt` (one user message);
`category` and an id (`id`, `question_id`, `task_id`, `uid`) are optional. Other keys are left alone.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from codraft.core.errors import SpecError
from codraft.core.files import read_jsonl, sha256_text
from codraft.core.stats import evenly
from codraft.decode.hf.text import Message

BUILT_IN = {"demo": "demo.jsonl"}
ROLES = ("system", "developer", "user", "assistant", "tool")


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
    """`NAME_OR_FILE[:N]` each; N takes that many rows, spread evenly over the file."""
    if not sources:
        raise SpecError("no prompts given; use --prompts NAME_OR_FILE[:N] (built in: demo)")
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


def load_one(source: str) -> list[Conversation]:
    """One `NAME_OR_FILE[:N]`."""
    name, count = split_count(source)
    rows = read_conversations(locate(name))
    if not rows:
        raise SpecError(f"prompt file {name} has no rows; give at least one prompt")
    return rows if count is None else evenly(rows, count)


def split_count(source: str) -> tuple[str, int | None]:
    """`NAME:N` apart; a lone `NAME` has no N."""
    name, colon, digits = source.rpartition(":")
    if not colon or not re.fullmatch(r"-?[0-9]{1,18}", digits):
        return source, None
    if int(digits) < 1:
        raise SpecError(f"--prompts {source}: N must be at least 1; got {digits}")
    return name, int(digits)


def locate(name: str) -> Path:
    """The file behind a name."""
    with suppress(OSError, RuntimeError):  # a name too long for a file, or of nobody's home, is no file either
        path = Path(name).expanduser()
        if path.is_file():
            return path
        if path.is_dir() and name not in BUILT_IN:
            raise SpecError(f"prompts {name} is a folder; name a JSONL file in it")
    if name in BUILT_IN:
        return Path(str(resources.files("codraft.replay") / "data" / BUILT_IN[name]))
    raise SpecError(f"no prompt file {name}; give a JSONL file or a built-in set: {', '.join(BUILT_IN)}")


def read_conversations(path: Path) -> list[Conversation]:
    """All rows of a JSONL file."""
    return [conversation(row, f"{path}, line {number}", str(number)) for number, row in read_jsonl(path)]


def conversation(row: Mapping[str, Any], where: str, fallback_id: str) -> Conversation:
    """One row, whichever of the three shapes it has."""
    name = next(
        (str(row[key]) for key in ("id", "question_id", "task_id", "uid") if row.get(key) is not None),
        fallback_id,
    )
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
        return Conversation(name, category, where, (user(require_text(row["prompt"], f"{where}: 'prompt'")),))
    raise SpecError(f"{where}: no prompt in this row; it needs 'turns', 'messages' or 'prompt'")


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
