"""Rows in memory or in a file, with the methods of `datasets.Dataset` that task helpers use.

`iterate_rows` reads rows of a `datasets` table in batches. The library builds rows one by one, at fifty microseconds
each. If no column needs decoding, Arrow builds a few hundred rows at once in a tenth of that time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any, Protocol, cast, runtime_checkable

from assay.core.errors import MissingPackage

__all__ = ["Rows", "Split", "iterate_rows", "read_rows", "share_names"]

_MAX_BATCH_ROWS = 256
_MAX_BATCH_BYTES = 4_000_000
"""Limit of one batch, because rows may be long."""


_TABLE_METHODS = frozenset(
    "add_column add_item class_encode_column flatten remove_columns rename_column rename_columns repeat select_columns shard skip"
    " sort take to_dict to_list to_pandas train_test_split unique".split()
)
"""What task helpers may call of `datasets.Dataset` that `Rows` does not have itself."""


class Split(Protocol):
    """A split of a dataset: `Rows`, or `datasets.Dataset`."""

    @property
    def features(self) -> Any: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


@runtime_checkable
class SupportsReading(Protocol):
    """Rows that are faster to read together."""

    @property
    def mean_row_bytes(self) -> float: ...
    def __len__(self) -> int: ...
    def read_rows(self, positions: Sequence[int]) -> list[Mapping[str, Any]]: ...


class Rows(Sequence[dict[str, Any]]):
    """A sequence of rows with the same columns. A missing value is None.

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
        fingerprint: str | Callable[[], str] | None = None,
    ) -> None:
        known: dict[tuple[str, ...], tuple[str, ...]] = {}
        kept = [share_names(dict(row), known) for row in rows]
        self.features: dict[str, Any] = dict.fromkeys((*columns, *(key for row in kept for key in row)))
        self._rows: Sequence[Mapping[str, Any]] = kept
        self._names = tuple(self.features)
        self._given_fingerprint = fingerprint

    @property
    def _fingerprint(self) -> str | None:
        """Hash of the source files. None if task code may have changed the rows."""
        given = self._given_fingerprint
        return given() if callable(given) else given

    @classmethod
    def wrap(
        cls,
        rows: Sequence[Mapping[str, Any]],
        *,
        columns: Iterable[str],
        fingerprint: str | Callable[[], str] | None = None,
    ) -> Rows:
        """Wrap rows without copying them, for example rows that are read from a file on demand."""
        wrapped = cls((), columns=columns, fingerprint=fingerprint)
        wrapped._rows = rows
        return wrapped

    def _fill_columns(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the row with every column, in order."""
        return row if tuple(row) == self._names else {**self.features, **row}

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Rows(self._rows[index], columns=self.features)
        return dict(self._fill_columns(self._rows[index]))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(row) for row in self.iterate_shared())

    def deep_copy(self) -> Rows:
        """Copy the rows, so that task code may change them. Rows in memory are shared between runs; rows that are read
        from a file on demand are new objects every time."""
        if isinstance(self._rows, SupportsReading):
            return Rows.wrap(self._rows, columns=self.features)
        return Rows(deepcopy(list(self._rows)), columns=self.features)

    def iterate_shared(self) -> Iterator[Mapping[str, Any]]:
        """Iterate over the rows without copying them. The caller must not change them."""
        return map(self._fill_columns, self._rows)

    def read_shared(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Return the rows at the first of some ascending positions, without copying them. The caller must not change them.

        Rows of a file are read together; rows in memory need not be.
        """
        if not isinstance(self._rows, SupportsReading):
            return []
        count = int(_MAX_BATCH_BYTES / max(1.0, self._rows.mean_row_bytes))
        return [self._fill_columns(row) for row in self._rows.read_rows(positions[:count])]

    @property
    def column_names(self) -> list[str]:
        return list(self.features)

    def map(self, function: Callable[[dict[str, Any]], Mapping[str, Any]], **options: Any) -> Any:
        """Update every row with the mapping that the function returns, as `datasets` does."""
        if options:
            return self._call_table("map", function, **options)
        return Rows(({**row, **function(row)} for row in self), columns=self.features)

    def filter(self, function: Callable[[dict[str, Any]], Any], **options: Any) -> Any:
        """Keep the rows for which the function returns a true value."""
        if options:
            return self._call_table("filter", function, **options)
        if isinstance(self._rows, SupportsReading):
            return self.select(index for index, row in enumerate(self) if function(row))
        return Rows((row for row in self if function(row)), columns=self.features)

    def select(self, indices: Iterable[int]) -> Rows:
        """Return the rows at these positions, in this order."""
        if isinstance(self._rows, SupportsReading):
            return Rows.wrap(SelectedRows(self._rows, indices), columns=self.features)
        return Rows((self._rows[index] for index in indices), columns=self.features)

    def shuffle(self, seed: int | None = None, generator: Any = None, **options: Any) -> Rows:
        """Return the rows in random order, the same one as `datasets` for a seed. Other options concern its cache."""
        if generator is None:
            import numpy

            if seed is None:  # as `datasets` does
                _, numbers, position, *_ = cast("tuple[Any, ...]", numpy.random.get_state())
                seed = int(numbers[position] if position < len(numbers) else numbers[0])
                numpy.random.random()
            generator = numpy.random.default_rng(seed)
        return self.select(generator.permutation(len(self)).tolist())

    def __getattr__(self, name: str) -> Any:
        """Return a function that calls another method of `datasets.Dataset`, on a table with these rows."""
        if name not in _TABLE_METHODS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(self._call_table, name)

    def _call_table(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            from datasets import Dataset
        except ImportError:
            why = f"the method `{method}` of a local data file"
            raise MissingPackage.of("datasets", why, extra="datasets") from None
        return getattr(Dataset.from_list(list(self)), method)(*arguments, **options)


def share_names(row: dict[str, Any], known: dict[tuple[str, ...], tuple[str, ...]]) -> dict[str, Any]:
    """Return the row with the same name objects as other rows: those of a parser take a quarter of the memory of short rows.

    >>> share_names({"a": 1}, {("a",): ("a",)})
    {'a': 1}
    """
    names = tuple(row)
    return dict(zip(known.setdefault(names, names), row.values(), strict=True))


class SelectedRows(Sequence[Mapping[str, Any]]):
    """Some rows of a file, which are read on demand."""

    def __init__(self, rows: SupportsReading, positions: Iterable[int]) -> None:
        everything = range(len(rows))
        self._rows = rows
        self._positions = array("Q", (everything[position] for position in positions))

    @property
    def mean_row_bytes(self) -> float:
        """The mean length of a row in the file."""
        return self._rows.mean_row_bytes

    def read_rows(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Read rows together."""
        return self._rows.read_rows([self._positions[position] for position in positions])

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read_rows(range(*index.indices(len(self))))
        return self.read_rows([range(len(self))[index]])[0]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        size = max(1, min(_MAX_BATCH_ROWS, int(_MAX_BATCH_BYTES / max(1.0, self.mean_row_bytes))))
        for start in range(0, len(self), size):
            yield from self.read_rows(range(start, min(start + size, len(self))))


def iterate_rows(rows: Any, start: int = 0, stop: int | None = None) -> Iterator[Mapping[str, Any]]:
    """Iterate over a range of rows without copying them. The caller must not change them."""
    if isinstance(rows, Rows):
        return islice(rows.iterate_shared(), start, stop)
    if _is_plain_table(rows):
        return _iterate_batches(rows, start, len(rows) if stop is None else min(stop, len(rows)))
    return islice(iter(rows), start, stop)


def read_rows(rows: Any, positions: Iterable[int]) -> dict[int, Mapping[str, Any]]:
    """Return rows at some of these positions: those that are faster to read together, within a limit of memory.

    The caller must not change them.
    """
    wanted = sorted(set(positions))
    found: Sequence[Mapping[str, Any]] = ()
    if isinstance(rows, Rows):
        found = rows.read_shared(wanted)
    elif wanted and _is_plain_table(rows):
        count = max(1, _MAX_BATCH_BYTES * len(rows) // max(1, rows.data.nbytes))
        found = rows.with_format("arrow")[wanted[:count]].to_pylist()
    return dict(zip(wanted, found, strict=False))


def _is_plain_table(rows: Any) -> bool:
    """Return whether rows are plain table values: no format is set and no column needs decoding."""
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
    size = min(16, max_size)  # often only the first few rows are used
    while start < stop:
        end = min(stop, start + size)
        yield from table[start:end].to_pylist()
        start, size = end, min(max_size, 2 * size)
