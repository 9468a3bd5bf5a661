"""`codraft tune`: the main job."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.study.spec import CONFIRM_PROMPTS, ROUNDS

NEEDING_NO_MODEL = ["ngram", "suffix"]
# Where the trained drafters are not at hand, one that costs nothing to come by: the target's own first layers,
# untrained. "off" is a good verdict.
UNTRAINED = ["external:demo,layers=8"]


def tune(
    target: o.Target,
    /,
    *,
    drafter: o.Drafters = None,
    prompts: o.Prompts = None,
    streams: o.Streams = None,
    depth: Annotated[
        str | None,
        Parameter(name=["--depth", "-D"], help="D to consider: 1,2,4 or 0..8 (default; all of --acceptance)."),
    ] = None,
    batch: Annotated[
        str | None, Parameter(help="Loads, in sequences decoded together: 1,2,4 (default 1; for demo 1,4).")
    ] = None,
    context: Annotated[
        str | None, Parameter(help="Context lengths to time, 256,1024; default the workload's own mean.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, o.Whole, Parameter(help="Tokens of each answer (default 48; of streams, all they hold).")
    ] = None,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    seed: o.Seed = None,
    dtype: o.Dtype = "auto",
    rounds: Annotated[int, o.Whole, Parameter(help="Timing samples for each D.")] = ROUNDS,
    confirm_prompts: Annotated[
        int, o.Whole, Parameter(help="Prompts on which the winner runs against plain decoding.")
    ] = CONFIRM_PROMPTS,
    kernels: Annotated[bool, Parameter(help="Also time GEMMs and attention, for the report's figures.")] = True,
    skip_long: o.SkipLong = False,
    acceptance: Annotated[
        Path | None,
        Parameter(help="Your own AL curves instead of ours: a record, or CSV (see `codraft advise --help`)."),
    ] = None,
    timing: Annotated[
        Path | None, Parameter(help="Your own step times instead of ours, from any engine: a record, or CSV.")
    ] = None,
    plan: Annotated[bool, Parameter(negative=(), help="Say what would run and for how long, and stop.")] = False,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Study folder; default ./study-TARGET.")
    ] = None,
    json: o.Json = None,
) -> int:
    """Which drafter and which D to run for a target at every load, or "off".

    Measures AL(D) by replay and the step times on this machine, predicts every (drafter, D), names the best, and
    confirms it at B = 1 by generating with it and without. Drafters are by default ngram and suffix, and for `demo`
    also those that codraft's repository has in models/, trained for it. The study folder then holds every record,
    `report.html`, and `launch/` for vLLM, SGLang and TensorRT-LLM. Run the same command again and finished parts are
    used again.

        codraft tune demo
        codraft tune path/to/model -d ngram -d external:path/to/small -p prompts.jsonl:32 --batch 1,4,16 -o my-study
        codraft tune path/to/model -d ngram --streams logs.jsonl --timing vllm-steps.csv
    """
    from codraft.core.errors import SpecError
    from codraft.core.record import check_destination, emit
    from codraft.core.spec import MAX_DEPTH, check_positive, parse_drafters, parse_list, sampling_of
    from codraft.cost.bring import read_acceptance
    from codraft.formats.shipped import shipped

    sampling_of(temperature, top_p, top_k, seed)
    for_demo = [f"{mechanism}:{folder}" for mechanism, folder in shipped().items()] or UNTRAINED
    chosen = drafter or [*NEEDING_NO_MODEL, *(for_demo if target == "demo" else [])]
    parse_drafters(chosen)
    depths = parse_list(depth or "0..8", "--depth", lowest=0, highest=MAX_DEPTH)
    if acceptance is not None and depth is None:
        depths = sorted({0, *(point.D for curve in read_acceptance(acceptance) for point in curve.points)})
    default_batch = "1,4" if target == "demo" else "1"
    batches = [] if timing and batch is None else parse_list(batch or default_batch, "--batch", lowest=1)
    contexts = None if context is None else parse_list(context, "--context", lowest=1)
    for name, value in (
        ("--rounds", rounds),
        ("--confirm-prompts", confirm_prompts),
        ("--max-new-tokens", max_new_tokens),
    ):
        check_positive(value, name)
    check_destination(json)
    if plan and json is not None:
        raise SpecError("--plan makes no record; drop --json")
    if prompts and streams:
        raise SpecError("give either --prompts or --streams, one of the two")
    if acceptance and timing and (prompts or streams):
        raise SpecError("with both --acceptance and --timing nothing is measured; drop --prompts and --streams")
    from codraft.cli.tables import print_decision
    from codraft.cli.ui import RichUi, console
    from codraft.decode.hf.load import check_dtype
    from codraft.study.run import Study
    from codraft.study.spec import StudySpec

    spec = StudySpec(
        target=target,
        drafters=chosen,
        prompts=prompts or ([] if streams else ["demo:12"]),
        streams=None if streams is None else str(streams),
        max_new_tokens=max_new_tokens,
        depth=depths,
        batch=batches,
        context=contexts,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        dtype=check_dtype(dtype),
        rounds=rounds,
        confirm_prompts=confirm_prompts,
        kernels=kernels,
        skip_long=skip_long,
        acceptance=None if acceptance is None else str(acceptance),
        timing=None if timing is None else str(timing),
    )
    folder = output or Path(f"study-{target.strip('/').replace('/', '-')}")
    study = Study(spec, folder, RichUi())
    if plan:
        from codraft.cli.plan_table import print_plan
        from codraft.study.plan import make_plan

        print_plan(make_plan(study), folder)
        return 0
    console.print(f"codraft tune {target} -> {folder}", markup=False)
    record = study.run()
    emit(record, json)
    print_decision(record, folder)
    return 0
