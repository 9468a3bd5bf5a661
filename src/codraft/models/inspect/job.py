"""One inspection: open both, compare, find."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from codraft.core.errors import CapabilityError, SpecError
from codraft.core.files import sha256_text
from codraft.core.inspection import HeadSummary, InspectionRecord, ModelSummary, SampleInfo, Vocabulary
from codraft.core.provenance import provenance
from codraft.formats.borrowed import open_whole
from codraft.formats.checkpoint import Checkpoint
from codraft.formats.heads.detect import detect
from codraft.formats.heads.layout import canonical_names
from codraft.formats.heads.read import read_head
from codraft.formats.sample import coverage
from codraft.formats.vocab import compare_sources, source_vocab
from codraft.models.inspect.catalog import findings
from codraft.models.inspect.head_summary import summarize_head
from codraft.models.inspect.pair import HeadModel, Model, Pair, Question, Side
from codraft.models.inspect.tokens import draft_map
from codraft.models.inspect.workload import Sample, Workload, read_workload
from codraft.models.parameters import count_parameters
from codraft.models.reader import read_architecture
from codraft.models.summary import all_tensors, summary_of

# Verdicts after which it matters what a text needs.
DIFFERING = ("extended", "permuted", "different")


def inspect(
    target: str,
    drafter: str | None = None,
    question: Question | None = None,
    sample: Sample | None = None,
    usual: Callable[[], Sample] | None = None,
) -> InspectionRecord:
    """What a model is, and whether a drafter fits it, from configs, headers and tokenizer files.

    `sample` is the user's text. Without one, `usual` is asked for a text where two vocabularies differ, to say how much
    that matters. SpecError where a file cannot be read.
    """
    start = time.perf_counter()
    ours = open_target(target)
    theirs = None if drafter is None else open_drafter(drafter)
    pair = Pair(target=ours, drafter=theirs, question=question or Question())
    if sample is not None:
        pair = replace(pair, workload=read_workload(ours.checkpoint.source, sample))
    pair = compared(pair, usual)
    found = findings(pair)
    return InspectionRecord(
        schema=InspectionRecord.SCHEMA,
        provenance=provenance(engine={"name": "headers"}, input_hashes=hashes(pair)),
        target=summary_of(ours.checkpoint, ours.arch, ours.parameters),
        drafter=None if theirs is None else drafter_summary(theirs),
        method=pair.question.method,
        engine=pair.question.engine,
        asked=numbers(pair.question),
        sample=sample_info(pair.workload),
        vocabulary=pair.vocabulary,
        findings=found,
        bytes_read=sum(model.checkpoint.source.bytes_read for model in pair.models()),
        wall_s=time.perf_counter() - start,
    )


def open_target(name: str) -> Model:
    """The target; a drafter's head in its place is refused."""
    point = open_whole(name)
    kind = detect(point.config, point.tensors)
    if kind is not None:
        raise SpecError(
            f"{point.label} is a drafter's head ({kind.mechanism}, seen by {kind.seen[0]}), not a model to speed up; "
            "give the target first, then the drafter"
        )
    return open_model(point, "target")


def open_drafter(name: str) -> Model | HeadModel:
    """A head where one is recognised, else a language model of its own."""
    point = open_whole(name)
    kind = detect(point.config, point.tensors)
    if kind is None:
        return open_model(point, "drafter")
    head = read_head(kind, point.config, point.tensors, f"{point.label}/config.json")
    return HeadModel(checkpoint=point, head=head, tensors=canonical_names(kind, point.tensors))


def open_model(point: Checkpoint, side: Side) -> Model:
    """A causal language model."""
    arch = read_architecture(point.config, point.tensors)
    return Model(side=side, checkpoint=point, arch=arch, parameters=count_parameters(arch, all_tensors(point)))


def compared(pair: Pair, usual: Callable[[], Sample] | None) -> Pair:
    """The pair with its vocabularies beside each other, and the text held against both."""
    drafter, target, workload = pair.drafter, pair.target, pair.workload
    if isinstance(drafter, Model):
        found = vocabularies(target, drafter, workload)
        if workload is None and usual is not None and found.verdict in DIFFERING:
            # An extra of the answer: without the package that cuts text there is none.
            with suppress(CapabilityError):
                found = vocabularies(target, drafter, read_workload(target.checkpoint.source, usual()))
        return replace(pair, vocabulary=found)
    if isinstance(drafter, HeadModel):
        mapped = draft_map(drafter, target.arch.vocab_size) if workload is not None and drafter.head.reduced else None
        covered = None if workload is None or mapped is None else coverage(workload.tokens(), mapped.target_ids)
        return replace(pair, coverage=covered, mask_token=mask_token(target, drafter))
    return pair


def vocabularies(target: Model, drafter: Model, workload: Workload | None) -> Vocabulary:
    """Two models' vocabularies, and the share of a text that the drafter takes for something else."""
    found = compare_sources(
        target.checkpoint.source,
        drafter.checkpoint.source,
        target.arch.vocab_size,
        drafter.arch.vocab_size,
        None if workload is None else workload.tokens(),
    )
    return found if workload is None or found.affected_share is None else replace(found, sample=workload.name)


def mask_token(target: Model, drafter: HeadModel) -> str | None:
    """The text that the id which fills a block stands for; None where it is no text, an added token, or not known."""
    block = drafter.head.block
    if block is None or block.mask_token_id is None:
        return None
    vocab = source_vocab(target.checkpoint.source)
    if vocab is None or block.mask_token_id in vocab.added:
        return None
    return vocab.strings.get(block.mask_token_id)


def drafter_summary(drafter: Model | HeadModel) -> ModelSummary | HeadSummary:
    """The drafter in the record."""
    if isinstance(drafter, HeadModel):
        return summarize_head(drafter)
    return summary_of(drafter.checkpoint, drafter.arch, drafter.parameters)


def numbers(question: Question) -> dict[str, int]:
    """The numbers that the user named."""
    named = {"depth": question.depth, "tp": question.tp, "context": question.context}
    return {key: value for key, value in named.items() if value is not None}


def sample_info(workload: Workload | None) -> SampleInfo | None:
    """The user's text in the record."""
    if workload is None:
        return None
    return SampleInfo(name=workload.name, num_prompts=len(workload.ids), longest=workload.longest)


def hashes(pair: Pair) -> Mapping[str, str]:
    """Short hashes of configs and headers."""
    result = {}
    for model in pair.models():
        config = sha256_text(repr(sorted(model.checkpoint.config.items(), key=lambda item: item[0])))
        headers = sha256_text("\n".join(f"{i.name} {i.dtype} {i.shape}" for i in model.checkpoint.tensors.values()))
        result[f"{model.side}_config"] = config[:16]
        result[f"{model.side}_headers"] = headers[:16]
    return result
