"""`codraft train show`: what a drafter is to learn from, token by token; and what the linter did to rows of prompts."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from codraft.cli import options as o
from codraft.core.errors import SpecError

DEFAULT_ROWS = 3
File = Annotated[
    str, Parameter(help="A token file of `codraft train data`, or prompts as --prompts takes them (JSONL and its kin).")
]
RowNumber = Annotated[int | None, o.Whole, Parameter(help="This row alone, counted from 1.")]
Rows = Annotated[
    int | None, o.Whole, Parameter(help=f"So many rows, spread evenly; default {DEFAULT_ROWS}; of prompts all.")
]
TargetName = Annotated[
    str | None,
    Parameter(help="Whose tokenizer to read with; default: the target that the file names. Prompts are fitted to it."),
]
MaxNewTokens = Annotated[int, o.Whole, Parameter(help="Of prompts with --target: tokens of each answer.")]


def show(
    file: File,
    /,
    *,
    row: RowNumber = None,
    rows: Rows = None,
    target: TargetName = None,
    max_new_tokens: MaxNewTokens = 512,
) -> int:
    """The loss mask: what the target wrote, and a drafter is to predict, stands out from the prompt.

    In colour on a terminal; elsewhere `[[` and `]]` mark what is supervised. Special tokens are shown as they are.

        codraft train show tokens.safetensors --row 12
        codraft train show chats.jsonl --target demo

    For a file of prompts it lists what became of each row: kept, mended how, or dropped why.
    """
    from codraft.core.spec import check_positive

    for value, name in ((row, "--row"), (rows, "--rows"), (max_new_tokens, "--max-new-tokens")):
        check_positive(value, name)
    if row is not None and rows is not None:
        raise SpecError("give --row N for one row or --rows N for some, not both")
    if is_token_file(Path(file)):
        show_tokens(Path(file), row, rows or DEFAULT_ROWS, target)
    else:
        show_prompts(file, row, rows, target, max_new_tokens)
    return 0


def is_token_file(path: Path) -> bool:
    """Whether it is for safetensors to open: by its suffix, or by a header that JSON lines cannot begin with."""
    if path.suffix == ".safetensors":
        return True
    try:
        with path.open("rb") as handle:
            return handle.read(9)[8:] == b"{"
    except OSError:
        return False


def show_tokens(path: Path, row: int | None, rows: int, target: str | None) -> None:
    """Header and rows of a token file."""
    from codraft.core.stats import evenly
    from codraft.train.tokens import TokenFile

    tokens = TokenFile(path)
    if row is not None and row > len(tokens):
        raise SpecError(f"--row must be in 1..{len(tokens)}, the rows of {path}; got {row}")
    from codraft.cli.mask_view import MaskView
    from codraft.decode.hf.load import load_card

    view = MaskView(load_card(target or tokens.origin.target).tokenizer)
    view.header(tokens)
    for index in [row - 1] if row is not None else evenly(range(len(tokens)), rows):
        view.row(index + 1, tokens.row(index))


def show_prompts(source: str, row: int | None, rows: int | None, target: str | None, max_new_tokens: int) -> None:
    """What became of every row of a file of prompts."""
    from codraft.cli.mask_view import print_findings
    from codraft.core.stats import evenly
    from codraft.train.data.raw import read_source
    from codraft.train.data.rows import lint

    findings = lint(read_source(source))
    if row is not None and row > len(findings):
        raise SpecError(f"--row must be in 1..{len(findings)}, the rows of {source}; got {row}")
    if target is not None:
        from codraft.decode.hf.load import load_card
        from codraft.decode.hf.text import TextCodec
        from codraft.train.data.prepare import fit

        card = load_card(target)
        codec = TextCodec(card.tokenizer)
        findings = [fit(finding, codec, max_new_tokens, card.window) for finding in findings]
    shown = [findings[row - 1]] if row is not None else evenly(findings, len(findings) if rows is None else rows)
    print_findings(findings, shown)
