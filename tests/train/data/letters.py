"""A tokenizer with one id per letter, a chat template, and toy conversations, for tests of training data."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from codraft.train.data.answers import Progress

END = 0
ROLES = {"user": 256, "assistant": 257, "system": 258}
NAMES = {i: f"<{role}>" for role, i in ROLES.items()} | {END: "<end>"}
VOCAB = 260


class Letters:
    """`<user>text<end><assistant>`; id 0 ends every message."""

    chat_template: str | None = "letters"
    all_special_ids = tuple(NAMES)

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        ids: list[int] = []
        while text:
            name = next((i for i, name in NAMES.items() if text.startswith(name)), None)
            ids.append(min(ord(text[0]), 255) if name is None else name)
            text = text[1 if name is None else len(NAMES[name]) :]
        return {"input_ids": ids}

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool, **_: Any
    ) -> list[int] | str:
        text = "".join(f"<{m['role']}>{m['content']}<end>" for m in messages)
        text += "<assistant>" if add_generation_prompt else ""
        return self(text)["input_ids"] if tokenize else text

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        return "".join(
            NAMES[i] if i in NAMES and not skip_special_tokens else "" if i in NAMES else chr(i) for i in ids
        )


class Brackets(Letters):
    """No token of its own ends a user's text: `[U]text[/U]`."""

    def apply_chat_template(
        self, messages: list[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool, **_: Any
    ) -> list[int] | str:
        text = "".join(f"[U]{m['content']} [/U]" if m["role"] == "user" else m["content"] for m in messages)
        return self(text)["input_ids"] if tokenize else text


class Quiet:
    """Shows nothing; remembers the stages and the last progress of each."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int, int]] = {}

    def stage(self, title: str) -> AbstractContextManager[Progress]:
        def note(done: int, total: int) -> None:
            self.stages[title] = (done, total)

        return nullcontext(note)
