"""`codraft profile`: what a step costs on this machine."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o


def profile(
    target: o.Target,
    /,
    *,
    drafter: o.Drafters = None,
    batch: Annotated[str, Parameter(help="B: sequences decoded together, 1,2,4 or 1..4.")] = "1",
    context: Annotated[str, Parameter(help="S: tokens in the cache, 256,1024.")] = "256",
    depth: Annotated[str, Parameter(name=["--depth", "-D"], help="D to time, 0,1,3,7 or 0..8; 0 always is.")] = "0..8",
    engine: Annotated[str, Parameter(help="torch; vllm is not in this version.")] = "torch",
    prompts: o.Prompts = None,
    rounds: Annotated[int, o.Whole, Parameter(help="Samples at each D, after one round of warm-up.")] = 7,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    seed: o.Seed = None,
    dtype: o.Dtype = "auto",
    kernels: Annotated[
        bool, Parameter(negative=(), help="Also GEMM throughput over M and attention over G (1 + D).")
    ] = False,
    hardware_out: Annotated[
        Path | None, Parameter(help="Write what this machine reached to this file; implies --kernels.")
    ] = None,
    json: o.Json = None,
) -> int:
    """T_verif, T_draft and T_sys over B, S and D, measured by the real loop on this machine.

    T_verif and T_sys come from steps whose drafts are refused, so that every pass is B (1 + D) tokens wide; T_draft
    from the real drafters. D takes turns, and medians are given with 10th and 90th percentile. Keep the machine idle.

        codraft profile demo -d ngram -d external:demo,layers=8 --batch 1,4 --context 256
        codraft profile path/to/model --depth 0,1,3,7,15 --kernels --json timing.json
    """
    from codraft.core.errors import SpecError
    from codraft.core.files import check_writable
    from codraft.core.record import check_destination, emit, write_record
    from codraft.core.spec import MAX_DEPTH, Sampling, check_positive, parse_drafters, parse_list, sampling_of

    if engine != "torch":
        raise SpecError(f"--engine must be torch in this version; got '{engine}'")
    sampling = sampling_of(temperature, top_p, top_k, seed) or Sampling()
    specs = parse_drafters(drafter or [])
    depths = parse_list(depth, "--depth", lowest=0, highest=MAX_DEPTH)
    batches = parse_list(batch, "--batch", lowest=1)
    contexts = parse_list(context, "--context", lowest=2)
    check_positive(rounds, "--rounds")
    check_destination(json)
    if hardware_out is not None:
        check_writable(hardware_out)
    from codraft.cli.profile_tables import print_profile
    from codraft.cli.ui import RichUi
    from codraft.decode.hf.load import check_dtype
    from codraft.measure.profile import ProfileJob, hardware_of, run_profile

    job = ProfileJob(
        target=target,
        drafters=specs,
        prompts=prompts or ["demo"],
        batches=batches,
        contexts=contexts,
        depths=depths,
        rounds=rounds,
        sampling=sampling,
        dtype=check_dtype(dtype),
        kernels=kernels or hardware_out is not None,
    )
    record = run_profile(job, RichUi())
    emit(record, json)
    if hardware_out is not None:
        write_record(hardware_of(record), hardware_out)
    print_profile(record)
    return 0
