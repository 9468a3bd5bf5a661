"""From what the user gave to conversations that the target can answer: rows linted, user turns written, both fitted."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from codraft.core.errors import SpecError
from codraft.core.traindata import Lengths, RowsInfo, SelfWrittenInfo
from codraft.decode.hf.load import Card
from codraft.decode.hf.text import TextCodec
from codraft.replay.prompts import Conversation
from codraft.replay.streams import fits
from codraft.train.data import selfwrite
from codraft.train.data.answers import read_answers
from codraft.train.data.raw import read_source
from codraft.train.data.rounds import Ui
from codraft.train.data.rows import Finding, count, lint
from codraft.train.data.summary import lengths_of
from codraft.train.data.writers import Writer

TURNS_FILE = "turns.jsonl"


@dataclass(slots=True)
class Material:
    """What became of every row and of every turn that the target wrote."""

    rows: list[Finding] | None = None
    turns: list[Finding] | None = None
    turn_tokens: Lengths | None = None
    openers: dict[str, int] = field(default_factory=dict)

    @property
    def conversations(self) -> list[Conversation]:
        """Those that were kept, numbered by their place here."""
        return [f.conversation for f in self.findings() if f.conversation is not None]

    def findings(self) -> list[Finding]:
        """Rows first."""
        return [*(self.rows or []), *(self.turns or [])]

    def drop(self, numbers: dict[int, str]) -> None:
        """Drop conversations, by number, for a reason that their answers gave."""
        kept = -1
        for findings in (self.rows or [], self.turns or []):
            for place, finding in enumerate(findings):
                kept += finding.conversation is not None
                if finding.conversation is not None and kept in numbers:
                    findings[place] = finding.dropped(numbers[kept])

    def rows_info(self) -> RowsInfo | None:
        """Prompt rows as they stand in the record."""
        return None if self.rows is None else count(self.rows)

    def turns_info(self) -> SelfWrittenInfo | None:
        """The target's own turns as they stand in the record."""
        if self.turns is None:
            return None
        return SelfWrittenInfo(
            turns=count(self.turns),
            tokens=self.turn_tokens,
            temperature=selfwrite.TEMPERATURE,
            top_p=selfwrite.TOP_P,
            openers=self.openers,
        )


@dataclass(frozen=True, slots=True)
class TurnsAsked:
    """How many user turns the target shall write, from which beginnings; `room` tokens must be left for an answer."""

    number: int
    openers: Path | None
    seed: int
    room: int


def read_prompts(
    sources: Sequence[str], seen: set[str], codec: TextCodec, room: int, window: int | None
) -> list[Finding] | None:
    """What becomes of the rows of all files, None where there is no file."""
    if not sources:
        return None
    found = lint((row for source in sources for row in read_source(source)), seen)
    return [fit(finding, codec, room, window) for finding in found]


def write_turns(
    material: Material,
    asked: TurnsAsked,
    card: Card,
    codec: TextCodec,
    writer: Writer,
    work: Path,
    seen: set[str],
    ui: Ui,
) -> None:
    """Let the target write user turns, and keep what is of use."""
    frame = selfwrite.frame_of(codec, card.eos_ids, card.id)
    beginnings = selfwrite.read_openers(asked.openers)
    turns = selfwrite.turns(codec, frame, beginnings, asked.number, asked.seed)
    selfwrite.check_room(turns, card.window, card.id)
    with ui.stage("write user turns") as progress:
        written = writer.write([turn.wanted for turn in turns], work / TURNS_FILE, frame.stop_ids, progress)
    found = selfwrite.harvest(turns, written, codec, frame, seen)
    material.turns = [fit(finding, codec, asked.room, card.window) for finding in found]
    kept = [codec.prompt_ids(f.conversation.opening, f.where) for f in material.turns if f.conversation]
    material.turn_tokens = lengths_of([len(ids) for ids in kept])
    material.openers = {category: len(texts) for category, texts in beginnings.items()}


def fit(finding: Finding, codec: TextCodec, room: int, window: int | None) -> Finding:
    """One row, kept where its first prompt renders and fits. Later turns are judged when they are reached."""
    conversation = finding.conversation
    if conversation is None:
        return finding
    if codec.raw and conversation.followups:
        conversation = replace(conversation, followups=())
        finding = replace(finding, conversation=conversation, repairs=(*finding.repairs, "followups"))
    try:
        prompt_ids = codec.prompt_ids(conversation.opening, finding.where)
    except SpecError:
        return finding.dropped("template")
    if not prompt_ids:
        return finding.dropped("empty")
    return finding if fits(prompt_ids, room, window) else finding.dropped("over_long")


def resumed(work: Path, name: str) -> tuple[int, int]:
    """(answers, their tokens) that an earlier run left."""
    there = read_answers(work / name)
    return len(there), sum(len(text.output_ids) for text in there.values())
