"""Tests of comparing function calls with allowed values."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.tool_calls.matching import (
    Call,
    find_language,
    match_any_order,
    match_call,
    normalise_text,
)

PYTHON = find_language("python")


def make_function(name: str = "f", required: tuple[str, ...] = (), **types: Any) -> dict[str, Any]:
    properties = {key: kind if isinstance(kind, dict) else {"type": kind} for key, kind in types.items()}
    return {"name": name, "parameters": {"properties": properties, "required": list(required)}}


@pytest.mark.parametrize(
    ("kind", "allowed", "value", "expected"),
    [
        ("integer", [10], 10, None),
        ("integer", [10], 11, "value"),
        ("integer", [10], "10", "type"),
        ("integer", [10], 10.0, "type"),
        ("integer", [10], True, "type"),
        ("integer", ["count"], "count", None),  # a variable: the allowed value is its name
        ("float", [2.0], 2, None),
        ("float", [2.5], "2.5", "type"),
        ("boolean", [True], True, None),
        ("boolean", [True], 1, "type"),
        ("string", ["April 1, 2024"], "april 1 2024", None),
        ("string", ["New York"], "Boston", "value"),
        ("dict", [{"a": [1, 2], "b": ["x", ""]}], {"a": 2}, None),
        ("dict", [{"a": [1]}], {"a": 1, "c": 3}, "key"),
        ("dict", [{"a": [1]}], {}, "key"),
        ("dict", [{"a": ["X y"]}], {"a": "xy"}, None),
        ("dict", ["", {"a": [1]}], {"a": 2}, "value"),
        ({"type": "array", "items": {"type": "integer"}}, [[1, 2]], [1, 2], None),
        ({"type": "array", "items": {"type": "integer"}}, [[1, 2]], [2, 1], "value"),
        ({"type": "array", "items": {"type": "integer"}}, [[1, 2]], ["1", "2"], "type"),
        ({"type": "array", "items": {"type": "string"}}, [["a b"]], ["A-B"], None),
        ({"type": "array", "items": {"type": "string"}}, [""], [], None),
        ({"type": "array", "items": {"type": "dict"}}, [[{"a": [1]}]], [{"a": 1}], None),
        ({"type": "array", "items": {"type": "dict"}}, [[{"a": [1]}]], [{"a": 1}, {"a": 1}], "count"),
        ({"type": "tuple", "items": {"type": "integer"}}, [[1, 2]], (1, 2), None),
    ],
)
def test_an_argument_is_compared_by_its_type(
    kind: Any, allowed: list[Any], value: Any, expected: Any
) -> None:
    mismatch = match_call(Call("f", {"x": value}), make_function(x=kind), {"x": allowed}, PYTHON)
    assert (mismatch and mismatch.kind) == expected


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (Call("g", {}), "name"),
        (Call("f", {}), "missing argument"),
        (Call("f", {"x": 1, "z": 1}), "unexpected argument"),
        (Call("f", {"x": 1, None: "y"}), "unexpected argument"),
        (Call("f", {"x": 1}), None),  # y is optional
        (Call("f", {"x": 1, "y": 3}), "value"),
    ],
)
def test_names_and_missing_arguments_are_compared(call: Call, expected: str | None) -> None:
    function = make_function(required=("x",), x="integer", y="integer")
    mismatch = match_call(call, function, {"x": [1], "y": [2, ""]}, PYTHON)
    assert (mismatch and mismatch.kind) == expected


def test_an_expected_argument_that_is_not_required_can_be_missing_only_if_optional() -> None:
    mismatch = match_call(Call("f", {}), make_function(x="integer"), {"x": [1]}, PYTHON)
    assert mismatch is not None
    assert mismatch.kind == "missing argument"


def test_parallel_calls_match_in_any_order_and_only_once() -> None:
    function = make_function(x="integer")
    expected = [(function, {"x": [1]}), (function, {"x": [2]})]
    assert match_any_order([Call("f", {"x": 2}), Call("f", {"x": 1})], expected, PYTHON) is None
    twice = match_any_order([Call("f", {"x": 1}), Call("f", {"x": 1})], expected, PYTHON)
    assert twice is not None
    assert twice.kind == "no match"
    fewer = match_any_order([Call("f", {"x": 1})], expected, PYTHON)
    assert fewer is not None
    assert fewer.kind == "count"


def test_java_arguments_are_source_text() -> None:
    java, function = find_language("java"), make_function(x="long")
    assert match_call(Call("f", {"x": "5L"}), function, {"x": [5]}, java) is None
    mismatch = match_call(Call("f", {"x": 5}), function, {"x": [5]}, java)
    assert mismatch is not None
    assert mismatch.kind == "type"


def test_differences_that_do_not_count_are_removed() -> None:
    assert normalise_text("It's a-b_c, D.") == 'it"sabcd'
