"""What a suffix tree must hold, told naively; reading a tree whole; texts that repeat each other."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from codraft.drafters.suffix_tree import NO_CHILDREN, Node, SuffixTree

Path = tuple[int, ...]


@dataclass
class Naive:
    """All suffixes of all sequences, cut at `depth`, in one list."""

    depth: int
    texts: dict[int, list[int]] = field(default_factory=dict)

    def suffixes(self) -> list[Path]:
        return [tuple(text[i : i + self.depth]) for text in self.texts.values() for i in range(len(text))]

    def counts(self) -> dict[Path, int]:
        """How many suffixes begin with each path."""
        found: dict[Path, int] = {}
        for suffix in self.suffixes():
            for n in range(1, len(suffix) + 1):
                found[suffix[:n]] = found.get(suffix[:n], 0) + 1
        return found


def children(node: Node) -> Iterator[Node]:
    """A node's children in their order; the row, the dictionary and the heads of the groups must tell the same."""
    row: list[Node] = []
    child = node.first
    while child is not None:
        assert child.parent is node
        assert child.prev is (row[-1] if row else None)
        row.append(child)
        child = child.next
    assert node.last is (row[-1] if row else None)
    assert node.children == {child.text[child.start]: child for child in row}
    assert row or node.children is NO_CHILDREN
    assert (node.heads is None) == (len(row) < 2)
    if node.heads is not None:
        assert node.heads == {child.count: child for child in reversed(row)}
    assert node.parent is None or len(row) != 1 or row[0].count < node.count, "a run without a branch is one node"
    return iter(row)


def paths(tree: SuffixTree) -> dict[Path, int]:
    """Every path of a tree with its count."""
    found: dict[Path, int] = {}
    pending: list[tuple[Path, Node]] = [((), tree.root)]
    while pending:
        path, node = pending.pop()
        for child in children(node):
            tokens = tuple(child.text[child.start : child.start + child.length])
            found.update({path + tokens[:n]: child.count for n in range(1, child.length + 1)})
            pending.append((path + tokens, child))
    return found


def texts_of(seed: int, count: int, alphabet: int) -> list[list[int]]:
    """Texts that repeat pieces of each other."""
    rng = random.Random(seed)
    texts: list[list[int]] = []
    for _ in range(count):
        text = [rng.randrange(alphabet)]
        while len(text) < 25:
            source = rng.choice([text, *texts])
            at = rng.randrange(len(source))
            text += source[at : at + 5] if rng.random() < 0.6 else [rng.randrange(alphabet)]
        texts.append(text)
    return texts
