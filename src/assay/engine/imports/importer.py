"""Import results of other programs as runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from assay.core.errors import DatasetError, UnknownName
from assay.core.fingerprints import digest_json
from assay.engine.imports.estimates import complete_estimates
from assay.engine.imports.formats import RESULT_FORMATS, ResultFormat, detect_format, get_format
from assay.engine.imports.input_files import expect_format
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.imported_runs import ImportedRun, write_imported_run
from assay.store.runs.lookup import DEFAULT_FOLDER

__all__ = ["StoredImport", "build_unknown_format_error", "import_each", "import_results"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImport:
    """A run that was imported."""

    folder: Path
    new: bool
    """False if the same files had been imported before."""

    program: str


def import_results(
    path: str | Path, output_path: str | Path | None = None, format_name: str = ""
) -> list[StoredImport]:
    """Import result files as runs.

    Args:
        path: A file or folder that another program wrote.
        output_path: The folder for the runs; by default `./assay-runs`.
        format_name: The format; detected if empty.

    Returns:
        The runs, usually one. The same files are imported once.

    Raises:
        UnknownName: The path does not exist, or its format is unknown.
        DatasetError: A file is not what it should be. The other runs have been imported.
    """
    found = list(import_each(path, output_path, format_name))
    for one in found:
        if isinstance(one, DatasetError):
            raise one
    return [one for one in found if isinstance(one, StoredImport)]


def import_each(
    path: str | Path, output_path: str | Path | None = None, format_name: str = ""
) -> Iterator[StoredImport | DatasetError]:
    """Import result files as `import_results` does, and yield each run, or the error of files that are not what they should be.

    Raises:
        UnknownName: The path does not exist, or its format is unknown.
    """
    place = Path(path).expanduser()
    if not place.exists():
        raise UnknownName(f"`{path}` does not exist", hint="pass a file or folder with results")
    known = get_format(format_name) if format_name else detect_format(place)
    if known is None:
        raise build_unknown_format_error(path)
    yield from _import_format(place, Path(output_path or DEFAULT_FOLDER), known)


def _import_format(place: Path, output: Path, known: ResultFormat) -> Iterator[StoredImport | DatasetError]:
    is_empty = True
    for run in _read_runs(place, known):
        is_empty = False
        try:
            yield run if isinstance(run, DatasetError) else _store(run, place, output, known)
        except DatasetError as error:
            yield error
    if is_empty:
        yield DatasetError(f"no results in the format {known.name}", where=str(place))


def _store(run: ImportedRun, place: Path, output: Path, known: ResultFormat) -> StoredImport:
    folder = output / _build_name(run)
    new = not (folder / JOURNAL_FILE).is_file()
    if new:
        if not run.tasks:
            raise DatasetError(f"the files of {run.program} contain no task", where=str(place))
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _name_place(place, known):
            write_imported_run(folder, run, complete_estimates)
    return StoredImport(folder=folder, new=new, program=run.program)


def _read_runs(place: Path, known: ResultFormat) -> Iterator[ImportedRun | DatasetError]:
    try:
        with _name_place(place, known):
            runs = iter(known.load_reader().read(place))
        while True:
            with _name_place(place, known):
                run = next(runs, None)
            if run is None:
                return
            yield run
    except DatasetError as error:
        yield error


def _name_place(place: Path, known: ResultFormat) -> AbstractContextManager[None]:
    hint = f"they were read as {known.name}; --format sets another format"
    return expect_format("the files have", place, hint)


def build_unknown_format_error(path: str | Path) -> UnknownName:
    """Build the error for a path that no reader understands, with all formats as a hint."""
    known = "".join(f"\n  {one.name}: {one.description}" for one in RESULT_FORMATS.values())
    return UnknownName(
        f"`{path}` contains no results that Assay can read",
        hint=f"`assay import --format NAME` says why it is not in a format; these are understood:{known}",
    )


def _build_name(run: ImportedRun) -> str:
    tasks = list(run.tasks)
    words = [run.model, *tasks[:1], *([str(len(tasks) - 1)] if len(tasks) > 1 else [])]
    slug = "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", word.rpartition("/")[2]).strip("-") for word in words)
    return f"{slug.lstrip('.-')[:60] or 'run'}-{digest_json(dict(run.identity))[:8]}"
