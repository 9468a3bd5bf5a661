"""`codraft generate`: lossless decoding, one prompt at a time."""

from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o


def generate(
    target: o.Target,
    /,
    *,
    drafter: o.Drafters = None,
    prompt: Annotated[
        list[str] | None,
        Parameter(consume_multiple=False, negative=(), help="A prompt as text; repeat for more."),
    ] = None,
    prompts: o.Prompts = None,
    depth: Annotated[
        int | None,
        o.Whole,
        Parameter(name=["--depth", "-D"], help="Tokens drafted a step (default 4); 0 is plain."),
    ] = None,
    max_new_tokens: Annotated[int, o.Whole, Parameter(help="Tokens of each answer.")] = 128,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    seed: o.Seed = None,
    dtype: o.Dtype = "auto",
    skip_long: o.SkipLong = False,
    raw: o.Raw = False,
    json: o.Json = None,
) -> int:
    """Answers by the lossless loop; without `--drafter`, plain decoding.

    codraft generate demo --prompt "Name three rivers." -d ngram -D 4
    """
    from codraft.core.errors import SpecError
    from codraft.core.record import check_destination, emit
    from codraft.core.spec import Sampling, check_depth, parse_drafters, sampling_of

    sampling = sampling_of(temperature, top_p, top_k, seed) or Sampling()
    specs = parse_drafters(drafter or [])
    if len(specs) > 1:
        raise SpecError(f"generate takes at most one --drafter; got {len(specs)}")
    D = check_depth((4 if specs else 0) if depth is None else depth, lowest=0)
    if D > 0 and not specs:
        raise SpecError(f"-D {D} needs a --drafter, for example --drafter ngram; without one only D = 0 works")
    if bool(prompt) == bool(prompts):
        raise SpecError("give either --prompt TEXT or --prompts FILE[:N], one of the two")
    check_destination(json)
    from codraft.replay.prompts import load_prompts, typed_prompts

    conversations = load_prompts(prompts).conversations if prompts else typed_prompts(prompt or [])
    from codraft.cli.tables import print_generation
    from codraft.cli.ui import RichUi
    from codraft.replay.generate import GenerateJob, run_generation

    job = GenerateJob(
        target=target,
        conversations=conversations,
        drafter=specs[0] if specs else None,
        D=D,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        dtype=dtype,
        skip_long=skip_long,
        raw=raw,
    )
    record = run_generation(job, RichUi())
    emit(record, json)
    print_generation(record)
    return 0
