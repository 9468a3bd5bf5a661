"""What a data job has made: the token file, and its record."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from codraft.core.errors import SpecError
from codraft.core.files import sha256_file, sha256_text
from codraft.core.provenance import provenance
from codraft.core.traindata import RowsInfo, TrainDataRecord
from codraft.decode.hf.load import device_label
from codraft.decode.hf.text import TextCodec
from codraft.train.data.language import mix
from codraft.train.data.prepare import Material
from codraft.train.data.rounds import Answer, Answered
from codraft.train.data.summary import answer_lengths, categories_of
from codraft.train.tokens import Origin, write_tokens


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a job has made: answers, and all that the record says about them."""

    writer: Literal["torch", "vllm", "streams"]
    max_new_tokens: int | None
    answers: list[Answer]
    rows: RowsInfo | None
    template: str
    sampling: list[dict[str, Any]]
    asked: list[str]
    written_by: str | None = None
    material: Material | None = None
    answered: Answered = field(default_factory=lambda: Answered([], set()))
    resumed: int = 0
    seeds: tuple[int, ...] = ()
    dtype: str | None = None
    engine: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    new_tokens: int = 0

    @property
    def tokens_per_s(self) -> float | None:
        """Of the answers written in this run, None where there were none."""
        seconds = self.seconds.get("answers", 0.0)
        return self.new_tokens / seconds if self.new_tokens and seconds > 0 else None


def store(path: Path, made: Outcome, origin: Origin) -> None:
    """The token file. SpecError, and nothing written, where no token would be supervised."""
    rows = [answer.row() for answer in made.answers]
    if not any(row.mask.any() for row in rows):
        raise SpecError(
            f"{path} would hold no supervised token: the target wrote no answer longer than its end; nothing was "
            "written. Look at the prompts with codraft train show, or give others"
        )
    write_tokens(path, rows, origin)


def record_of(
    made: Outcome, origin: Origin, codec: TextCodec, path: Path, limit_tokens: int | None, wall_s: float
) -> TrainDataRecord:
    """The record of a file that is written."""
    prompt_tokens, answer_tokens = answer_lengths(made.answers)
    return TrainDataRecord(
        schema=TrainDataRecord.SCHEMA,
        provenance=provenance(
            engine=made.engine,
            input_hashes={"prompts": sha256_text(repr([answer.prompt_ids for answer in made.answers]))},
            dtype=made.dtype,
            device=device_label(),
            seeds=made.seeds,
        ),
        target=origin.target,
        output=str(path),
        sha256=sha256_file(path),
        writer=made.writer,
        written_by=made.written_by,
        template=made.template,
        sampling=made.sampling,
        max_new_tokens=made.max_new_tokens,
        limit_tokens=limit_tokens,
        prompts=made.rows,
        self_written=made.material.turns_info() if made.material else None,
        conversations=len({answer.number for answer in made.answers}),
        file_rows=len(made.answers),
        tokens=sum(len(answer.prompt_ids) + len(answer.output_ids) for answer in made.answers),
        supervised_tokens=sum(len(answer.output_ids) for answer in made.answers),
        ended=sum(answer.ended for answer in made.answers),
        skipped_turns=made.answered.skipped_turns,
        empty_answers=made.answered.empty,
        resumed_answers=made.resumed,
        prompt_tokens=prompt_tokens,
        answer_tokens=answer_tokens,
        languages={"asked": mix(made.asked), "answered": mix(codec.text(a.output_ids) for a in made.answers)},
        categories=categories_of(made.answers),
        seconds=made.seconds,
        tokens_per_s=made.tokens_per_s,
        wall_s=wall_s,
    )
