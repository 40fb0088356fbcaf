"""Entry points of installed packages, read once.

`importlib.metadata` imports a mail parser and reads the metadata of every installed package, which takes most of the time of a
short command. Folders are therefore read here; archives and other import hooks are left to `importlib.metadata`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

__all__ = ["EntryPoint", "ImportPathStamp", "find_entry_points", "stamp_import_path"]

ImportPathStamp = tuple[tuple[str, int], ...]
"""The folders of `sys.path` that hold metadata of packages, with their modification times in nanoseconds."""

_METADATA_FOLDER = re.compile(r"(?P<name>[^-]+)(?:-[^/]*)?\.(?:dist|egg)-info")


class EntryPoint(NamedTuple):
    """An object that an installed package offers under a name."""

    group: str
    name: str
    value: str
    """`package.module:attribute`, or a module."""

    distribution: str
    """The name of the package, as its metadata state it."""

    def load(self) -> Any:
        """Import the object."""
        module, _, attribute = self.value.partition("[")[0].strip().partition(":")
        found: Any = import_module(module.strip())
        for part in filter(None, attribute.strip().split(".")):
            found = getattr(found, part)
        return found


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
def _load_entry_points(stamp: ImportPathStamp) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points by group."""
    folders = [folder or "." for folder, _ in stamp]
    needs_library = not all(map(os.path.isdir, folders)) or _has_other_finders()
    found = _read_with_library() if needs_library else _read_folders(folders)
    groups: dict[str, list[EntryPoint]] = {}
    for point in found:
        groups.setdefault(point.group, []).append(point)
    return {group: tuple(points) for group, points in groups.items()}


def _has_other_finders() -> bool:
    """Return whether packages may be installed in another form than as metadata folders."""
    finders = (finder for finder in sys.meta_path if finder is not PathFinder)
    return any(hasattr(finder, "find_distributions") for finder in finders) or any(
        folder.endswith(".egg") for folder in sys.path
    )


def _read_folders(folders: list[str]) -> Iterator[EntryPoint]:
    """Read the entry points for Assay in the metadata folders. The first of two packages with one name counts."""
    seen: set[str] = set()
    for folder in folders:
        for entry in sorted(os.listdir(folder)):
            match = _METADATA_FOLDER.fullmatch(entry)
            name = re.sub(r"[-_.]+", "-", match["name"]).lower() if match else ""
            if not match or name in seen:
                continue
            seen.add(name)
            path = os.path.join(folder, entry)
            text = _read_text(os.path.join(path, "entry_points.txt"))
            if "assay." in text:
                stated = _read_text(os.path.join(path, "METADATA")) or _read_text(
                    os.path.join(path, "PKG-INFO")
                )
                named = re.search(r"^Name:[ \t]*(\S+)", stated, re.MULTILINE)
                yield from _parse(text, named[1] if named else name)


def _parse(text: str, distribution: str) -> Iterator[EntryPoint]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
        elif group.startswith("assay.") and "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            yield EntryPoint(group, name.strip(), value.strip(), distribution)


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return ""


def _read_with_library() -> Iterator[EntryPoint]:
    from importlib.metadata import entry_points

    found = entry_points()
    for group in found.groups:
        for point in found.select(group=group) if group.startswith("assay.") else ():
            yield EntryPoint(
                group, point.name, point.value, point.dist.name if point.dist is not None else ""
            )


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
