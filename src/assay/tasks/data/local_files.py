"""Read local json, jsonl, csv and tsv files without further packages. Errors name the line.

The rows are not held in memory: they stay in the file (`IndexedFile`) and are read on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from assay.core.errors import DatasetError
from assay.core.fingerprints import digest_text
from assay.tasks.data.csv_files import CsvTable
from assay.tasks.data.indexed_files import ConcatenatedFiles, IndexedFile
from assay.tasks.data.json_files import JsonArray, JsonLines, starts_with_array
from assay.tasks.data.rows import Rows

__all__ = ["SUFFIXES", "read_files"]

SUFFIXES = (".json", ".jsonl", ".csv", ".tsv")


def read_files(paths: Sequence[str]) -> Rows:
    """Read the rows of several files as one split. Unchanged files are read once per process.

    Raises:
        DatasetError: A file cannot be read or does not have the format of its suffix.
    """
    try:
        stamps = tuple(
            (path, status.st_size, status.st_mtime_ns) for path in paths for status in [Path(path).stat()]
        )
    except OSError as error:
        raise DatasetError(
            f"cannot read the data file: {error.strerror}", where=str(error.filename)
        ) from None
    return _read_stamped_files(stamps)


@lru_cache(maxsize=64)
def _read_stamped_files(stamps: tuple[tuple[str, int, int], ...]) -> Rows:
    files = [_index_file(Path(name)) for name, _, _ in stamps]
    columns = dict.fromkeys(name for file in files for name in file.columns)
    fingerprint = digest_text(*(file.digest for file in files))
    return Rows.wrap(
        files[0] if len(files) == 1 else ConcatenatedFiles(files), columns=columns, fingerprint=fingerprint
    )


def _index_file(path: Path) -> IndexedFile:
    if path.suffix in (".csv", ".tsv"):
        return CsvTable(path)
    return JsonArray(path) if starts_with_array(path) else JsonLines(path)
