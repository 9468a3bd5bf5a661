"""`codraft tune`: the main job."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.study.spec import CONFIRM_PROMPTS, ROUNDS


def tune(
    target: o.Target,
    /,
    *,
    drafter: o.Drafters = None,
    prompts: o.Prompts = None,
    streams: o.Streams = None,
    depth: Annotated[str, Parameter(name=["--depth", "-D"], help="D to consider: 1,2,4 or 0..8.")] = "0..8",
    batch: Annotated[str, Parameter(help="Sequences decoded together; this version times 1.")] = "1",
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
    skip_long: o.SkipLong = False,
    output: Annotated[
        Path | None, Parameter(name=["--output", "-o"], help="Study folder; default ./study-TARGET.")
    ] = None,
    json: o.Json = None,
) -> int:
    """Which drafter and which D to run for a target, or "off".

    Measures AL(D) by replay and the step times on this machine, predicts every (drafter, D), names the best, and
    confirms it by generating with it and without. Everything lies in the study folder; run the same command again and
    finished parts are used again.

        codraft tune demo
        codraft tune path/to/model -d ngram -d external:path/to/small -p prompts.jsonl:32 -o my-study
    """
    from codraft.core.errors import SpecError
    from codraft.core.record import check_destination, emit
    from codraft.core.spec import MAX_DEPTH, check_positive, parse_drafters, parse_list, sampling_of

    sampling_of(temperature, top_p, top_k, seed)
    chosen = drafter or (["ngram", "external:demo-noisy"] if target == "demo" else ["ngram"])
    parse_drafters(chosen)
    depths = parse_list(depth, "--depth", lowest=0, highest=MAX_DEPTH)
    batches = parse_list(batch, "--batch", lowest=1)
    for name, value in (
        ("--rounds", rounds),
        ("--confirm-prompts", confirm_prompts),
        ("--max-new-tokens", max_new_tokens),
    ):
        check_positive(value, name)
    check_destination(json)
    from codraft.cli.tables import print_decision
    from codraft.cli.ui import RichUi, console
    from codraft.decode.hf.load import check_dtype
    from codraft.study.run import Study
    from codraft.study.spec import StudySpec

    if prompts and streams:
        raise SpecError("give either --prompts or --streams, one of the two")
    spec = StudySpec(
        target=target,
        drafters=chosen,
        prompts=prompts or ([] if streams else ["demo:12"]),
        streams=None if streams is None else str(streams),
        max_new_tokens=max_new_tokens,
        depth=depths,
        batch=batches,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        dtype=check_dtype(dtype),
        rounds=rounds,
        confirm_prompts=confirm_prompts,
        skip_long=skip_long,
    )
    folder = output or Path(f"study-{target.strip('/').replace('/', '-')}")
    console.print(f"codraft tune {target} -> {folder}", markup=False)
    record = Study(spec, folder, RichUi()).run()
    emit(record, json)
    print_decision(record, folder)
    return 0
