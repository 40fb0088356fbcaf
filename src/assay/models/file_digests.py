"""What files are by content. Weights are large, so a hash is remembered by path, size and time of change."""

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

__all__ = ["file_sha256", "files_sha256", "folder_digest"]

_REMEMBERED_FROM = 1 << 20
"""Bytes from which a hash is worth remembering."""


def folder_digest(folder: Path, patterns: Iterable[str]) -> str:
    """One hash of the files in a folder that match, by name and content; empty when none does."""
    paths = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    if not paths:
        return ""
    hasher = hashlib.sha256()
    for path in paths:
        hasher.update(f"{path.name} {file_sha256(path)}\n".encode())
    return hasher.hexdigest()


def file_sha256(path: Path) -> str:
    """The hash of a file's content, remembered for large files while they do not change."""
    try:
        facts = path.stat()
        if facts.st_size < _REMEMBERED_FROM:
            return hashlib.sha256(path.read_bytes()).hexdigest()
        return _remembered(path, f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns}")
    except OSError as error:
        raise DatasetError(f"a file of the model cannot be read: {error.strerror}", where=str(path)) from None


def _remembered(path: Path, key: str) -> str:
    note = assay_home() / "model-digests" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(note.read_text(encoding="utf-8"))
        if kept["file"] == key:
            return str(kept["sha256"])
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    with suppress(OSError):  # a home that cannot be written costs time, not the run
        note.parent.mkdir(parents=True, exist_ok=True)
        fresh = note.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"file": key, "sha256": digest}), encoding="utf-8")
        fresh.replace(note)
    return digest


@lru_cache(maxsize=16)
def files_sha256(*paths: Path) -> str:
    """One hash of several files: what the weights are."""
    hasher = hashlib.sha256()
    for path in paths:
        try:
            with path.open("rb") as file:
                hasher.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise DatasetError(f"the weights cannot be read: {error.strerror}", where=str(path)) from None
    return hasher.hexdigest()
