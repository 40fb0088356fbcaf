"""A sealed journal: a sum for every page, written when the file is closed, so that a changed byte is noticed.

SQLite notices a broken structure, not a changed digit. The seal stands in `journal.sums` beside the file; whoever
writes the journal breaks it first and makes a new one at the end. A file that nobody touched since (same size, same
time) is taken as sound without reading it.
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
    """Where the sums of a database are kept."""
    return path.with_suffix(".sums")


def write_page_checksums(path: Path) -> bool:
    """Write the sums of a closed database. False where that cannot be done: it is then simply not sealed."""
    wal = path.with_name(f"{path.name}-wal")
    try:
        if wal.exists() and wal.stat().st_size:
            delete_page_checksums(path)  # somebody reads it: the last pages are not in the file yet
            return False
        before = path.stat()
        page, sums = _compute_checksums(path)
        if path.stat().st_mtime_ns != before.st_mtime_ns:
            return False
        head = {"page": page, "size": before.st_size, "mtime_ns": before.st_mtime_ns}
        body = json.dumps(head).encode() + b"\n" + sums.tobytes()
        waiting = page_checksum_path(path).with_suffix(".sums-new")
        waiting.write_bytes(body + zlib.crc32(body).to_bytes(4, "little"))
        waiting.replace(page_checksum_path(path))
    except OSError:  # a full disk, a folder that cannot be written any more
        delete_page_checksums(path)
        return False
    return True


def delete_page_checksums(path: Path) -> None:
    """From now on the file may change."""
    with suppress(OSError):
        page_checksum_path(path).unlink()


def find_damaged_pages(path: Path, *, thorough: bool = False) -> list[int] | None:
    """Numbers of the pages (from 0) that are not as they were when the file was sealed; None: it is not sealed.

    `thorough` reads the file even where its size and time say that nobody touched it.
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
        return None  # somebody began to write it while we looked
    return [
        number
        for number in range(pages)
        if number >= len(expected) or number >= len(found) or expected[number] != found[number]
    ]


def _compute_checksums(path: Path, page: int | None = None) -> tuple[int, array[int]]:
    sums = array("I")
    with path.open("rb") as file:
        if page is None:
            page = _parse_page_size(file.read(100))
            file.seek(0)
        chunk = page * max(1, (1 << 20) // page)
        while data := file.read(chunk):
            view = memoryview(data)
            sums.extend(zlib.crc32(view[start : start + page]) for start in range(0, len(data), page))
    return page, sums


def _parse_page_size(header: bytes) -> int:
    """Bytes of a page, as the head of a database says."""
    size = int.from_bytes(header[16:18], "big")
    size = 65536 if size == 1 else size
    return size if size >= _MIN_PAGE_SIZE and size & (size - 1) == 0 else 4096


def _read_checksums(path: Path) -> tuple[dict[str, int], array[int]] | None:
    """What a seal says; None where there is none, or it is damaged itself."""
    try:
        data = path.read_bytes()
        body = data[:-4]
        if zlib.crc32(body) != int.from_bytes(data[-4:], "little"):
            return None
        head, _, rest = body.partition(b"\n")
        sums = array("I")
        sums.frombytes(rest)
        return json.loads(head), sums
    except (OSError, ValueError):
        return None


def read_page_size(path: Path) -> int:
    """Bytes of a page of a database, damaged or not."""
    known = _read_checksums(page_checksum_path(path))
    if known is not None:
        return known[0]["page"]
    with path.open("rb") as file:
        return _parse_page_size(file.read(100))
