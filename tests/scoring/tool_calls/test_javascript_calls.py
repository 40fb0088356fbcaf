"""Tests of reading calls written as JavaScript."""

from __future__ import annotations

import pytest

from assay.scoring.tool_calls.javascript_calls import parse_javascript_call
from assay.scoring.tool_calls.matching import Call
from assay.scoring.tool_calls.python_calls import CallSyntaxError

pytest.importorskip("tree_sitter_javascript", reason="needs the extra `tools`")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("find(text='a b', limit=10)", Call("find", {"text": "a b", "limit": "10"})),
        ("a.find(rows=[1, 2])", Call("a.find", {"rows": "[1, 2]"})),
        ("find(done=() => { log('x'); })", Call("find", {"done": "() => { log('x'); }"})),
        ("find(node)", Call("find", {None: "node"})),
        ("const x = 1;", None),
    ],
)
def test_a_call_is_read(source: str, expected: Call | None) -> None:
    assert parse_javascript_call(source) == expected


@pytest.mark.parametrize("source", ["find(", "find(x=1, x=2)", "find(a, b)"])
def test_other_text_is_refused(source: str) -> None:
    with pytest.raises(CallSyntaxError):
        parse_javascript_call(source)
