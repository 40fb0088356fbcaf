"""Read Parquet files with pyarrow alone, where the rows are the same as those of the `datasets` library.

The import of the library takes longer than the rest of the start of a run. It also writes a copy of the data on first use.
It reads what this module does not: pictures and sounds, types that it converts, files with different columns, and large files.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

from assay.core.errors import DatasetError
from assay.core.fingerprints import digest_text
from assay.tasks.data.dataset_cards import ParquetConfig
from assay.tasks.data.rows import Rows

__all__ = ["ParquetRows", "TableCache", "read_parquet_files", "read_parquet_splits"]

_MAX_SPLIT_BYTES = 128 * 2**20
"""Larger splits are read by the `datasets` library, which maps them into memory. It is the size before compression."""

_MAX_TABLE_BYTES = 256 * 2**20
"""Limit of the tables in memory, of all tasks together."""

_MAX_BATCH_ROWS = 1024
_MAX_BATCH_BYTES = 4_000_000
_MAX_LIST_ROWS = 256

_PLAIN_FEATURES = frozenset(
    "Value ClassLabel List LargeList Sequence Translation TranslationVariableLanguages".split()
)
"""Features of the `datasets` library that leave values as they are stored."""

_VALUE_TYPES = {"halffloat": "float16", "float": "float32", "double": "float64", "date32[day]": "date32"}
_VALUE_TYPES |= {"date64[ms]": "date64"}
_VALUE_TYPES |= {
    name: name
    for name in "null bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 string large_string binary large_binary".split()
}
"""Types of Arrow, and their names in dataset cards. Values with a unit or a precision have the same name in both."""

_PARAMETRIC_TYPES = ("time32[", "time64[", "timestamp[", "duration[", "decimal128(", "decimal256(")


class TableCache:
    """The tables that were used last, up to a limit of memory."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tables: OrderedDict[Any, Any] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._tables)

    def __contains__(self, key: Any) -> bool:
        return key in self._tables

    def _count_bytes(self) -> int:
        return sum([table.nbytes for table in tuple(self._tables.values())])  # a collection may drop tables

    def drop(self, key: Any) -> None:
        """Forget a table that is no longer used."""
        self._tables.pop(key, None)

    def get(self, key: Any, read: Callable[[], Any]) -> Any:
        """Return the table of this key. Read it unless it is in the cache."""
        with self._lock:
            table = self._tables.pop(key, None)
            if table is None:
                table = read()
            self._tables[key] = table
            while len(self._tables) > 1 and self._count_bytes() > self._max_bytes:
                self._tables.popitem(last=False)
            return table


_TABLES = TableCache(_MAX_TABLE_BYTES)

Stamp = tuple[str, int, int]
"""Path, size and time of change of a file."""


def _drop_table(stamps: tuple[Stamp, ...]) -> None:
    _TABLES.drop(stamps)


class ParquetRows(Sequence[Mapping[str, Any]]):
    """The rows of Parquet files with the same columns.

    An iteration reads a batch at a time. Random access reads the files into a table, which stays in a cache.
    """

    def __init__(self, stamps: Sequence[Stamp], rows: int, size_bytes: int) -> None:
        self._stamps = tuple(stamps)
        finalize(self, _drop_table, self._stamps).atexit = False
        self._count = rows
        self.mean_row_bytes = size_bytes / max(1, rows)
        """The mean size of a row before compression."""

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.read_rows(range(*index.indices(len(self))))
        position = range(len(self))[index]
        if position < _MAX_LIST_ROWS and self._stamps not in _TABLES:  # often only a row at the start is read
            return next(islice(self, position, None))
        return self._to_rows(self._load_table().slice(position, 1))[0]

    def read_rows(self, positions: Sequence[int]) -> list[Mapping[str, Any]]:
        """Read rows together."""
        if not positions:
            return []
        import pyarrow

        # `pyarrow.array` of a list imports pandas
        buffer = pyarrow.py_buffer(array("q", positions))
        chosen = pyarrow.Array.from_buffers(pyarrow.int64(), len(positions), [None, buffer])
        return self._to_rows(self._load_table().take(chosen))

    def _to_rows(self, table: Any) -> list[Mapping[str, Any]]:
        try:
            rows: list[Mapping[str, Any]] = table.to_pylist()
        except ValueError as error:  # text that is not UTF-8
            raise _build_read_error(", ".join(path for path, _, _ in self._stamps), error) from None
        return rows

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        size = max(1, min(_MAX_BATCH_ROWS, int(_MAX_BATCH_BYTES / max(1.0, self.mean_row_bytes))))
        for stamp in self._stamps:
            with _open_parquet(stamp) as file:
                for batch in file.iter_batches(batch_size=size, use_threads=False):
                    _check_unchanged(stamp)
                    for start in range(0, batch.num_rows, _MAX_LIST_ROWS):
                        yield from batch.slice(start, _MAX_LIST_ROWS).to_pylist()

    def compute_digest(self) -> str:
        """Return the hash of the files."""
        return digest_text(*map(_digest_file, self._stamps))

    def _load_table(self) -> Any:
        return _TABLES.get(self._stamps, self._read_table)

    def _read_table(self) -> Any:
        import pyarrow

        # repeated texts stay references to a dictionary, as in the file
        texts = sorted({name for stamp in self._stamps for name in _read_footer(stamp).dictionary_columns})
        tables = []
        for stamp in self._stamps:
            with _open_parquet(stamp, read_dictionary=texts) as file:
                tables.append(file.read())
                _check_unchanged(stamp)
        return pyarrow.concat_tables(tables, promote_options="default")


