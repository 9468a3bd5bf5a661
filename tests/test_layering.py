"""Imports go one way: docs/architecture.md has the table, and the code must obey it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from codraft.core.spec import DRAFTER_SPECS, MECHANISMS

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "codraft"


def table() -> dict[str, set[str]]:
    """Package -> packages it may import, from the one table in architecture.md that says so."""
    lines = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").splitlines()
    start = lines.index("| package | may import |") + 2
    rows: dict[str, set[str]] = {}
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        package, allowed = (cell.strip().replace("`", "") for cell in line.strip("|").split("|"))
        rows[package] = {name.strip() for name in allowed.split(",")} & packages()
    return rows


def packages() -> set[str]:
    return {path.name for path in SRC.iterdir() if path.is_dir() and path.name != "__pycache__"}


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(module, at top level?) of every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = [n for n in tree.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    top = {id(n) for n in tree.body if n not in guarded}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, id(node) in top


FILES = sorted(SRC.rglob("*.py"))


def test_the_table_names_every_package() -> None:
    assert table().keys() == packages()


@pytest.mark.parametrize("path", FILES, ids=[str(f.relative_to(SRC)) for f in FILES])
def test_a_package_imports_only_what_the_table_allows(path: Path) -> None:
    package = path.relative_to(SRC).parts[0]
    if package not in packages():
        return
    allowed = table()[package] | {package}
    for module, _ in imports(path):
        parts = module.split(".")
        if parts[0] == "codraft" and len(parts) > 1 and parts[1] in packages():
            assert parts[1] in allowed, f"{package} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=[str(f.relative_to(SRC)) for f in FILES])
def test_transformers_is_touched_in_decode_hf_alone(path: Path) -> None:
    inside = path.relative_to(SRC).parts[:2] == ("decode", "hf")
    assert inside or not any(module.split(".")[0] == "transformers" for module, _ in imports(path))


@pytest.mark.parametrize("package", ["core", "formats", "models", "cost", "cli", "report"])
def test_packages_that_need_no_model_do_not_import_torch_at_the_top(package: str) -> None:
    for path in (SRC / package).rglob("*.py"):
        for module, top in imports(path):
            assert not (top and module.split(".")[0] in ("torch", "transformers")), f"{path.name} imports {module}"


def test_the_live_loop_does_not_know_the_walk() -> None:
    """They must agree independently."""
    for path in (SRC / "decode").rglob("*.py"):
        assert not any(module.startswith(("codraft.replay", "codraft.drafters")) for module, _ in imports(path))


@pytest.mark.parametrize("path", FILES, ids=[str(f.relative_to(SRC)) for f in FILES])
def test_files_and_functions_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.end_lineno - node.body[0].lineno if node.end_lineno else 0
            assert body <= 50 or path.parent.name == "cli", f"{node.name} has {body} lines"


@pytest.mark.parametrize("path", FILES, ids=[str(f.relative_to(SRC)) for f in FILES])
def test_public_things_say_what_they_are(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            nested = any(
                node in ast.walk(f) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f is not node
            )
            assert nested or ast.get_docstring(node), f"{node.name} has no docstring"


# These go by what a drafter says of itself: a new mechanism changes none of them.
BLIND = ("cost", "replay", "measure", "decode", "study", "report", "cli")


def asks_for_a_mechanism(tree: ast.AST) -> Iterator[str]:
    """Comparisons and patterns that hold a mechanism's name or an attribute `mechanism`, and tests on a spec's class.

    Membership of the whole list of names is no such test.
    """
    whole = {"MECHANISMS", "DRAFTER_SPECS"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
            if any(isinstance(part, ast.Name) and part.id in whole for part in parts):
                continue
            inner = [found for part in parts for found in ast.walk(part)]
            if any(names_one(part) or is_field(part) for part in inner):
                yield ast.unparse(node)
        elif isinstance(node, ast.MatchValue | ast.MatchClass):
            if any(names_one(part) or names_spec(part) for part in ast.walk(node)):
                yield ast.unparse(node)
        elif isinstance(node, ast.Match) and is_field(node.subject):
            yield f"match {ast.unparse(node.subject)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if any(names_spec(part) for part in ast.walk(node.args[1])):
                yield ast.unparse(node)
        elif isinstance(node, ast.Dict) and any(key is not None and names_one(key) for key in node.keys):
            yield f"a table by mechanism: {ast.unparse(node)[:60]}"


def names_one(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value in MECHANISMS


def is_field(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "mechanism"


def names_spec(node: ast.AST) -> bool:
    specs = {kind.__name__ for kind in DRAFTER_SPECS.values()}
    return (
        isinstance(node, ast.Name | ast.Attribute) and (node.id if isinstance(node, ast.Name) else node.attr) in specs
    )


BLIND_FILES = [path for path in FILES if path.relative_to(SRC).parts[0] in BLIND]


@pytest.mark.parametrize("path", BLIND_FILES, ids=[str(f.relative_to(SRC)) for f in BLIND_FILES])
def test_nothing_asks_for_a_mechanism_but_the_tables_that_say_what_mechanisms_are(path: Path) -> None:
    """Those stand in drafters, formats, models, engines and core/spec.py."""
    assert list(asks_for_a_mechanism(ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "code",
    [
        "if drafter.info.mechanism == 'mtp': pass",
        "x = name in ('dflash', 'dspark')",
        "y = other != spec.mechanism",
        "isinstance(spec, MtpSpec)",
        "isinstance(spec, (int, spec_module.DflashSpec))",
        "match spec.mechanism:\n    case _: pass",
        "match spec:\n    case Eagle3Spec(): pass",
        "match name:\n    case 'suffix': pass",
        "cost = {'ngram': 0.0, 'eagle3': 1.0}[name]",
    ],
)
def test_a_question_for_a_mechanism_is_seen(code: str) -> None:
    assert list(asks_for_a_mechanism(ast.parse(code)))


@pytest.mark.parametrize("code", ["ok = info.mechanism in MECHANISMS", "info = DrafterInfo(mechanism=spec.mechanism)"])
def test_naming_a_mechanism_is_no_question(code: str) -> None:
    assert not list(asks_for_a_mechanism(ast.parse(code)))


def test_every_citation_in_the_code_is_in_the_references() -> None:
    """A key is a name and a year. One that nobody explains is no source."""
    table = (ROOT / "docs" / "references.md").read_text()
    known = set(re.findall(r"^\| \[([^\]]+)\]", table, re.MULTILINE))
    cited = {
        key: file.name
        for file in (ROOT / "src").rglob("*.py")
        for key in re.findall(r"(?<![\w\]])\[([A-Z][A-Za-z-]+\d\d)\]", file.read_text())
    }
    assert set(cited) <= known, {key: file for key, file in cited.items() if key not in known}
    assert len(cited) > 5
