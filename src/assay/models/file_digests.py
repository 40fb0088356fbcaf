"""Hash model files by content. Hashes of large files are cached by path, size and modification time."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from assay.core.errors import DatasetError
from assay.core.home import assay_home

__all__ = ["hash_file", "hash_files", "hash_folder"]

_MIN_CACHED_BYTES = 1 << 20
"""Size from which the hash of a file is cached."""


def hash_folder(folder: Path, patterns: Iterable[str]) -> str:
    """Return one hash of the names and contents of all matching files in a folder; empty if no file matches."""
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    if not paths:
        return ""
    hasher = hashlib.sha256()
    for path in paths:
        hasher.update(f"{path.name} {hash_file(path)}\n".encode())
    return hasher.hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content. The hash of a large file is cached until the file changes."""
    try:
        facts = path.stat()
        if facts.st_size < _MIN_CACHED_BYTES:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        return _hash_with_cache(path, f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}")
    except OSError as error:
        raise DatasetError(f"cannot read model file: {error.strerror}", where=str(path)) from None


def _hash_with_cache(path: Path, key: str) -> str:
    cache_file = assay_home() / "model-digests" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        cached = json.loads(cache_file.read_text(encoding="utf-8"))
        if cached["file"] == key:
            return str(cached["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # without a writable home directory, the file is hashed again next time
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        partial = cache_file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps({"file": key, "sha256": digest}), encoding="utf-8")
        partial.replace(cache_file)
    return digest


@lru_cache(maxsize=16)
def hash_files(*paths: Path) -> str:
    """Return one SHA-256 over the contents of several files."""
    hasher = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                hasher.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DatasetError(f"cannot read weights: {error.strerror}", where=str(path)) from None
    return hasher.hexdigest()
