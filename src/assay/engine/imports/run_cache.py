"""Result files of other programs in place of a run: commands that read runs import them once into a cache.

The cache is `imports/v<version>` in the data folder of Assay. The same files are not read again until their size or time changes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from assay.core.entry_points import find_entry_points
from assay.core.errors import UnknownName
from assay.core.fingerprints import digest_json
from assay.core.home import assay_home
from assay.engine.imports.formats import ResultFormat, detect_format
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.lookup import find_run, find_run_folders

__all__ = [
    "READER_VERSION",
    "find_imported_runs",
    "find_run_or_results",
    "replace_results_by_run",
    "replace_results_by_runs",
]

READER_VERSION = 3
"""Increased when readers change what they store. Each version has its own folder, so that old imports are not used."""

_MAX_LISTED = 4


def find_run_or_results(word: str | Path, folders: Sequence[str | Path] = ()) -> Path:
    """Return the folder of a run (see `find_run`), or of the run imported from result files at a path.

    Raises:
        UnknownName: There is neither, or the files contain several runs.
        DatasetError: A file is damaged.
    """
    try:
        return find_run(word, folders)
    except UnknownName:
        found = find_imported_runs(word)
        if not found:
            raise
        return _choose_only(word, found)


def replace_results_by_run(word: str | Path) -> str | Path:
    """Return the run imported from result files at a path; other words, and samples of lm-eval, stay as they are.

    Samples of lm-eval and lmms-eval can be compared without an import.
    """
    path = Path(word).expanduser()
    if not _can_be_results(word):
        return word
    known = detect_format(path)
    if known is None or (known.name == "lm-eval" and _has_samples(path)):
        return word
    return _choose_only(word, _import_once(path, known))


def replace_results_by_runs(words: Sequence[str]) -> list[str]:
    """Replace each path of result files by the runs imported from it."""
    found: list[str] = []
    for word in words:
        imported = find_imported_runs(word)
        found += map(str, imported) if imported else [word]
    return found


def find_imported_runs(word: str | Path) -> list[Path]:
    """Import the result files at a path, unless that has been done, and return the runs; empty if there are none."""
    path = Path(word).expanduser()
    known = detect_format(path) if _can_be_results(word) else None
    return [] if known is None else _import_once(path, known)


def _can_be_results(word: str | Path) -> bool:
    path = Path(word).expanduser()
    return (
        bool(str(word).strip())
        and path.exists()
        and path.name != JOURNAL_FILE
        and not find_run_folders([path])
    )


def _has_samples(path: Path) -> bool:
    return any(plugin.load().open_results(path) is not None for plugin in find_entry_points("assay.compat"))


def _choose_only(word: str | Path, found: Sequence[Path]) -> Path:
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"`{folder}`" for folder in found[:_MAX_LISTED])
    more = f" and {len(found) - _MAX_LISTED} more" if len(found) > _MAX_LISTED else ""
    raise UnknownName(
        f"`{word}` contains the results of {len(found)} runs",
        hint=f"pass the path of one of them, or one of the imported runs: {names}{more}",
    )


def _import_once(path: Path, known: ResultFormat) -> list[Path]:
    cache = assay_home() / "imports" / f"v{READER_VERSION}"
    note = cache / f"{_digest_state(path, known)}.json"
    try:
        names = json.loads(note.read_text("utf-8"))
        folders = [cache / str(name) for name in names]
        if folders and all((folder / JOURNAL_FILE).is_file() for folder in folders):
            return folders
    except (OSError, ValueError, TypeError):
        pass  # not imported yet
    from assay.engine.imports.importer import import_results  # loads NumPy; most words are runs

    stored = import_results(path, cache, known.name)
    folders = [one.folder for one in stored]
    note.write_text(json.dumps([folder.name for folder in folders]), "utf-8")
    return folders


def _digest_state(path: Path, known: ResultFormat) -> str:
    """Return a digest of the names, sizes and times of the files."""
    place = path.absolute()
    states = [[str(file), stat.st_size, stat.st_mtime_ns] for file, stat in _list_states(place)]
    return digest_json([known.name, str(place), states])


def _list_states(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for file in [path] if path.is_file() else sorted(path.rglob("*")):
        if file.is_file():
            yield file, file.stat()
