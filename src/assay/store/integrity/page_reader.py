"""Reads records from the pages of a damaged SQLite file without SQLite.

Each page is decoded on its own, so a damaged page loses only its own records. The module knows the file format
(https://sqlite.org/fileformat2.html) but not the tables: callers must recognise their records.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["scan_records"]

Value = str | bytes | int | float | None
_INDEX_LEAF, _TABLE_LEAF, _INDEX_INTERIOR = 0x0A, 0x0D, 0x02
_SERIAL_TYPE_SIZES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_WAL_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAX_OVERFLOW_PAGES = 1 << 18
"""A longer chain of overflow pages is a cycle."""


class _InvalidRecord(Exception):
    """A record cannot be decoded."""


def scan_records(path: Path, page_size: int) -> Iterator[tuple[Value, ...]]:
    """Yield all records that can be decoded, unordered and possibly repeated, including those in the `-wal` file."""
    with path.open("rb") as opened:
        if not os.fstat(opened.fileno()).st_size:
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _scan_file(path, _PageFile(data, page_size))


def _scan_file(path: Path, file: _PageFile) -> Iterator[tuple[Value, ...]]:
    for number in range(1, file.pages + 1):
        yield from _scan_page(file, file.page(number), number)
    for page in _iterate_wal_pages(path.with_name(f"{path.name}-wal"), file.size):
        yield from _scan_page(file, page, 0)


class _PageFile:
    """Reads pages by number, from 1."""

    def __init__(self, data: mmap.mmap, page_size: int) -> None:
        self._data = data
        self.size = page_size
        self.usable = page_size  # the files of Assay reserve no bytes offset the end of a page
        self.pages = len(data) // page_size

    def page(self, number: int) -> bytes:
        if not 1 <= number <= self.pages:
            raise _InvalidRecord
        return self._data[(number - 1) * self.size : number * self.size]


def _iterate_wal_pages(path: Path, page_size: int) -> Iterator[bytes]:
    try:
        data = path.read_bytes()
    except OSError:
        return
    step = _FRAME_HEADER_BYTES + page_size
    for start in range(_WAL_HEADER_BYTES + _FRAME_HEADER_BYTES, len(data) - page_size + 1, step):
        yield data[start : start + page_size]


def _scan_page(file: _PageFile, page: bytes, number: int) -> Iterator[tuple[Value, ...]]:
    start = 100 if number == 1 else 0
    kind = page[start]
    if kind not in (_INDEX_LEAF, _TABLE_LEAF, _INDEX_INTERIOR):
        return
    head = start + (12 if kind == _INDEX_INTERIOR else 8)
    for index in range(int.from_bytes(page[start + 3 : start + 5], "big")):
        pointer = page[head + 2 * index : head + 2 * index + 2]
        if len(pointer) < 2:
            return
        with suppress(_InvalidRecord, IndexError, struct.error, UnicodeDecodeError):
            yield _decode_record(_read_payload(file, page, kind, int.from_bytes(pointer, "big")))


def _read_payload(file: _PageFile, page: bytes, kind: int, offset: int) -> bytes:
    """Return the bytes of a cell, including its overflow pages."""
    if kind == _INDEX_INTERIOR:
        offset += 4  # the left child page
    length, offset = _decode_varint(page, offset)
    if kind == _TABLE_LEAF:
        _, offset = _decode_varint(page, offset)  # the row id
    max_local = file.usable - 35 if kind == _TABLE_LEAF else (file.usable - 12) * 64 // 255 - 23
    if length <= max_local:
        return _read_exactly(page, offset, length)
    min_local = (file.usable - 12) * 32 // 255 - 23
    local = min_local + (length - min_local) % (file.usable - 4)
    local = local if local <= max_local else min_local
    pieces = [_read_exactly(page, offset, local)]
    following = int.from_bytes(_read_exactly(page, offset + local, 4), "big")
    rest = length - local
    for _ in range(_MAX_OVERFLOW_PAGES):
        if rest <= 0:
            return b"".join(pieces)
        overflow = file.page(following)
        pieces.append(overflow[4 : 4 + min(rest, file.usable - 4)])
        rest -= file.usable - 4
        following = int.from_bytes(overflow[:4], "big")
    raise _InvalidRecord


def _read_exactly(page: bytes, offset: int, length: int) -> bytes:
    piece = page[offset : offset + length]
    if len(piece) != length:
        raise _InvalidRecord
    return piece


def _decode_record(payload: bytes) -> tuple[Value, ...]:
    length, offset = _decode_varint(payload, 0)
    if length > len(payload):
        raise _InvalidRecord
    kinds = []
    while offset < length:
        kind, offset = _decode_varint(payload, offset)
        kinds.append(kind)
    values: list[Value] = []
    offset = length
    for kind in kinds:
        size = _SERIAL_TYPE_SIZES.get(kind, (kind - 12) // 2 if kind >= 12 else -1)
        if size < 0:
            raise _InvalidRecord
        values.append(_decode_value(kind, _read_exactly(payload, offset, size)))
        offset += size
    return tuple(values)


def _decode_value(kind: int, data: bytes) -> Any:
    match kind:
        case 0:
            return None
        case 7:
            return struct.unpack(">d", data)[0]
        case 8 | 9:
            return kind - 8
        case _ if kind < 7:
            return int.from_bytes(data, "big", signed=True)
        case _ if kind % 2:
            return data.decode("utf-8")
        case _:
            return data


def _decode_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return (number, end offset): seven bits per byte, eight in the ninth byte."""
    number = 0
    for count in range(9):
        byte = data[offset + count]
        if count == 8:
            return (number << 8) | byte, offset + 9
        number = (number << 7) | (byte & 0x7F)
        if byte < 0x80:
            return number, offset + count + 1
    raise _InvalidRecord
