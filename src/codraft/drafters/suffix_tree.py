"""A tree of all suffixes of some token sequences, with counts, grown token by token and shrunk sequence by sequence.

Suffixes are cut at `max_depth` tokens. Runs without a branch are one node, so a sequence of n tokens adds at most 2n
nodes whatever the depth [Weiner73]. Children stand in order of falling count, and the order of equal counts follows
ArcticInference 0.1.1 [SuffixDecoding], so that its drafts and ours are the same token for token: a child that is
counted up goes to the end of its new group, or to the front if it led its old one; one that is counted down goes to
the front.
"""

from typing import Final

# Leaves share one empty dictionary; a node gets its own with its first child.
NO_CHILDREN: Final[dict[int, "Node"]] = {}


class Node:
    """`length` tokens of `text` from `start`, and how many suffixes pass through or end here.

    `heads` gives the first child of each count, once there are two; `first` and `last` the ends of the row of children.
    """

    __slots__ = (
        "children",
        "count",
        "first",
        "heads",
        "last",
        "length",
        "next",
        "parent",
        "prev",
        "start",
        "text",
    )

    def __init__(self, count: int, text: list[int], start: int, length: int, parent: "Node | None") -> None:
        self.count, self.text, self.start, self.length, self.parent = count, text, start, length, parent
        self.children = NO_CHILDREN
        self.heads: dict[int, Node] | None = None
        self.first: Node | None = None
        self.last: Node | None = None
        self.prev: Node | None = None
        self.next: Node | None = None