def read_parquet_files(files: Mapping[str, Sequence[str]]) -> dict[str, Rows] | None:
    """Return the rows of local files by split, or None if their rows may differ from those of the `datasets` library."""
    return read_parquet_splits(
        ParquetConfig(
            files={split: [Path(path) for path in paths] for split, paths in files.items()},
            features=None,
            counts=None,
        )
    )


def read_parquet_splits(config: ParquetConfig) -> dict[str, Rows] | None:
    """Return the rows of a dataset by split, or None if they may differ from those of the `datasets` library."""
    try:
        import pyarrow.parquet
    except ImportError:
        return None
    splits, types = {}, None
    for split, paths in config.files.items():
        try:
            footers = [_read_footer(_find_stamp(path)) for path in paths]
        except (OSError, ValueError, pyarrow.ArrowException):  # the library reports unreadable files
            return None
        rows, size = sum(footer.rows for footer in footers), sum(footer.size_bytes for footer in footers)
        if not rows or size > _MAX_SPLIT_BYTES:
            return None
        for footer in footers:
            types = footer.types if types is None else types
            if types is None or footer.types != types or list(footer.types) != list(types):
                return None
        splits[split] = ParquetRows([footer.stamp for footer in footers], rows, size)
    if types is None or not _is_described(config, types, splits):
        return None
    return {
        split: Rows.wrap(rows, columns=types, fingerprint=rows.compute_digest)
        for split, rows in splits.items()
    }


def _is_described(config: ParquetConfig, types: Mapping[str, Any], splits: Mapping[str, ParquetRows]) -> bool:
    """Return whether the card, as far as it describes the columns and the number of rows, agrees with the files."""
    if config.counts is not None and config.counts != {split: len(rows) for split, rows in splits.items()}:
        return False
    if config.features is None:
        return True
    described = _describe_struct(config.features)
    return described == types and list(described) == list(types)


class _Footer:
    """What the end of a Parquet file tells."""

    __slots__ = ("dictionary_columns", "rows", "size_bytes", "stamp", "types")

    def __init__(self, stamp: Stamp) -> None:
        import pyarrow.parquet

        file = pyarrow.parquet.ParquetFile(stamp[0])
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        self.stamp = stamp
        self.rows = int(file.metadata.num_rows)
        self.size_bytes = sum(group.total_byte_size for group in groups)
        self.types = _describe_schema(file.schema_arrow)
        """The types of the columns by name; None if the library reads other values than those in the file."""

        self.dictionary_columns = _find_dictionary_columns(file)
        """The columns of texts that the file stores as references to a dictionary, at least at its start."""

        file.close()


def _find_dictionary_columns(file: Any) -> list[str]:
    if not file.metadata.num_row_groups:
        return []
    group, names = file.metadata.row_group(0), set(file.schema_arrow.names)
    found = []
    for number in range(file.metadata.num_columns):
        column, described = group.column(number), file.metadata.schema.column(number)
        is_text = described.physical_type == "BYTE_ARRAY" and described.logical_type.type in (
            "STRING",
            "NONE",
        )
        if is_text and column.has_dictionary_page and described.path in names:
            found.append(described.path)
    return found


@lru_cache(maxsize=1024)
def _read_footer(stamp: Stamp) -> _Footer:
    return _Footer(stamp)


