"""`codraft train data`: prompts, or none at all, to a token file of the target's own answers."""

import json as json_text
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.core.errors import SpecError

Prompts = Annotated[
    list[str] | None,
    Parameter(
        name=["--prompts", "-p"],
        consume_multiple=False,
        negative=(),
        help="NAME_OR_FILE[/CATEGORY][:N]; repeat for more. JSONL (gzipped too), JSON or parquet with `messages`, "
        "`conversations` (ShareGPT), `turns`, `prompt`, `instruction` or `question` in each row. Answers in it are "
        "left out: the target writes its own.",
    ),
]
SelfWritten = Annotated[
    int | None,
    o.Whole,
    Parameter(help="Let the target write N user turns itself, from its chat template and a few first words."),
]
Openers = Annotated[
    Path | None,
    Parameter(help="First words of those turns: a JSON object of categories, each a list. Replaces the built-in ones."),
]
Output = Annotated[
    Path,
    Parameter(
        name=["--output", "-o"],
        help="Token file to write (safetensors). What is written so far lies beside it in OUTPUT.work until it is "
        "whole; the same command goes on there.",
    ),
]
WriterName = Annotated[
    Literal["torch", "vllm"], Parameter(help="Who runs the target: our own loop, or vLLM, which is much faster.")
]
VllmPython = Annotated[
    Path | None, Parameter(help="The Python of an environment that has vLLM, as .venv-vllm/bin/python.")
]
VllmSet = Annotated[
    list[str] | None,
    Parameter(
        consume_multiple=False,
        negative=(),
        help="KEY=VALUE for vLLM's LLM class, VALUE as JSON; repeat for more. As tensor_parallel_size=8.",
    ),
]
Batch = Annotated[int | None, o.Whole, Parameter(help="Texts written at once; default 16, with vLLM 256.")]
AlsoSampled = Annotated[
    float, Parameter(help="Answer this share of the conversations (0..1) once more, sampled at --also-temperature.")
]
LimitTokens = Annotated[
    int | None, o.Whole, Parameter(help="Begin no more answers once these hold so many tokens; those begun are ended.")
]


def data(
    target: o.Target,
    /,
    *,
    output: Output,
    prompts: Prompts = None,
    self_written: SelfWritten = None,
    openers: Openers = None,
    streams: o.Streams = None,
    max_new_tokens: Annotated[
        int | None, o.Whole, Parameter(help="Tokens of each answer; default 512. Cuts those of --streams if given.")
    ] = None,
    batch: Batch = None,
    writer: WriterName = "torch",
    vllm_python: VllmPython = None,
    vllm_set: VllmSet = None,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
    top_k: o.TopK = None,
    also_sampled: AlsoSampled = 0.0,
    also_temperature: Annotated[float, Parameter(help="Temperature of those second answers.")] = 1.0,
    seed: o.Seed = None,
    limit_tokens: LimitTokens = None,
    dtype: o.Dtype = "auto",
    json: o.Json = None,
) -> int:
    """Training data: the target's own answers, as token ids with a loss mask.

    A drafter learns what the target writes, so every answer is the target's, whatever a prompt file holds. Each turn of
    a conversation is a row: the chat template over the earlier turns, then the answer, which alone is supervised. Rows
    that are no use are dropped and counted by reason.

        codraft train data demo --self-written 2000 --max-new-tokens 256 -o tokens.safetensors
        codraft train data demo -p chats.jsonl --writer vllm --vllm-python .venv-vllm/bin/python -o tokens.safetensors
        codraft train data demo --streams logs.jsonl -o tokens.safetensors

    It can be killed at any time: the same command goes on. `codraft train show` shows the file.
    """
    from codraft.core.record import check_apart, check_destination, emit
    from codraft.core.spec import Sampling, sampling_of

    sampling = sampling_of(temperature, top_p, top_k, seed)
    if streams is not None and (sampling is not None or also_sampled or limit_tokens is not None):
        raise SpecError("--streams holds answers already: give it without flags on how to write them")
    # A number behind a prompts' file is how many of them.
    files = [re.sub(r":\d+$", "", one) for one in prompts or []]
    others = {"--openers": openers, "--streams": streams}
    read: dict[str, Sequence[str | Path]] = {"--prompts": files}
    read |= {flag: [place] for flag, place in others.items() if place is not None}
    check_destination(json)
    check_apart({"--output": output, "--json": json}, read)
    from codraft.cli.data_table import print_data
    from codraft.cli.ui import RichUi
    from codraft.train.data.job import DataJob, run_data

    job = DataJob(
        target=target,
        output=output,
        prompts=prompts or [],
        self_written=self_written,
        openers=openers,
        streams=streams,
        max_new_tokens=max_new_tokens,
        batch=batch,
        writer=writer,
        vllm_python=vllm_python,
        vllm_options=parse_settings(vllm_set or []),
        sampling=sampling or Sampling(),
        also_sampled=also_sampled,
        also_temperature=also_temperature,
        limit_tokens=limit_tokens,
        dtype=dtype,
    )
    record = run_data(job, RichUi())
    emit(record, json)
    print_data(record)
    return 0


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """KEY=VALUE each, VALUE as JSON where it is, else as text."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier() or key in settings:
            raise SpecError(f"--vllm-set {pair}: give KEY=VALUE, each key once, as tensor_parallel_size=8")
        try:
            settings[key] = json_text.loads(value)
        except ValueError:
            settings[key] = value
    return settings
