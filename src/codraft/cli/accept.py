"""`codraft accept`: AL(D) for every D."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o


def accept(
    target: o.Target,
    /,
    *,
    drafter: o.Drafters = None,
    prompts: o.Prompts = None,
    streams: o.Streams = None,
    save_streams: Annotated[Path | None, Parameter(help="Keep the streams in this file, for `--streams`.")] = None,
    max_new_tokens: o.MaxNewTokens = None,
    depth: Annotated[int, o.Whole, Parameter(name=["--depth", "-D"], help="The curve holds every D in 1..N.")] = 8,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    seed: o.Seed = None,
    mode: Annotated[
        str,
        Parameter(
            help="replay: from the streams, all D at once. live: decode again for every D (slow, for comparison)."
        ),
    ] = "replay",
    dtype: o.Dtype = "auto",
    domains: Annotated[bool, Parameter(negative=(), help="Also by category and by context length.")] = False,
    batch: Annotated[int, o.Whole, Parameter(help="Streams written (or decoded, in live mode) together.")] = 8,
    skip_long: o.SkipLong = False,
    raw: o.Raw = False,
    json: o.Json = None,
) -> int:
    """AL(D) for every D in 1..N of every drafter.

    Without `--streams` the target first writes its answers by plain decoding (the slow part); replay then asks at every
    position how many drafted tokens would have matched. With `--streams` nothing is generated: AL from logs in seconds.

        codraft accept demo -d ngram -d external:demo-noisy -p demo:8 --save-streams answers.jsonl
        codraft accept demo -d ngram,occurrence=earliest --streams answers.jsonl --domains
    """
    from codraft.core.files import check_writable
    from codraft.core.record import check_destination, emit
    from codraft.core.spec import check_choice, check_depth, parse_drafters, sampling_of

    sampling = sampling_of(temperature, top_p, top_k, seed)
    specs = parse_drafters(drafter or [])
    check_depth(depth, lowest=1)
    check_destination(json)
    if save_streams is not None:
        check_writable(save_streams)
    from codraft.cli.tables import print_acceptance
    from codraft.cli.ui import RichUi
    from codraft.decode.hf.load import check_dtype
    from codraft.replay.job import AcceptJob, Mode, Workbench, measure
    from codraft.replay.streams import save_streams as save

    job = AcceptJob(
        target=target,
        drafters=specs,
        depths=list(range(1, depth + 1)),
        prompts=prompts or ([] if streams else ["demo:16"]),
        streams=streams,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        mode=check_choice(mode, "--mode", Mode),  # type: ignore[arg-type]
        dtype=check_dtype(dtype),
        domains=domains,
        skip_long=skip_long,
        raw=raw,
        batch=batch,
    )
    bench = Workbench(job, RichUi())
    if save_streams is not None:
        save(save_streams, bench.streams, target)
    record = measure(bench)
    emit(record, json)
    print_acceptance(record)
    return 0
