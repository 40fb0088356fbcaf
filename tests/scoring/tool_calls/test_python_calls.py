"""Tests of reading calls written as Python."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.python_calls import CallSyntaxError, parse_python_calls


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1", 1),
        ("-2.5", -2.5),
        ("'a'", "a"),
        ("True", True),
        ("None", None),
        ("...", "..."),
        ("[1, 'a']", [1, "a"]),
        ("(1, 2)", (1, 2)),
        ("{'a': [1]}", {"a": [1]}),
        ("name", "name"),
        ("2 * 3 + 1", 7),
        ("now()", "now()"),
        ("g(y=1)", {"g": {"y": 1}}),
        ("rows[0]", "rows[0]"),
    ],
)
def test_a_value_is_read(source: str, expected: Any) -> None:
    assert parse_python_calls(f"[f(x={source})]") == [Call("f", {"x": expected})]


def test_names_can_have_dots_and_several_calls_are_read() -> None:
    assert parse_python_calls("[a.b.c(), d(1)]") == [Call("a.b.c", {}), Call("d", {})]
    assert parse_python_calls("f(x=1)") == [Call("f", {"x": 1})]
    assert parse_python_calls("[]") == []


@pytest.mark.parametrize(
    "text",
    [
        "no call here",
        "[1, f()]",
        "42",
        "[f(x=)]",
        "f(x=not y)",
        "f(x=9 ** 9 ** 9)",
        "f(x='a' * 10 ** 9)",
        "f(x=1 / 0)",
        "f(x=__import__('os').system('true') + 1)",
        "(" * 100_000,
        "f(x=" + "[" * 5_000 + "]" * 5_000 + ")",
        "f(x='\0')\0",
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(CallSyntaxError):
        parse_python_calls(text)
