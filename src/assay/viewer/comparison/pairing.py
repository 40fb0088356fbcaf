"""Which document of one sheet is which of another, and what was different about them before anybody answered."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.store.sheets import Column, Sheet

__all__ = ["Pairing", "numbers_in", "pair"]

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The documents two sheets share, as rows of both, in the first one's order."""

    first: Rows
    second: Rows
    only_first: int
    only_second: int
    changed: int
    """Documents of the same number whose contents differ, and which were paired all the same."""

    prompts_differ: NDArray[np.bool_]
    """Of each pair, whether the model was asked something else."""


def pair(first: Sheet, second: Sheet) -> Pairing:
    """Pair documents by their contents; by their numbers where most contents have changed, or nobody knows them."""
    known = _known(first) and _known(second)
    if first.documents == second.documents and (not known or first.contents == second.contents):
        rows = np.arange(len(first.documents), dtype=np.intp)
        return _pairing(first, second, rows, rows, 0)
    by_content = _match(first, second) if known else []
    numbers = {document: row for row, document in enumerate(second.documents)}
    by_number = [
        (row, numbers[document]) for row, document in enumerate(first.documents) if document in numbers
    ]
    if len(by_content) < 0.5 * len(by_number):
        left, right = _split(by_number)
        changed = sum(known and first.contents[one] != second.contents[other] for one, other in by_number)
        return _pairing(first, second, left, right, changed)
    left, right = _split(by_content)
    return _pairing(first, second, left, right, 0)


def _known(sheet: Sheet) -> bool:
    return not sheet.contents or sheet.contents[0] is not None


def _match(first: Sheet, second: Sheet) -> list[tuple[int, int]]:
    """Rows of equal contents; where a document occurs several times, those of equal numbers first, then in order."""
    exact = {
        (content, number): row
        for row, (content, number) in enumerate(zip(second.contents, second.documents, strict=True))
    }
    pairs, left, taken = [], [], set()
    for row, (content, number) in enumerate(zip(first.contents, first.documents, strict=True)):
        other = exact.get((content, number))
        if other is None:
            left.append(row)
        else:
            pairs.append((row, other))
            taken.add(other)
    if not left:
        return pairs
    waiting: dict[Any, deque[int]] = defaultdict(deque)
    for row, content in enumerate(second.contents):
        if row not in taken:
            waiting[content].append(row)
    for row in left:
        if rows := waiting.get(first.contents[row]):
            pairs.append((row, rows.popleft()))
    return sorted(pairs)


def _split(pairs: Sequence[tuple[int, int]]) -> tuple[Rows, Rows]:
    table = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _pairing(first: Sheet, second: Sheet, left: Rows, right: Rows, changed: int) -> Pairing:
    asked, other = first.prompts, second.prompts
    differ = np.fromiter(
        (asked[one] != other[two] for one, two in zip(left.tolist(), right.tolist(), strict=True)),
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


def numbers_in(column: Column) -> Floats | None:
    """The scores of a column as numbers, NaN where there is none; None where they are no numbers."""
    values = column.values
    kinds = set(map(type, values))
    if kinds <= {float, int, bool}:
        return np.array(values, dtype=np.float64)
    if kinds <= {float, int, bool, type(None)}:
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    if kinds <= {dict, type(None)}:
        return _of_mappings(column)
    return None


def _of_mappings(column: Column) -> Floats | None:
    """The number each mapping keeps: under its score key, or under the metric's name."""
    for key in (column.score_key, "score", column.metric, "correct", "acc", "accuracy", "exact_match"):
        found = [None if value is None else value.get(key) for value in column.values]
        if any(value is not None for value in found) and all(
            value is None or isinstance(value, (int, float)) for value in found
        ):
            return np.array([np.nan if value is None else value for value in found], dtype=np.float64)
    return None
