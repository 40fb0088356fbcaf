"""Rows in memory or in a file, with the few methods task helpers use of the `datasets` library's class."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import accumulate, chain, islice
from typing import Any, Protocol

__all__ = ["ConcatenatedRows", "Rows", "Split", "iterate_rows"]


class Split(Protocol):
    """What Assay needs of a split: the `datasets` library's class has it, and so has `Rows`."""

    @property
    def features(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class Rows(Sequence[dict[str, Any]]):
    """Every row has every column; what a file left out is None.

    >>> rows = Rows([{"a": 1}, {"b": 2}])
    >>> rows[1]
    {'a': None, 'b': 2}
    >>> list(rows.filter(lambda row: row["a"]))
    [{'a': 1, 'b': None}]
    """

    def __init__(
        self,
        rows: Iterable[Mapping[str, Any]],
        *,
        columns: Iterable[str] = (),
        fingerprint: str | None = None,
    ) -> None:
        kept = [dict(row) for row in rows]
        self.features: dict[str, Any] = dict.fromkeys((*columns, *(key for row in kept for key in row)))
        self._rows: Sequence[Mapping[str, Any]] = kept
        self._names = tuple(self.features)
        self._fingerprint = fingerprint
        """Hash of the files the rows were read from, while they are as they were read."""

    @classmethod
    def wrap(
        cls, rows: Sequence[Mapping[str, Any]], *, columns: Iterable[str], fingerprint: str | None = None
    ) -> Rows:
        """Rows that stay where they are, a file for instance, and are read when they are wanted."""
        made = cls((), columns=columns, fingerprint=fingerprint)
        made._rows = rows
        return made

    def _whole(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """A row with every column, in order; the row itself where it has them."""
        return row if tuple(row) == self._names else {**self.features, **row}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self._rows[index], columns=self.features)
        return dict(self._whole(self._rows[index]))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(row) for row in self.iterate_shared())

    def deep_copy(self) -> Rows:
        """Rows that code of a task may change at will: the ones read from a file are shared between runs."""
        return Rows(deepcopy(list(self._rows)), columns=self.features)

    def iterate_shared(self) -> Iterator[Mapping[str, Any]]:
        """The rows themselves, not copies: for readers that do not write."""
        return map(self._whole, self._rows)

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def map(self, function: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Rows:
        """Every row updated with what the function returns, as `datasets` does it."""
        return Rows(({**row, **function(row)} for row in self), columns=self.features)

    def filter(self, function: Callable[[dict[str, Any]], Any]) -> Rows:
        """The rows the function keeps."""
        return Rows((row for row in self if function(row)), columns=self.features)

    def select(self, indices: Iterable[int]) -> Rows:
        """The rows at these positions, in this order."""
        return Rows((self._rows[index] for index in indices), columns=self.features)


class ConcatenatedRows(Sequence[Mapping[str, Any]]):
    """Sequences of rows one after the other.

    >>> list(Joined([[{"a": 1}], [{"a": 2}]]))
    [{'a': 1}, {'a': 2}]
    """

    def __init__(self, parts: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        self._parts = parts
        self._ends = list(accumulate(len(part) for part in parts))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = range(len(self))[index]
        part = bisect_right(self._ends, at)
        return self._parts[part][at - (self._ends[part - 1] if part else 0)]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return chain.from_iterable(self._parts)


_MAX_BATCH_ROWS = 256
_MAX_BATCH_BYTES = 4_000_000
"""Of one batch: rows may be long."""


def iterate_rows(rows: Any, start: int = 0, stop: int | None = None) -> Iterator[Mapping[str, Any]]:
    """The rows from one position to another, as looking at each would give them; for readers that do not write."""
    if isinstance(rows, Rows):
        return islice(rows.iterate_shared(), start, stop)
    if _is_plain_table(rows):
        return _iterate_batches(rows, start, len(rows) if stop is None else min(stop, len(rows)))
    return islice(iter(rows), start, stop)


def _is_plain_table(rows: Any) -> bool:
    """Whether a row is nothing but the values of the table: no format was set, and no column is decoded."""
    is_table = type(rows).__name__ == "Dataset" and type(rows).__module__.startswith("datasets.")
    if not is_table or rows.format["type"] is not None:
        return False
    decoded = getattr(rows.features, "_column_requires_decoding", None)
    if not isinstance(decoded, Mapping) or any(decoded.values()):
        return False
    names = rows.data.column_names
    return list(rows.features) == names and sorted(rows.format["columns"]) == sorted(names)


def _iterate_batches(rows: Any, start: int, stop: int) -> Iterator[Mapping[str, Any]]:
    table = rows.with_format("arrow")
    max_size = max(1, min(_MAX_BATCH_ROWS, _MAX_BATCH_BYTES * len(rows) // max(1, rows.data.nbytes)))
    size = min(16, max_size)  # often only the first few are wanted
    while start < stop:
        end = min(stop, start + size)
        yield from table[start:end].to_pylist()
        start, size = end, min(max_size, 2 * size)
