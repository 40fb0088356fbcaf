"""Pairs of equal documents in two runs, and what differs in their contents and prompts."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.store.documents.score_tables import ScoreColumn, ScoreTable

__all__ = ["Pairing", "pair_documents", "scores_from_column"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The documents that two runs share, as row indexes of both, in the order of the first."""

    first: Rows
    second: Rows
    only_first: int
    only_second: int
    changed: int
    """Documents that were paired by number although their contents differ."""

    prompts_differ: NDArray[np.bool_]
    """Whether the prompts of each pair differ."""


def pair_documents(first: ScoreTable, second: ScoreTable) -> Pairing:
    """Pair documents by contents, or by number if most contents differ or are unknown."""
    known = _has_contents(first) and _has_contents(second)
    if first.documents == second.documents and (not known or first.content_digests == second.content_digests):
        rows = np.arange(len(first.documents), dtype=np.intp)
        return _build_pairing(first, second, rows, rows, 0)
    by_content = _match_contents(first, second) if known else []
    numbers = {document: row for row, document in enumerate(second.documents)}
    by_number = [
        (row, numbers[document]) for row, document in enumerate(first.documents) if document in numbers
    ]
    if len(by_content) < 0.5 * len(by_number):
        left, right = _split_pairs(by_number)
        changed = sum(
            known and first.content_digests[one] != second.content_digests[other] for one, other in by_number
        )
        return _build_pairing(first, second, left, right, changed)
    left, right = _split_pairs(by_content)
    return _build_pairing(first, second, left, right, 0)


def _has_contents(table: ScoreTable) -> bool:
    return not table.content_digests or table.content_digests[0] is not None


def _match_contents(first: ScoreTable, second: ScoreTable) -> list[tuple[int, int]]:
    """Match rows with equal contents; duplicates match by number first, then in order."""
    exact = {
        (content, number): row
        for row, (content, number) in enumerate(zip(second.content_digests, second.documents, strict=True))
    }
    pairs, left, taken = [], [], set()
    for row, (content, number) in enumerate(zip(first.content_digests, first.documents, strict=True)):
        other = exact.get((content, number))
        if other is None:
            left.append(row)
        else:
            pairs.append((row, other))
            taken.add(other)
    if not left:
        return pairs
    waiting: dict[Any, deque[int]] = defaultdict(deque)
    for row, content in enumerate(second.content_digests):
        if row not in taken:
            waiting[content].append(row)
    for row in left:
        if rows := waiting.get(first.content_digests[row]):
            pairs.append((row, rows.popleft()))
    return sorted(pairs)


def _split_pairs(pairs: Sequence[tuple[int, int]]) -> tuple[Rows, Rows]:
    table = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _build_pairing(first: ScoreTable, second: ScoreTable, left: Rows, right: Rows, changed: int) -> Pairing:
    prompts, other = first.prompt_digests, second.prompt_digests
    differ = np.fromiter(
        (prompts[one] != other[two] for one, two in zip(left.tolist(), right.tolist(), strict=True)),
        dtype=bool,
        count=len(left),
    )
    return Pairing(
        first=left,
        second=right,
        only_first=len(first.documents) - len(left),
        only_second=len(second.documents) - len(right),
        changed=changed,
        prompts_differ=differ,
    )


def scores_from_column(column: ScoreColumn) -> Floats | None:
    """Return a column's scores as floats with NaN for missing ones; None if they are not numbers."""
    values = column.values
    kinds = set(map(type, values))
    if kinds <= {float, int, bool}:
        return np.array(values, dtype=np.float64)
    if kinds <= {float, int, bool, type(None)}:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    if kinds <= {dict, type(None)}:
        return _scores_from_mappings(column)
    return None


def _scores_from_mappings(column: ScoreColumn) -> Floats | None:
    """Return the number in each mapping: under the score key, or under the metric's name."""
    for key in (column.score_key, "score", column.metric, "correct", "acc", "accuracy", "exact_match"):
        found = [None if value is None else value.get(key) for value in column.values]
        if any(value is not None for value in found) and all(
            value is None or isinstance(value, (int, float)) for value in found
        ):
            return np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    return None
