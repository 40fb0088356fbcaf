from __future__ import annotations

from typing import Any

import pytest

from assay.core.json_schema import describe_invalid_schema, describe_invalid_value

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
        "age": {"type": "integer", "minimum": 0, "exclusiveMaximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2, "uniqueItems": True},
        "partner": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
        "step": {"type": "number", "multipleOf": 0.25},
        "pair": {"prefixItems": [{"type": "string"}, {"type": "boolean"}], "items": False},
        "kind": {"oneOf": [{"const": 1}, {"type": "integer"}]},
        "other": {"not": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
VALUES: list[tuple[Any, bool]] = [
    ({"name": "Ada"}, True),
    ({}, False),
    ([], False),
    ("Ada", False),
    ({"name": ""}, False),
    ({"name": "ada"}, False),
    ({"name": "Ada", "age": 36}, True),
    ({"name": "Ada", "age": 36.0}, True),
    ({"name": "Ada", "age": 36.5}, False),
    ({"name": "Ada", "age": True}, False),
    ({"name": "Ada", "age": -1}, False),
    ({"name": "Ada", "age": 150}, False),
    ({"name": "Ada", "tags": ["a", "b"]}, True),
    ({"name": "Ada", "tags": ["a", "a"]}, False),
    ({"name": "Ada", "tags": ["a", "b", "a"]}, False),
    ({"name": "Ada", "tags": ["c"]}, False),
    ({"name": "Ada", "partner": None}, True),
    ({"name": "Ada", "partner": {"name": "Bob"}}, True),
    ({"name": "Ada", "partner": {"name": "bob"}}, False),
    ({"name": "Ada", "step": 0.75}, True),
    ({"name": "Ada", "step": 0.35}, False),
    ({"name": "Ada", "pair": ["x", True]}, True),
    ({"name": "Ada", "pair": ["x", 1]}, False),
    ({"name": "Ada", "pair": ["x", True, 1]}, False),
    ({"name": "Ada", "kind": 1}, False),
    ({"name": "Ada", "kind": 2}, True),
    ({"name": "Ada", "other": "x"}, False),
    ({"name": "Ada", "other": 1}, True),
    ({"name": "Ada", "unknown": 1}, False),
]


@pytest.mark.parametrize(("value", "is_valid"), VALUES, ids=lambda item: str(item)[:40])
def test_values_are_judged_as_by_the_reference_implementation(value: Any, is_valid: bool) -> None:
    assert (describe_invalid_value(value, PERSON) == "") is is_valid
    jsonschema = pytest.importorskip("jsonschema")
    assert jsonschema.Draft202012Validator(PERSON).is_valid(value) is is_valid


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ([], "a JSON schema is a mapping"),
        ({"type": "float"}, "use 'number'"),
        ({"type": ["string", "nothing"]}, "`nothing` is not a JSON schema type"),
        ({"properties": []}, "properties: must be a mapping"),
        ({"properties": {"a": {"items": {"type": "dict"}}}}, "properties.a.items.type"),
        ({"required": "name"}, "required: must be a list of names"),
        ({"enum": []}, "enum: must be a list of values"),
        ({"anyOf": [{"type": "x"}]}, "anyOf[0].type"),
        ({"minLength": -1}, "minLength"),
        ({"minimum": "0"}, "minimum"),
        ({"pattern": "("}, "not a regular expression"),
    ],
    ids=str,
)
def test_invalid_schemas_are_described_with_their_place(schema: Any, problem: str) -> None:
    assert problem in describe_invalid_schema(schema)


def test_a_valid_schema_has_no_problem() -> None:
    assert describe_invalid_schema(PERSON) == ""
    assert describe_invalid_schema(True) == ""


def test_endless_references_end() -> None:
    assert "too deeply" in describe_invalid_value(1, {"$ref": "#"})
    assert "does not exist" in describe_invalid_value(1, {"$ref": "#/$defs/nothing"})


@pytest.mark.parametrize(("value", "step"), [(float("nan"), 3), (10**400 + 1, 3), (10**400, 0.5)])
def test_a_number_that_cannot_be_divided_is_no_multiple(value: float, step: float) -> None:
    assert "is not a multiple of" in describe_invalid_value(value, {"multipleOf": step})


def test_references_that_branch_end() -> None:
    schema = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}
    assert describe_invalid_value(1, schema)


def test_a_pattern_that_only_a_reference_reaches_is_a_problem() -> None:
    schema = {"$ref": "#/other", "other": {"pattern": "("}}
    assert "cannot be applied" in describe_invalid_value("a", schema)
