"""Divide a prefix tree into forward passes.

Subtrees that fit are computed in one pass, packed into one row in which a token attends only to its own ancestors. For a
larger tree, the prefix that its branches share is computed first and cached, and every pass below it starts from that
cache. Very short shared prefixes are recomputed in each pass, which costs less.

Planning needs only lengths, no output of the model, so it runs ahead in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.models.hf.prefix_sharing.kv_cache import SequenceCache
from assay.models.hf.prefix_sharing.model_runner import ModelRunner, PreparedPass
from assay.models.hf.prefix_sharing.prefix_tree import Node, NodeSlice, pack

__all__ = ["CachedPrefix", "PassPlan", "PlannedPass", "PositionSelector"]

PositionSelector = Callable[[Node], NDArray[np.int64]]
"""Returns the positions in a node whose logits are needed, counted from its first token."""

_MAX_RECOMPUTED_TOKENS = 24
"""Longest shared prefix that is recomputed rather than computed in a pass of its own."""

_NO_POSITIONS = np.empty(0, np.int64)


@dataclass(slots=True, eq=False)
class CachedPrefix:
    """The KV cache that a pass starts from. Its length is known before it is computed."""

    length: int
    cache: SequenceCache | None = None


@dataclass(frozen=True, slots=True)
class _Subtrees:
    """Nodes to compute after a cached prefix (`past`) and a prefix to recompute with them (`pending`)."""

    nodes: Sequence[Node]
    past: CachedPrefix | None
    pending: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class _SinglePass(_Subtrees):
    """Subtrees to compute in one pass."""


@dataclass(frozen=True, slots=True)
class _SharedPrefix:
    """A chain of nodes to compute and cache, starting at token `done`."""

    chain: tuple[Node, ...]
    past: CachedPrefix | None
    done: int = 0


@dataclass(frozen=True, slots=True)
class PlannedPass:
    """A pass that is ready to compute."""

    prepared: PreparedPass
    past: CachedPrefix | None
    output_prefix: CachedPrefix | None
    """Where to store the KV cache for the passes that start from it; None if there are none."""

    size: int
    """The maximum number of tokens per pass when this pass was planned."""

    annotation: Any
    """The result of the plan's `annotate` function for this pass."""

    plan_state: tuple[list[_Subtrees | _SharedPrefix], int]
    """The state of the plan before this pass, for `rewind_to`."""


class PassPlan:
    """Plans the passes of a tree, one after another."""

    def __init__(
        self,
        tree: Node,
        wanted: PositionSelector,
        runner: ModelRunner,
        *,
        max_logit_rows: int = 1 << 30,
        annotate: Callable[[PreparedPass], Any] = lambda _: None,
    ) -> None:
        """`annotate`: computes further information about a pass in advance."""
        self._wanted = wanted
        self._runner = runner
        self._max_logit_rows = max_logit_rows
        self._annotate = annotate
        self._work: list[_Subtrees | _SharedPrefix] = [_Subtrees(tree.children, None)]
        self._reported: dict[int, None] = {}
        """Nodes whose logits a pass reports, in order. A node that is recomputed is not reported again."""

    def plan_next(self, size: int) -> PlannedPass | None:
        """Plan the next pass, of about `size` tokens. Return None when everything is planned."""
        while self._work:
            before = [*self._work], len(self._reported)
            task = self._work.pop()
            if isinstance(task, _Subtrees) and not (
                isinstance(task, _SinglePass) and _fits_in_pass(task, size)
            ):
                self._work.extend(
                    reversed(_split_subtrees(task, size, self._max_logit_rows, self._select_unreported))
                )
                continue
            if isinstance(task, _SharedPrefix):
                slices = _slice_shared_prefix(task, min(size, self._max_logit_rows))
            else:
                slices = _slice_nodes(task.pending, task.nodes)
            length = task.past.length if task.past else 0
            prepared = self._runner.prepare(
                slices, _find_wanted_positions(slices, self._select_unreported), length
            )
            self._reported |= {id(one.node): None for one in slices if one.high == len(one.node.tokens)}
            leaves = None
            if isinstance(task, _SharedPrefix):
                leaves = CachedPrefix(length + prepared.tokens.shape[1])
                self._work += _list_following_work(task, prepared, leaves)
            return PlannedPass(prepared, task.past, leaves, size, self._annotate(prepared), before)
        return None

    def rewind_to(self, planned: PlannedPass) -> None:
        """Plan this pass and all later ones again, because it was too large."""
        work, reported = planned.plan_state
        self._work = [*work]
        self._reported = dict.fromkeys([*self._reported][:reported])

    def _select_unreported(self, node: Node) -> NDArray[np.int64]:
        return _NO_POSITIONS if id(node) in self._reported else self._wanted(node)


