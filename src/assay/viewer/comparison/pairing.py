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
    by_number: bool = False
    """Whether contents and prompts are unknown or different, and documents were paired by number."""

    prompts_differ: NDArray[np.bool_]
    """Whether the prompts of each pair differ."""


def pair_documents(first: ScoreTable, second: ScoreTable) -> Pairing:
    """Pair documents by contents; by prompts if a run does not store contents, or if the fields are those of different programs.

    Samples of lmms-eval have neither if their prompts are written differently: only these are paired by number.
    """
    if _has_contents(first) and _has_contents(second):
        pairs = _match_digests(first, second, first.content_digests, second.content_digests)
        has_other_fields = first.fields_of != second.fields_of
        if not pairs and has_other_fields and _has_unique_prompts(first) and _has_unique_prompts(second):
            pairs = _match_digests(first, second, first.prompt_digests, second.prompt_digests)
        return _build_pairing(first, second, pairs)
    pairs = _match_digests(first, second, first.prompt_digests, second.prompt_digests)
    if pairs:
        return _build_pairing(first, second, pairs)
    numbers = {document: row for row, document in enumerate(second.documents)}
    pairs = [(row, numbers[document]) for row, document in enumerate(first.documents) if document in numbers]
    return _build_pairing(first, second, pairs, by_number=True)


def _has_contents(table: ScoreTable) -> bool:
    return not table.content_digests or table.content_digests[0] is not None


def _has_unique_prompts(table: ScoreTable) -> bool:
    """Whether prompts identify documents; prompts about images may all have the same text."""
    return len(set(table.prompt_digests)) == len(table.prompt_digests)


def _match_digests(
    first: ScoreTable, second: ScoreTable, ours: Sequence[Any], theirs: Sequence[Any]
) -> list[tuple[int, int]]:
    """Match rows with equal digests; duplicates match by number first, then in order."""
    if first.documents == second.documents and ours == theirs:
        return [(row, row) for row in range(len(ours))]
    exact = {
        (digest, number): row
        for row, (digest, number) in enumerate(zip(theirs, second.documents, strict=True))
    }
    pairs, left, taken = [], [], set()
    for row, (digest, number) in enumerate(zip(ours, first.documents, strict=True)):
        other = exact.get((digest, number))
        if other is None:
            left.append(row)
        else:
            pairs.append((row, other))
            taken.add(other)
    if not left:
        return pairs
    waiting: dict[Any, deque[int]] = defaultdict(deque)
    for row, digest in enumerate(theirs):
        if row not in taken:
            waiting[digest].append(row)
    for row in left:
        if rows := waiting.get(ours[row]):
            pairs.append((row, rows.popleft()))
    return sorted(pairs)


def _build_pairing(
    first: ScoreTable, second: ScoreTable, pairs: Sequence[tuple[int, int]], *, by_number: bool = False
) -> Pairing:
    table = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    left, right = table[:, 0], table[:, 1]
    prompts, other = first.prompt_digests, second.prompt_digests
    differ = np.fromiter((prompts[one] != other[two] for one, two in pairs), dtype=bool, count=len(pairs))
    return Pairing(
        first=left,
        second=right,
        only_first=len(first.documents) - len(left),
        only_second=len(second.documents) - len(right),
        by_number=by_number,
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
