"""Lossless encoding of Python values as JSON text: tuples stay tuples, NaN stays NaN.

The format is JSON with a few tagged objects. Any JSON reader can read it, and decoding never executes code.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["decode", "encode", "to_plain"]

_JSON_SCALARS = (str, int, bool, type(None))
_MAX_DISPLAYED_ARRAY_SIZE = 1_000
"""Larger arrays are summarised: a minute of audio would be ten megabytes of digits."""


def encode(value: Any) -> str:
    """Encode a value as text.

    >>> decode(encode({"pair": (1, 0.5), 3: {"a"}}))
    {'pair': (1, 0.5), 3: {'a'}}

    Raises:
        TypeError: The type of the value is not supported.
    """
    return json.dumps(_tag(value), ensure_ascii=False, separators=(",", ":"))


def decode(text: str) -> Any:
    """Decode a text written by `encode`."""
    return _untag(json.loads(text))


def _tag(value: Any) -> Any:
    if type(value) in _JSON_SCALARS:
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
    if _is_image(value):
        return to_plain(value)  # summarised: helper functions return images, but nothing aggregates them
    if isinstance(value, (str, int)):  # subclasses: enums, NumPy strings
        return str(value) if isinstance(value, str) else int(value)
    raise TypeError(f"cannot store a value of type {type(value).__name__} in a journal")


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
                return _decode_array(kind, _untag(items))
    return {key: _untag(item) for key, item in value.items()}


def _decode_array(kind: str, items: Any) -> Any:
    from importlib import import_module  # NumPy is only needed for stored arrays; core has no dependencies

    return import_module("numpy").array(items, dtype=kind)


def _is_image(value: Any) -> bool:
    return hasattr(value, "mode") and hasattr(value, "size") and hasattr(value, "tobytes")


def to_plain(value: Any) -> Any:
    """Convert any value to plain JSON types for display. Images, large arrays and bytes are summarised.

    >>> to_plain({"n": (1, 2), "x": object})
    {'n': [1, 2], 'x': "<class 'object'>"}
    """
    if isinstance(value, float) or type(value) in _JSON_SCALARS:
        return value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted((to_plain(item) for item in value), key=repr)
    if _is_image(value):
        return f"<picture {value.size[0]}x{value.size[1]} {value.mode}>"
    if hasattr(value, "tolist"):
        large = getattr(value, "size", 0) > _MAX_DISPLAYED_ARRAY_SIZE
        return f"<{value.dtype} array {tuple(value.shape)}>" if large else to_plain(value.tolist())
    if isinstance(value, (bytes, bytearray)):
        return f"<{len(value)} bytes>"
    return str(value)
