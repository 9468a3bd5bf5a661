"""The user's own text: how long it is in tokens, and which tokens it needs."""

from collections.abc import Sequence
from dataclasses import dataclass

from codraft.formats.sample import sample_ids
from codraft.formats.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Prompts by their text, with the name they have in the record."""

    name: str
    texts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A sample in the target's tokens; the chat template's own tokens are not counted."""

    name: str
    ids: Sequence[Sequence[int]]

    @property
    def longest(self) -> int:
        """Tokens of the longest prompt."""
        return max((len(ids) for ids in self.ids), default=0)

    def longer_than(self, limit: int) -> int:
        """Prompts of more than `limit` tokens."""
        return sum(len(ids) > limit for ids in self.ids)

    def tokens(self) -> list[int]:
        """All of them in a row."""
        return [token for ids in self.ids for token in ids]


def read_workload(source: Source, sample: Sample) -> Workload:
    """The sample as this model's tokenizer cuts it; CapabilityError without the tokenizers package."""
    return Workload(name=sample.name, ids=sample_ids(source, sample.texts))
