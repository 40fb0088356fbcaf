"""Paths in a lockfile: relative to its folder, so that the file means the same on another machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["PortablePaths"]

_MARKS = ("./", "../")
"""How paths in a lockfile begin, so that they differ from names."""


class PortablePaths:
    """Converts paths for a lockfile in a folder.

    A path is portable if it is in the folder of the lockfile or in the same git checkout. Others stay out of the file: they
    would name a place of this machine.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        checkouts = (above for above in (self.folder, *self.folder.parents) if (above / ".git").exists())
        self._root = next(checkouts, self.folder)

    def to_portable(self, word: str) -> str | None:
        """Return an existing path relative to the folder of the lockfile; None if it is outside.

        >>> PortablePaths(Path("/")).to_portable("/dev/null")
        './dev/null'
        """
        path = Path(word).expanduser().resolve()
        if not path.is_relative_to(self._root):
            return None
        relative = Path(os.path.relpath(path, self.folder)).as_posix()
        return relative if relative.startswith("../") else f"./{relative}"

    def to_local(self, word: Any) -> Any:
        """Return a value of a lockfile with a portable path as a path from the working directory; others as they are."""
        if not isinstance(word, str) or not (word.startswith(_MARKS) or word in (".", "..")):
            return word
        path = Path(os.path.normpath(self.folder / word))
        here = Path.cwd()
        return str(path.relative_to(here)) if path != here and path.is_relative_to(here) else str(path)

    @staticmethod
    def is_path(word: Any) -> bool:
        """Whether a value of an option names an existing file or folder."""
        if not isinstance(word, str) or not word or "\n" in word:
            return False
        try:
            path = Path(word).expanduser()
            return path.is_absolute() or path.is_dir() or (os.sep in word and path.exists())
        except (OSError, ValueError):  # not a valid file name
            return False
