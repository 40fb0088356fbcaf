"""Compare function calls with the expected calls, by value instead of by text.

The expected calls name the allowed values of every argument, as the data of the Berkeley Function Calling Leaderboard
(BFCL) do: `{"area": {"base": [10], "unit": ["cm", ""]}}`. An empty string among the values means that the argument is
optional. Strings are compared without case, spaces and `,./-_*^`. The verdicts equal those of BFCL's own checker.

This module does not parse text: `python_calls`, `java_calls` and `javascript_calls` do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.scoring.tool_calls.java_values import JAVA_TYPES, convert_java_value
from assay.scoring.tool_calls.javascript_values import JAVASCRIPT_TYPES, convert_javascript_value

__all__ = ["Call", "Language", "Mismatch", "find_language", "match_any_order", "match_call", "normalise_text"]

_IGNORED_CHARACTERS = re.compile(r"[ ,./\-_*^]")
_OPTIONAL = ""


@dataclass(frozen=True, slots=True)
class Call:
    """A function call: its name, and its arguments by name. The name None collects arguments without a name."""

    name: str
    arguments: Mapping[str | None, Any]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a call does not match: a short class, and a sentence."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Language:
    """How a programming language names types, and how it writes values."""

    name: str
    types: Mapping[str, type]
    convert: Callable[[str, str, str | None], Any] | None = None
    """Converts source text to a value of a type (and item type). None: arguments are values already."""

    collections: frozenset[str] = frozenset({"array", "tuple"})
    """The types whose items have a declared type."""


_LANGUAGES = {
    "python": Language(
        "python",
        {
            "string": str,
            "integer": int,
            "float": float,
            "number": float,
            "boolean": bool,
            "array": list,
            "tuple": list,
            "dict": dict,
            "object": dict,
            "any": str,
        },
    ),
    "java": Language("java", JAVA_TYPES, convert_java_value, frozenset({"Array", "ArrayList"})),
    "javascript": Language("javascript", JAVASCRIPT_TYPES, convert_javascript_value, frozenset({"array"})),
}


def find_language(name: str) -> Language:
    """Return the language called `python`, `java` or `javascript`."""
    return _LANGUAGES[name]


def match_call(
    call: Call, function: Mapping[str, Any], allowed: Mapping[str, Sequence[Any]], language: Language
) -> Mismatch | None:
    """Compare a call with the allowed values of its arguments. Return None if it matches.

    `function` is the JSON schema of the function: its name, and its parameters with types.

    >>> area = {"name": "area", "parameters": {"properties": {"base": {"type": "integer"}}, "required": ["base"]}}
    >>> match_call(Call("area", {"base": 10}), area, {"base": [10]}, find_language("python"))
    >>> match_call(Call("area", {"base": 9}), area, {"base": [10]}, find_language("python")).kind
    'value'
    """
    if call.name != function["name"]:
        return Mismatch("name", f"called `{call.name}` instead of `{function['name']}`")
    schema = function["parameters"]
    for name in schema.get("required", ()):
        if name not in call.arguments:
            return Mismatch("missing argument", f"the required argument `{name}` is missing")
    for argument, value in call.arguments.items():
        parameter = schema["properties"].get(argument)
        if argument is None or parameter is None or argument not in allowed:
            return Mismatch("unexpected argument", f"the argument `{argument}` is not expected")
        mismatch = _match_argument(value, parameter, allowed[argument], language)
        if mismatch is not None:
            return Mismatch(mismatch.kind, f"`{argument}`: {mismatch.message}")
    for name, values in allowed.items():
        if name not in call.arguments and _OPTIONAL not in values:
            return Mismatch("missing argument", f"the argument `{name}` is missing")
    return None


def match_any_order(
    calls: Sequence[Call],
    expected: Sequence[tuple[Mapping[str, Any], Mapping[str, Sequence[Any]]]],
    language: Language,
) -> Mismatch | None:
    """Compare calls with as many expected calls (schema and allowed values), in any order."""
    if len(calls) != len(expected):
        return Mismatch("count", f"{len(calls)} calls instead of {len(expected)}")
    remaining = list(calls)
    for function, allowed in expected:
        reasons = []
        for index, call in enumerate(remaining):
            mismatch = match_call(call, function, allowed, language)
            if mismatch is None:
                del remaining[index]
                break
            reasons.append(mismatch.message)
        else:
            return Mismatch("no match", f"no call matches `{function['name']}`: {'; '.join(reasons)}")
    return None


def normalise_text(text: str) -> str:
    """Return a text without the differences that do not count: case, spaces, `,./-_*^`, kind of quotes.

    >>> normalise_text("April 1, 2024") == normalise_text("april 1 2024")
    True
    """
    return _IGNORED_CHARACTERS.sub("", text).lower().replace("'", '"')


def _match_argument(
    value: Any, parameter: Mapping[str, Any], allowed: Sequence[Any], language: Language
) -> Mismatch | None:
    kind = parameter["type"]
    wanted = language.types[kind]
    item_kind = parameter["items"]["type"] if kind in language.collections else None
    item_type = None if item_kind is None else language.types[item_kind]
    if language.convert is not None:
        if not isinstance(value, str):
            return Mismatch("type", f"{_describe(value)} is not source text")
        value = language.convert(value, kind, item_kind)
    elif isinstance(value, tuple) and kind == "tuple":
        value = list(value)
    elif type(value) is int and kind == "float":
        value = float(value)

    is_variable = _is_variable(value, allowed, wanted, item_type)
    if is_variable is None:
        return Mismatch("type", f"{_describe(value)} is not of the type `{kind}`")
    if not is_variable:
        if wanted is dict:
            return _match_mapping(value, allowed)
        if wanted is list and item_type is dict:
            return _match_mappings(value, allowed)
        if wanted is str:
            return _match_text(value, allowed)
        if wanted is list:
            return _match_list(value, allowed)
    if value not in allowed:
        return Mismatch("value", f"{_describe(value)} is not one of {_describe(allowed)}")
    return None


def _is_variable(value: Any, allowed: Sequence[Any], wanted: type, item_type: type | None) -> bool | None:
    """Return whether the value stands for a variable, or None if its type is wrong.

    A variable is allowed where the type of the allowed values differs from the declared type: its name is a string.
    """
    allowed_type = _find_type(allowed)
    if type(value) is wanted:
        if item_type is None or any(_items_fit(value, item, item_type) for item in allowed):
            return allowed_type is not None and allowed_type is not wanted
        return None
    return True if type(value) is allowed_type else None


def _items_fit(values: Any, allowed: Any, item_type: type) -> bool:
    """Whether all items have the declared type, or the type of an allowed value that is a list."""
    if type(allowed) is not list:
        return True
    types = (item_type, _find_type(allowed))
    return all(type(value) in types for value in values)


def _find_type(allowed: Sequence[Any]) -> type | None:
    return next((type(value) for value in allowed if value != _OPTIONAL), None)


def _match_text(value: str, allowed: Sequence[Any]) -> Mismatch | None:
    if normalise_text(value) in [normalise_text(item) for item in allowed if type(item) is str]:
        return None
    return Mismatch("value", f"{_describe(value)} is not one of {_describe(allowed)}")


def _match_list(value: Sequence[Any], allowed: Sequence[Any]) -> Mismatch | None:
    """Compare a list with allowed ones. The empty text of an optional argument allows the empty list."""
    if _normalise_items(value) in [_normalise_items(item) for item in allowed]:
        return None
    return Mismatch("value", f"{_describe(value)} is not one of {_describe(allowed)}")


def _normalise_items(values: Sequence[Any]) -> list[Any]:
    return [normalise_text(item) if type(item) is str else item for item in values]


def _match_mapping(value: Mapping[Any, Any], allowed: Sequence[Any]) -> Mismatch | None:
    """Compare a dictionary with allowed ones, whose values are lists of allowed values."""
    mismatch: Mismatch | None = Mismatch("value", "no dictionary is allowed")
    for fields in allowed:
        if fields == _OPTIONAL:
            continue
        mismatch = _match_fields(value, fields)
        if mismatch is None:
            return None
    return mismatch


def _match_fields(value: Mapping[Any, Any], fields: Mapping[Any, Any]) -> Mismatch | None:
    for key, item in value.items():
        if key not in fields:
            return Mismatch("key", f"the key `{key}` is not expected")
        normalised = normalise_text(item) if type(item) is str else item
        if normalised not in [normalise_text(one) if type(one) is str else one for one in fields[key]]:
            return Mismatch("value", f"`{key}`: {_describe(item)} is not one of {_describe(fields[key])}")
    for key, values in fields.items():
        if key not in value and _OPTIONAL not in values:
            return Mismatch("key", f"the key `{key}` is missing")
    return None


def _match_mappings(values: Sequence[Mapping[Any, Any]], allowed: Sequence[Any]) -> Mismatch | None:
    mismatch: Mismatch | None = Mismatch("value", "no list of dictionaries is allowed")
    for listed in allowed:
        if len(values) != len(listed):
            mismatch = Mismatch("count", f"{len(values)} dictionaries instead of {len(listed)}")
            continue
        pairs = zip(values, listed, strict=True)
        mismatch = next((found for value, one in pairs if (found := _match_mapping(value, [one]))), None)
        if mismatch is None:
            return None
    return mismatch


def _describe(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
