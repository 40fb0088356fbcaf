"""Tests of BFCL's verdicts."""

from __future__ import annotations

from typing import Any

import pytest

from assay.scoring.tool_calls.bfcl import decode_native_calls, decode_text_calls, match_bfcl
from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.python_calls import CallSyntaxError

FUNCTION = {
    "name": "math.area",
    "parameters": {"properties": {"base": {"type": "integer"}}, "required": ["base"]},
}
ANSWERS = [{"math.area": {"base": [10]}}]


@pytest.mark.parametrize("text", ["math.area(base=10)", "```\n[math.area(base=10)]\n```"])
def test_text_is_decoded_with_what_models_put_around_it(text: str) -> None:
    calls = decode_text_calls(text, "simple_python")
    assert match_bfcl(calls, "simple_python", [FUNCTION], ANSWERS, native=False) is None


def test_native_calls_have_an_underscore_instead_of_a_dot() -> None:
    calls = decode_native_calls([{"math_area": '{"base": 10}'}])
    assert match_bfcl(calls, "simple_python", [FUNCTION], ANSWERS, native=True) is None
    assert match_bfcl(calls, "simple_python", [FUNCTION], ANSWERS, native=False) is not None


@pytest.mark.parametrize(
    "calls", [None, "text", [{}], [{"f": "{"}], [{"f": "[1]"}], [{"f": {}, "g": {}}], ["f"]]
)
def test_what_is_no_tool_call_is_refused(calls: Any) -> None:
    with pytest.raises(CallSyntaxError):
        decode_native_calls(calls)


@pytest.mark.parametrize(
    ("category", "calls", "expected"),
    [
        ("irrelevance", [], None),
        ("irrelevance", [Call("math.area", {})], "unexpected call"),
        ("live_relevance", [Call("math.area", {})], None),
        ("live_relevance", [], "no call"),
        ("simple_python", [], "count"),
        ("multiple", [Call("math.area", {"base": 10})] * 2, "count"),
        ("parallel", [Call("math.area", {"base": 10})], None),
        ("live_parallel_multiple", [Call("math.area", {"base": 1})], "no match"),
    ],
)
def test_categories_expect_other_calls(category: str, calls: list[Call], expected: str | None) -> None:
    mismatch = match_bfcl(calls, category, [FUNCTION], ANSWERS, native=False)
    assert (mismatch and mismatch.kind) == expected