class Sequence:
    """One sequence in a tree. `active[-m]` is the node at which its last m tokens end."""

    __slots__ = ("active", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.active: list[Node] = []


class SuffixTree:
    """Appending a token costs at most `max_depth` node visits, however much the tree holds."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        # A count of 0 keeps the root out of the cases below in which a node grows along its edge.
        self.root = Node(0, [], 0, 0, None)

    def extend(self, sequence: Sequence, tokens: list[int]) -> None:
        """Append tokens to a sequence, new or known."""
        for token in tokens:
            self.append(sequence, token)

    def append(self, sequence: Sequence, token: int) -> None:
        """Append one token: every suffix that is not yet max_depth long moves one token down."""
        text, active = sequence.tokens, sequence.active
        active.append(self.root)
        if len(active) > self.max_depth:
            del active[0]
        text.append(token)
        at = len(text) - 1
        for i, node in enumerate(active):
            child = node.children.get(token)
            if child is None:
                if node.count == 1:
                    # A suffix seen once is a leaf, and grows along its own text.
                    node.length += 1
                    node.text, node.start = text, at + 1 - node.length
                else:
                    active[i] = add_leaf(node, text, at)
            elif node.count == child.count + 1:
                # This suffix alone ended here and all others go on to the child: the border moves down by a token.
                if child.length == 1:
                    active[i] = fuse(node, child, text, at)
                else:
                    move_border(node, child, text, at)
            else:
                if child.length > 1:
                    child = split(child, text, at)
                child.text, child.start = text, at
                count_up(child)
                active[i] = child

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out; a node's text is that of its latest visitor, so oldest out first frees all text."""
        text, root = sequence.tokens, self.root
        for start in range(len(text)):
            node, at = root, start
            while at < len(text):
                child = node.children.get(text[at])
                if child is None:
                    break
                if child.count == 1:
                    drop(child)
                    break
                count_down(child)
                at += child.length
                node = child
            child = node.first
            if child is not None and child is node.last and child.count == node.count:
                absorb(node, child)

    def find(self, tokens: list[int]) -> tuple[Node, int] | None:
        """The node in which these tokens end when read from the root, and how far into it; None where unknown."""
        node, offset = self.root, 0
        for token in tokens:
            if offset == node.length:
                child = node.children.get(token)
                if child is None:
                    return None
                node, offset = child, 0
            if node.text[node.start + offset] != token:
                return None
            offset += 1
        return node, offset

    @property
    def num_nodes(self) -> int:
        """Nodes without the root; walks the tree."""
        pending, count = [self.root], -1
        while pending:
            count += 1
            pending.extend(pending.pop().children.values())
        return count


def add_leaf(node: Node, text: list[int], at: int) -> Node:
    """A new child of one token, last in the row."""
    leaf = Node(1, text, at, 1, node)
    if node.last is None:
        node.children, node.first, node.last = {text[at]: leaf}, leaf, leaf
        return leaf
    node.children[text[at]] = leaf
    if node.heads is None:
        node.heads = {node.last.count: node.last}
    node.heads.setdefault(1, leaf)
    leaf.prev, node.last.next, node.last = node.last, leaf, leaf
    return leaf


def fuse(node: Node, child: Node, text: list[int], at: int) -> Node:
    """The only child, one token long, takes over its parent's tokens, count and place."""
    child.count += 1
    child.length = node.length + 1
    child.text, child.start = text, at + 1 - child.length
    take_place(node, child)
    return child


def move_border(node: Node, child: Node, text: list[int], at: int) -> None:
    """The first token of the only child goes to the parent."""
    del node.children[text[at]]
    node.length += 1
    node.text, node.start = text, at + 1 - node.length
    child.start += 1
    child.length -= 1
    node.children[child.text[child.start]] = child


def split(child: Node, text: list[int], at: int) -> Node:
    """Cut the first token of a node off as a node of its own, which takes its place above it."""
    upper = Node(child.count, text, at, 1, None)
    take_place(child, upper)
    child.start += 1
    child.length -= 1
    child.parent, child.prev, child.next = upper, None, None
    upper.children = {child.text[child.start]: child}
    upper.first = upper.last = child
    return upper


def absorb(node: Node, child: Node) -> None:
    """Merge a node into its only child once all suffixes go on to it. The root, of count 0, never is."""
    child.start -= node.length
    child.length += node.length
    take_place(node, child)


def take_place(old: Node, new: Node) -> None:
    """Put `new` where `old` stands among its siblings; both have the same count."""
    parent = old.parent
    assert parent is not None
    new.parent, new.prev, new.next = parent, old.prev, old.next
    parent.children[new.text[new.start]] = new
    if old.prev is None:
        parent.first = new
    else:
        old.prev.next = new
    if old.next is None:
        parent.last = new
    else:
        old.next.prev = new
    if parent.heads is not None and parent.heads[old.count] is old:
        parent.heads[old.count] = new


def count_up(node: Node) -> None:
    """Count one more suffix through a node, and move it up its row."""
    parent, count, before = node.parent, node.count, node.prev
    assert parent is not None
    heads = parent.heads
    if heads is None:
        node.count = count + 1
        return
    if before is None or before.count > count + 1:
        leave_group(node, heads)
        node.count = count + 1
        heads[count + 1] = node
        return
    goal = heads[before.count]
    unlink(node, parent, heads)
    node.count = count + 1
    link_before(node, goal, parent)
    if goal.count == count + 1 or count + 1 not in heads:
        heads[count + 1] = node


def count_down(node: Node) -> None:
    """Count one suffix less through a node, and move it down its row, to the front of its new group."""
    parent, count, after = node.parent, node.count, node.next
    assert parent is not None
    heads = parent.heads
    if heads is None:
        node.count = count - 1
        return
    if after is None or after.count < count:
        leave_group(node, heads)
        node.count = count - 1
    else:
        unlink(node, parent, heads)
        node.count = count - 1
        # Few different counts stand side by side: k of them need k (k + 1) / 2 suffixes.
        lower = max((c for c in heads if c < count), default=None)
        if lower is None:
            link_last(node, parent)
        else:
            link_before(node, heads[lower], parent)
    heads[count - 1] = node


def drop(node: Node) -> None:
    """Remove a node with all that hangs on it."""
    parent = node.parent
    assert parent is not None
    del parent.children[node.text[node.start]]
    if parent.heads is None:
        parent.children, parent.first, parent.last = NO_CHILDREN, None, None
        return
    unlink(node, parent, parent.heads)
    if parent.first is parent.last:
        parent.heads = None


def leave_group(node: Node, heads: dict[int, Node]) -> None:
    """Take a node out of its count's group; the next of the group leads it then, if it led."""
    if heads[node.count] is node:
        after = node.next
        if after is not None and after.count == node.count:
            heads[node.count] = after
        else:
            del heads[node.count]


def unlink(node: Node, parent: Node, heads: dict[int, Node]) -> None:
    """Take a node out of its row and group."""
    leave_group(node, heads)
    if node.prev is None:
        parent.first = node.next
    else:
        node.prev.next = node.next
    if node.next is None:
        parent.last = node.prev
    else:
        node.next.prev = node.prev
    node.prev = node.next = None


def link_before(node: Node, goal: Node, parent: Node) -> None:
    """Put a node into the row before another."""
    node.prev, node.next = goal.prev, goal
    if goal.prev is None:
        parent.first = node
    else:
        goal.prev.next = node
    goal.prev = node


def link_last(node: Node, parent: Node) -> None:
    """Put a node at the end of the row."""
    last = parent.last
    assert last is not None
    node.prev, last.next, parent.last = last, node, node
