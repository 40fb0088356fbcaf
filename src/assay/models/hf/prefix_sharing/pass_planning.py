"""In which passes a tree of sequences is computed, decided before the model has time for them.

Subtrees that fit are computed in one pass, packed into one row in which a token sees its own ancestors only. Where a tree
is larger, what its branches share (a trunk) is computed first and kept, and every pass below it starts from what is kept.
Very short shared stretches are computed again with each pass: that costs less.

A plan needs no numbers of the model, only how long things are; so it can be made ahead, in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.prefix_sharing.kv_cache import KeptTokens
from assay.models.hf.prefix_sharing.model_runner import Prepared, Runner
from assay.models.hf.prefix_sharing.prefix_tree import Node, Piece, packed

__all__ = ["Past", "Plan", "Planned", "Wanted"]

Wanted = Callable[[Node], NDArray[np.int64]]
"""The tokens of a node, counted from its first, whose logits are asked for."""

_SHORT = 24
"""Shared tokens that are not worth a pass of their own."""

_NOTHING = np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class Past:
    """What passes start from: its length is known before it is computed."""

    length: int
    kept: KeptTokens | None = None


@dataclass(frozen=True, slots=True)
class _Branches:
    """Nodes to compute below what is kept (`past`) and what is to be computed again with them (`pending`)."""

    nodes: Sequence[Node]
    past: Past | None
    pending: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pass(_Branches):
    """The same, all at once."""


@dataclass(frozen=True, slots=True)
class _Trunk:
    """A chain of nodes to be computed and kept, from its `done`th token on."""

    chain: tuple[Node, ...]
    past: Past | None
    done: int = 0


@dataclass(frozen=True, slots=True)
class Planned:
    """A pass that is ready to be computed."""

    prepared: Prepared
    past: Past | None
    leaves: Past | None
    """Where what it computes is kept for the passes that start from it; None: nobody does."""

    size: int
    """How many tokens a pass might have when this one was planned."""

    note: Any
    """What `Plan`'s `note` said of it."""

    before: tuple[list[_Branches | _Trunk], int]
    """Where the plan stood before it."""


class Plan:
    """The passes of a tree, one after the other."""

    def __init__(
        self,
        tree: Node,
        wanted: Wanted,
        runner: Runner,
        *,
        rows: int = 1 << 30,
        note: Callable[[Prepared], Any] = lambda _: None,
    ) -> None:
        """`note`: what else is to be known of a pass before it is computed."""
        self._wanted = wanted
        self._runner = runner
        self._rows = rows
        self._note = note
        self._work: list[_Branches | _Trunk] = [_Branches(tree.children, None)]
        self._told: dict[int, None] = {}
        """Nodes whose logits are handed on by a pass, in order: a node that is computed again is not reported again."""

    def next(self, size: int) -> Planned | None:
        """The next pass, of about `size` tokens; None when everything is planned."""
        while self._work:
            before = [*self._work], len(self._told)
            task = self._work.pop()
            if isinstance(task, _Branches) and not (isinstance(task, _Pass) and _fits(task, size)):
                self._work.extend(reversed(_split(task, size, self._rows, self._fresh)))
                continue
            if isinstance(task, _Trunk):
                pieces = _stretch(task, min(size, self._rows))
            else:
                pieces = _pieces(task.pending, task.nodes)
            length = task.past.length if task.past else 0
            prepared = self._runner.prepare(pieces, _places(pieces, self._fresh), length)
            self._told |= {id(one.node): None for one in pieces if one.high == len(one.node.tokens)}
            leaves = None
            if isinstance(task, _Trunk):
                leaves = Past(length + prepared.tokens.shape[1])
                self._work += _after(task, prepared, leaves)
            return Planned(prepared, task.past, leaves, size, self._note(prepared), before)
        return None

    def return_to(self, planned: Planned) -> None:
        """Plan this pass and all after it again: it turned out to be too large."""
        work, told = planned.before
        self._work = [*work]
        self._told = dict.fromkeys([*self._told][:told])

    def _fresh(self, node: Node) -> NDArray[np.int64]:
        return _NOTHING if id(node) in self._told else self._wanted(node)


def _fits(task: _Pass, size: int) -> bool:
    """Whether a pass may be done as it is: what memory allows can have shrunk since it was planned."""
    alone = len(task.nodes) == 1 and not task.nodes[0].children
    return alone or sum(node.weight for node in task.nodes) <= _room(task, size)


def _room(task: _Branches, size: int) -> int:
    """What a pass has left beside the tokens that are computed again; at least half of it is for new ones."""
    return max(1, size // 2, size - sum(len(node.tokens) for node in task.pending))


def _split(task: _Branches, size: int, rows: int, wanted: Wanted) -> list[_Branches | _Trunk]:
    """Nodes that fit go together, in their order; those that are too large go on their own."""
    room = _room(task, size)
    small = [node for node in task.nodes if node.weight <= room]
    costs = [max(node.weight, _rows(node, wanted) * room // rows) for node in small]
    parts: list[_Branches | _Trunk] = [
        _Pass(group, task.past, task.pending) for group in packed(small, costs, room)
    ]
    for node in task.nodes:
        if node.weight > room:
            chain = (*task.pending, node)
            short = sum(len(one.tokens) for one in chain) <= min(_SHORT, size // 2)
            if short and node.children:
                parts.append(_Branches(node.children, task.past, chain))
            else:
                parts.append(_Trunk(chain, task.past))
    return parts


def _rows(node: Node, wanted: Wanted) -> int:
    return sum(len(wanted(one)) for one in node.walk())


def _pieces(pending: Sequence[Node], nodes: Sequence[Node]) -> list[Piece]:
    """Whole nodes, each after the one it continues."""
    pieces: list[Piece] = []
    offset = 0

    def add(node: Node, parent: int) -> None:
        nonlocal offset
        pieces.append(Piece(node, 0, len(node.tokens), offset, parent))
        offset += len(node.tokens)

    for node in pending:
        add(node, len(pieces) - 1)
    top = len(pieces) - 1
    waiting = [(node, top) for node in reversed(nodes)]
    while waiting:
        node, parent = waiting.pop()
        add(node, parent)
        waiting.extend((child, len(pieces) - 1) for child in reversed(node.children))
    return pieces


def _stretch(task: _Trunk, size: int) -> list[Piece]:
    """The next tokens of a trunk, as pieces of its nodes."""
    total = sum(len(node.tokens) for node in task.chain)
    end = min(total, task.done + size)
    pieces: list[Piece] = []
    start = 0
    for node in task.chain:
        low, high = max(task.done - start, 0), min(end - start, len(node.tokens))
        if low < high:
            pieces.append(Piece(node, low, high, start + low - task.done, len(pieces) - 1))
        start += len(node.tokens)
    return pieces


def _after(task: _Trunk, done: Prepared, past: Past) -> list[_Branches | _Trunk]:
    """What is left of a trunk, or what grows on it."""
    end = task.done + done.tokens.shape[1]
    if end < sum(len(node.tokens) for node in task.chain):
        return [_Trunk(task.chain, past, end)]
    children = task.chain[-1].children
    return [_Branches(children, past)] if children else []


def _places(pieces: Sequence[Piece], wanted: Wanted) -> NDArray[np.int64]:
    """Where among the tokens of a pass logits are wanted."""
    found = []
    for piece in pieces:
        places = wanted(piece.node)
        inside = places[(places >= piece.low) & (places < piece.high)]
        found.append(inside - piece.low + piece.offset)
    return np.concatenate(found).astype(np.int64)
