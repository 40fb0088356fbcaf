"""The runs that the viewer shows, and their keys in URLs."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from assay.core.errors import UnknownName
from assay.store.documents.run_score_tables import RunScoreTables
from assay.store.index.document_index import DocumentIndex, has_stored_index
from assay.store.index.index_pool import IndexPool, IndexState
from assay.store.journal.journal import JOURNAL_FILE
from assay.store.runs.lookup import DEFAULT_FOLDER, find_run, find_run_folders
from assay.store.runs.run import SCORINGS_FOLDER, Run
from assay.store.runs.watches import Watch, find_watches
from assay.viewer.comparison.sources import open_score_tables

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RunCatalog"]

_REFRESH_INTERVAL_S = 1.0
_Opened = TypeVar("_Opened", Run, RunScoreTables)


class RunCatalog:
    """The runs in some folders; the folders are searched again every second, so that new runs appear."""

    def __init__(self, words: Sequence[str] = (), *, keep_open: bool = False) -> None:
        """`keep_open`: open each run once and keep what was read of it. Changes of a run stay unseen."""
        self._folders: list[Path] = []
        self._runs: list[Path] = []
        for word in words:
            path = Path(word).expanduser()
            if path.is_dir() and not (path / JOURNAL_FILE).is_file():
                self._folders.append(path)
            else:
                self._runs.append(find_run(word))
        self._everything = not words
        self._known: dict[str, Path] = {}
        self._left_out: set[str] = set()
        self._refreshed_at = 0.0
        self._lock = threading.Lock()
        self._keep_open = keep_open
        self._idle: dict[tuple[Callable[[Path], Any], Path], Any] = {}
        self.indexes = IndexPool()

    @property
    def locations(self) -> list[str]:
        """The searched folders and runs, for display."""
        if self._everything:
            return [f"./{DEFAULT_FOLDER}", "."]
        return [str(path) for path in (*self._folders, *self._runs)]

    def folders(self) -> dict[str, Path]:
        """Return key -> folder. The key is the folder's name, with a suffix if two folders have the same name."""
        with self._lock:
            now = time.monotonic()
            if now - self._refreshed_at > _REFRESH_INTERVAL_S:
                self._known = self._find_runs()
                self._refreshed_at = now
            return self._known

    def leave_out(self, keys: Iterable[str]) -> None:
        """Hide runs from now on."""
        with self._lock:
            self._left_out.update(keys)
            self._known = {key: path for key, path in self._known.items() if key not in self._left_out}

    def _find_runs(self) -> dict[str, Path]:
        found = list(self._runs)
        if self._everything:
            found += find_run_folders()
        elif self._folders:
            found += find_run_folders(self._folders)
        unique = {folder.resolve(): folder for folder in found if (folder / JOURNAL_FILE).is_file()}
        names: dict[str, int] = {}
        for resolved in unique:
            names[resolved.name] = names.get(resolved.name, 0) + 1
        known = {}
        for resolved in unique:
            suffix = hashlib.sha256(str(resolved).encode("utf-8", "surrogatepass")).hexdigest()[:6]
            known[resolved.name if names[resolved.name] == 1 else f"{resolved.name}~{suffix}"] = resolved
        return {key: path for key, path in known.items() if key not in self._left_out}

    def folder(self, key: str) -> Path:
        """Return the folder of a run, or of a later scoring of it (`key@2`).

        Raises:
            UnknownName: There is no such run.
        """
        name, _, scoring = key.partition("@")
        known = self.folders()
        folder = known.get(name)
        if folder is not None and scoring:
            inside = folder / SCORINGS_FOLDER / scoring
            folder = inside if scoring.isdecimal() and (inside / JOURNAL_FILE).is_file() else None
        if folder is None:
            raise UnknownName(f"unknown run `{key}`", hint="it may have been removed or renamed")
        return folder

    def watches(self) -> list[Watch]:
        """Return the watches of training runs beside the runs, the newest first."""
        searched = [Path(DEFAULT_FOLDER), Path()] if self._everything else self._folders
        return find_watches(
            dict.fromkeys([*searched, *(folder.parent for folder in self.folders().values())])
        )

    def watch(self, key: str) -> Watch:
        """Return a watch.

        Raises:
            UnknownName: There is no such watch.
        """
        for watch in self.watches():
            if watch.key == key:
                return watch
        raise UnknownName(f"unknown watch `{key}`", hint="it may have been removed or renamed")

    def key(self, folder: Path) -> str:
        """Return the key of a run."""
        resolved = folder.resolve()
        for key, known in self.folders().items():
            if known == resolved:
                return key
        raise UnknownName(f"no run is in `{folder}`")

    @contextmanager
    def run(self, key: str) -> Iterator[Run]:
        """Open a run for reading."""
        with self._borrow(Run, key) as run:
            yield run

    @contextmanager
    def score_tables(self, key: str) -> Iterator[RunScoreTables]:
        """Open the score tables of a run."""
        with self._borrow(open_score_tables, key) as tables:
            yield tables

    @contextmanager
    def _borrow(self, opener: Callable[[Path], _Opened], key: str) -> Iterator[_Opened]:
        """Open a run, or take one that nobody uses now: a connection serves one thread at a time."""
        place = (opener, self.folder(key))
        with self._lock:
            opened = self._idle.pop(place, None)
        if opened is None:
            opened = opener(place[1])
        try:
            yield opened
        except BaseException:
            opened.close()
            raise
        with self._lock:
            is_kept = self._keep_open and place not in self._idle
            if is_kept:
                self._idle[place] = opened
        if not is_kept:
            opened.close()

    def index(self, key: str, *, wait_s: float = 0.0) -> IndexState:
        """Return the state of the run's document index, and start building it if it does not exist."""
        return self.indexes.get_state(self.folder(key), wait_s=wait_s)

    def find_index(self, key: str) -> DocumentIndex | None:
        """Return the index of a run if it exists; unlike `index`, this does not start to build one."""
        folder = self.folder(key)
        if not self.indexes.has_state(folder) and not has_stored_index(folder):
            return None
        return self.indexes.get_state(folder).index

    def preload_newest_index(self) -> None:
        """Load the stored index of the newest run in the background: users usually open it first."""
        folders = [folder for folder in self.folders().values() if has_stored_index(folder)]
        if folders:
            self.indexes.get_state(max(folders, key=_read_modification_time))

    def close(self) -> None:
        self.indexes.close()
        with self._lock:
            while self._idle:
                self._idle.popitem()[1].close()


def _read_modification_time(folder: Path) -> float:
    try:
        return (folder / JOURNAL_FILE).stat().st_mtime
    except OSError:  # the run was removed
        return 0.0
