"""JSON with pictures in it, written without a detour.

A picture in base64 is a text that JSON takes as it is. Made a string, put into an address, looked through for what has
to be escaped and turned back into bytes, it would be copied five times, each time with all of Python waiting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

__all__ = ["Bulk", "plain", "write_json"]

_MARK = token_hex(16)
"""Stands for a large text while the rest is written; nobody can guess it, so no prompt holds it."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """A large text in a call: ASCII without anything that JSON escapes, in pieces."""

    pieces: tuple[bytes, ...]

    def __str__(self) -> str:
        return b"".join(self.pieces).decode("ascii")


def write_json(value: Any, *, before: bytes = b"", after: bytes = b"") -> bytes:
    """The JSON of a value that may hold large texts, between two other pieces.

    >>> write_json({"url": Bulk((b"data:image/png;base64,", b"iVBORw0="))}, after=b"!")
    b'{"url": "data:image/png;base64,iVBORw0="}!'
    """
    large: list[Bulk] = []

    def put(item: Any) -> str:
        if not isinstance(item, Bulk):
            raise TypeError(f"a {type(item).__name__} is no JSON")
        large.append(item)
        return _MARK

    first, *rest = json.dumps(value, default=put).encode().split(_MARK.encode())
    pieces = [before, first]
    for bulk, following in zip(large, rest, strict=True):
        pieces += (*bulk.pieces, following)
    return b"".join([*pieces, after])


def plain(value: Any) -> Any:
    """The same value with texts in the place of large ones, for whoever wants Python's own."""
    if isinstance(value, Bulk):
        return str(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value
