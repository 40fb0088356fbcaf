"""Token sequences as a tree of what they share, so that shared tokens are computed once. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Node", "Piece", "build_tree", "packed"]

Tokens = NDArray[np.int32]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Node:
    """A stretch of tokens that all sequences below it share."""

    tokens: Tokens
    start: int
    """The position of its first token in the sequences."""

    children: list[Node] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Sequences that end with this node."""

    weight: int = 0
    """Tokens of this node and all below it."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens of a node that are part of a pass: from its `low`th, at `offset` among the new tokens of the pass."""

    node: Node
    low: int
    high: int
    offset: int
    parent: int
    """The piece it continues, by number; -1 for the past."""


def build_tree(sequences: Sequence[Sequence[int]]) -> Node:
    """The tree of the sequences; its root has no tokens. Equal sequences end in the same node."""
    arrays = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
    keys = [array.astype(">i4").tobytes() for array in arrays]  # big-endian bytes sort as the tokens do
    root = Node(np.empty(0, np.int32), 0)
    path, before = [root], root.tokens
    for index in sorted(range(len(arrays)), key=keys.__getitem__):
        tokens = arrays[index]
        shared = _shared(before, tokens)
        while len(path) > 1 and path[-1].start >= shared:
            path.pop()
        if path[-1].end > shared:
            _split(path[-1], shared)
        if len(tokens) > shared:
            leaf = Node(tokens[shared:], shared)
            path[-1].children.append(leaf)
            path.append(leaf)
        path[-1].ends.append(index)
        before = tokens
    _weigh(root)
    return root


def _shared(one: Tokens, other: Tokens) -> int:
    """How many tokens two sequences have in common at their beginning."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def _split(node: Node, at: int) -> None:
    """Let a node end at a position; what was below goes into a new child."""
    cut = at - node.start
    lower = Node(node.tokens[cut:], at, node.children, node.ends)
    node.tokens, node.children, node.ends = node.tokens[:cut], [lower], []


def _weigh(root: Node) -> None:
    for node in reversed(list(root.walk())):
        node.weight = len(node.tokens) + sum(child.weight for child in node.children)


def packed(items: Sequence[T], sizes: Sequence[int], room: int) -> Iterator[list[T]]:
    """Items in their order, in groups whose sizes add up to no more than the room; one that is larger goes alone.

    >>> list(packed("abcd", [2, 2, 5, 1], 4))
    [['a', 'b'], ['c'], ['d']]
    """
    group: list[T] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if group and used + size > room:
            yield group
            group, used = [], 0
        group.append(item)
        used += size
    if group:
        yield group
