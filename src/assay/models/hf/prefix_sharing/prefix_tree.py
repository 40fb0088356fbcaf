"""Token sequences as a tree of shared prefixes. Knows nothing about models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Node", "NodeSlice", "build_tree", "pack"]

Tokens = NDArray[np.int32]
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Node:
    """Consecutive tokens that all sequences below this node share."""

    tokens: Tokens
    start: int
    """The position of its first token in the sequences."""

    children: list[Node] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Sequences that end with this node."""

    weight: int = 0
    """Number of tokens of this node and all nodes below it."""

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    def walk(self) -> Iterator[Node]:
        """Yield this node and all nodes below it, parents first."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(reversed(node.children))


@dataclass(frozen=True, slots=True)
class NodeSlice:
    """Tokens `low` to `high` of a node that are part of a pass, at `offset` among the new tokens of the pass."""

    node: Node
    low: int
    high: int
    offset: int
    parent: int
    """Index of the slice that this one continues; -1 if it continues the past."""


def build_tree(sequences: Sequence[Sequence[int]]) -> Node:
    """Build the prefix tree of some sequences. Its root has no tokens; equal sequences end in the same node."""
    arrays = [np.asarray(sequence, dtype=np.int32) for sequence in sequences]
    keys = [array.astype(">i4").tobytes() for array in arrays]  # big-endian bytes sort as the tokens do
    root = Node(np.empty(0, np.int32), 0)
    path, before = [root], root.tokens
    for index in sorted(range(len(arrays)), key=keys.__getitem__):
        tokens = arrays[index]
        shared = _count_shared_tokens(before, tokens)
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
    _set_weights(root)
    return root


def _count_shared_tokens(one: Tokens, other: Tokens) -> int:
    """Return the length of the common prefix of two sequences."""
    length = min(len(one), len(other))
    differs = one[:length] != other[:length]
    return int(differs.argmax()) if differs.any() else length


def _split(node: Node, position: int) -> None:
    """End a node at a position and move the rest into a new child."""
    cut = position - node.start
    lower = Node(node.tokens[cut:], position, node.children, node.ends)
    node.tokens, node.children, node.ends = node.tokens[:cut], [lower], []


def _set_weights(root: Node) -> None:
    for node in reversed(list(root.walk())):
        node.weight = len(node.tokens) + sum(child.weight for child in node.children)


def pack(items: Sequence[T], sizes: Sequence[int], max_size: int) -> Iterator[list[T]]:
    """Group items in order so that the sizes of a group add up to at most `max_size`. A larger item is a group alone.

    >>> list(pack("abcd", [2, 2, 5, 1], 4))
    [['a', 'b'], ['c'], ['d']]
    """
    group: list[T] = []
    used = 0
    for item, size in zip(items, sizes, strict=True):
        if group and used + size > max_size:
            yield group
            group, used = [], 0
        group.append(item)
        used += size
    if group:
        yield group
