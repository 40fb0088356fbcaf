"""Checksums of response rows: a byte that changed on disk must not change a response unnoticed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any
from zlib import crc32

__all__ = [
    "compute_checksum",
    "filter_answered_rows",
    "filter_cache_rows",
    "is_answered_row_intact",
    "is_cache_row_intact",
]

_pack_logprob = Struct("<dq").pack
_ANSWERED_COLUMNS, _CACHE_COLUMNS = 9, 12
"""Number of columns of `answered` in a journal, and of `responses` in a cache."""


def compute_checksum(
    fingerprint: str, text: str | bytes | None, logprob: float | None, greedy: int | None, *more: Any
) -> int:
    """Return the checksum of the columns of a response as SQLite stores them."""
    crc = crc32(fingerprint.encode())
    if text is not None:
        crc = crc32(text if isinstance(text, bytes) else text.encode(), crc)
    elif type(logprob) is float and type(greedy) is int:
        crc = crc32(_pack_logprob(logprob, greedy), crc)
    else:  # no number, or a number of another type
        crc = crc32(f"{logprob!r} {greedy!r}".encode(), crc)
    for value in more:
        if value is not None:
            crc = crc32(value if isinstance(value, bytes) else str(value).encode("utf-8", "replace"), crc)
    return crc


def is_answered_row_intact(row: tuple[Any, ...]) -> bool:
    """Whether the checksum of a journal row (fingerprint, text, logprob, greedy, details, checksum) matches. Rows of older
    formats have no checksum and count as intact."""
    return row[-1] is None or row[-1] == compute_checksum(*row[:-1])


def is_cache_row_intact(row: tuple[Any, ...]) -> bool:
    """Whether the checksum of a cache row matches."""
    return row[-1] is None or row[-1] == compute_checksum(*row[:8])


def filter_answered_rows(records: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the intact response rows among the records of a damaged journal, each response once, renumbered."""
    seen: set[str] = set()
    for record in records:
        if len(record) != _ANSWERED_COLUMNS or record[-1] is None:
            continue
        _, fingerprint, text, logprob, greedy, source, at, details, crc = record
        if (
            fingerprint in seen
            or not _all_instances(str, fingerprint, source)
            or not _all_instances((str, type(None)), details)
        ):
            continue
        if _is_response_value(text, logprob, greedy) and crc == compute_checksum(
            fingerprint, text, logprob, greedy, details
        ):
            seen.add(fingerprint)
            yield (
                len(seen),
                fingerprint,
                text,
                logprob,
                greedy,
                source,
                at if isinstance(at, float) else 0.0,
                details,
                crc,
            )


def filter_cache_rows(records: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the intact response rows among the records of a damaged cache; a newer row of a fingerprint comes later."""
    latest: dict[str, float] = {}
    for record in records:
        if len(record) != _CACHE_COLUMNS or record[-1] is None:
            continue
        fingerprint, text, logprob, greedy, finish, reasoning, *_, source, at, _ = record
        if not _all_instances(str, fingerprint, finish, source) or not _all_instances(
            (str, bytes, type(None)), reasoning
        ):
            continue
        if not _is_response_value(text, logprob, greedy) or not isinstance(at, float):
            continue
        if latest.get(fingerprint, -1.0) <= at and is_cache_row_intact(record):
            latest[fingerprint] = at
            yield record


def _all_instances(kinds: Any, *values: Any) -> bool:
    return all(isinstance(value, kinds) for value in values)


def _is_response_value(text: Any, logprob: Any, greedy: Any) -> bool:
    """Whether the columns are a text, or a log probability (None is NaN) with its greedy flag."""
    if text is not None:
        return isinstance(text, (str, bytes)) and logprob is None and greedy is None
    return isinstance(logprob, (float, int, type(None))) and greedy in (0, 1)
