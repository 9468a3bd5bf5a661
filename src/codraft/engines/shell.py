"""Text that a shell, a JSON or YAML reader and a person can take, whatever a model is called."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote

WIDTH = 116


def one_line(text: str) -> str:
    """A comment's text: nothing in it may end the line or upset a YAML reader."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def comments(lines: Iterable[str]) -> str:
    """Lines behind `# `, long ones wrapped; an empty line separates."""
    wrapped: list[str] = []
    for line in lines:
        wrapped += textwrap.wrap(
            one_line(line), WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        ) or [""]
    return "".join(f"# {line}".rstrip() + "\n" for line in wrapped)


def flag(name: str, value: object) -> str:
    """`NAME VALUE`, quoted."""
    return f"{name} {quote(str(value))}"


def command(parts: Sequence[str]) -> str:
    """One command over several lines; whatever the script is called with is added at the end."""
    return " \\\n    ".join([*parts, '"$@"']) + "\n"


def refusal(reason: str) -> str:
    """A script that says why it starts nothing."""
    return f"echo {quote(one_line(reason))} >&2\nexit 1\n"


def yaml_scalar(value: object) -> str:
    """A number, a truth value, or a text in double quotes with everything unusual escaped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return '"' + "".join(yaml_character(c) for c in str(value)) + '"'


def yaml_character(c: str) -> str:
    """One character inside double quotes."""
    if c in '"\\':
        return "\\" + c
    return c if c.isprintable() else f"\\U{ord(c):08X}"


def yaml_mapping(values: Mapping[str, object], indent: str = "") -> str:
    """A mapping of scalars and further mappings, in block style."""
    lines = ""
    for key, value in values.items():
        if isinstance(value, Mapping):
            lines += f"{indent}{key}:\n{yaml_mapping(value, indent + '  ')}"
        else:
            lines += f"{indent}{key}: {yaml_scalar(value)}\n"
    return lines or f"{indent}{{}}\n"
