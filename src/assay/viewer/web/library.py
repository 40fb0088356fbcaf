"""Which runs there are, and what they are called in addresses."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assay.core.errors import UnknownName
from assay.store.finding import DEFAULT_FOLDER, find_run, run_folders
from assay.store.index.documents import is_kept
from assay.store.index.keeping import Indexes, IndexState
from assay.store.journal import FILE_NAME
from assay.store.runs import SCORINGS, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Library"]

_FRESH_S = 1.0


class Library:
    """The runs in some folders; looked for anew whenever somebody asks, so that new ones appear."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self._folders: list[Path] = []
        self._runs: list[Path] = []
        for word in words:
            path = Path(word).expanduser()
            if path.is_dir() and not (path / FILE_NAME).is_file():
                self._folders.append(path)
            else:
                self._runs.append(find_run(word))
        self._everything = not words
        self._known: dict[str, Path] = {}
        self._looked = 0.0
        self._lock = threading.Lock()
        self.indexes = Indexes()

    @property
    def places(self) -> list[str]:
        """Where runs are looked for, for people."""
        if self._everything:
            return [f"./{DEFAULT_FOLDER}", "."]
        return [str(path) for path in (*self._folders, *self._runs)]

    def folders(self) -> dict[str, Path]:
        """Key -> folder. The key is the folder's name; where two have the same name, something is added."""
        with self._lock:
            now = time.monotonic()
            if now - self._looked > _FRESH_S:
                self._known = self._look()
                self._looked = now
            return self._known

    def _look(self) -> dict[str, Path]:
        found = list(self._runs)
        if self._everything:
            found += run_folders()
        elif self._folders:
            found += run_folders(self._folders)
        unique = {folder.resolve(): folder for folder in found if (folder / FILE_NAME).is_file()}
        names: dict[str, int] = {}
        for resolved in unique:
            names[resolved.name] = names.get(resolved.name, 0) + 1
        known = {}
        for resolved in unique:
            mark = hashlib.sha256(str(resolved).encode("utf-8", "surrogatepass")).hexdigest()[:6]
            known[resolved.name if names[resolved.name] == 1 else f"{resolved.name}~{mark}"] = resolved
        return known

    def folder(self, key: str) -> Path:
        """The folder of a run, or of a later scoring of it (`key@2`).

        Raises:
            UnknownName: There is none.
        """
        name, _, scoring = key.partition("@")
        known = self.folders()
        folder = known.get(name)
        if folder is not None and scoring:
            inside = folder / SCORINGS / scoring
            folder = inside if scoring.isdecimal() and (inside / FILE_NAME).is_file() else None
        if folder is None:
            raise UnknownName(f"no run is called `{key}`", hint="it may have been removed or renamed")
        return folder

    def key(self, folder: Path) -> str:
        """What a run is called in addresses."""
        resolved = folder.resolve()
        for key, known in self.folders().items():
            if known == resolved:
                return key
        raise UnknownName(f"no run is in `{folder}`")

    @contextmanager
    def run(self, key: str) -> Iterator[Run]:
        """A run, open for reading."""
        run = Run(self.folder(key))
        try:
            yield run
        finally:
            run.close()

    def index(self, key: str, *, wait_s: float = 0.0) -> IndexState:
        """The state of the index of its documents."""
        return self.indexes.look(self.folder(key), wait_s=wait_s)

    def expect(self) -> None:
        """Take up the index of the newest run in the background, if an earlier visit kept one: people look there first."""
        folders = [folder for folder in self.folders().values() if is_kept(folder)]
        if folders:
            self.indexes.look(max(folders, key=_written))

    def close(self) -> None:
        self.indexes.close()


def _written(folder: Path) -> float:
    try:
        return (folder / FILE_NAME).stat().st_mtime
    except OSError:  # it was removed since
        return 0.0
