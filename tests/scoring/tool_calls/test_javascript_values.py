"""Tests of values written as JavaScript."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.tool_calls.javascript_values import convert_javascript_value


@pytest.mark.parametrize(
    ("text", "kind", "item_kind", "expected"),
    [
        ("'a'", "String", None, "a"),
        ("a", "String", None, "a"),
        ("12", "integer", None, 12),
        ("12.5", "integer", None, "12.5"),
        ("12.5", "float", None, 12.5),
        ("12n", "Bigint", None, 12),
        ("false", "Boolean", None, False),
        ("[1, 'two', true]", "array", None, [1, "two", True]),
        ("new Array(1, 2)", "array", "integer", [1, 2]),
        ("[]", "array", "String", []),
        ("[ [1, 2], [3] ]", "array", "array", [[1, 2], [3]]),
        ("items", "array", None, "items"),
        ("{}", "dict", None, {}),
        ("{'a': 1, b: [true, x]}", "dict", None, {"a": 1, "b": [True, "x"]}),
        ("settings", "dict", None, "settings"),
        ("anything", "any", None, "anything"),
    ],
)
def test_source_text_is_converted(text: str, kind: str, item_kind: str | None, expected: Any) -> None:
    value = convert_javascript_value(text, kind, item_kind)
    assert (value, type(value)) == (expected, type(expected))


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="Date"):
        convert_javascript_value("x", "Date")
