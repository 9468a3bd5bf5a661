"""Flags that several verbs share, each explained once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, Token


def whole_number(_: type, tokens: Sequence[Token]) -> int:
    """A whole number as written: 2.5 is an error, never 2."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"'{tokens[0].value}' is not a whole number") from None


Whole = Parameter(converter=whole_number)
Target = Annotated[
    str,
    Parameter(help="Model to speed up: a folder, a hub id (owner/name, with @revision to pin one), or `demo`."),
]
Drafters = Annotated[
    list[str] | None,
    Parameter(
        name=["--drafter", "-d"],
        consume_multiple=False,
        negative=(),
        help="MECHANISM[:PATH_OR_ID][,key=value...]; repeat for more. `ngram` [n_min, n_max, "
        "occurrence=earliest|latest]; `suffix` [max_tree_depth, max_cached_requests, max_spec_factor, min_token_prob]; "
        "`external:MODEL` [layers=N for its first N layers]; heads trained for this target: `eagle3:HEAD`; `mtp` "
        "(modules inside the target's checkpoint) or `mtp:FOLDER` [feedback=pre_norm|post_norm]; "
        "`dflash:HEAD` [block=resize|truncate]; "
        "`dspark:HEAD` [block, confidence=0..1 or timing=RECORD: where a draft ends]. Models and heads take "
        "draft=greedy|sample; all take name=.",
    ),
]
Prompts = Annotated[
    list[str] | None,
    Parameter(
        name=["--prompts", "-p"],
        consume_multiple=False,
        negative=(),
        help="NAME_OR_FILE[/CATEGORY][:N]; repeat for more. A JSONL file with `turns`, `messages` or `prompt` in each "
        "row, or a set by name: demo (built in), spec-bench, mt-bench, humaneval, gsm8k, speed-bench/CONFIG. N rows "
        "are taken, spread evenly over the file.",
    ),
]
Streams = Annotated[
    Path | None,
    Parameter(
        help="JSONL of answers the target has written already: `prompt_ids` and `output_ids`, or `messages` that "
        "end with "
        "the assistant. Production logs will do."
    ),
]
MaxNewTokens = Annotated[int | None, Whole, Parameter(help="Tokens of each answer.")]
Temperature = Annotated[float | None, Parameter(help="0 is greedy (default).")]
TopP = Annotated[float | None, Parameter(help="Keep the fewest tokens with this much probability; 1 keeps all.")]
TopK = Annotated[int | None, Whole, Parameter(help="Keep this many most likely tokens; 0 keeps all.")]
Seed = Annotated[int | None, Whole, Parameter(help="Noise is a function of (seed, stream, position); default 0.")]
Dtype = Annotated[
    str,
    Parameter(
        help="auto, float32, bfloat16, float16 or float64. auto: the checkpoint's own, but float32 on a CPU "
        "without fast "
        "bfloat16."
    ),
]
SkipLong = Annotated[
    bool, Parameter(negative=(), help="Leave out prompts that do not fit the window, and say how many.")
]
Raw = Annotated[bool, Parameter(negative=(), help="Give prompts as plain text, without the chat template.")]
Json = Annotated[str | None, Parameter(help="Write the record to this file, or to stdout with `-`.")]
