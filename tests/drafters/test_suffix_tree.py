"""The suffix tree against a list of all suffixes: counts, first children, eviction, the order of siblings."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codraft.core.spec import SuffixSpec
from codraft.drafters.suffix import Limits, best_drafts
from codraft.drafters.suffix_tree import NO_CHILDREN, Sequence, SuffixTree

from tests.drafters.suffixes import Naive, Path, children, paths, texts_of


class Both:
    """A tree and its naive model, changed together."""

    def __init__(self, depth: int) -> None:
        self.tree, self.naive = SuffixTree(depth), Naive(depth)
        self.sequences: dict[int, Sequence] = {}

    def extend(self, key: int, tokens: list[int]) -> None:
        if key not in self.sequences:
            self.sequences[key], self.naive.texts[key] = Sequence(), []
        self.tree.extend(self.sequences[key], tokens)
        self.naive.texts[key] += tokens

    def remove(self, key: int) -> None:
        self.tree.remove(self.sequences.pop(key))
        del self.naive.texts[key]

    def check(self) -> None:
        """Every path, its count and its children; the rows in order; where each sequence ends."""
        counts = self.naive.counts()
        assert paths(self.tree) == counts
        assert self.tree.num_nodes <= 2 * sum(map(len, self.naive.texts.values()))
        for path in ((), *counts):
            expected = {p[-1]: n for p, n in counts.items() if p[:-1] == path}
            found = self.tree.find(list(path))
            assert found is not None
            node, offset = found
            if offset < node.length:
                assert expected == {node.text[node.start + offset]: node.count}
            else:
                row = [(child.text[child.start], child.count) for child in children(node)]
                assert dict(row) == expected
                assert [n for _, n in row] == sorted(expected.values(), reverse=True)
        for key, sequence in self.sequences.items():
            text = self.naive.texts[key]
            assert len(sequence.active) == min(len(text), self.tree.max_depth)
            for m, node in enumerate(reversed(sequence.active), start=1):
                assert self.tree.find(text[-m:]) == (node, node.length)


pieces = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=6)), max_size=12)
depths = st.integers(1, 6)


@given(depths, pieces, st.data())
def test_the_tree_holds_what_a_list_of_all_suffixes_holds(
    depth: int, script: list[tuple[int, list[int]]], data: st.DataObject
) -> None:
    """Sequences that grow in turn, and go again, in any order, while the others grow on."""
    both = Both(depth)
    for key, tokens in script:
        both.extend(key, tokens)
        both.check()
        if data.draw(st.integers(0, 3)) == 0:
            both.remove(data.draw(st.sampled_from(sorted(both.sequences))))
            both.check()


@given(depths, pieces, st.randoms(use_true_random=False))
def test_removing_every_sequence_leaves_no_node(
    depth: int, script: list[tuple[int, list[int]]], order: random.Random
) -> None:
    both = Both(depth)
    for key, tokens in script:
        both.extend(key, tokens)
    keys = list(both.sequences)
    order.shuffle(keys)
    for key in keys:
        both.remove(key)
    assert both.tree.num_nodes == 0
    assert both.tree.root.first is None
    assert both.tree.root.children is NO_CHILDREN


def tie_free(counts: dict[Path, int], path: Path) -> bool:
    """Whether the likeliest way on from a path is one alone, all the way down."""
    while True:
        row = sorted(((n, p) for p, n in counts.items() if p[:-1] == path and len(p) > len(path)), reverse=True)
        if not row:
            return True
        if len(row) > 1 and row[0][0] == row[1][0]:
            return False
        path = row[0][1]


@pytest.mark.parametrize("seed", range(6))
def test_a_tree_after_eviction_drafts_as_one_built_from_the_survivors(seed: int) -> None:
    """Wherever no two continuations are equally frequent: the order of those depends on the past."""
    depth, texts = 5, texts_of(seed, 9, 3)
    grown, kept = Both(depth), Both(depth)
    for i, text in enumerate(texts):
        grown.extend(i, text)
        if len(grown.sequences) > 3:
            grown.remove(min(grown.sequences))
    for i in grown.sequences:
        kept.extend(i, texts[i])
    grown.check()
    counts = kept.naive.counts()
    limits = Limits(SuffixSpec(max_tree_depth=depth, max_spec_factor=2.0, min_token_prob=0.05))
    compared = 0
    for context in texts:
        for end in range(depth, len(context)):
            tail = context[end - depth : end]
            if all(tie_free(counts, tuple(tail[-m:])) for m in range(1, depth) if tuple(tail[-m:]) in counts):
                drafts = [best_drafts(both.tree, [], tail, limits, [1, 3, 9]) for both in (grown, kept)]
                assert drafts[0] == drafts[1]
                compared += 1
    assert compared > 20


def row_of(depth: int, *texts: str, removed: int = 0) -> str:
    """The first tokens of the root's children, in order, after texts of letters came and the first few went."""
    tree, sequences = SuffixTree(depth), []
    for text in texts:
        sequences.append(Sequence())
        tree.extend(sequences[-1], [ord(c) for c in text])
    for sequence in sequences[:removed]:
        tree.remove(sequence)
    return "".join(chr(child.text[child.start]) for child in children(tree.root))


@pytest.mark.parametrize(
    ("texts", "row"),
    [
        ("abc", "abc"),  # New children stand last.
        ("abcb", "bac"),  # The first of a new count goes before the count it left.
        ("abcbc", "bca"),  # The second goes behind it ...
        ("abcbca", "abc"),  # ... but the one that led its old group before it.
        ("abcdbcd", "bcda"),
        ("abcdbcdcd", "cdba"),
        ("abcdbcdcdb", "bcda"),  # b led those counted twice, so it leads those counted thrice.
    ],
)
def test_a_child_that_is_counted_up_goes_to_the_end_of_its_new_group_or_to_the_front_if_it_led(
    texts: str, row: str
) -> None:
    assert row_of(1, *texts) == row


@pytest.mark.parametrize(
    ("texts", "removed", "row"),
    [
        ("aabc", 1, "abc"),  # To the front of those counted once.
        ("babcaac", 1, "acb"),  # b is down to one and alone; the others stand.
        ("cbacab", 1, "bac"),  # All were of one count, and no group is lower: it goes last.
        ("abcabcd", 1, "cbad"),  # a leads the group that d was alone in,
        ("abcabcd", 2, "cbad"),  # then b does,
        ("abcabcd", 3, "cbad"),  # then c,
        ("abcabcd", 4, "cbd"),  # and what was counted once is gone.
    ],
)
def test_a_child_that_is_counted_down_goes_to_the_front_of_its_new_group(texts: str, removed: int, row: str) -> None:
    assert row_of(1, *texts, removed=removed) == row


def test_runs_without_a_branch_are_one_node() -> None:
    tree = SuffixTree(50)
    tree.extend(Sequence(), list(range(100)))
    assert tree.num_nodes == 100, "a leaf for each suffix, however long"
    tree.extend(Sequence(), list(range(40)))
    assert tree.num_nodes == 140, "and one more where the second sequence's suffixes end"


def test_a_path_that_is_not_there_is_not_found() -> None:
    tree = SuffixTree(4)
    tree.extend(Sequence(), [1, 2, 3])
    assert tree.find([2, 1]) is None
    assert tree.find([1, 3]) is None
    assert tree.find([1, 2, 3, 4]) is None
    assert tree.find([]) == (tree.root, 0)
