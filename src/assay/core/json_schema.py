"""Validation of JSON schemas and of values against them: what tool arguments and structured answers need.

Implements the keywords that services accept for tools and structured outputs; other keywords are ignored, as the standard
requires. References are resolved within the schema (`#/$defs/…`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["describe_invalid_answer", "describe_invalid_schema", "describe_invalid_value"]

_TYPES: Mapping[str, Any] = {
    "object": Mapping,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "number": (int, float),
    "integer": (int, float),
}
_SUBSCHEMAS = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMA_MAPPINGS = ("properties", "$defs", "definitions", "patternProperties")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_MAX_DEPTH = 64
_MAX_STEPS = 100_000
"""Parts of a schema that are compared with one value."""


def describe_invalid_schema(schema: Any, path: str = "") -> str:
    """Return what is wrong with a JSON schema, with the place inside it; empty if it is valid.

    >>> describe_invalid_schema({"type": "object", "properties": {"base": {"type": "float"}}})
    "properties.base.type: `float` is not a JSON schema type (use 'number')"
    """
    if isinstance(schema, bool):
        return ""
    place = f"{path}: " if path else ""
    if not isinstance(schema, Mapping):
        return f"{place}a JSON schema is a mapping, not {schema!r:.60}"
    if path.count(".") > _MAX_DEPTH:
        return f"{path[:60]}…: nested too deeply"
    prefix = f"{path}." if path else ""
    if problem := _describe_invalid_type(schema.get("type"), prefix):
        return problem
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        return f"{prefix}required: must be a list of names, not {required!r:.60}"
    if "enum" in schema and (not isinstance(schema["enum"], list) or not schema["enum"]):
        return f"{prefix}enum: must be a list of values, not {schema['enum']!r:.60}"
    for key in _COUNTS:
        if key in schema and not (_is_integer(schema[key]) and schema[key] >= 0):
            return f"{prefix}{key}: must be a whole number of at least 0, not {schema[key]!r:.60}"
    for key in _NUMBERS:
        if key in schema and not _is_number(schema[key]):
            return f"{prefix}{key}: must be a number, not {schema[key]!r:.60}"
    if "pattern" in schema:
        try:
            re.compile(schema["pattern"])
        except (TypeError, re.error) as error:
            return f"{prefix}pattern: not a regular expression: {error}"
    return _describe_invalid_subschemas(schema, prefix)


def _describe_invalid_type(kind: Any, prefix: str) -> str:
    for name in kind if isinstance(kind, list) else [] if kind is None else [kind]:
        if not isinstance(name, str) or name not in _TYPES:
            close = {"float": "number", "double": "number", "int": "integer", "dict": "object", "list": "array",
                     "tuple": "array", "str": "string", "bool": "boolean"}  # fmt: skip
            hint = f" (use {close[name]!r})" if isinstance(name, str) and name in close else ""
            return f"{prefix}type: `{name}` is not a JSON schema type{hint}"
    return ""


def _describe_invalid_subschemas(schema: Mapping[str, Any], prefix: str) -> str:
    for key in _SCHEMA_MAPPINGS:
        inner = schema.get(key, {})
        if not isinstance(inner, Mapping):
            return f"{prefix}{key}: must be a mapping of names to schemas, not {inner!r:.60}"
        for name, one in inner.items():
            if problem := describe_invalid_schema(one, f"{prefix}{key}.{name}"):
                return problem
    for key in _SCHEMA_LISTS:
        listed = schema.get(key, [])
        if not isinstance(listed, list):
            return f"{prefix}{key}: must be a list of schemas, not {listed!r:.60}"
        for index, one in enumerate(listed):
            if problem := describe_invalid_schema(one, f"{prefix}{key}[{index}]"):
                return problem
    for key in _SUBSCHEMAS:
        if key in schema and (problem := describe_invalid_schema(schema[key], f"{prefix}{key}")):
            return problem
    return ""


def describe_invalid_value(value: Any, schema: Any) -> str:
    """Return why a JSON value does not match a schema, with the place inside it; empty if it matches.

    >>> describe_invalid_value({"base": "10"}, {"type": "object", "properties": {"base": {"type": "number"}}})
    "base: '10' is not of type number"
    """
    try:
        return _Validator(schema).check(value, schema, "", 0)
    except (re.error, RecursionError) as error:  # a pattern that only a reference reaches
        return f"the schema cannot be applied: {error}"


def describe_invalid_answer(text: str, schema: Any) -> str:
    """Return why a text is not JSON that matches a schema (None: any object); empty if it is.

    >>> describe_invalid_answer('{"a": 1}', None), describe_invalid_answer("one", None)
    ('', 'the answer is not JSON: Expecting value: line 1 column 1 (char 0)')
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        return f"the answer is not JSON: {error}"
    problem = describe_invalid_value(value, {"type": "object"} if schema is None else schema)
    return f"the answer does not match the schema: {problem}" if problem else ""


