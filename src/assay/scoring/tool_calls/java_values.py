"""Values written as Java source text: `101L`, `new int[]{1, 2}`, `new HashMap<>() {{ put("a", 1); }}`.

Text that is not a value of its declared type stays text, because it can be the name of a variable.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["JAVA_TYPES", "convert_java_value"]

JAVA_TYPES: dict[str, type] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "boolean": bool,
    **dict.fromkeys(("char", "String", "any"), str),
    **dict.fromkeys(("Array", "ArrayList", "Queue", "Stack"), list),
    "Set": set,
    **dict.fromkeys(("HashMap", "Hashtable"), dict),
}
"""The Python type of each Java type."""

_INTEGER = re.compile(r"-?\d+$")
_LONG = re.compile(r"-?\d+[lL]$")
_DOUBLE = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?$")
_FLOAT = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?[fF]$")
_ARRAY = re.compile(r"new\s+\w+\[\]\s*\{(.*?)\}")
_LIST_FROM_ITEMS = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)")
_LIST_WITH_ADDS = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\}", re.DOTALL)
_EMPTY_LIST = re.compile(r"new\s+ArrayList<\w*>\(\)")
_MAP_WITH_PUTS = re.compile(r"new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\}", re.DOTALL)
_EMPTY_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)")
_ADD = re.compile(r"add\((.+?)\)")
_PUT = re.compile(r"put\(\"(.*?)\",\s*(.*?)\)")


def convert_java_value(text: str, kind: str, item_kind: str | None = None) -> Any:
    """Return the value of a type that Java source text writes, or the text if it writes none.

    >>> convert_java_value("101L", "long"), convert_java_value("count", "long")
    (101, 'count')
    >>> convert_java_value("new int[]{1, 2}", "Array", "integer")
    [1, 2]
    """
    match kind:
        case "byte" | "short" | "integer":
            return int(text) if _INTEGER.match(text) else text
        case "long":
            return int(text[:-1]) if _LONG.match(text) else text
        case "double":
            return float(text) if _DOUBLE.match(text) else text
        case "float":
            return float(text[:-1]) if _FLOAT.match(text) else text
        case "boolean":
            return text == "true" if text in ("true", "false") else text
        case "Array":
            return _convert_array(text, item_kind)
        case "ArrayList":
            return _convert_list(text, item_kind)
        case "HashMap":
            return _convert_map(text)
        case "char" | "String" | "any":
            return text
        case _:
            raise ValueError(f"values of the Java type `{kind}` cannot be compared")


def _convert_array(text: str, item_kind: str | None) -> Any:
    found = _ARRAY.search(text)
    if found is None:
        return text
    items = [item.strip() for item in found[1].split(",") if item.strip()]
    return [
        _guess_value(item) if item_kind is None else convert_java_value(item, item_kind) for item in items
    ]


def _convert_list(text: str, item_kind: str | None) -> Any:
    if found := _LIST_FROM_ITEMS.search(text):
        return [_convert_item(item.strip(), item_kind) for item in found[1].split(",")]
    if found := _LIST_WITH_ADDS.search(text):
        return [_convert_item(item.strip(), item_kind) for item in _ADD.findall(found[1])]
    return [] if _EMPTY_LIST.search(text) else text


def _convert_item(text: str, item_kind: str | None) -> Any:
    if item_kind in ("char", "String"):
        return text[1:-1]
    return _guess_value(text) if item_kind is None else convert_java_value(text, item_kind)


def _convert_map(text: str) -> Any:
    if found := _MAP_WITH_PUTS.search(text):
        return {key: _guess_value(value.strip()) for key, value in _PUT.findall(found[1])}
    return {} if _EMPTY_MAP.search(text) else text


def _guess_value(text: str) -> Any:
    """Return the value of a text whose type is not declared."""
    if text in ("true", "false"):
        return text == "true"
    if text.startswith('"') and text.endswith('"'):
        return text[1:-1]
    if _LONG.match(text):
        return int(text[:-1])
    if _FLOAT.match(text):
        return float(text[:-1])
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text