def _fits_in_pass(task: _SinglePass, size: int) -> bool:
    """Return whether a pass still fits: the budget may have shrunk since it was planned."""
    alone = len(task.nodes) == 1 and not task.nodes[0].children
    return alone or sum(node.weight for node in task.nodes) <= _count_free_tokens(task, size)


def _count_free_tokens(task: _Subtrees, size: int) -> int:
    """Return how many new tokens fit besides those that are recomputed, at least half the size of a pass."""
    return max(1, size // 2, size - sum(len(node.tokens) for node in task.pending))


def _split_subtrees(
    task: _Subtrees, size: int, max_logit_rows: int, wanted: PositionSelector
) -> list[_Subtrees | _SharedPrefix]:
    """Group nodes that fit together, in order. Nodes that are too large are divided further."""
    free_tokens = _count_free_tokens(task, size)
    small = [node for node in task.nodes if node.weight <= free_tokens]
    costs = [
        max(node.weight, _count_logit_rows(node, wanted) * free_tokens // max_logit_rows) for node in small
    ]
    parts: list[_Subtrees | _SharedPrefix] = [
        _SinglePass(group, task.past, task.pending) for group in pack(small, costs, free_tokens)
    ]
    for node in task.nodes:
        if node.weight > free_tokens:
            chain = (*task.pending, node)
            short = sum(len(one.tokens) for one in chain) <= min(_MAX_RECOMPUTED_TOKENS, size // 2)
            if short and node.children:
                parts.append(_Subtrees(node.children, task.past, chain))
            else:
                parts.append(_SharedPrefix(chain, task.past))
    return parts


def _count_logit_rows(node: Node, wanted: PositionSelector) -> int:
    return sum(len(wanted(one)) for one in node.walk())


def _slice_nodes(pending: Sequence[Node], nodes: Sequence[Node]) -> list[NodeSlice]:
    """Return slices of whole nodes, each after the slice it continues."""
    slices: list[NodeSlice] = []
    offset = 0

    def add(node: Node, parent: int) -> None:
        nonlocal offset
        slices.append(NodeSlice(node, 0, len(node.tokens), offset, parent))
        offset += len(node.tokens)

    for node in pending:
        add(node, len(slices) - 1)
    top = len(slices) - 1
    waiting = [(node, top) for node in reversed(nodes)]
    while waiting:
        node, parent = waiting.pop()
        add(node, parent)
        waiting.extend((child, len(slices) - 1) for child in reversed(node.children))
    return slices


def _slice_shared_prefix(task: _SharedPrefix, size: int) -> list[NodeSlice]:
    """Return the next tokens of a shared prefix as slices of its nodes."""
    total = sum(len(node.tokens) for node in task.chain)
    end = min(total, task.done + size)
    slices: list[NodeSlice] = []
    start = 0
    for node in task.chain:
        low, high = max(task.done - start, 0), min(end - start, len(node.tokens))
        if low < high:
            slices.append(NodeSlice(node, low, high, start + low - task.done, len(slices) - 1))
        start += len(node.tokens)
    return slices


def _list_following_work(
    task: _SharedPrefix, done: PreparedPass, past: CachedPrefix
) -> list[_Subtrees | _SharedPrefix]:
    """Return the rest of a shared prefix, or the subtrees below it."""
    end = task.done + done.tokens.shape[1]
    if end < sum(len(node.tokens) for node in task.chain):
        return [_SharedPrefix(task.chain, past, end)]
    children = task.chain[-1].children
    return [_Subtrees(children, past)] if children else []


def _find_wanted_positions(slices: Sequence[NodeSlice], wanted: PositionSelector) -> NDArray[np.int64]:
    """Return the positions among the tokens of a pass whose logits are needed."""
    found = []
    for part in slices:
        positions = wanted(part.node)
        inside = positions[(positions >= part.low) & (positions < part.high)]
        found.append(inside - part.low + part.offset)
    return np.concatenate(found).astype(np.int64)
