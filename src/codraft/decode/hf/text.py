"""Text to token ids and back: tokenizer and chat template."""

from collections.abc import Sequence
from typing import Any

from codraft.core.errors import SpecError

Message = dict[str, Any]


class TextCodec:
    """A tokenizer with the one question asked of it: which ids does the model see?"""

    def __init__(self, tokenizer: Any, *, raw: bool = False) -> None:
        self.tokenizer = tokenizer
        self.raw = raw or not getattr(tokenizer, "chat_template", None)

    @property
    def template(self) -> str:
        """`chat` or `raw`, as records say it."""
        return "raw" if self.raw else "chat"

    def prompt_ids(self, messages: Sequence[Message], where: str) -> list[int]:
        """Ids up to where the assistant's answer begins. Without a chat template, one lone message as plain text."""
        if self.raw:
            if len(messages) != 1:
                raise SpecError(
                    f"{where}: without a chat template (or with --raw) a prompt is one message; got {len(messages)}"
                )
            return list(self.tokenizer(messages[0]["content"])["input_ids"])
        return self._render(messages, where, add_generation_prompt=True)

    def answer_ids(self, messages: Sequence[Message], prompt_ids: Sequence[int], where: str) -> list[int]:
        """Ids of the last (assistant's) message after `prompt_ids`."""
        if self.raw:
            return list(self.tokenizer(messages[-1]["content"], add_special_tokens=False)["input_ids"])
        whole = self._render(messages, where, add_generation_prompt=False)
        if whole[: len(prompt_ids)] != list(prompt_ids):
            raise SpecError(
                f"{where}: the chat template renders the prompt differently once answered; give token ids instead"
            )
        return whole[len(prompt_ids) :]

    def _render(self, messages: Sequence[Message], where: str, *, add_generation_prompt: bool) -> list[int]:
        try:
            ids = self.tokenizer.apply_chat_template(
                list(messages), tokenize=True, add_generation_prompt=add_generation_prompt, return_dict=False
            )
        except Exception as error:
            raise SpecError(
                f"{where}: the chat template refuses these messages ({' '.join(str(error).split())[:160]})"
            ) from error
        return list(ids)

    def text(self, ids: Sequence[int]) -> str:
        """Ids as text, special tokens left out."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))
