"""The files of an external agent: a digest that changes if its program changes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from assay.core.fingerprints import digest_json

__all__ = ["digest_files"]


def digest_files(paths: Sequence[str]) -> str:
    """Return a digest of the names and contents of files and folders, without the caches of Python."""
    lines: list[list[str]] = []
    for start in paths:
        lines.append([start, _digest_file(Path(start).resolve())])
        for root, folders, names in os.walk(start):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            found = [Path(root, name) for name in (*folders, *sorted(names))]
            lines += [[str(path), _digest_file(path)] for path in found]
    return digest_json(lines)


def _digest_file(path: Path) -> str:
    """Return the digest of a regular file, the target of a link, or an empty text."""
    try:
        if path.is_symlink():
            return f"-> {path.readlink()}"
        if not path.is_file():
            return ""
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as problem:
        return f"unreadable: {problem.errno}"