class _Validator:
    """Checks values against the parts of one schema."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0

    def check(self, value: Any, schema: Any, path: str, depth: int) -> str:
        """Return the first problem; empty if there is none."""
        if schema is True or schema == {}:
            return ""
        place = f"{path}: " if path else ""
        self._steps += 1
        if self._steps > _MAX_STEPS:  # references that branch
            return f"{place}the schema is too complex"
        if schema is False or not isinstance(schema, Mapping):
            return f"{place}no value is allowed here"
        if depth > _MAX_DEPTH:
            return f"{place}nested too deeply"
        if "$ref" in schema:
            target = self._resolve(schema["$ref"])
            return (
                f"{place}`{schema['$ref']}` does not exist"
                if target is None
                else self.check(value, target, path, depth + 1)
            )
        kind = schema.get("type")
        kinds = kind if isinstance(kind, list) else [] if kind is None else [kind]
        if kinds and not any(_has_type(value, name) for name in kinds):
            return f"{place}{value!r:.60} is not of type {' or '.join(map(str, kinds))}"
        if "enum" in schema and not any(_is_equal(value, one) for one in schema["enum"]):
            return f"{place}{value!r:.60} is not one of {', '.join(f'{one!r:.40}' for one in schema['enum'][:8])}"
        if "const" in schema and not _is_equal(value, schema["const"]):
            return f"{place}{value!r:.60} is not {schema['const']!r:.60}"
        problem = self._check_combinations(value, schema, path, depth)
        if problem:
            return problem
        if isinstance(value, Mapping):
            return self._check_object(value, schema, path, depth)
        if isinstance(value, list):
            return self._check_array(value, schema, path, depth)
        if isinstance(value, str):
            return place + found if (found := _describe_invalid_text(value, schema)) else ""
        if _is_number(value):
            return place + found if (found := _describe_invalid_number(value, schema)) else ""
        return ""

    def _resolve(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found = self._root
        for name in reference[1:].strip("/").split("/") if reference != "#" else ():
            name = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                return None
            found = found[name]
        return found

    def _check_combinations(self, value: Any, schema: Mapping[str, Any], path: str, depth: int) -> str:
        place = f"{path}: " if path else ""
        for one in schema.get("allOf", ()):
            if problem := self.check(value, one, path, depth + 1):
                return problem
        for key in ("anyOf", "oneOf"):
            if key in schema:
                problems = [self.check(value, one, path, depth + 1) for one in schema[key]]
                matches = problems.count("")
                if not matches:
                    return (
                        problems[0]
                        if len(problems) == 1
                        else f"{place}{value!r:.60} matches no schema of {key}"
                    )
                if key == "oneOf" and matches > 1:
                    return f"{place}{value!r:.60} matches {matches} schemas of oneOf"
        if "not" in schema and not self.check(value, schema["not"], path, depth + 1):
            return f"{place}{value!r:.60} matches the schema of not"
        return ""

    def _check_object(
        self, value: Mapping[str, Any], schema: Mapping[str, Any], path: str, depth: int
    ) -> str:
        prefix, place = (f"{path}.", f"{path}: ") if path else ("", "")
        for name in schema.get("required", ()):
            if name not in value:
                return f"{place}`{name}` is missing"
        properties, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        others = schema.get("additionalProperties", True)
        for name, item in value.items():
            own = [properties[name]] if name in properties else []
            own += [one for pattern, one in patterns.items() if re.search(pattern, str(name))]
            if not own and others is False:
                return f"{place}`{name}` is not allowed"
            for one in own or [others]:
                if problem := self.check(item, one, f"{prefix}{name}", depth + 1):
                    return problem
        if len(value) < schema.get("minProperties", 0) or len(value) > schema.get("maxProperties", math.inf):
            return f"{place}{len(value)} properties are too few or too many"
        return ""

    def _check_array(self, value: Sequence[Any], schema: Mapping[str, Any], path: str, depth: int) -> str:
        place = f"{path}: " if path else ""
        if len(value) < schema.get("minItems", 0) or len(value) > schema.get("maxItems", math.inf):
            return f"{place}{len(value)} items are too few or too many"
        if schema.get("uniqueItems") and any(
            _is_equal(one, other) for index, one in enumerate(value) for other in value[:index]
        ):
            return f"{place}the items are not unique"
        first = schema.get("prefixItems", [])
        for index, item in enumerate(value):
            one = first[index] if index < len(first) else schema.get("items", True)
            if problem := self.check(item, one, f"{path}[{index}]", depth + 1):
                return problem
        return ""


def _describe_invalid_text(value: str, schema: Mapping[str, Any]) -> str:
    if len(value) < schema.get("minLength", 0):
        return f"{value!r:.60} is shorter than {schema['minLength']}"
    if len(value) > schema.get("maxLength", math.inf):
        return f"{value!r:.60} is longer than {schema['maxLength']}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        return f"{value!r:.60} does not match {schema['pattern']!r}"
    return ""


def _describe_invalid_number(value: float, schema: Mapping[str, Any]) -> str:
    if value < schema.get("minimum", -math.inf) or value <= schema.get("exclusiveMinimum", -math.inf):
        return f"{value!r} is too small"
    if value > schema.get("maximum", math.inf) or value >= schema.get("exclusiveMaximum", math.inf):
        return f"{value!r} is too large"
    step = schema.get("multipleOf")
    if step and not _is_multiple(value, step):
        return f"{value!r:.60} is not a multiple of {step}"
    return ""


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        quotient = value / step
        return math.isclose(quotient, round(quotient), abs_tol=1e-9)
    except (OverflowError, ValueError):  # too large, infinite, or not a number
        return False


def _has_type(value: Any, name: Any) -> bool:
    if name not in _TYPES:
        return False
    if isinstance(value, bool):
        return bool(name == "boolean")
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_equal(first: Any, second: Any) -> bool:
    """Compare JSON values: `true` is not 1, but 1.0 is 1."""
    if isinstance(first, bool) or isinstance(second, bool):
        return first is second
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(_is_equal(first[key], second[key]) for key in first)
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(_is_equal, first, second))
    return bool(first == second)
