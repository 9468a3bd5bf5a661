"""`codraft`: dispatch, and the exit codes of the contract."""

import importlib
import os
import signal
import sys
from collections.abc import Sequence

from codraft import __version__

VERBS = {
    "tune": "The main job: AL(D), step times, the best drafter and D by load, confirmed; a report; launch files.",
    "inspect": "What a model is, whether a drafter fits it, and whether the two will silently fail. Headers only.",
    "accept": "AL(D) for every D of every drafter, from prompts or from logs, by replay.",
    "profile": "T_verif, T_draft, T_sys over B, S, D; GEMM and attention curves of this machine.",
    "advise": "The best drafter and D by load from AL curves and step times you have, as records or CSV.",
    "frontier": "Throughput against interactivity, with and without speculation, from the same figures.",
    "generate": "Lossless decoding with any drafter, or none.",
    "train": "A drafter for a target: its answers as data, losses as published, AL in the loop, resumable.",
    "convert": "A drafter's checkpoint in another public layout, bit for bit; no torch.",
    "report": "A study's page, written anew.",
}
# Verbs of several commands: `codraft train data ...`; without one of these the verb itself is run.
PARTS = {"train": ("data", "show", "vocab", "features", "plan")}
TORCH_EXTRA = ("torch", "transformers", "accelerate", "gguf")
HELP = f"""codraft: which draft mechanism and which draft length D to run, proved by measurement.

Usage: codraft VERB [TARGET] [flags]        codraft VERB --help explains a verb

{chr(10).join(f"  {verb:<10}{summary}" for verb, summary in VERBS.items())}

Start with `codraft tune demo`: it runs on an embedded model and prompts, and ends with a verdict and a report.
TARGET is a model folder, a hub id or `demo`. Every verb takes --json PATH|- and then writes one record there.

Tables and progress go to stderr, so that stdout holds the record alone.
Exit codes: 0 done, 1 a stated threshold failed, 2 usage or input error, 3 something is not installed.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    from codraft.core.errors import CapabilityError, SpecError

    if sys.stderr is None:  # closed by the caller: what people would read goes nowhere
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if argv is None:
        # As Ctrl-C: unfinished files and folders go.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run(list(sys.argv[1:] if argv is None else argv))
    except SpecError as error:
        return complain(str(error), 2)
    except CapabilityError as error:
        return complain(str(error), 3)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in TORCH_EXTRA:
            raise
        return complain(f"this needs {error.name}, which is not installed: pip install 'codraft[torch]'", 3)
    except KeyboardInterrupt:
        return complain("interrupted; what was finished is kept, and nothing is half-written", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def run(argv: list[str]) -> int:
    """Dispatch one verb; usage errors leave as SpecError. Help and version need no import at all."""
    from codraft.core.errors import SpecError

    verb, *rest = argv or ["--help"]
    try:
        "".join(argv).encode()
    except UnicodeEncodeError as error:
        raise SpecError("an argument is not UTF-8 text, which no record can hold; rename the file it names") from error
    if verb in ("--help", "-h", "help"):
        print(HELP, end="")
        return 0
    if verb in ("--version", "version"):
        print(__version__)
        return 0
    if verb not in VERBS:
        raise SpecError(f"unknown verb '{verb}'; choose one of {', '.join(VERBS)}, or see `codraft --help`")
    if rest and rest[0] in PARTS.get(verb, ()):
        return run_verb(f"{verb} {rest[0]}", rest[1:])
    return run_verb(verb, rest)


def run_verb(verb: str, argv: list[str]) -> int:
    """Parse the flags of a verb, or of one of its parts, from its signature and call it."""
    import cyclopts

    from codraft.core.errors import SpecError

    module = importlib.import_module(f"codraft.cli.{verb.replace(' ', '_')}")
    function = getattr(module, verb.rpartition(" ")[2])
    app = cyclopts.App(
        name=f"codraft {verb}",
        help_format="markdown",
        version_flags=(),
        exit_on_error=False,
        print_error=False,
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    app.default(function)
    try:
        code = app(attached(argv))
    except cyclopts.CycloptsError as error:
        message = " ".join(str(error).split()).rstrip(".")
        raise SpecError(f"{message}; see `codraft {verb} --help`") from error
    return code if isinstance(code, int) else 0


def attached(argv: list[str]) -> list[str]:
    """`--json -` and `--prompt "- a list"` as `--flag=value`: cyclopts takes any word that begins with - for a flag."""
    words: list[str] = []
    for word in argv:
        value = word == "-" or (word.startswith("-") and any(c.isspace() for c in word))
        if value and words and words[-1].startswith("--") and "=" not in words[-1]:
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def complain(sentence: str, code: int) -> int:
    """One sentence on stderr."""
    print(f"codraft: {' '.join(sentence.splitlines())}", file=sys.stderr)
    return code
