"""Caches of the task index, in `ASSAY_HOME`.

`NamingCache` holds the naming keys of each file by size and modification time, so that unchanged files are not read.
`RootSnapshot` holds the entries of a whole task root as long as no file in it changes. With both, listing thirteen
thousand tasks takes a quarter of a second. A process also keeps the last snapshots in memory.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any

from assay.core.fingerprints import digest_text
from assay.core.home import assay_home
from assay.tasks.files.file_stamps import FileStamp

__all__ = ["NamingCache", "RootSnapshot", "cache_path", "write_cache"]

_FORMAT = 3
_NAMING_FORMAT = 3
_MAX_ROOTS_IN_MEMORY = 4

_Templates = list[list[Any]]
"""Included templates: path, size, modification time."""

_in_memory: dict[tuple[str, str], tuple[_Templates, list[list[Any]]]] = {}
"""Templates and rows of the last roots that this process read, by root and digest of their files."""

_memory_lock = Lock()


def cache_path(root: Path, suffix: str) -> Path:
    """Return the path of a cache file of a task root."""
    return assay_home() / "index" / f"{digest_text(str(root.resolve()))}.{suffix}"


def write_cache(path: Path, content: Mapping[str, Any]) -> None:
    """Write a cache file. A write error is ignored."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(content), encoding="utf-8")
        fresh.replace(path)
    except (OSError, TypeError, ValueError):
        return


class RootSnapshot:
    """The index entries of one task root, valid for one set of file stamps."""

    def __init__(self, root: Path, files: Sequence[FileStamp]) -> None:
        self._path = cache_path(root, "snapshot.json")
        self._root = str(root)
        self._digest = _digest(files)

    def load(self) -> list[list[Any]] | None:
        """Return the saved rows, or None if any file or included template changed."""
        known = _in_memory.get((self._root, self._digest))
        try:
            templates, rows = known or self._read()
            for path, *stamp in templates:
                status = os.stat(path)
                if [status.st_size, status.st_mtime_ns] != stamp:
                    return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        self._remember(templates, rows)
        return rows

    def _read(self) -> tuple[_Templates, list[list[Any]]]:
        """Read the file. Raises an error if it is missing, damaged, or belongs to other task files."""
        content = json.loads(self._path.read_bytes())
        known = (content["format"], content["root"], content["files"])
        rows: list[list[Any]] = content["rows"]
        if known != (_FORMAT, self._root, self._digest) or any(len(row) != 5 for row in rows):
            raise ValueError("not the snapshot of these files")
        return content["templates"], rows

    def _remember(self, templates: _Templates, rows: list[list[Any]]) -> None:
        with _memory_lock:
            _in_memory.pop((self._root, self._digest), None)
            _in_memory[self._root, self._digest] = (templates, rows)
            if len(_in_memory) > _MAX_ROOTS_IN_MEMORY:
                del _in_memory[next(iter(_in_memory))]

    def save(self, rows: list[list[Any]], templates: Mapping[str, tuple[int, int]]) -> None:
        """Write the snapshot."""
        stamped: _Templates = [[path, *stamp] for path, stamp in templates.items()]
        self._remember(stamped, rows)
        content = {
            "format": _FORMAT,
            "root": self._root,
            "files": self._digest,
            "templates": stamped,
            "rows": rows,
        }
        write_cache(self._path, content)


def _digest(files: Sequence[FileStamp]) -> str:
    text = "\n".join([f"{path}\0{size}\0{changed_ns}" for path, size, changed_ns in files])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class NamingCache:
    """The naming keys of the files of one task root, by path, size and modification time."""

    def __init__(self, root: Path) -> None:
        self._path = cache_path(root, "json")
        self._stored: dict[str, list[Any]] = self._read()
        self._current: dict[str, list[Any]] = {}

    def get(self, path: str, size: int, changed_ns: int) -> dict[str, Any] | None:
        """Return the naming keys of a file, or None if it changed."""
        row = self._stored.get(path)
        if row is None or row[0] != size or row[1] != changed_ns:
            return None
        self._current[path] = row
        config: dict[str, Any] = row[2]
        return config

    def put(self, path: str, size: int, changed_ns: int, config: Mapping[str, Any]) -> None:
        """Store the naming keys of a file."""
        self._current[path] = [size, changed_ns, dict(config)]

    def save(self) -> None:
        """Write the cache if it changed."""
        if self._current == self._stored:
            return
        write_cache(self._path, {"format": _NAMING_FORMAT, "files": self._current})

    def _read(self) -> dict[str, list[Any]]:
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
            rows = content["files"] if content["format"] == _NAMING_FORMAT else {}
            return {path: row for path, row in rows.items() if len(row) == 3 and isinstance(row[2], dict)}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
