"""Values as text and back, without losing what they were: tuples stay tuples, NaN stays NaN.

JSON with a few tagged forms, so that a journal can be read by anything, and never executes anything.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["decode", "encode", "to_plain"]

_SIMPLE = (str, int, bool, type(None))
_LARGEST_SHOWN_ARRAY = 1_000
"""Sounds and feature maps are described, not written out: a minute of sound is ten megabytes of digits."""


def encode(value: Any) -> str:
    """The text of a value.

    >>> decode(encode({"pair": (1, 0.5), 3: {"a"}}))
    {'pair': (1, 0.5), 3: {'a'}}

    Raises:
        TypeError: The value is of a kind that cannot be kept.
    """
    return json.dumps(_tag(value), ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> Any:
    """The value of a text that `encode` wrote."""
    return _untag(json.loads(text))


def _tag(value: Any) -> Any:
    if type(value) in _SIMPLE:
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, list):
        return [_tag(item) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_tag(item) for item in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: _tag(item) for key, item in value.items()}
        return {"$pairs": [[_tag(key), _tag(item)] for key, item in value.items()]}
    if isinstance(value, (set, frozenset)):
        kind = "$set" if isinstance(value, set) else "$frozenset"
        return {kind: sorted((_tag(item) for item in value), key=repr)}
    if isinstance(value, (bytes, bytearray)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        plain = value.tolist()
        if getattr(value, "shape", ()) == ():
            return _tag(plain)
        return {"$array": str(value.dtype), "values": _tag(plain)}
    if _is_picture(value):
        return to_plain(value)  # described: nothing sums up pictures, but helpers hand them on
    if isinstance(value, (str, int)):  # subclasses: enums, NumPy strings
        return str(value) if isinstance(value, str) else int(value)
    raise TypeError(f"a {type(value).__name__} cannot be kept in a journal")


def _untag(value: Any) -> Any:
    if isinstance(value, list):
        return [_untag(item) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) <= 2 and any(key.startswith("$") for key in value):
        match value:
            case {"$float": text}:
                return float(text)
            case {"$tuple": items}:
                return tuple(_untag(item) for item in items)
            case {"$pairs": pairs}:
                return {_untag(key): _untag(item) for key, item in pairs}
            case {"$set": items}:
                return {_untag(item) for item in items}
            case {"$frozenset": items}:
                return frozenset(_untag(item) for item in items)
            case {"$bytes": text}:
                return base64.b64decode(text)
            case {"$array": kind, "values": items}:
                return _array(kind, _untag(items))
    return {key: _untag(item) for key, item in value.items()}


def _array(kind: str, items: Any) -> Any:
    from importlib import import_module  # NumPy, only where an array was kept; core itself needs no package

    return import_module("numpy").array(items, dtype=kind)


def _is_picture(value: Any) -> bool:
    return hasattr(value, "mode") and hasattr(value, "size") and hasattr(value, "tobytes")


def to_plain(value: Any) -> Any:
    """A JSON-like view of anything, for people: what cannot be shown is described.

    >>> to_plain({"n": (1, 2), "x": object})
    {'n': [1, 2], 'x': "<class 'object'>"}
    """
    if isinstance(value, float) or type(value) in _SIMPLE:
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=repr)
    if _is_picture(value):
        return f"<picture {value.size[0]}x{value.size[1]} {value.mode}>"
    if hasattr(value, "tolist"):
        large = getattr(value, "size", 0) > _LARGEST_SHOWN_ARRAY
        return f"<{value.dtype} array {tuple(value.shape)}>" if large else to_plain(value.tolist())
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value)} bytes>"
    return str(value)