def _find_stamp(path: Path) -> Stamp:
    status = path.stat()
    return str(path), status.st_size, status.st_mtime_ns


@contextmanager
def _open_parquet(stamp: Stamp, read_dictionary: Sequence[str] = ()) -> Iterator[Any]:
    import pyarrow.parquet

    _check_unchanged(stamp)
    try:
        with pyarrow.parquet.ParquetFile(stamp[0], read_dictionary=list(read_dictionary)) as file:
            yield file
    except (OSError, ValueError, pyarrow.ArrowException) as error:  # damaged pages, or text that is not UTF-8
        raise _build_read_error(stamp[0], error) from None


def _build_read_error(where: str, error: Exception) -> DatasetError:
    first_line = str(error).partition("\n")[0]
    return DatasetError(f"cannot read the data file: {first_line}", where=where)


def _check_unchanged(stamp: Stamp) -> None:
    try:
        found = _find_stamp(Path(stamp[0]))
    except OSError as error:
        raise DatasetError(f"cannot read the data file: {error.strerror}", where=stamp[0]) from None
    if found != stamp:
        raise DatasetError("the data file changed during the run", where=stamp[0], hint="start the run again")


@lru_cache(maxsize=1024)
def _digest_file(stamp: Stamp) -> str:
    _check_unchanged(stamp)
    with Path(stamp[0]).open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


# --- types -----------------------------------------------------------------------------------------


def _describe_schema(schema: Any) -> dict[str, Any] | None:
    """Return the types of the columns by name; None if the `datasets` library converts or decodes any of them."""
    metadata = schema.metadata or {}
    if b"huggingface" in metadata and not _has_plain_features(metadata[b"huggingface"]):
        return None
    return _describe_fields(schema)


def _has_plain_features(metadata: bytes) -> bool:
    """Return whether the features in the metadata of a file leave values as they are stored."""
    try:
        values = [json.loads(metadata)["info"]["features"]]
    except (ValueError, LookupError, TypeError):
        return False
    while values:
        value = values.pop()
        if isinstance(value, list):
            values += value
        elif isinstance(value, Mapping):
            kind = value.get("_type")
            if isinstance(kind, str) and kind not in _PLAIN_FEATURES:
                return False
            values += value.values()
    return True


def _describe_fields(fields: Any) -> dict[str, Any] | None:
    described: dict[str, Any] = {}
    for field in fields:
        kind = _describe_type(field.type)
        if kind is None or field.name in described or b"ARROW:extension:name" in (field.metadata or {}):
            return None
        described[field.name] = kind
    return described


def _describe_type(kind: Any) -> Any:
    """Describe a type: a name, `("list", inner)`, or a mapping of fields. None: not surely read as it is stored."""
    import pyarrow

    if isinstance(kind, pyarrow.StructType):
        return _describe_fields(kind)
    if isinstance(kind, (pyarrow.ListType, pyarrow.LargeListType)):
        inner = _describe_type(kind.value_type)
        shape = "list" if isinstance(kind, pyarrow.ListType) else "large_list"
        return None if inner is None else (shape, inner)
    name = str(kind)
    if isinstance(kind, pyarrow.BaseExtensionType):
        return None
    return name if name.startswith(_PARAMETRIC_TYPES) else _VALUE_TYPES.get(name)


def _describe_struct(features: Any) -> dict[str, Any]:
    """Describe columns of a dataset card as `_describe_type` does; unknown features as None."""
    if not isinstance(features, Sequence) or isinstance(features, str):
        return {}
    return {
        str(one.get("name")): _describe_feature({key: one[key] for key in one if key != "name"})
        for one in features
        if isinstance(one, Mapping)
    }


def _describe_feature(feature: Any) -> Any:
    """Describe a feature of a dataset card."""
    if isinstance(feature, str):
        return feature
    if not isinstance(feature, Mapping) or len(feature) != 1:
        return None
    [(key, value)] = feature.items()
    match key:
        case "dtype":
            is_class = isinstance(value, Mapping) and value.keys() == {"class_label"}
            return "int64" if is_class else _describe_feature(value)
        case "struct":
            return _describe_struct(value)
        case "list" | "sequence" | "large_list" if not (key == "sequence" and isinstance(value, list)):
            inner = _describe_struct(value) if isinstance(value, list) else _describe_feature(value)
            return ("large_list" if key == "large_list" else "list", inner)
        case _:
            return None
