"""Work once: a tree of sequences is computed so that no token is computed twice.

Subtrees that fit are computed in one pass, packed into one row in which a token sees its own ancestors only. Where a tree
is larger, what its branches share is computed first and kept, every pass below it starts from what is kept, and when the
last one is done it is dropped. Very short shared stretches are computed again with each pass: that costs less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.caches import KeptTokens
from assay.models.hf.memory import Budget, free_memory, is_out_of_memory
from assay.models.hf.prefix_tree import Node, packed
from assay.models.hf.runner import Computed, Piece, Prepared, Runner

__all__ = ["Wanted", "compute_tree"]

Wanted = Callable[[Node], NDArray[np.int64]]
"""The tokens of a node, counted from its first, whose logits are asked for."""

_SHORT = 24
"""Shared tokens that are not worth a pass of their own."""


@dataclass(frozen=True, slots=True)
class _Branches:
    """Nodes to compute below what is kept (`past`) and what is to be computed again with them (`pending`)."""

    nodes: Sequence[Node]
    past: KeptTokens | None
    pending: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class _Pass(_Branches):
    """The same, all at once."""


@dataclass(frozen=True, slots=True)
class _Trunk:
    """A chain of nodes to be computed and kept, from its `done`th token on."""

    chain: tuple[Node, ...]
    past: KeptTokens | None
    done: int = 0


def compute_tree(
    tree: Node, wanted: Wanted, runner: Runner, budget: Budget, *, rows: int = 1 << 30, keep: bool = False
) -> Iterator[Computed]:
    """Every token of a tree, in passes of about `budget` tokens, with no more than `rows` rows of logits where that can be.

    `keep`: hand on keys and values, too, for those who go on from the ends of the sequences.
    """
    told: set[int] = set()
    """Nodes whose logits were handed on: a node that is computed again is not reported again."""

    def fresh(node: Node) -> NDArray[np.int64]:
        return _NOTHING if id(node) in told else wanted(node)

    def prepare(task: _Pass | _Trunk, size: int) -> Prepared:
        pieces = _pieces(task.pending, task.nodes) if isinstance(task, _Pass) else _stretch(task, size)
        return runner.prepare(pieces, _places(pieces, fresh), task.past.length if task.past else 0)

    work: list[_Branches | _Trunk] = [_Branches(tree.children, None)]
    with _Ahead() as ahead:
        while work:
            task = work.pop()
            if isinstance(task, _Branches) and not (isinstance(task, _Pass) and _fits(task, budget)):
                work.extend(reversed(_split(task, budget.size, rows, fresh)))
                continue
            ended: set[int] = set()
            try:
                prepared = ahead.take(task) or prepare(task, min(budget.size, rows))
                ended = {id(one.node) for one in prepared.pieces if one.high == len(one.node.tokens)} - told
                told |= ended
                following = work[-1] if work and isinstance(task, _Pass) else None
                if isinstance(following, _Pass) and _fits(following, budget):
                    ahead.begin(following, partial(prepare, following, budget.size))
                computed = runner.run(prepared, task.past, keep=keep or isinstance(task, _Trunk))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or not budget.halve():
                    raise
                ahead.forget()
                told -= ended
                free_memory(runner.device)
                work.append(task)
                continue
            budget.succeeded()
            if isinstance(task, _Trunk) and (rest := _after(task, prepared, computed.past)) is not None:
                work.append(rest)
            yield computed


class _Ahead:
    """Prepares the next pass in a thread of its own while the model computes this one."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "hf-plan")
        self._begun: tuple[_Pass, Future[Prepared]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def begin(self, task: _Pass, prepare: Callable[[], Prepared]) -> None:
        self._begun = task, self._thread.submit(prepare)

    def take(self, task: _Branches | _Trunk) -> Prepared | None:
        """What was prepared, if it was this."""
        begun, self._begun = self._begun, None
        return begun[1].result() if begun and begun[0] is task else None

    def forget(self) -> None:
        """What was prepared no longer holds."""
        if self._begun:
            self._begun[1].result()
        self._begun = None


_NOTHING = np.empty(0, np.int64)


def _fits(task: _Pass, budget: Budget) -> bool:
    """Whether a pass may be done as it is: what memory allows can have shrunk since it was planned."""
    alone = len(task.nodes) == 1 and not task.nodes[0].children
    return alone or sum(node.weight for node in task.nodes) <= _room(task, budget.size)


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


def _after(task: _Trunk, done: Prepared, past: KeptTokens | None) -> _Branches | _Trunk | None:
    """What is left of a trunk, or what grows on it."""
    end = task.done + done.tokens.shape[1]
    if end < sum(len(node.tokens) for node in task.chain):
        return _Trunk(task.chain, past, end)
    children = task.chain[-1].children
    return _Branches(children, past) if children else None


def _places(pieces: Sequence[Piece], wanted: Wanted) -> NDArray[np.int64]:
    """Where among the tokens of a pass logits are wanted."""
    found = []
    for piece in pieces:
        places = wanted(piece.node)
        inside = places[(places >= piece.low) & (places < piece.high)]
        found.append(inside - piece.low + piece.offset)
    return np.concatenate(found).astype(np.int64)
