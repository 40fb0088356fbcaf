"""Tests of values written as Java."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.tool_calls.java_values import convert_java_value


@pytest.mark.parametrize(
    ("text", "kind", "item_kind", "expected"),
    [
        ("-3", "integer", None, -3),
        ("3.0", "integer", None, "3.0"),
        ("3L", "long", None, 3),
        ("3", "long", None, "3"),
        ("2.5f", "float", None, 2.5),
        ("2.5", "float", None, "2.5"),
        ("1e-3", "double", None, 0.001),
        ("true", "boolean", None, True),
        ("True", "boolean", None, "True"),
        ("'a'", "char", None, "'a'"),
        ("text", "String", None, "text"),
        ("new int[]{1, 2}", "Array", "integer", [1, 2]),
        ("new int[]{}", "Array", "integer", []),
        ("[1, 2]", "Array", "integer", "[1, 2]"),
        ('new ArrayList<>(Arrays.asList("a", "b"))', "ArrayList", "String", ["a", "b"]),
        ("new ArrayList<Integer>() {{ add(1); add(2); }}", "ArrayList", "integer", [1, 2]),
        ("new ArrayList<>()", "ArrayList", "integer", []),
        ("items", "ArrayList", "integer", "items"),
        (
            'new HashMap<String, Object>() {{ put("a", 1); put("b", true); }}',
            "HashMap",
            None,
            {"a": 1, "b": True},
        ),
        ("new HashMap<>()", "HashMap", None, {}),
        (
            'new HashMap<>() {{ put("a", 2.5f); put("b", 7L); put("c", name); }}',
            "HashMap",
            None,
            {"a": 2.5, "b": 7, "c": "name"},
        ),
    ],
)
def test_source_text_is_converted(text: str, kind: str, item_kind: str | None, expected: Any) -> None:
    value = convert_java_value(text, kind, item_kind)
    assert (value, type(value)) == (expected, type(expected))


def test_a_type_that_has_no_values_is_refused() -> None:
    with pytest.raises(ValueError, match="Stack"):
        convert_java_value("x", "Stack")
