"""List task files with size and modification time, without reading them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["FileStamp", "list_yaml_files", "read_headline", "stamp_file"]

FileStamp = tuple[str, int, int]
"""A file: path, size, modification time in nanoseconds."""


def stamp_file(path: str) -> FileStamp:
    """Return the stamp of a file; a missing file has the size -1."""
    try:
        status = os.stat(path)
    except OSError:
        return path, -1, -1
    return path, status.st_size, status.st_mtime_ns


def list_yaml_files(root: Path) -> list[FileStamp]:
    """Return (path, size, modification time) of every `*.yaml` file below a folder, sorted by path."""
    found: list[FileStamp] = []
    waiting = [str(root)]
    inside, followed = os.path.realpath(root), set[str]()
    while waiting:
        folder = waiting.pop()
        start = folder if folder.endswith(os.sep) else folder + os.sep
        with _scan_folder(folder) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith(".yaml") and entry.is_file():  # false for a broken link
                    status = entry.stat()
                    found.append((start + name, status.st_size, status.st_mtime_ns))
                elif entry.is_dir():
                    path = start + name
                    if not entry.is_symlink() or _is_unvisited_link(path, inside, followed):
                        waiting.append(path)
    found.sort(key=(lambda row: row[0].replace(os.sep, "/")) if os.sep != "/" else None)
    return found


@contextmanager
def _scan_folder(folder: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Scan a folder, by descriptor if possible, because `stat` is then faster."""
    if os.scandir not in os.supports_fd:
        with os.scandir(folder) as entries:
            yield entries
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _is_unvisited_link(link: str, inside: str, followed: set[str]) -> bool:
    """Return whether a linked folder is outside the scanned tree, does not contain it, and was not visited before."""
    target = os.path.realpath(link)
    nested = os.path.commonpath((target, inside)) in (target, inside)
    if nested or target in followed:
        return False
    followed.add(target)
    return True


def read_headline(path: str) -> str:
    """Return the description of a task file: its first line, if that is a comment."""
    try:
        with open(path, encoding="utf-8") as file:
            first = file.readline()
    except (OSError, UnicodeDecodeError):
        return ""
    return first.lstrip("#").strip() if first.startswith("#") else ""
