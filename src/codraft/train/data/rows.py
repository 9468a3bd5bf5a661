"""The row linter: a prompt row of any common shape becomes a conversation, or is dropped for exactly one reason.

Shapes: `messages` (role, content), ShareGPT's `conversations` (from, value), `turns`, `prompt`, and instruction files
(`instruction` with `input`, `question`). Answers that a file holds are never used: a drafter learns what the target
writes, so the target writes every answer anew, behind its own earlier ones.

A row that begins with the assistant loses those turns; two user messages in a row become one, a blank line between.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codraft.core.traindata import RowsInfo
from codraft.decode.hf.text import Message
from codraft.replay.prompts import CODE_REQUEST, HUMANEVAL_KEYS, ID_KEYS, Conversation, user
from codraft.replay.promptsets import is_placeholder
from codraft.train.data.raw import Broken, RawRow

# Why a row is dropped. What needs the target (from `no_supervised_token` on) is found after the others.
DROPS = {
    "broken_json": "the line is no JSON object",
    "unknown_shape": "no messages, conversations, turns, prompt, instruction or question in it",
    "malformed": "its messages are not a list of objects with a role and a content",
    "empty": "no text in it",
    "unknown_role": "a role that is none of system, developer, user, assistant or their ShareGPT names",
    "null_content": "a user or system message without content",
    "not_text": "content with an image or another part that is no text",
    "tools": "tools, tool calls or a tool's answer, which the target would have to be given too",
    "late_system": "a second system message, or one behind the first user message",
    "placeholder": "SPEED-Bench's text for rows still to be fetched",
    "duplicate": "the same user messages as an earlier row, but for case and spaces",
    "no_supervised_token": "nothing that the target would answer, or an answer without a token to be predicted",
    "over_long": "prompt and answer do not fit the target's window",
    "template": "the target's chat template refuses it",
    "limit": "not answered any more: --limit-tokens was reached",
    "not_ended": "a turn by the target that it did not end within its limit",
    "nothing_written": "a turn to which the target added nothing",
    "too_short": "a turn by the target with fewer letters and digits than any question has",
}
# What was mended in a row that was kept.
REPAIRS = {
    "sharegpt_keys": "from and value taken for role and content",
    "assistant_first": "assistant turns before the first user message left out",
    "users_joined": "user messages in a row joined",
    "parts_joined": "text parts joined",
    "cut": "cut at the limit: a text that the target wrote to ask about it",
    "followups": "turns behind the first left out, for the model has no chat template",
    "blank_turn": "messages without text left out",
    "answers_dropped": "answers of the file left out: the target writes its own",
    "reasoning_ignored": "reasoning of the file's answers left out with them",
}
ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "prompter": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "function_call": "tool",
    "function_response": "tool",
    "observation": "tool",
    "ipython": "tool",
}
CHAT_KEYS = ("messages", "conversations", "conversation")
# Of instruction files: the first key that is there asks, others add to it.
ASKING_KEYS = (("prompt",), ("instruction", "input"), ("question",))
SYSTEM_KEYS = ("system", "system_prompt")
TEXT_PARTS = ("text", "input_text", "output_text")
REASONING_KEYS = ("reasoning_content", "reasoning", "thinking")
TOOL_KEYS = ("tool_calls", "function_call")
ANSWER_KEYS = ("output", "response", "answer", "completion", "chosen")
# Stands for an answer between two messages that the file does not hold.
ANSWERED = "answered"
THINK = re.compile(r"<think(ing)?>", re.I)


class Drop(Exception):  # noqa: N818 (no error of anybody's: the one way out of many small checks)
    """A row is dropped; the message is its reason, a key of DROPS. Caught where rows are counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a row: `conversation` where it is kept, else `reason`; `repairs` of kept rows alone."""

    where: str
    number: int
    conversation: Conversation | None
    reason: str | None
    repairs: tuple[str, ...] = ()

    def dropped(self, reason: str) -> "Finding":
        """The same row, dropped after all."""
        return Finding(self.where, self.number, None, reason)


def count(findings: Sequence[Finding]) -> RowsInfo:
    """Rows in = kept + those dropped by reason; repairs of those kept. The most frequent first."""
    kept = [f for f in findings if f.reason is None]
    reasons = Counter(f.reason for f in findings if f.reason is not None)
    repairs = Counter(repair for f in kept for repair in f.repairs)
    return RowsInfo(
        rows=len(kept) + reasons.total(),
        kept=len(kept),
        dropped=dict(reasons.most_common()),
        repaired=dict(repairs.most_common()),
    )


def lint(rows: Iterable[RawRow], seen: set[str] | None = None) -> list[Finding]:
    """What becomes of every row, in order. `seen` holds the keys of conversations so far, and takes in the kept."""
    seen = set() if seen is None else seen
    return [lint_row(row, seen) for row in rows]


def lint_row(row: RawRow, seen: set[str]) -> Finding:
    """One row; never an exception, whatever it holds."""
    repairs: set[str] = set()
    try:
        conversation = read_row(row, repairs)
        key = same_key(conversation)
        if key in seen:
            raise Drop("duplicate")
    except Drop as drop:
        return Finding(row.where, row.number, None, str(drop))
    seen.add(key)
    return Finding(row.where, row.number, conversation, None, tuple(sorted(repairs)))


def read_row(row: RawRow, repairs: set[str]) -> Conversation:
    """The row's conversation."""
    value = row.value
    if value is Broken or not isinstance(value, Mapping):
        raise Drop("broken_json")
    if any(holds_something(value.get(key)) for key in ("tools", "functions")):
        raise Drop("tools")
    messages = turns_of(value, repairs)
    opening, followups = arranged(messages, repairs)
    for text in (*(m["content"] for m in opening), *followups):
        if is_placeholder(text):
            raise Drop("placeholder")
    category = value.get("category")
    name = next((str(value[key]) for key in ID_KEYS if isinstance(value.get(key), str | int)), str(row.number))
    return Conversation(
        name, category if isinstance(category, str) and category else None, row.where, opening, followups
    )


