"""`codraft train features`: the target's hidden states, written once for several runs."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.cli.train import Data
from codraft.cli.train_data import VllmPython, VllmSet, parse_settings
from codraft.core.errors import SpecError

Output = Annotated[
    Path,
    Parameter(
        name=["--output", "-o"],
        help="Folder to write. Each file in it is whole or absent, and the same command goes on with those missing.",
    ),
]
Layers = Annotated[
    str | None,
    Parameter(
        help="Layers whose outputs to keep, as 1,14,26,29; default: those that EAGLE-3 and block heads read, and the "
        "last one, of which MTP and all losses on the target's distribution are made."
    ),
]


def features(
    target: o.Target,
    /,
    *,
    data: Data,
    output: Output,
    layers: Layers = None,
    rows: Annotated[
        int | None,
        o.Whole,
        Parameter(
            help="Only the first so many rows, up to the end of a shard; more can be asked for later. As of train."
        ),
    ] = None,
    store: Annotated[
        Literal["bfloat16", "float16", "float32"], Parameter(help="How the numbers are kept.")
    ] = "bfloat16",
    writer: Annotated[
        Literal["torch", "vllm"],
        Parameter(help="Who runs the target: we, or vLLM, for targets that one process cannot hold."),
    ] = "torch",
    vllm_python: VllmPython = None,
    vllm_set: VllmSet = None,
    dtype: o.Dtype = "auto",
    json: o.Json = None,
) -> int:
    """Hidden states of a token file's rows, for `codraft train --features`.

    Without them the target runs beside the drafter in every step, which costs its pass in every epoch of every run and
    no disk. `codraft train plan` says how much both take.

        codraft train features demo --data tokens.safetensors -o features
        codraft train eagle3 demo --data tokens.safetensors --features features -o my-eagle3
    """
    import time

    from codraft.core.provenance import provenance
    from codraft.core.record import check_apart, check_destination, emit
    from codraft.core.spec import check_positive, parse_list
    from codraft.core.training import TrainFeaturesRecord

    check_destination(json)
    check_apart({"--output": output, "--json": json}, {"--data": [data]})
    from codraft.train.pages import large_pages

    large_pages()
    import torch

    from codraft.cli.ui import RichUi, console
    from codraft.decode.hf.load import (
        check_dtype,
        device_label,
        engine_versions,
        load_card,
        read_config,
        resolved_dtype,
    )
    from codraft.train.checkpoint import load_target
    from codraft.train.data.vllm_writer import vllm_version
    from codraft.train.features import default_layers, filled, shards_of, write_features
    from codraft.train.tokens import TokenFile
    from codraft.train.vllm_features import write_by_vllm

    check_positive(rows, "--rows")
    file, card, ui = TokenFile(data), load_card(target), RichUi()
    if rows is not None:
        file = TokenFile(data, filled(file.lengths, rows))
    if vllm_set and writer != "vllm":
        raise SpecError("--vllm-set is for --writer vllm")
    num_layers = int(read_config(card.folder, target).get_text_config(decoder=True).num_hidden_layers)
    wanted = default_layers(num_layers) if layers is None else parse_list(layers, "--layers", lowest=0)
    if max(wanted) >= num_layers:
        raise SpecError(f"--layers: {max(wanted)} is none of the layers 0..{num_layers - 1} of {target}")
    kept_as, engine = getattr(torch, store), engine_versions()
    start = time.perf_counter()
    if writer == "vllm":
        if vllm_python is None:
            raise SpecError("--writer vllm needs the Python of an environment with vLLM: --vllm-python PATH/bin/python")
        engine = {"name": "vllm", "vllm": vllm_version(vllm_python)}
        run_in = resolved_dtype(card.folder, check_dtype(dtype))
        with ui.stage("write features") as progress:
            written = write_by_vllm(
                file, wanted, output, kept_as, python=vllm_python, target_folder=card.folder, dtype=run_in,
                engine={"enforce_eager": device_label() == "cpu", **parse_settings(vllm_set or [])}, progress=progress,
            )  # fmt: skip
    else:
        with ui.stage(f"load {target}"):
            model = load_target(target, check_dtype(dtype))
        run_in = model.dtype
        with ui.stage("write features") as progress:
            written = write_features(model, file, wanted, output, kept_as, progress)
    seconds, shards = time.perf_counter() - start, shards_of(file.lengths)
    record = TrainFeaturesRecord(
        schema=TrainFeaturesRecord.SCHEMA,
        provenance=provenance(
            engine=engine,
            input_hashes={"data": file.sha256[:16]},
            dtype=run_in,
            device=device_label(),
        ),
        target=target,
        output=str(output),
        data_sha256=file.sha256,
        layers=sorted(wanted),
        stored_as=store,
        tokens=file.num_tokens,
        shards=len(shards),
        written=written,
        bytes=sum((output / one.name).stat().st_size for one in shards),
        seconds=seconds,
        tokens_per_s=file.num_tokens / seconds if written == len(shards) else None,
    )
    emit(record, json)
    console.print(
        f"[bold]{output}[/bold]: layers {record.layers} of {record.tokens:,} tokens, {record.bytes / 1e9:.2f} GB in "
        f"{record.shards} files, {record.written} of them now"
    )
    return 0
