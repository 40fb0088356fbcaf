"""Write JSON that contains large base64 strings without extra copies.

Base64 needs no JSON escaping. The standard way (string, data URL, escaping, encoding) would copy the data five times while
holding the GIL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

__all__ = ["RawString", "to_plain_json", "write_json"]

_PLACEHOLDER = token_hex(16)
"""Replaces a raw string while the rest is serialised; random, so no prompt contains it."""


@dataclass(frozen=True, slots=True)
class RawString:
    """A large ASCII string that needs no JSON escaping, in pieces."""

    pieces: tuple[bytes, ...]

    def __str__(self) -> str:
        return b"".join(self.pieces).decode("ascii")


def write_json(value: Any, *, before: bytes = b"", after: bytes = b"") -> bytes:
    """Return the JSON of a value that may contain raw strings, between `before` and `after`.

    >>> write_json({"url": RawString((b"data:image/png;base64,", b"iVBORw0="))}, after=b"!")
    b'{"url": "data:image/png;base64,iVBORw0="}!'
    """
    large: list[RawString] = []

    def put(item: Any) -> str:
        if not isinstance(item, RawString):
            raise TypeError(f"a {type(item).__name__} is not JSON serialisable")
        large.append(item)
        return _PLACEHOLDER

    first, *rest = json.dumps(value, default=put).encode().split(_PLACEHOLDER.encode())
    pieces = [before, first]
    for bulk, following in zip(large, rest, strict=True):
        pieces += (*bulk.pieces, following)
    return b"".join([*pieces, after])


def to_plain_json(value: Any) -> Any:
    """Return the value with raw strings replaced by ordinary ones."""
    if isinstance(value, RawString):
        return str(value)
    if isinstance(value, Mapping):
        return {key: to_plain_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_plain_json(item) for item in value]
    return value