def holds_something(value: Any) -> bool:
    """Whether a column of tools names any; files say none as null, an empty list or its text."""
    return value not in (None, "", "[]", "null", "{}") and not (hasattr(value, "__len__") and len(value) == 0)


def turns_of(row: Mapping[str, Any], repairs: set[str]) -> list[Message]:
    """The row's messages as (role, content), assistant's included with whatever they hold; blank ones left out."""
    for key in CHAT_KEYS:
        if row.get(key) is not None:
            return chat(row[key], repairs)
    if row.get("turns") is not None:
        return chat(row["turns"], repairs, bare_role="user")
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        return chat(prompt, repairs)
    if any(row.get(key) is not None for key in ANSWER_KEYS):
        repairs.add("answers_dropped")
    if prompt is not None and all(row.get(key) is not None for key in HUMANEVAL_KEYS):
        return [user(CODE_REQUEST.format(header=texts([prompt], repairs)[0].strip("\n")))]
    named = [keys for keys in ASKING_KEYS if keys[0] in row]
    if not named:
        raise Drop("unknown_shape" if row else "empty")
    keys = next((keys for keys in named if row[keys[0]] is not None), named[0])
    found = texts([row.get(key) for key in keys if row.get(key) is not None or key == keys[0]], repairs)
    system = texts([row[key] for key in SYSTEM_KEYS if row.get(key) is not None], repairs)
    asked = "\n\n".join(text for text in found if text.strip())
    return [*({"role": "system", "content": text} for text in system if text.strip()), user(asked)]


def chat(value: Any, repairs: set[str], bare_role: str | None = None) -> list[Message]:
    """Messages of a list; `bare_role` is whose a bare text is, where the shape has such."""
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise Drop("malformed")
    if not value:
        raise Drop("empty")
    found: list[Message] = []
    for item in value:
        if (one := message(item, repairs, bare_role)) is not None:
            found.append(one)
        if isinstance(item, str):
            # Between bare texts stand answers that the shape leaves out.
            found.append({"role": ANSWERED, "content": ""})
    return found


def message(item: Any, repairs: set[str], bare_role: str | None) -> Message | None:
    """One message, None where it holds no text."""
    if isinstance(item, str) and bare_role is not None:
        item = {"role": bare_role, "content": item}
    if not isinstance(item, Mapping):
        raise Drop("malformed")
    if "role" not in item and "from" in item:
        repairs.add("sharegpt_keys")
    said = item.get("role", item.get("from"))
    if said is None:
        raise Drop("malformed")
    role = ROLES.get(said.strip().lower()) if isinstance(said, str) else None
    if role is None:
        raise Drop("unknown_role")
    if role == "tool" or any(holds_something(item.get(key)) for key in TOOL_KEYS):
        raise Drop("tools")
    content = next((item[key] for key in ("content", "value", "text") if item.get(key) is not None), None)
    if role == "assistant":
        thought = isinstance(content, str) and THINK.search(content)
        if thought or any(holds_something(item.get(key)) for key in REASONING_KEYS):
            repairs.add("reasoning_ignored")
        return {"role": role, "content": ""}
    text = texts([content], repairs)[0]
    if not text.strip():
        repairs.add("blank_turn")
        return None
    return {"role": role, "content": text}


def texts(contents: Sequence[Any], repairs: set[str]) -> list[str]:
    """Contents as text, lists of text parts joined."""
    found: list[str] = []
    for content in contents:
        if content is None:
            raise Drop("null_content")
        if isinstance(content, Sequence) and not isinstance(content, str | bytes):
            repairs.add("parts_joined")
            content = "".join(map(part, content))
        if not isinstance(content, str):
            raise Drop("not_text")
        found.append(content)
    return found


def part(item: Any) -> str:
    """The text of one part of a content."""
    if isinstance(item, str):
        return item
    if isinstance(item, Mapping) and item.get("type", "text") in TEXT_PARTS and isinstance(item.get("text"), str):
        return str(item["text"])
    raise Drop("not_text")


def arranged(messages: Sequence[Message], repairs: set[str]) -> tuple[tuple[Message, ...], tuple[str, ...]]:
    """(messages before the first answer, the user's further turns)."""
    system: list[Message] = []
    users: list[str] = []
    last = "system"
    for one in messages:
        role = one["role"]
        if role == ANSWERED:
            pass
        elif role == "assistant":
            repairs.add("answers_dropped" if users else "assistant_first")
        elif role in ("system", "developer"):
            if users or system:
                raise Drop("late_system")
            system.append(one)
        elif last == "user":
            repairs.add("users_joined")
            users[-1] += f"\n\n{one['content']}"
        else:
            users.append(one["content"])
        last = role
    if not users:
        raise Drop("no_supervised_token" if any(m["role"] != ANSWERED for m in messages) else "empty")
    if not users[0].strip():
        raise Drop("empty")
    return (*system, user(users[0])), tuple(users[1:])


def same_key(conversation: Conversation) -> str:
    """Equal for conversations whose user messages differ in case, spaces and forms of characters at most."""
    asked = [m["content"] for m in conversation.opening if m["role"] == "user"]
    return "\x00".join(normalised(text) for text in (*asked, *conversation.followups))


def normalised(text: str) -> str:
    """One form of texts that read alike."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())
