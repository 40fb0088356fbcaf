"""Values written as JavaScript source text: `123n`, `[1, 'two']`, `{key: [true]}`.

Text that is not a value of its declared type stays text, because it can be the name of a variable. Collections are split at
commas, one level deep, as BFCL does: a literal with commas inside strings or deeper nesting is not read as JavaScript reads it.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["JAVASCRIPT_TYPES", "convert_javascript_value"]

JAVASCRIPT_TYPES: dict[str, type] = {
    "String": str,
    "any": str,
    "integer": int,
    "Bigint": int,
    "float": float,
    "Boolean": bool,
    "array": list,
    "dict": dict,
}
"""The Python type of each JavaScript type."""

_INTEGER = re.compile(r"-?\d+$")
_BIG_INTEGER = re.compile(r"-?\d+n$")
_FLOAT = re.compile(r"-?\d+(\.\d+)?$")
_ARRAY = re.compile(r"\[(?P<literal>.*?)\]|\bnew\s+Array\((?P<constructor>.*?)\)")
_ROWS = r"\s*\[.*?\]\s*(?:,\s*\[.*?\]\s*)*"
_ARRAY_OF_ARRAYS = re.compile(rf"\[{_ROWS}\]|\bnew\s+Array\({_ROWS}\)")
_ROW = re.compile(r"\[(.*?)\]")
_OBJECT = re.compile(r"\{(.*?)\}")
_FIELD = re.compile(r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)")


def convert_javascript_value(text: str, kind: str, item_kind: str | None = None) -> Any:
    """Return the value of a type that JavaScript source text writes, or the text if it writes none.

    >>> convert_javascript_value("12n", "Bigint"), convert_javascript_value("count", "integer")
    (12, 'count')
    >>> convert_javascript_value("{'a': [1, true]}", "dict")
    {'a': [1, True]}
    """
    match kind:
        case "String":
            return text[1:-1] if _is_quoted(text) else text
        case "integer":
            return int(text) if _INTEGER.match(text) else text
        case "float":
            return float(text) if _FLOAT.match(text) else text
        case "Bigint":
            return int(text[:-1]) if _BIG_INTEGER.match(text) else text
        case "Boolean":
            return text == "true" if text in ("true", "false") else text
        case "array":
            return _convert_array(text.strip(), item_kind)
        case "dict":
            return _convert_object(text.strip())
        case "any":
            return text
        case _:
            raise ValueError(f"values of the JavaScript type `{kind}` cannot be compared")


def _convert_array(text: str, item_kind: str | None) -> Any:
    if found := _ARRAY_OF_ARRAYS.match(text):
        rows = [row.strip() for row in _ROW.findall(found[0])]
        rows[0] = rows[0].removeprefix("[")
        return [[_guess_value(item) for item in row.split(",")] for row in rows]
    found = _ARRAY.match(text)
    if found is None:
        return text
    inside = (found["literal"] if found["literal"] is not None else found["constructor"]).strip()
    items = [item.strip() for item in inside.split(",")] if inside else []
    try:
        return [
            _guess_value(item) if item_kind is None else convert_javascript_value(item, item_kind)
            for item in items
        ]
    except ValueError:
        return text


def _convert_object(text: str) -> Any:
    if text == "{}":
        return {}
    found = _OBJECT.match(text)
    if found is None:
        return text
    fields = ((key.strip().strip("'\""), value.strip()) for key, value in _FIELD.findall(found[1]))
    return {key: _convert_field(value) for key, value in fields}


def _convert_field(text: str) -> Any:
    if text.startswith("[") and text.endswith("]"):
        return _convert_array(text, None)
    if text.startswith("{") and text.endswith("}"):
        return _convert_object(text)
    return _guess_value(text.strip("'\""))


def _guess_value(text: str) -> Any:
    """Return the value of a text whose type is not declared."""
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    if _is_quoted(text):
        return text[1:-1]
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _is_quoted(text: str) -> bool:
    return (text.startswith('"') and text.endswith('"')) or (text.startswith("'") and text.endswith("'"))
