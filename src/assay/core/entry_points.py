"""Entry points of installed packages, read once.

`importlib.metadata` reads the metadata of every installed package on every call. With a few hundred packages that takes
most of Assay's start-up time, so the result is cached.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

__all__ = ["ImportPathStamp", "find_entry_points", "stamp_import_path"]

ImportPathStamp = tuple[tuple[str, int], ...]
"""The folders of `sys.path` that hold metadata of packages, with their modification times in nanoseconds."""


def find_entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, such as `assay.models`."""
    return _load_entry_points(stamp_import_path()).get(group, ())


def stamp_import_path() -> ImportPathStamp:
    """Return a key that changes when a package is installed or removed, for caches of package metadata.

    It does not change with other files, such as those that a run writes into the working folder.
    """
    stamps = ((folder, _modified_ns(folder)) for folder in sys.path)
    return tuple(stamp for stamp in stamps if _has_metadata(*stamp))


@lru_cache(maxsize=1)
def _load_entry_points(_: ImportPathStamp) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by group."""
    found = entry_points()
    ours = [group for group in found.groups if group.startswith("assay.")]
    return {group: tuple(found.select(group=group)) for group in ours}


@lru_cache(maxsize=256)
def _has_metadata(folder: str, _: int) -> bool:
    """Return whether packages are installed in a folder. An archive can contain some."""
    try:
        return any(name.endswith((".dist-info", ".egg-info", ".egg")) for name in os.listdir(folder or "."))
    except OSError:
        return os.path.isfile(folder)


def _modified_ns(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0
