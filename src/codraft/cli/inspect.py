"""`codraft inspect`: what a model is, and whether a drafter fits it."""

import gc
from typing import Annotated, Literal

from cyclopts import Parameter

from codraft.cli import options as o

Target = Annotated[
    str,
    Parameter(
        help="The model to speed up: a folder, a config.json, safetensors file or index in one, a hub id (owner/name, "
        "with @revision to pin one), or `demo`."
    ),
]
Drafter = Annotated[
    str | None,
    Parameter(help="A drafter's checkpoint: a head (EAGLE-3, MTP, DFlash, DSpark) or a small language model."),
]
Method = Annotated[
    str | None,
    Parameter(
        help="What the drafter is served as: external, eagle3, mtp, dflash, dspark, ngram, suffix, or an engine's own "
        "word (draft_model, EAGLE3, nextn, ...). Without it the checkpoint decides."
    ),
]
Engine = Annotated[
    Literal["vllm", "sglang", "trtllm"] | None, Parameter(help="Judge for this engine; default all three.")
]


def inspect(
    target: Target,
    drafter: Drafter = None,
    /,
    *,
    method: Method = None,
    engine: Engine = None,
    depth: Annotated[
        int | None,
        o.Whole,
        Parameter(name=["--depth", "-D"], help="D you will ask for; held against blocks and MTP modules."),
    ] = None,
    tp: Annotated[int | None, o.Whole, Parameter(help="Ranks of tensor parallelism.")] = None,
    context: Annotated[
        int | None, o.Whole, Parameter(help="Tokens of your longest sequence, prompt and answer together.")
    ] = None,
    prompts: Annotated[
        list[str] | None,
        Parameter(
            name=["--prompts", "-p"],
            consume_multiple=False,
            negative=(),
            help="Your text, as in `accept`: NAME_OR_FILE[/CATEGORY][:N]. Says how many prompts are too long, and what "
            "share of their tokens the drafter cannot write.",
        ),
    ] = None,
    full: Annotated[
        bool, Parameter(negative=(), help="Notes in full too: consequence, fix and evidence of each.")
    ] = False,
    json: o.Json = None,
) -> int:
    """What is this model, do the two fit, and will they silently fail? Configs and headers only; no torch, no GPU.

    The worst trouble with drafters is silent: the server starts, the text is right, and nothing is accepted. Most
    causes stand in config.json, the tokenizer files and the safetensors headers. Findings come worst first, each with
    what was seen, what will happen, and what to do. A hub id is read by byte ranges; weights are not downloaded.

        codraft inspect path/to/target
        codraft inspect path/to/target path/to/head --engine vllm -D 4
        codraft inspect owner/target owner/small-model --method draft_model --prompts prompts.jsonl:64

    The answer goes to stderr; `--json -` writes the record to stdout. Exit code 1 where a finding of severity `error`
    stands, so that a pipeline can stop there.
    """
    from codraft.cli.inspect_tables import print_inspection
    from codraft.core.record import check_destination, emit
    from codraft.core.spec import check_depth, check_positive
    from codraft.models.inspect.job import inspect as run
    from codraft.models.inspect.methods import asked_method
    from codraft.models.inspect.pair import Question
    from codraft.models.inspect.workload import Sample

    check_destination(json)
    check_positive(tp, "--tp")
    check_positive(context, "--context")
    if depth is not None:
        check_depth(depth, lowest=1)
    named = asked_method(method, engine, alone=drafter is None)

    def sample_of(sources: list[str]) -> Sample:
        from codraft.replay.prompts import load_prompts, texts_of

        found = load_prompts(sources)
        return Sample(name=found.name, texts=["\n".join(texts_of(c)) for c in found.conversations])

    question = Question(method=named, engine=engine, tp=tp, depth=depth, context=context)
    sample = sample_of(prompts) if prompts else None
    # Among tensors by the 100,000 the search for garbage takes longer than reading them; the process ends soon.
    gc.disable()
    try:
        record = run(target, drafter, question, sample, lambda: sample_of(["demo"]))
    finally:
        gc.enable()
    emit(record, json)
    print_inspection(record, full=full)
    return int(any(finding.severity == "error" for finding in record.findings))
