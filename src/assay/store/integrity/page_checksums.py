"""Checksums of all pages of a closed journal, to detect changed bytes.

SQLite detects a broken structure, but not a changed digit. The checksums are in `journal.sums` next to the file. They
are deleted before the journal is written and computed again when it is closed. A file with unchanged size and
modification time is taken as intact without reading it.
"""

from __future__ import annotations

import json
import zlib
from array import array
from contextlib import suppress
from pathlib import Path

__all__ = [
    "delete_page_checksums",
    "find_damaged_pages",
    "page_checksum_path",
    "read_page_size",
    "write_page_checksums",
]

_MIN_PAGE_SIZE = 512


def page_checksum_path(path: Path) -> Path:
    """Return the path of the page checksums of a database."""
    return path.with_suffix(".sums")


def write_page_checksums(path: Path) -> bool:
    """Write the page checksums of a closed database; return False if that is not possible."""
    wal = path.with_name(f"{path.name}-wal")
    try:
        if wal.exists() and wal.stat().st_size:
            delete_page_checksums(path)  # a reader keeps the last pages out of the file
            return False
        before = path.stat()
        page, checksums = _compute_checksums(path)
        if path.stat().st_mtime_ns != before.st_mtime_ns:
            return False
        head = {"page": page, "size": before.st_size, "mtime_ns": before.st_mtime_ns}
        body = json.dumps(head).encode() + b"\n" + checksums.tobytes()
        temporary = page_checksum_path(path).with_suffix(".sums-new")
        temporary.write_bytes(body + zlib.crc32(body).to_bytes(4, "little"))
        temporary.replace(page_checksum_path(path))
    except OSError:  # disk full, or read-only folder
        delete_page_checksums(path)
        return False
    return True


def delete_page_checksums(path: Path) -> None:
    """Delete the page checksums before the database changes."""
    with suppress(OSError):
        page_checksum_path(path).unlink()


def find_damaged_pages(path: Path, *, thorough: bool = False) -> list[int] | None:
    """Return the numbers (from 0) of pages that changed since the file was closed; None if there are no checksums.

    `thorough` reads the file even if its size and modification time are unchanged.
    """
    known = _read_checksums(page_checksum_path(path))
    if known is None:
        return None
    head, expected = known
    try:
        status = path.stat()
        if not thorough and (status.st_size, status.st_mtime_ns) == (head["size"], head["mtime_ns"]):
            return []
        _, found = _compute_checksums(path, head["page"])
    except OSError:
        return list(range(len(expected)))
    pages = max(len(expected), len(found))
    if expected != found and _read_checksums(page_checksum_path(path)) != known:
        return None  # a process started to write the file meanwhile
    return [
        number
        for number in range(pages)
        if number >= len(expected) or number >= len(found) or expected[number] != found[number]
    ]


def _compute_checksums(path: Path, page: int | None = None) -> tuple[int, array[int]]:
    checksums = array("I")
    with path.open("rb") as file:
        if page is None:
            page = _parse_page_size(file.read(100))
            file.seek(0)
        chunk = page * max(1, (1 << 20) // page)
        while data := file.read(chunk):
            view = memoryview(data)
            checksums.extend(zlib.crc32(view[start : start + page]) for start in range(0, len(data), page))
    return page, checksums


def _parse_page_size(header: bytes) -> int:
    """Return the page size from the header of a database."""
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= _MIN_PAGE_SIZE and size & (size - 1) == 0 else 4096


def _read_checksums(path: Path) -> tuple[dict[str, int], array[int]] | None:
    """Return the header and the checksums; None if they are missing or damaged."""
    try:
        data = path.read_bytes()
        body = data[:-4]
        if zlib.crc32(body) != int.from_bytes(data[-4:], "little"):
            return None
        head, _, rest = body.partition(b"\n")
        checksums = array("I")
        checksums.frombytes(rest)
        return json.loads(head), checksums
    except (OSError, ValueError):
        return None


def read_page_size(path: Path) -> int:
    """Return the page size of a database, even if it is damaged."""
    known = _read_checksums(page_checksum_path(path))
    if known is not None:
        return known[0]["page"]
    with path.open("rb") as file:
        return _parse_page_size(file.read(100))
