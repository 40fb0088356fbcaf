"""Finds committed frames of a write-ahead log that SQLite does not read because an earlier byte changed.

SQLite reads a log up to the first frame with a wrong checksum and ignores the rest, without an error. After a kill the rest
contains no commit; committed frames there show that the log is damaged. Format: https://sqlite.org/walformat.html
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["count_unreadable_frames"]

_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_MAGIC = {0x377F0682: "<u4", 0x377F0683: ">u4"}
"""The first word of a log -> byte order of the words in its checksums."""

_FRAMES_PER_BLOCK = 512


def count_unreadable_frames(path: Path) -> int:
    """Return how many frames of the log of a database SQLite ignores although they were committed."""
    wal = path.with_name(f"{path.name}-wal")
    try:
        data = np.fromfile(wal, dtype=np.uint8)
    except OSError:
        return 0
    if len(data) <= _HEADER_BYTES:
        return 0
    words = data[:_HEADER_BYTES].view(">u4")
    page, order = int(words[2]), _MAGIC.get(int(words[0]))
    if not 512 <= page <= 65536 or page & (page - 1) or order is None:
        return 1
    state = _add_to_checksum((0, 0), data[:24].view(order)[None, :])[0]
    if state != (int(words[6]), int(words[7])):
        return 1
    step = _FRAME_HEADER_BYTES + page
    count = (len(data) - _HEADER_BYTES) // step
    frames = data[_HEADER_BYTES : _HEADER_BYTES + count * step].reshape(count, step)
    headers = np.ascontiguousarray(frames[:, :_FRAME_HEADER_BYTES]).view(">u4")
    is_current = (headers[:, 2] == words[4]) & (headers[:, 3] == words[5])
    current = count if is_current.all() else int(np.argmin(is_current))  # older frames follow
    valid = _count_valid_frames(frames[:current], headers, state, order)
    committed = np.flatnonzero(headers[:, 1] * is_current)
    return int(committed[-1]) + 1 - valid if len(committed) and committed[-1] >= valid else 0


def _count_valid_frames(
    frames: NDArray[np.uint8], headers: NDArray[np.uint32], state: tuple[int, int], order: str
) -> int:
    for start in range(0, len(frames), _FRAMES_PER_BLOCK):
        block = frames[start : start + _FRAMES_PER_BLOCK]
        checked = np.concatenate((block[:, :8], block[:, _FRAME_HEADER_BYTES:]), axis=1).view(order)
        states = _add_to_checksum(state, checked)
        for number, found in enumerate(states, start):
            if found != (int(headers[number, 4]), int(headers[number, 5])):
                return number
        state = states[-1]
    return len(frames)


def _add_to_checksum(state: tuple[int, int], rows: NDArray[np.uint32]) -> list[tuple[int, int]]:
    """Return the running checksum after each row.

    For every pair of words: `s0 += x0 + s1; s1 += x1 + s0`. This is linear modulo 2**32, so a row contributes a product with
    powers of one matrix.
    """
    pairs = rows.shape[1] // 2
    powers = np.empty((pairs + 1, 2, 2), dtype=np.uint32)
    powers[0] = ((1, 0), (0, 1))
    step = np.array(((1, 1), (1, 2)), dtype=np.uint32)
    for number in range(pairs):
        powers[number + 1] = powers[number] @ step
    weights = powers[pairs - 1 :: -1]  # the last pair is multiplied by the identity
    first = rows[:, 0::2].astype(np.uint32)
    second = first + rows[:, 1::2].astype(np.uint32)
    sums = [
        (first * weights[:, at, 0]).sum(axis=1, dtype=np.uint32)
        + (second * weights[:, at, 1]).sum(axis=1, dtype=np.uint32)
        for at in (0, 1)
    ]
    whole = powers[pairs].tolist()
    found = []
    for add0, add1 in zip(sums[0].tolist(), sums[1].tolist(), strict=True):
        s0, s1 = state
        state = (
            (whole[0][0] * s0 + whole[0][1] * s1 + add0) & 0xFFFFFFFF,
            (whole[1][0] * s0 + whole[1][1] * s1 + add1) & 0xFFFFFFFF,
        )
        found.append(state)
    return found
