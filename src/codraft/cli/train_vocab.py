"""`codraft train vocab`: the draft vocabulary of a head, and what it costs in AL."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.core.errors import SpecError

DEFAULT_SIZE = 8192
Data = Annotated[Path, Parameter(help="Token file of the target's answers, made with `codraft train data`.")]
Size = Annotated[
    int | None,
    o.Whole,
    Parameter(help=f"Tokens that the drafter can draft, special and byte tokens among them; default {DEFAULT_SIZE}."),
]
Sizes = Annotated[str | None, Parameter(help="Several sizes to compare, as 4096,8192,16384.")]
Output = Annotated[
    Path | None,
    Parameter(name=["--output", "-o"], help="Keep the vocabulary in this file (JSON), for --draft-vocab."),
]


def vocab(
    target: o.Target,
    /,
    *,
    data: Data,
    size: Size = None,
    sizes: Sizes = None,
    output: Output = None,
    json: o.Json = None,
) -> int:
    """Which tokens a head with a small output drafts, how many of the target's tokens that covers, and the AL that no
    such head can pass.

    The vocabulary holds the special and byte tokens and then the tokens most frequent in the target's answers. Held out
    means counted in nine rows of ten and measured on the tenth.

        codraft train vocab demo --data tokens.safetensors --sizes 4096,8192,16384
        codraft train vocab demo --data tokens.safetensors --size 8192 -o vocab-8192.json
    """
    from codraft.core.files import check_writable
    from codraft.core.record import check_apart, check_destination, emit, write_record
    from codraft.core.spec import parse_list

    if size is not None and sizes is not None:
        raise SpecError("give --size or --sizes, not both")
    if sizes is not None and output is not None:
        raise SpecError("--output takes one vocabulary; choose it with --size")
    asked = [DEFAULT_SIZE if size is None else size] if sizes is None else parse_list(sizes, "--sizes", lowest=1)
    check_destination(json)
    check_apart({"--output": output, "--json": json}, {"--data": [data]})
    if output is not None:
        check_writable(output)
    from codraft.cli.ui import RichUi
    from codraft.cli.vocab_table import print_vocabularies
    from codraft.decode.hf.load import load_card
    from codraft.train.coverage import Facts, assess, draft_record, size_record
    from codraft.train.data.language import language_of
    from codraft.train.tokens import TokenFile

    file = TokenFile(data)
    facts = Facts.of(load_card(target))
    with RichUi().stage("walk") as progress:
        found = assess(file, facts, asked, language_of=language_of, progress=progress)
    record = size_record(found, facts, file)
    if output is not None:
        write_record(draft_record(found, facts, file), output)
    emit(record, json)
    print_vocabularies(record, output)
    return 0
