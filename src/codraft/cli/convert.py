"""`codraft convert`: a drafter's checkpoint in another public layout."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.core.errors import SpecError

Source = Annotated[
    str,
    Parameter(
        help="The drafter: a folder or a hub id (owner/name, with @revision to pin one). For MTP also the target whose "
        "modules are to be taken out."
    ),
]
To = Annotated[
    str,
    Parameter(
        help="Layout to write. eagle3: safeailab (SpecForge's too), modelopt, speculators. dflash: zlab (SpecForge's "
        "and Model-Optimizer's too), speculators. dspark: deepspec, specforge, modelopt, speculators. mtp: native (the "
        "target's own names), speculators."
    ),
]
Output = Annotated[
    Path, Parameter(name=["--output", "-o"], help="Folder to write. It must not exist, or be empty; it appears whole.")
]
Target = Annotated[
    str | None,
    Parameter(
        help="The model that it drafts for. Layouts that hold copies of its embedding and output head take them from "
        "here; copies that a layout leaves out are compared with it first."
    ),
]
Engine = Annotated[
    Literal["vllm", "sglang", "trtllm"] | None,
    Parameter(
        help="Write what this engine reads where that is not the layout's own convention, as layer ids under the key "
        "and in the count that it takes."
    ),
]


def convert(
    source: Source, /, *, to: To, output: Output, target: Target = None, engine: Engine = None, json: o.Json = None
) -> int:
    """A drafter's checkpoint in another public layout, bit for bit. No torch, no GPU.

    Tensors are copied as bytes under the other layout's names, so bfloat16 and FP8 stay what they are, and the way back
    gives the same tensors. The config is written in the other layout's words; what they cannot say is refused by name,
    and so is a head with a tensor missing, unexpected or misshapen. Nothing is written before all that is known.

        codraft convert path/to/head --to speculators --target path/to/target -o head-speculators
        codraft convert owner/head --to modelopt --engine vllm -o head-vllm
        codraft convert path/to/target --to native -o mtp-modules

    Layer ids keep their meaning: some layouts count what a layer puts out, some what enters it. What was done, and what
    looks untrained, goes to stderr; `--json -` writes the record to stdout.
    """
    from codraft.cli.convert_table import print_conversion
    from codraft.cli.ui import RichUi
    from codraft.core.record import check_destination, emit
    from codraft.formats.heads.convert import convert as run
    from codraft.formats.heads.plan import Conversion

    check_places((source, target), output, json)
    check_destination(json)
    request = Conversion(source=source, to=to, output=output, target=target, engine=engine)
    with RichUi().stage("write") as progress:
        record = run(request, progress)
    emit(record, json)
    print_conversion(record)
    return 0


def check_places(read: Sequence[str | None], output: Path, json: str | None) -> None:
    """Refuse an output folder inside one that is read, and a record inside the output."""
    goal = real(output)
    for one in read:
        if one is not None and Path(one).is_dir() and goal.is_relative_to(real(one)):
            raise SpecError(f"--output {output} lies in {one}, which is only read; name a folder outside of it")
    if json not in (None, "-") and real(str(json)).is_relative_to(goal):
        raise SpecError(f"--json {json} lies in {output}, which holds the checkpoint alone; name a file outside of it")


def real(path: str | Path) -> Path:
    """Where links lead; a loop of links stays as it is, and is refused where it is written to."""
    return Path(os.path.realpath(path))
